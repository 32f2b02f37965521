//! Layers, networks and training through the public interface. One program, because generic code is
//! compiled again for each.

#[path = "../common/mod.rs"]
mod common;
mod cuda_training;
mod determinism;
mod equivariance;
mod gradients;
mod hierarchy;
mod implicit;
mod initialisation;
mod kernel_basis;
mod messages;
mod networks;
mod primitives;
mod published;
mod published_weights;
mod surfaces;
mod weights;
