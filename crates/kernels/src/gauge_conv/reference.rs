//! The gauge convolution exactly as in its formula: one matrix-vector product for each edge.

use super::{GaugeConv, Weights};
use crate::aggregate::reference::{reversed, rotated};
use crate::self_map::{self, SelfMap};
use crate::{GraphView, KernelError, Real};

/// `sum_r phi_r(radius) W_r`, `[D_out, D_in]`.
fn kernel<T: Real>(op: &GaugeConv, neighbour: &[T], radius: T) -> Vec<T> {
    let size = op.output.dimension() * op.input.dimension();
    let mut kernel = vec![T::zero(); size];
    for ring in 0..op.rings {
        let phi = op.radial().weight(ring, radius);
        for (sum, &weight) in kernel.iter_mut().zip(&neighbour[ring * size..]) {
            *sum += phi * weight;
        }
    }
    kernel
}

fn self_map(op: &GaugeConv) -> SelfMap {
    SelfMap {
        input: op.input.clone(),
        output: op.output.clone(),
        bias: false,
    }
}

/// Reference version of [`forward`](super::forward).
///
/// # Errors
/// Buffers of the wrong length, or invalid settings.
pub fn forward<T: Real>(
    op: &GaugeConv,
    graph: GraphView<'_, T>,
    x: &[T],
    weights: Weights<&[T]>,
    y: &mut [T],
) -> Result<(), KernelError> {
    op.check(graph, x, ("y", y), weights)?;
    let (inputs, outputs) = (op.input.dimension(), op.output.dimension());
    y.fill(T::zero());
    for p in 0..graph.vertex_count() {
        let y = &mut y[p * outputs..][..outputs];
        let degree = graph.row(p).len();
        if op.self_term {
            let x = &x[p * inputs..][..inputs];
            self_map::reference::forward(&self_map(op), 1, x, weights.self_term, &[], y)?;
            let scale: T = op.aggregation.self_scale(degree);
            y.iter_mut().for_each(|y| *y *= scale);
        }
        for edge in graph.row(p) {
            let q = graph.neighbours()[edge] as usize;
            let phases = graph.phases()[edge];
            let f = rotated(&op.input, phases.transport, &x[q * inputs..][..inputs]);
            let kernel = kernel(op, weights.neighbour, graph.radius()[edge]);
            let product: Vec<T> = (0..outputs)
                .map(|i| (0..inputs).map(|j| kernel[i * inputs + j] * f[j]).sum())
                .collect();
            let scale: T = op.aggregation.scale(degree);
            for (y, message) in y
                .iter_mut()
                .zip(rotated(&op.output, phases.angle, &product))
            {
                *y += scale * message;
            }
        }
        for (y, &bias) in y.iter_mut().zip(weights.bias) {
            *y += bias;
        }
    }
    Ok(())
}

/// Reference version of [`backward`](super::backward), each edge's message transposed.
///
/// # Errors
/// Buffers of the wrong length, or invalid settings.
pub fn backward<T: Real>(
    op: &GaugeConv,
    graph: GraphView<'_, T>,
    x: &[T],
    weights: Weights<&[T]>,
    dy: &[T],
    dx: &mut [T],
    gradients: Weights<&mut [T]>,
) -> Result<(), KernelError> {
    op.check_backward(graph, x, dy, Some(dx), weights, &gradients)?;
    let (inputs, outputs) = (op.input.dimension(), op.output.dimension());
    dx.fill(T::zero());
    for p in 0..graph.vertex_count() {
        let dy = &dy[p * outputs..][..outputs];
        let degree = graph.row(p).len();
        if op.self_term {
            let scale: T = op.aggregation.self_scale(degree);
            let dy: Vec<T> = dy.iter().map(|&dy| scale * dy).collect();
            let mut dx_self = vec![T::zero(); inputs];
            self_map::reference::backward(
                &self_map(op),
                1,
                &x[p * inputs..][..inputs],
                weights.self_term,
                &dy,
                &mut dx_self,
                gradients.self_term,
                &mut [],
            )?;
            for (j, value) in dx_self.into_iter().enumerate() {
                dx[p * inputs + j] += value;
            }
        }
        for edge in graph.row(p) {
            let q = graph.neighbours()[edge] as usize;
            let phases = graph.phases()[edge];
            let f = rotated(&op.input, phases.transport, &x[q * inputs..][..inputs]);
            let scale: T = op.aggregation.scale(degree);
            let dy: Vec<T> = dy.iter().map(|&dy| scale * dy).collect();
            let dy = rotated(&op.output, reversed(phases.angle), &dy);
            let kernel = kernel(op, weights.neighbour, graph.radius()[edge]);
            let product: Vec<T> = (0..inputs)
                .map(|j| (0..outputs).map(|i| kernel[i * inputs + j] * dy[i]).sum())
                .collect();
            let back = rotated(&op.input, reversed(phases.transport), &product);
            for (j, value) in back.into_iter().enumerate() {
                dx[q * inputs + j] += value;
            }
            for ring in 0..op.rings {
                let phi = op.radial().weight(ring, graph.radius()[edge]);
                for (i, &dy) in dy.iter().enumerate() {
                    for (j, &f) in f.iter().enumerate() {
                        gradients.neighbour[(ring * outputs + i) * inputs + j] += phi * dy * f;
                    }
                }
            }
        }
        for (gradient, &dy) in gradients.bias.iter_mut().zip(dy) {
            *gradient += dy;
        }
    }
    Ok(())
}
