//! The same maps edge by edge, as their formulas say it, on all edges of a graph.

use crate::edges::{self, EdgeFrame, Reduce};
use crate::linear::{self, Linear};
use crate::regular::{self, Regular};
use crate::{Aggregation, FeatureType, GraphView, KernelError, Real};

/// The mean over the edges of a vertex, of values in the frame of the edge.
fn mean(features: &FeatureType) -> Reduce {
    Reduce { aggregation: Aggregation::Mean, ..Reduce::sum(features.clone(), EdgeFrame::Edge) }
}

/// Rows of edges with the features of the vertex itself first, then those of the neighbour.
fn both_ends<T: Real>(features: &FeatureType, z: &[T]) -> [Vec<T>; 2] {
    let width = features.dimension();
    let part = |first: usize| {
        let rows = z.chunks_exact((2 * width).max(1));
        rows.flat_map(|row| &row[first..first + width]).copied().collect()
    };
    [part(0), part(width)]
}

/// The same as [`gather`](crate::messages::Gather).
pub fn gather<T: Real>(features: &FeatureType, graph: GraphView<'_, T>, x: &[T]) -> Vec<T> {
    let width = features.dimension();
    let zeros = || vec![T::zero(); graph.edge_count() * width];
    let (mut own, mut neighbour) = (zeros(), zeros());
    edges::reference::spread(features, EdgeFrame::Edge, graph, x, &mut own);
    edges::reference::gather(features, EdgeFrame::Edge, graph, x, &mut neighbour);
    let rows = own.chunks_exact(width.max(1));
    rows.zip(neighbour.chunks_exact(width.max(1))).flat_map(|(own, neighbour)| [own, neighbour].concat()).collect()
}

/// The same as [`gather_backward`](crate::messages::GatherBackward).
pub fn gather_backward<T: Real>(features: &FeatureType, graph: GraphView<'_, T>, dz: &[T], dx: &mut [T]) {
    let [own, neighbour] = both_ends(features, dz);
    let (mut first, mut second) = (vec![T::zero(); dx.len()], vec![T::zero(); dx.len()]);
    let sum = Reduce::sum(features.clone(), EdgeFrame::Edge);
    edges::reference::reduce(&sum, graph, &own, None, &mut first);
    edges::reference::gather_backward(features, EdgeFrame::Edge, graph, &neighbour, &mut second);
    for (dx, (&a, &b)) in dx.iter_mut().zip(first.iter().zip(&second)) {
        *dx += a + b;
    }
}

/// The same as [`reduce`](crate::messages::Reduce).
pub fn reduce<T: Real>(features: &FeatureType, graph: GraphView<'_, T>, values: &[T], y: &mut [T]) {
    let mut sum = vec![T::zero(); y.len()];
    edges::reference::reduce(&mean(features), graph, values, None, &mut sum);
    y.iter_mut().zip(sum).for_each(|(y, sum)| *y += sum);
}

/// The same as [`reduce_backward`](crate::messages::ReduceBackward).
pub fn reduce_backward<T: Real>(features: &FeatureType, graph: GraphView<'_, T>, dy: &[T]) -> Vec<T> {
    let edges = graph.edge_count();
    let mut dvalues = vec![T::zero(); edges * features.dimension()];
    let (values, mut dweights) = (dvalues.clone(), vec![T::zero(); edges]);
    edges::reference::reduce_backward(&mean(features), graph, &values, None, dy, &mut dvalues, &mut dweights);
    dvalues
}

/// The layers of a message function: maps and nonlinearities.
pub type Layers = [(Linear, Regular)];

/// The matrices and biases of all layers, one after the other.
fn split<'w, T>(layers: &Layers, weights: &'w [T]) -> Vec<[&'w [T]; 2]> {
    let mut rest = weights;
    let mut take = |count: usize| rest.split_off(..count).unwrap_or_default();
    let matrices: Vec<_> = layers.iter().map(|(map, _)| take(map.weight_count())).collect();
    let biases = layers.iter().map(|(map, _)| take(map.bias_count()));
    matrices.into_iter().zip(biases).map(|(a, b)| [a, b]).collect()
}

/// Inputs of all layers, and their sums before the nonlinearity; the last input is the message.
type Values<T> = (Vec<Vec<T>>, Vec<Vec<T>>);

fn values<T: Real>(
    input: &FeatureType,
    layers: &Layers,
    graph: GraphView<'_, T>,
    x: &[T],
    weights: &[T],
) -> Result<Values<T>, KernelError> {
    let edges = graph.edge_count();
    let (mut inputs, mut sums) = (vec![gather(input, graph, x)], Vec::new());
    for ((map, act), [weight, bias]) in layers.iter().zip(split(layers, weights)) {
        let mut sum = vec![T::zero(); edges * map.outputs];
        linear::reference::forward(map, edges, &inputs[sums.len()], weight, bias, &mut sum);
        let mut value = vec![T::zero(); edges * act.output().dimension()];
        regular::reference::forward(act, &sum, &mut value);
        sums.push(sum);
        inputs.push(value);
    }
    Ok((inputs, sums))
}

/// The same as [`send`](crate::messages::host::send).
pub fn send<T: Real>(
    input: &FeatureType,
    layers: &Layers,
    graph: GraphView<'_, T>,
    x: &[T],
    weights: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    let (values, _) = values(input, layers, graph, x, weights)?;
    let output = layers.last().map(|(_, act)| act.output());
    y.fill(T::zero());
    reduce(&output.unwrap_or_default(), graph, &values[layers.len()], y);
    Ok(())
}

/// The same as [`send_backward`](crate::messages::host::send_backward).
#[allow(clippy::too_many_arguments)]
pub fn send_backward<T: Real>(
    input: &FeatureType,
    layers: &Layers,
    graph: GraphView<'_, T>,
    x: &[T],
    weights: &[T],
    dy: &[T],
    dx: &mut [T],
    gradients: &mut [T],
) -> Result<(), KernelError> {
    let (values, sums) = values(input, layers, graph, x, weights)?;
    let output = layers.last().map(|(_, act)| act.output());
    let mut step = reduce_backward(&output.unwrap_or_default(), graph, dy);
    let weights = split(layers, weights);
    let (mut end, mut bias_end) = (layers.iter().map(|(map, _)| map.weight_count()).sum::<usize>(), gradients.len());
    for (index, (map, act)) in layers.iter().enumerate().rev() {
        let mut dsum = vec![T::zero(); sums[index].len()];
        regular::reference::backward(act, &sums[index], &step, &mut dsum);
        step = vec![T::zero(); values[index].len()];
        let (matrices, biases) = gradients.split_at_mut(bias_end - map.bias_count());
        linear::reference::backward(
            map,
            graph.edge_count(),
            &values[index],
            weights[index][0],
            &dsum,
            &mut step,
            &mut matrices[end - map.weight_count()..end],
            &mut biases[..map.bias_count()],
        );
        end -= map.weight_count();
        bias_end -= map.bias_count();
    }
    dx.fill(T::zero());
    gather_backward(input, graph, &step, dx);
    Ok(())
}
