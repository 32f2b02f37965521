//! The weights of a chain with the maps to samples and back multiplied in, and their gradients taken apart.

use super::{HostChain, Layer, Order};
use crate::{Aligned, Real};

/// Padded weights.
pub(super) struct Folded<T> {
    /// Stacked weights of the first layer, of the vertex itself and of its neighbour.
    pub ends: [Aligned<T>; 2],
    /// The same, each order transposed.
    pub transposed: [Aligned<T>; 2],
    /// Biases of the samples of each layer.
    pub biases: Vec<Aligned<T>>,
    /// Weights `[inputs, outputs]` of the layers after the first.
    pub next: Vec<Aligned<T>>,
    /// The same, `[outputs, inputs]`.
    pub next_transposed: Vec<Aligned<T>>,
}

/// Block `a` of the result is `sum_b m[a, b]` times block `b`, with as many blocks as components; `m` is transposed if
/// `is_transposed`.
fn mixed<T: Real>((matrix, is_transposed): (&[T], bool), components: usize, rows: &[T]) -> Vec<T> {
    let mut result = vec![T::zero(); rows.len()];
    let block = (rows.len() / components).max(1);
    for (a, result) in result.chunks_exact_mut(block).enumerate() {
        for (b, rows) in rows.chunks_exact(block).enumerate() {
            let factor = if is_transposed { matrix[b * components + a] } else { matrix[a * components + b] };
            let pairs = result.iter_mut().zip(rows);
            pairs.for_each(|(result, &row)| *result += factor * row);
        }
    }
    result
}

/// A `rows x columns` matrix with `stride` numbers in a row, transposed and padded with zeros to `[padded.0,
/// padded.1]`.
fn transposed<T: Real>(matrix: &[T], [rows, columns, stride]: [usize; 3], padded: [usize; 2]) -> Vec<T> {
    let mut result = vec![T::zero(); padded[0] * padded[1]];
    for row in 0..rows {
        for column in 0..columns {
            result[column * padded[1] + row] = matrix[row * stride + column];
        }
    }
    result
}

impl<T: Real> Layer<'_, T> {
    fn mixed(&self, matrix: (&[T], bool), rows: &[T]) -> Vec<T> {
        mixed(matrix, self.components, rows)
    }
}

