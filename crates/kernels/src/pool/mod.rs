//! Pooling over whole meshes ([`global`]), and over clusters of vertices with parallel transport to a
//! coarser graph and back ([`transport`]).

pub mod cuda;
pub mod global;
pub mod reference;
#[cfg(test)]
mod tests;
pub mod transport;
