//! The same products number by number, in f64.

use crate::Real;
use crate::mesh_product::{MeshProduct, meshes};

/// Calls `add(row of x, row of y, real part, imaginary part)` for every entry of every basis.
fn for_entries<T: Real>(
    op: &MeshProduct,
    mesh_offsets: &[u32],
    basis: &[T],
    mut add: impl FnMut(usize, usize, f64, f64),
) {
    for (mesh, range) in meshes(mesh_offsets).enumerate() {
        for vertex in range {
            for column in 0..op.columns {
                let at = vertex * op.stride() + column;
                let imaginary = if op.complex { basis[at + op.columns].as_f64() } else { 0.0 };
                add(vertex, mesh * op.columns + column, basis[at].as_f64(), imaginary);
            }
        }
    }
}

/// `to += (real + i imaginary) from`, for two rows.
fn add_product<T: Real>(complex: bool, (real, imaginary): (f64, f64), from: &[T], to: &mut [f64]) {
    let half = from.len() / 2;
    for (at, to) in to.iter_mut().enumerate() {
        *to += real * from[at].as_f64();
        if complex && at < half {
            *to -= imaginary * from[at + half].as_f64();
        } else if complex {
            *to += imaginary * from[at - half].as_f64();
        }
    }
}

/// The same as [`Project`](crate::mesh_product::Project).
pub fn project<T: Real>(
    op: &MeshProduct,
    mesh_offsets: &[u32],
    basis: &[T],
    weights: Option<&[T]>,
    x: &[T],
    y: &mut [T],
) {
    let width = op.features.dimension();
    let mut sums = vec![0.0; y.len()];
    for_entries(op, mesh_offsets, basis, |vertex, row, real, imaginary| {
        let weight = weights.map_or(1.0, |weights| weights[vertex].as_f64());
        let factor = (weight * real, -weight * imaginary);
        let (x, sums) = (&x[vertex * width..][..width], &mut sums[row * width..][..width]);
        add_product(op.complex, factor, x, sums);
    });
    y.iter_mut().zip(sums).for_each(|(y, sum)| *y = T::of(sum));
}

/// The same as [`Expand`](crate::mesh_product::Expand).
pub fn expand<T: Real>(op: &MeshProduct, mesh_offsets: &[u32], basis: &[T], y: &[T], x: &mut [T]) {
    let width = op.features.dimension();
    let mut sums = vec![0.0; x.len()];
    for_entries(op, mesh_offsets, basis, |vertex, row, real, imaginary| {
        let (y, sums) = (&y[row * width..][..width], &mut sums[vertex * width..][..width]);
        add_product(op.complex, (real, imaginary), y, sums);
    });
    x.iter_mut().zip(sums).for_each(|(x, sum)| *x = T::of(sum));
}
