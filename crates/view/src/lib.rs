//! Pictures of meshes ([`render`]) and charts of numbers ([`plot`]), drawn without a display.
//!
//! This crate knows meshes and arrays. It knows nothing of learning.

pub mod plot;
pub mod render;
