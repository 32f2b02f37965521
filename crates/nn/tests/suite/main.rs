//! Layers and networks through the public interface. One program, because generic code is compiled anew in each.

#[path = "../common/mod.rs"]
mod common;
mod determinism;
mod equivariance;
mod gradients;
mod hierarchy;
mod initialisation;
mod networks;
mod published;
