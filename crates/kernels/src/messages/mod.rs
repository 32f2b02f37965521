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

use crate::error::{check_length, check_rows};
use crate::real::compiled;
use crate::{FeatureType, GraphView, KernelError, Real};
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

/// Checks rows of features at vertices and rows of `parts` times their width at a range of edges.
fn check<T: Real>(
    (features, parts): (&FeatureType, usize),
    range: &Range<usize>,
    graph: GraphView<'_, T>,
    (vertex_name, at_vertices): (&'static str, &[T]),
    (edge_name, at_edges): (&'static str, &[T]),
) -> Result<(), KernelError> {
    check_range(range, graph.edge_count())?;
    let (vertices, width) = (graph.vertex_count(), features.dimension());
    check_rows(OPERATOR, vertex_name, at_vertices, vertices, width)?;
    check_length(OPERATOR, edge_name, at_edges, range.len() * parts * width)
}

/// The features of both vertices at every edge of `range`: `x` `[vertices, dimension]` to `z` `[range, 2 dimension]`.
///
/// # Errors
/// A range outside of the graph, or lengths that do not fit.
pub fn gather<T: Real>(
    features: &FeatureType,
    range: Range<usize>,
    graph: GraphView<'_, T>,
    x: &[T],
    z: &mut [T],
) -> Result<(), KernelError> {
    check((features, 2), &range, graph, ("x", x), ("z", z))?;
    compiled!(fast::gather as fn(&FeatureType, Range<usize>, GraphView<'_, T>, &[T], &mut [T]))(
        features, range, graph, x, z,
    );
    Ok(())
}

/// Adds the gradient of [`gather`] to `dx` `[vertices, dimension]`.
pub fn gather_backward<T: Real>(
    features: &FeatureType,
    range: Range<usize>,
    graph: GraphView<'_, T>,
    dz: &[T],
    dx: &mut [T],
) -> Result<(), KernelError> {
    check((features, 2), &range, graph, ("dx", dx), ("dz", dz))?;
    compiled!(fast::gather_backward as fn(&FeatureType, Range<usize>, GraphView<'_, T>, &[T], &mut [T]))(
        features, range, graph, dz, dx,
    );
    Ok(())
}

/// Adds to `y` `[vertices, dimension]` the part of the mean over the edges of each vertex that comes from `range`:
/// `values` are `[range, dimension]`. A vertex without edges gets nothing.
pub fn reduce<T: Real>(
    features: &FeatureType,
    range: Range<usize>,
    graph: GraphView<'_, T>,
    values: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    check((features, 1), &range, graph, ("y", y), ("values", values))?;
    compiled!(fast::reduce as fn(&FeatureType, Range<usize>, GraphView<'_, T>, &[T], &mut [T]))(
        features, range, graph, values, y,
    );
    Ok(())
}

/// Overwrites `dvalues` `[range, dimension]` with the gradient of [`reduce`].
pub fn reduce_backward<T: Real>(
    features: &FeatureType,
    range: Range<usize>,
    graph: GraphView<'_, T>,
    dy: &[T],
    dvalues: &mut [T],
) -> Result<(), KernelError> {
    let values = ("dvalues", &*dvalues);
    check((features, 1), &range, graph, ("dy", dy), values)?;
    compiled!(fast::reduce_backward as fn(&FeatureType, Range<usize>, GraphView<'_, T>, &[T], &mut [T]))(
        features, range, graph, dy, dvalues,
    );
    Ok(())
}
