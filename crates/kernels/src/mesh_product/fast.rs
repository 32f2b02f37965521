//! The products as general matrix products, a complex one as two real ones:
//! `B^H x = Re(B)^T x + Im(B)^T (-i x)` and `B y = Re(B) y + Im(B) (i y)`.

use super::{Expand, Project, meshes};
use crate::parallel::{Loop, for_rows};
use crate::{Destination, Host, HostScratch, Matrix, MatrixMut, Real, product};
use rayon::prelude::*;

/// Rows of a block of `x`, and columns of the basis of a block of `y`.
const ROWS: usize = 128;
const COLUMNS: usize = 32;

/// `to = w x`, where no weights are ones.
pub(crate) fn weighted<T: Real>(width: usize, weights: Option<&[T]>, x: &[T], to: &mut [T]) {
    for_rows(to, width, |row, to| {
        let weight = weights.map_or(T::one(), |weights| weights[row]);
        let x = &x[row * width..][..width];
        to.iter_mut().zip(x).for_each(|(to, &x)| *to = weight * x);
    });
}

/// `to = sign i x`, for rows of real parts, then imaginary parts.
fn times_i<T: Real>(width: usize, sign: T, x: &[T], to: &mut [T]) {
    for_rows(to, width, |row, to| {
        let (real, imaginary) = x[row * width..][..width].split_at(width / 2);
        let (to_real, to_imaginary) = to.split_at_mut(width / 2);
        for (to, &from) in to_real.iter_mut().zip(imaginary) {
            *to = -sign * from;
        }
        for (to, &from) in to_imaginary.iter_mut().zip(real) {
            *to = sign * from;
        }
    });
}

pub(super) fn project<T: Real>(pass: Project<'_, Host<T>>, scratch: HostScratch<'_, T>) {
    let Project { op, mesh_offsets, basis, weights, x, y } = pass;
    let (width, stride, k) = (op.features.dimension(), op.stride(), op.columns);
    if y.is_empty() {
        return;
    }
    let length = |wanted: bool| if wanted { x.len() } else { 0 };
    let memory = scratch.narrow.take(length(weights.is_some()) + length(op.complex));
    let (weighted_x, turned) = memory.split_at_mut(length(weights.is_some()));
    weighted(width, weights, x, weighted_x);
    let x = if weights.is_some() { weighted_x } else { x };
    times_i(width, -T::one(), x, turned);
    let turned = &*turned;
    let ranges: Vec<_> = meshes(mesh_offsets).collect();
    let parts = y.par_chunks_mut(k * width).zip(ranges);
    parts.run(|(y, range)| {
        if range.is_empty() {
            y.fill(T::zero());
            return;
        }
        let rows = range.len();
        let basis = &basis[range.start * stride..range.end * stride];
        let blocks = y.par_chunks_mut(COLUMNS * width).enumerate();
        blocks.run(|(block, y)| {
            let columns = y.len() / width;
            let mut y = MatrixMut::new(y, columns, width, width);
            let mut add = |destination, place: usize, x: &[T]| {
                let b = Matrix::new(&basis[place + block * COLUMNS..], rows, columns, stride);
                let x = Matrix::new(&x[range.start * width..], rows, width, width);
                product(&mut y, destination, b.transposed(), x);
            };
            add(Destination::Set, 0, x);
            if op.complex {
                add(Destination::Add, k, turned);
            }
        });
    });
}

pub(super) fn expand<T: Real>(pass: Expand<'_, Host<T>>, scratch: HostScratch<'_, T>) {
    let Expand { op, mesh_offsets, basis, weights, y, x } = pass;
    let (width, stride, k) = (op.features.dimension(), op.stride(), op.columns);
    if x.is_empty() {
        return;
    }
    let turned = scratch.narrow.take(if op.complex { y.len() } else { 0 });
    times_i(width, T::one(), y, turned);
    let turned = &*turned;
    let mut rest = x;
    let mut blocks = Vec::new();
    for (mesh, range) in meshes(mesh_offsets).enumerate() {
        let rows = rest.split_off_mut(..range.len() * width).unwrap_or_default();
        let chunks = rows.chunks_mut(ROWS * width).enumerate();
        blocks.extend(chunks.map(|(index, x)| (mesh, range.start + index * ROWS, x)));
    }
    blocks.into_par_iter().run(|(mesh, first, x)| {
        let rows = x.len() / width;
        let mut result = MatrixMut::new(x, rows, width, width);
        let mut add = |destination, place: usize, y: &[T]| {
            let b = Matrix::new(&basis[first * stride + place..], rows, k, stride);
            let y = Matrix::new(&y[mesh * k * width..], k, width, width);
            product(&mut result, destination, b, y);
        };
        add(Destination::Set, 0, y);
        if op.complex {
            add(Destination::Add, k, turned);
        }
        if let Some(weights) = weights {
            for (x, &weight) in x.chunks_exact_mut(width).zip(&weights[first..]) {
                x.iter_mut().for_each(|x| *x *= weight);
            }
        }
    });
}
