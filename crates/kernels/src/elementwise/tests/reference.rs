//! The same maps from their definitions, value by value.

use crate::elementwise::Slice;
use crate::{FeatureType, Real, irrep_dimension};

/// Index of a component of a channel in a row.
fn place(kind: &FeatureType, order: usize, component: usize, channel: usize) -> usize {
    kind.range(order).start + component * kind.multiplicity(order) + channel
}

/// `(order, component, channel)` of every value of a row.
fn components(kind: &FeatureType) -> Vec<(usize, usize, usize)> {
    let orders = kind.orders();
    orders
        .flat_map(|(order, channels)| {
            (0..irrep_dimension(order)).flat_map(move |component| (0..channels).map(move |c| (order, component, c)))
        })
        .collect()
}

/// `y` = the concatenation of `a` and `b`, order by order.
pub fn concatenate<T: Real>(first: &FeatureType, second: &FeatureType, vertices: usize, a: &[T], b: &[T], y: &mut [T]) {
    let both = first.concatenated(second);
    for vertex in 0..vertices {
        for (order, component, channel) in components(&both) {
            let before = first.multiplicity(order);
            let (kind, from, channel_there) =
                if channel < before { (first, a, channel) } else { (second, b, channel - before) };
            y[vertex * both.dimension() + place(&both, order, component, channel)] =
                from[vertex * kind.dimension() + place(kind, order, component, channel_there)];
        }
    }
}

/// `y` = the selected channels of `x`, rows of the type `output`.
pub fn slice<T: Real>(config: &Slice, output: &FeatureType, vertices: usize, x: &[T], y: &mut [T]) {
    for vertex in 0..vertices {
        for (order, component, channel) in components(output) {
            let from = place(&config.kind, order, component, config.channels[order].start + channel);
            y[vertex * output.dimension() + place(output, order, component, channel)] =
                x[vertex * config.kind.dimension() + from];
        }
    }
}

/// `y_p = rho(angle_p) x_p`, with the cosine and sine of each multiple of the angle.
pub fn rotate<T: Real>(kind: &FeatureType, angles: &[T], x: &[T], y: &mut [T]) {
    for (vertex, angle) in angles.iter().enumerate() {
        let row = vertex * kind.dimension();
        for (order, component, channel) in components(kind) {
            let at = row + place(kind, order, component, channel);
            if order == 0 {
                y[at] = x[at];
                continue;
            }
            let (sin, cos) = (order as f64 * angle.as_f64()).sin_cos();
            let a = x[row + place(kind, order, 0, channel)].as_f64();
            let b = x[row + place(kind, order, 1, channel)].as_f64();
            y[at] = T::of(if component == 0 { cos * a - sin * b } else { sin * a + cos * b });
        }
    }
}

/// The same as [`Softmax`](crate::elementwise::Softmax), as exponentials of differences: `1 / sum_k exp(x_k - x_i)`.
pub fn softmax<T: Real>(width: usize, x: &[T], y: &mut [T]) {
    for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
        for (y, own) in y.iter_mut().zip(x) {
            let sum: f64 = (x.iter()).map(|other| (other.as_f64() - own.as_f64()).exp()).sum();
            *y = T::of(sum.recip());
        }
    }
}
