//! The same maps edge by edge, as their formulas say it, on all edges of a graph.

use crate::edges::{self, EdgeFrame, Reduce};
use crate::{Aggregation, FeatureType, GraphView, Real};

/// The mean over the edges of a vertex, of values in the frame of the edge.
fn mean(features: &FeatureType) -> Reduce {
    Reduce {
        aggregation: Aggregation::Mean,
        ..Reduce::sum(features.clone(), EdgeFrame::Edge)
    }
}

/// Rows of edges with the features of the vertex itself first, then those of the neighbour.
fn split<T: Real>(features: &FeatureType, z: &[T]) -> [Vec<T>; 2] {
    let width = features.dimension();
    let part = |first: usize| {
        let rows = z.chunks_exact((2 * width).max(1));
        rows.flat_map(|row| &row[first..first + width])
            .copied()
            .collect()
    };
    [part(0), part(width)]
}

/// The same as [`gather`](super::gather).
pub fn gather<T: Real>(features: &FeatureType, graph: GraphView<'_, T>, x: &[T]) -> Vec<T> {
    let width = features.dimension();
    let zeros = || vec![T::zero(); graph.edge_count() * width];
    let (mut own, mut neighbour) = (zeros(), zeros());
    edges::reference::spread(features, EdgeFrame::Edge, graph, x, &mut own);
    edges::reference::gather(features, EdgeFrame::Edge, graph, x, &mut neighbour);
    let rows = own.chunks_exact(width.max(1));
    rows.zip(neighbour.chunks_exact(width.max(1)))
        .flat_map(|(own, neighbour)| [own, neighbour].concat())
        .collect()
}

/// The same as [`gather_backward`](super::gather_backward).
pub fn gather_backward<T: Real>(
    features: &FeatureType,
    graph: GraphView<'_, T>,
    dz: &[T],
    dx: &mut [T],
) {
    let [own, neighbour] = split(features, dz);
    let (mut first, mut second) = (vec![T::zero(); dx.len()], vec![T::zero(); dx.len()]);
    let sum = Reduce::sum(features.clone(), EdgeFrame::Edge);
    edges::reference::reduce(&sum, graph, &own, None, &mut first);
    edges::reference::gather_backward(features, EdgeFrame::Edge, graph, &neighbour, &mut second);
    for (dx, (&a, &b)) in dx.iter_mut().zip(first.iter().zip(&second)) {
        *dx += a + b;
    }
}

/// The same as [`reduce`](super::reduce).
pub fn reduce<T: Real>(features: &FeatureType, graph: GraphView<'_, T>, values: &[T], y: &mut [T]) {
    let mut sum = vec![T::zero(); y.len()];
    edges::reference::reduce(&mean(features), graph, values, None, &mut sum);
    y.iter_mut().zip(sum).for_each(|(y, sum)| *y += sum);
}

/// The same as [`reduce_backward`](super::reduce_backward).
pub fn reduce_backward<T: Real>(
    features: &FeatureType,
    graph: GraphView<'_, T>,
    dy: &[T],
) -> Vec<T> {
    let edges = graph.edge_count();
    let mut dvalues = vec![T::zero(); edges * features.dimension()];
    let (values, mut dweights) = (dvalues.clone(), vec![T::zero(); edges]);
    edges::reference::reduce_backward(
        &mean(features),
        graph,
        &values,
        None,
        dy,
        &mut dvalues,
        &mut dweights,
    );
    dvalues
}
