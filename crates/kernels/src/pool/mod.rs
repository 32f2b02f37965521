//! Pooling over whole meshes ([`global`]), and over clusters of vertices with parallel transport to a
//! coarser graph and back ([`transport`]).

pub mod cuda;
pub mod global;
pub mod reference;
#[cfg(test)]
mod tests;
pub mod transport;

use crate::arguments::kinds;

pub use global::{max, max_backward, mean, mean_backward};
pub use transport::{pool, pool_backward, unpool, unpool_backward};

kinds! {
    /// The clusters of a batch.
    Clusters = transport::ClusterView<'a, T>, cuda::DeviceClusterView<'a>;
}
