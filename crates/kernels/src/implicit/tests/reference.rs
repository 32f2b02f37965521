//! Implicit diffusion by elimination in dense matrices, for small batches.

use crate::implicit::{Implicit, Masses};
use crate::incidence::{IncidenceArrays, reference};
use crate::{Aggregation, FeatureType, Real, irrep_dimension};

/// `K_t` of one order as a real matrix of `[components, components]` blocks: rows and columns are vertices, then
/// components.
fn matrix<T: Real>(order: usize, time: f64, coupling: &IncidenceArrays<T>, masses: Masses<&[T]>) -> Vec<Vec<f64>> {
    let mut multiplicities = vec![0; order + 1];
    multiplicities[order] = 1;
    let field = FeatureType::new(&multiplicities);
    let (parts, vertices) = (irrep_dimension(order), masses.vertex.len());
    let size = vertices * parts;
    let mut rows = vec![vec![0.0; size]; size];
    for column in 0..size {
        let mut unit = vec![T::zero(); size];
        unit[column] = T::one();
        let mut image = unit.clone();
        reference::apply(&field, Aggregation::Sum, coupling, &unit, &mut image, false);
        for (row, value) in rows.iter_mut().zip(image) {
            row[column] = -time * value.as_f64();
        }
        let vertex = column / parts;
        rows[column][column] += masses.node[vertex].as_f64() + time * masses.stiffness[vertex].as_f64();
    }
    rows
}

/// Solves a positive definite system in place, by elimination.
fn eliminate(mut matrix: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
    let size = b.len();
    for pivot in 0..size {
        let (above, below) = matrix.split_at_mut(pivot + 1);
        let row = &above[pivot];
        for (index, other) in below.iter_mut().enumerate() {
            let factor = other[pivot] / row[pivot];
            if factor != 0.0 {
                for (other, value) in other[pivot..].iter_mut().zip(&row[pivot..]) {
                    *other -= factor * value;
                }
                b[pivot + 1 + index] -= factor * b[pivot];
            }
        }
    }
    for row in (0..size).rev() {
        let known: f64 = (row + 1..size).map(|column| matrix[row][column] * b[column]).sum();
        b[row] = (b[row] - known) / matrix[row][row];
    }
    b
}

/// `S K_t^-1 S^H x` for all channels.
pub fn solve<T: Real>(
    op: &Implicit,
    time: f64,
    coupling: &IncidenceArrays<T>,
    copies: &IncidenceArrays<T>,
    masses: Masses<&[T]>,
    x: &[T],
) -> Vec<T> {
    let (features, sum) = (&op.features, Aggregation::Sum);
    let (vertices, width) = (masses.vertex.len(), features.dimension());
    let mut b = vec![T::zero(); x.len()];
    reference::apply_transposed(features, sum, copies, x, &mut b, false);
    for (order, channels) in features.orders() {
        let matrix = matrix(order, time, coupling, masses);
        let (parts, start) = (irrep_dimension(order), features.range(order).start);
        for channel in 0..channels {
            let places = (0..vertices * parts).map(|i| i / parts * width + start + i % parts * channels + channel);
            let right = places.clone().map(|place| b[place].as_f64()).collect();
            let solution = eliminate(matrix.clone(), right);
            for (place, value) in places.zip(solution) {
                b[place] = T::of(value);
            }
        }
    }
    let mut y = b.clone();
    reference::apply(features, sum, copies, &b, &mut y, false);
    y
}

/// The same as [`forward`](crate::implicit::forward).
pub fn forward<T: Real>(
    op: &Implicit,
    coupling: &IncidenceArrays<T>,
    copies: &IncidenceArrays<T>,
    masses: Masses<&[T]>,
    mix: &[T],
    x: &[T],
    y: &mut [T],
) {
    let width = op.features.dimension().max(1);
    let massive: Vec<T> = (x.iter().enumerate()).map(|(i, &x)| masses.vertex[i / width] * x).collect();
    let irrep_of = op.irrep_of();
    y.fill(T::zero());
    for (index, &time) in op.times.iter().enumerate() {
        let u = solve(op, time, coupling, copies, masses, &massive);
        for (i, (y, u)) in y.iter_mut().zip(u).enumerate() {
            *y += mix[index * op.irreps() + irrep_of[i % width] as usize] * u;
        }
    }
}
