//! Pooling to a coarser graph and back, with parallel transport.

use crate::{ClusterArrays, NnError, Tape, Var};
use gemcnn_kernels::Real;

/// Each cluster of vertices becomes one: the mean of its features, transported to the vertex that
/// stands for the cluster. Works for features of any type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransportPool;

impl TransportPool {
    /// Pools.
    ///
    /// # Shapes
    /// `x`: one row for each fine vertex; result: one row of the same type for each cluster.
    ///
    /// # Errors
    /// Another number of rows.
    pub fn forward<'a, T: Real>(
        self,
        tape: &mut Tape<'a, T>,
        clusters: &'a ClusterArrays<T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        tape.transport_pool(clusters, x)
    }
}

/// The way back: each vertex gets the features of its cluster, transported to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransportUnpool;

impl TransportUnpool {
    /// Unpools.
    ///
    /// # Shapes
    /// `x`: one row for each cluster; result: one row of the same type for each fine vertex.
    ///
    /// # Errors
    /// Another number of rows.
    pub fn forward<'a, T: Real>(
        self,
        tape: &mut Tape<'a, T>,
        clusters: &'a ClusterArrays<T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        tape.transport_unpool(clusters, x)
    }
}