impl<T: Real> HostChain<'_, T> {
    pub(super) fn fold(&self, weights: &[T]) -> Folded<T> {
        let (mut matrices, mut biases) = self.split(weights);
        let first = self.first();
        let weight = first.mixed((&first.synthesis, false), matrices.remove(0));
        let (outputs, inputs) = (first.map.outputs, first.map.inputs);
        let by_inputs = transposed(&weight, [outputs, inputs, inputs], [inputs, first.row]);
        let ends = [0, 1].map(|end| self.stack(end, &by_inputs));
        let flip = |stacked: &[T]| {
            let mut result = Vec::with_capacity(stacked.len());
            for order in &self.orders {
                let [rows, columns] = order.size(first.row);
                let part = &stacked[order.stacked..][..rows * columns];
                result.extend(transposed(part, [rows, columns, columns], [columns, rows]));
            }
            Aligned::from(&result[..])
        };
        let mut next = Vec::new();
        for (layers, matrix) in self.layers.windows(2).zip(matrices) {
            let [before, layer] = [&layers[0], &layers[1]];
            let (outputs, inputs) = (layer.map.outputs, layer.map.inputs);
            let sampled = layer.mixed((&layer.synthesis, false), matrix);
            let size = [outputs, inputs, inputs];
            let by_inputs = transposed(&sampled, size, [inputs, layer.row]);
            let mut full = before.mixed((&before.projection, false), &by_inputs);
            full.resize(before.row * layer.row, T::zero());
            next.push(Aligned::from(&full[..]));
        }
        let next_transposed = self.layers.windows(2).zip(&next).map(|(layers, matrix)| {
            let [before, layer] = [layers[0].row, layers[1].row];
            Aligned::from(&transposed(matrix, [before, layer, layer], [layer, before])[..])
        });
        let biases = self.layers.iter().zip(biases.drain(..));
        let biases = biases.map(|(layer, bias)| {
            let mut samples = layer.mixed((&layer.synthesis, false), bias);
            samples.resize(layer.row, T::zero());
            Aligned::from(&samples[..])
        });
        Folded {
            biases: biases.collect(),
            transposed: [flip(&ends[0]), flip(&ends[1])],
            ends,
            next_transposed: next_transposed.collect(),
            next,
        }
    }

    /// Adds gradients of stacked weights, of the weights after the first layer and of biases of samples to those of the
    /// weights.
    pub(super) fn unfold(&self, ends: [&[T]; 2], next: &[&[T]], biases: &[&[T]], gradients: &mut [T]) {
        let first = self.first();
        let mut by_inputs = vec![T::zero(); first.map.inputs * first.row];
        for (end, stacked) in ends.into_iter().enumerate() {
            self.unstack(end, stacked, &mut by_inputs);
        }
        let (outputs, inputs) = (first.map.outputs, first.map.inputs);
        let size = [inputs, outputs, first.row];
        let sampled = transposed(&by_inputs, size, [outputs, inputs]);
        let mut parts = vec![first.mixed((&first.synthesis, true), &sampled)];
        for (layers, gradient) in self.layers.windows(2).zip(next) {
            let [before, layer] = [&layers[0], &layers[1]];
            let (outputs, inputs) = (layer.map.outputs, layer.map.inputs);
            let gradient = &gradient[..inputs * layer.row];
            let by_inputs = before.mixed((&before.projection, true), gradient);
            let size = [inputs, outputs, layer.row];
            let sampled = transposed(&by_inputs, size, [outputs, inputs]);
            parts.push(layer.mixed((&layer.synthesis, true), &sampled));
        }
        for (layer, bias) in self.layers.iter().zip(biases) {
            if layer.map.bias {
                let bias = &bias[..layer.map.outputs];
                parts.push(layer.mixed((&layer.synthesis, true), bias));
            }
        }
        let parts = parts.iter().flatten();
        gradients.iter_mut().zip(parts).for_each(|(to, &d)| *to += d);
    }

    /// The matrices and the biases of all layers.
    fn split<'w>(&self, weights: &'w [T]) -> (Vec<&'w [T]>, Vec<&'w [T]>) {
        let mut rest = weights;
        let mut take = |count: usize| rest.split_off(..count).unwrap_or_default();
        let maps = || self.layers.iter().map(|layer| layer.map);
        let matrices = maps().map(|map| take(map.weight_count())).collect();
        (matrices, maps().map(|map| take(map.bias_count())).collect())
    }

    /// Calls `visit(stacked, input, negative)` for rows of the stacked weights of one end and the rows of weights of an
    /// input.
    fn visit(&self, end: usize, mut visit: impl FnMut(usize, usize, bool)) {
        let row = self.first().row;
        for Order { components, channels, start, stacked, .. } in self.orders.iter().copied() {
            let input = end * self.dimension + start;
            // The angle of the vertex itself is `-theta`, and the harmonics are those of `theta`.
            let negative = end == 0;
            for channel in 0..channels {
                let cosine = stacked + channel * components * row;
                visit(cosine, input + channel, false);
                if components == 2 {
                    let sine = cosine + channels * components * row;
                    let (a, b) = (input + channel, input + channels + channel);
                    visit(cosine + row, b, negative);
                    visit(sine, b, false);
                    visit(sine + row, a, !negative);
                }
            }
        }
    }

    fn stack(&self, end: usize, by_inputs: &[T]) -> Aligned<T> {
        let (row, mut stacked) = (self.first().row, Aligned::zeros(self.stacked()));
        self.visit(end, |to, input, negative| {
            let to = stacked[to..to + row].iter_mut();
            for (to, &weight) in to.zip(&by_inputs[input * row..]) {
                *to = if negative { -weight } else { weight };
            }
        });
        stacked
    }

    fn unstack(&self, end: usize, stacked: &[T], by_inputs: &mut [T]) {
        let row = self.first().row;
        self.visit(end, |from, input, negative| {
            let to = by_inputs[input * row..(input + 1) * row].iter_mut();
            for (to, &gradient) in to.zip(&stacked[from..]) {
                *to += if negative { -gradient } else { gradient };
            }
        });
    }
}
