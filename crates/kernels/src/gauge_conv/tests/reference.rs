//! The gauge convolution exactly as in its formula: one matrix-vector product for each edge.

use crate::aggregate::reference::{reversed, rotated};
use crate::gauge_conv::{GaugeConv, Weights};
use crate::self_map::{self, SelfMap};
use crate::{EdgePhases, GraphView, Real};

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

/// `(cos, sin)` of the transport `g`.
fn transport<T: Real>(phases: EdgePhases<T>) -> [T; 2] {
    times(phases.angle, phases.transport)
}

/// The product of complex numbers.
fn times<T: Real>(a: [T; 2], b: [T; 2]) -> [T; 2] {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

/// A pair of channels of a graph with coefficients of harmonics: `y += a c_(m-n) z + b c_(m+n) conj(z)`.
struct Pair<T> {
    /// Real and imaginary component of `y`, and of `z`; `None` for scalars.
    y: (usize, Option<usize>),
    z: (usize, Option<usize>),
    /// Index of the real and the imaginary part of `a`, and of `b`, and their coefficients.
    a: ([Option<usize>; 2], [T; 2]),
    b: ([Option<usize>; 2], [T; 2]),
}

/// All pairs of channels, with the coefficients of an edge.
fn pairs<T: Real>(op: &GaugeConv, graph: GraphView<'_, T>, edge: usize) -> Vec<Pair<T>> {
    let columns = graph.columns();
    let given = &graph.coefficients()[edge * columns..][..columns];
    let coefficient = |k: usize| match k {
        0 => [given[0], T::zero()],
        _ if 2 * k < columns => [given[2 * k - 1], given[2 * k]],
        _ => [T::zero(); 2],
    };
    let inputs = op.input.dimension();
    let mut pairs = Vec::new();
    for (m, outputs_of) in op.output.orders() {
        for (n, inputs_of) in op.input.orders() {
            let [re, im] = coefficient(m.abs_diff(n));
            let linear = if m < n { [re, -im] } else { [re, im] };
            for o in op.output.range(m).take(outputs_of) {
                for i in op.input.range(n).take(inputs_of) {
                    let [second_o, second_i] = [o + outputs_of, i + inputs_of];
                    let weight = |o: usize, i: usize| Some(o * inputs + i);
                    let (imaginary, both) = match (m > 0, n > 0) {
                        (true, true) => (weight(second_o, i), [weight(o, second_i), weight(second_o, second_i)]),
                        (true, false) => (weight(second_o, i), [None; 2]),
                        (false, true) => (weight(o, second_i), [None; 2]),
                        (false, false) => (None, [None; 2]),
                    };
                    pairs.push(Pair {
                        y: (o, (m > 0).then_some(second_o)),
                        z: (i, (n > 0).then_some(second_i)),
                        a: ([weight(o, i), imaginary], linear),
                        b: (both, coefficient(m + n)),
                    });
                }
            }
        }
    }
    pairs
}

impl<T: Real> Pair<T> {
    /// The complex number at a place of a slice.
    fn at(values: &[T], (re, im): (usize, Option<usize>)) -> [T; 2] {
        [values[re], im.map_or(T::zero(), |im| values[im])]
    }

    fn weight(kernel: &[T], parts: [Option<usize>; 2]) -> [T; 2] {
        parts.map(|part| part.map_or(T::zero(), |part| kernel[part]))
    }

    fn add(values: &mut [T], (re, im): (usize, Option<usize>), value: [T; 2]) {
        values[re] += value[0];
        if let Some(im) = im {
            values[im] += value[1];
        }
    }

    fn add_message(&self, kernel: &[T], z: &[T], y: &mut [T]) {
        let z = Self::at(z, self.z);
        for ((parts, c), z) in [(self.a, z), (self.b, reversed(z))] {
            let message = times(Self::weight(kernel, parts), times(c, z));
            Self::add(y, self.y, message);
        }
    }

    fn add_gradients(&self, kernel: &[T], z: &[T], dy: &[T], dz: &mut [T], dkernel: &mut [T]) {
        let (z, dy) = (Self::at(z, self.z), Self::at(dy, self.y));
        let dlinear = times(reversed(times(Self::weight(kernel, self.a.0), self.a.1)), dy);
        let dconjugate = times(reversed(times(Self::weight(kernel, self.b.0), self.b.1)), dy);
        Self::add(dz, self.z, dlinear);
        Self::add(dz, self.z, reversed(dconjugate));
        for ((parts, c), z) in [(self.a, z), (self.b, reversed(z))] {
            let d = times(reversed(times(c, z)), dy);
            for (part, d) in parts.into_iter().zip(d) {
                if let Some(part) = part {
                    dkernel[part] += d;
                }
            }
        }
    }
}

fn self_map(op: &GaugeConv) -> SelfMap {
    SelfMap { input: op.input.clone(), output: op.output.clone(), bias: false }
}

/// Reference version of [`Forward`](crate::gauge_conv::Forward).
pub fn forward<T: Real>(op: &GaugeConv, graph: GraphView<'_, T>, x: &[T], weights: Weights<&[T]>, y: &mut [T]) {
    let (inputs, outputs) = (op.input.dimension(), op.output.dimension());
    y.fill(T::zero());
    for p in 0..graph.vertex_count() {
        let y = &mut y[p * outputs..][..outputs];
        if op.self_term {
            let x = &x[p * inputs..][..inputs];
            self_map::reference::forward(&self_map(op), 1, x, weights.self_term, &[], y);
            let scale = graph.self_scale(op.aggregation, p);
            y.iter_mut().for_each(|y| *y *= scale);
        }
        for edge in graph.row(p) {
            let q = graph.neighbours()[edge] as usize;
            let phases = graph.phases()[edge];
            let kernel = kernel(op, weights.neighbour, graph.radius()[edge]);
            if graph.columns() > 1 {
                let z = rotated(&op.input, transport(phases), &x[q * inputs..][..inputs]);
                for pair in pairs(op, graph, edge) {
                    pair.add_message(&kernel, &z, y);
                }
                continue;
            }
            let f = rotated(&op.input, phases.transport, &x[q * inputs..][..inputs]);
            let product: Vec<T> =
                (0..outputs).map(|i| (0..inputs).map(|j| kernel[i * inputs + j] * f[j]).sum()).collect();
            let scale = graph.factor(op.aggregation, p, edge);
            for (y, message) in y.iter_mut().zip(rotated(&op.output, phases.angle, &product)) {
                *y += scale * message;
            }
        }
        for (y, &bias) in y.iter_mut().zip(weights.bias) {
            *y += bias;
        }
    }
}

/// Reference version of [`Backward`](crate::gauge_conv::Backward), each edge's message transposed.
pub fn backward<T: Real>(
    op: &GaugeConv,
    graph: GraphView<'_, T>,
    x: &[T],
    weights: Weights<&[T]>,
    dy: &[T],
    dx: &mut [T],
    gradients: Weights<&mut [T]>,
) {
    let (inputs, outputs) = (op.input.dimension(), op.output.dimension());
    dx.fill(T::zero());
    for p in 0..graph.vertex_count() {
        let dy = &dy[p * outputs..][..outputs];
        if op.self_term {
            let scale = graph.self_scale(op.aggregation, p);
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
            );
            for (j, value) in dx_self.into_iter().enumerate() {
                dx[p * inputs + j] += value;
            }
        }
        for edge in graph.row(p) {
            let q = graph.neighbours()[edge] as usize;
            let phases = graph.phases()[edge];
            let kernel = kernel(op, weights.neighbour, graph.radius()[edge]);
            if graph.columns() > 1 {
                let g = transport(phases);
                let z = rotated(&op.input, g, &x[q * inputs..][..inputs]);
                let (mut dz, mut dkernel) = (vec![T::zero(); inputs], vec![T::zero(); kernel.len()]);
                for pair in pairs(op, graph, edge) {
                    pair.add_gradients(&kernel, &z, dy, &mut dz, &mut dkernel);
                }
                let back = rotated(&op.input, reversed(g), &dz);
                for (j, value) in back.into_iter().enumerate() {
                    dx[q * inputs + j] += value;
                }
                for ring in 0..op.rings {
                    let phi = op.radial().weight(ring, graph.radius()[edge]);
                    let gradients = &mut gradients.neighbour[ring * kernel.len()..];
                    for (gradient, &d) in gradients.iter_mut().zip(&dkernel) {
                        *gradient += phi * d;
                    }
                }
                continue;
            }
            let f = rotated(&op.input, phases.transport, &x[q * inputs..][..inputs]);
            let scale = graph.factor(op.aggregation, p, edge);
            let dy: Vec<T> = dy.iter().map(|&dy| scale * dy).collect();
            let dy = rotated(&op.output, reversed(phases.angle), &dy);
            let product: Vec<T> =
                (0..inputs).map(|j| (0..outputs).map(|i| kernel[i * inputs + j] * dy[i]).sum()).collect();
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
}
