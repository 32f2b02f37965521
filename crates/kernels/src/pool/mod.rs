//! Pooling: whole meshes to one row ([`global`]), and clusters of vertices to one vertex of a coarser
//! graph and back ([`transport`]).

pub mod cuda;
pub mod global;
pub mod reference;
#[cfg(test)]
mod tests;
pub mod transport;
