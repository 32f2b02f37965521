//! Layers, networks and training through the public interface. One program, because generic code is
//! compiled again for each.

#[path = "../common/mod.rs"]
mod common;
mod cuda_training;
mod determinism;
mod equivariance;
mod gradients;
mod implicit;
mod initialisation;
mod messages;
mod networks;
mod primitives;
mod published;
mod surfaces;
mod weights;
