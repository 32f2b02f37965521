//! The ends of nonlinear messages along edges, for a range of edges at a time.
//!
//! A message is any function of the features of both vertices of an edge in the frame of the edge, where they do not
//! depend on the gauge. This module has the maps to edges and back; the function itself is a chain of dense layers on
//! rows of edges.
//!
//! ```text
//! gather:  z_pq = [ rho(-theta_pq) x_p | rho(g_pq - theta_pq) x_q ]
//! reduce:  y_p += 1/|N(p)| sum_q rho(theta_pq) v_pq
//! ```
//!
//! All functions work on the edges of a `range`, with one row of `z` or `v` for each. `y` and `dx` have one row for
//! each vertex and are added to, so that memory for edges is needed for one range at a time. The backward passes are
//! gathers over the reversed edges: no atomics, and always the same order of additions. [`host`] has both passes on the
//! CPU and [`chain`] those on a GPU, layers included.

pub mod chain;
pub mod cuda;
mod fast;
pub mod host;
mod layout;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::reference;

use crate::arguments::{Graph, arguments};
use crate::{FeatureType, KernelError};
use std::ops::Range;

const OPERATOR: &str = "messages";

/// Checks that a range is one of `edges` edges.
fn check_range(range: &Range<usize>, edges: usize) -> Result<(), KernelError> {
    match range.start <= range.end && range.end <= edges {
        true => Ok(()),
        false => Err(KernelError::Setting {
            operator: OPERATOR,
            problem: format!("edges {} to {} of a graph with {edges}", range.start, range.end),
        }),
    }
}

arguments! {
    /// The features of both vertices at every edge of `range`.
    Gather = gather(OPERATOR) {
        features: &'a FeatureType, range: &'a Range<usize>;
        graph: Graph,
        x: read[graph.vertex_count(), features.dimension()],
        z: write[range.len(), 2 * features.dimension()];
        check_range(range, graph.edge_count())?;
    }

    /// Adds the gradient of [`Gather`] to `dx`.
    GatherBackward = gather_backward(OPERATOR) {
        features: &'a FeatureType, range: &'a Range<usize>;
        graph: Graph,
        dz: read[range.len(), 2 * features.dimension()],
        dx: add[graph.vertex_count(), features.dimension()];
        check_range(range, graph.edge_count())?;
    }

    /// Adds to `y` the part of the mean over the edges of each vertex that comes from `range`. A vertex without edges
    /// gets nothing.
    Reduce = reduce(OPERATOR) {
        features: &'a FeatureType, range: &'a Range<usize>;
        graph: Graph,
        values: read[range.len(), features.dimension()],
        y: add[graph.vertex_count(), features.dimension()];
        check_range(range, graph.edge_count())?;
    }

    /// Overwrites `dvalues` with the gradient of [`Reduce`].
    ReduceBackward = reduce_backward(OPERATOR) {
        features: &'a FeatureType, range: &'a Range<usize>;
        graph: Graph,
        dy: read[graph.vertex_count(), features.dimension()],
        dvalues: write[range.len(), features.dimension()];
        check_range(range, graph.edge_count())?;
    }
}
