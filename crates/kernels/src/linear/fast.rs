//! The linear map by blocks of rows, each a general matrix product.

use super::{Backward, Forward, Linear};
use crate::parallel::{Loop, reduction_block, sum_partials};
use crate::{Destination, Host, HostScratch, Matrix, MatrixMut, Real, product};
use rayon::prelude::*;

/// Rows of a block of the products over rows.
const ROWS: usize = 128;
/// Outputs of a block of the weight gradient.
const OUTPUTS: usize = 64;
/// Number of weights above which the gradient is not split over rows: its blocks of outputs then occupy all
/// threads, and partial sums would be large.
const LARGE: usize = 1 << 16;

pub(super) fn forward<T: Real>(Forward { op, x, weight, bias, y, .. }: Forward<'_, Host<T>>) {
    let Linear { inputs, outputs, .. } = *op;
    if y.is_empty() {
        return;
    }
    let weights = Matrix::new(weight, outputs, inputs, inputs).transposed();
    let blocks = y.par_chunks_mut(ROWS * outputs).enumerate();
    blocks.run(|(block, y)| {
        let rows = y.len() / outputs;
        let x = Matrix::new(&x[block * ROWS * inputs..], rows, inputs, inputs);
        let destination = if bias.is_empty() {
            Destination::Set
        } else {
            y.chunks_exact_mut(outputs).for_each(|row| row.copy_from_slice(bias));
            Destination::Add
        };
        let mut result = MatrixMut::new(y, rows, outputs, outputs);
        product(&mut result, destination, x, weights);
    });
}

pub(super) fn backward<T: Real>(pass: Backward<'_, Host<T>>, scratch: HostScratch<'_, T>) {
    let Backward { op, rows, x, weight, dy, dx, dweight, dbias } = pass;
    let Linear { inputs, outputs, .. } = *op;
    if let Some(dx) = dx.filter(|dx| !dx.is_empty()) {
        let weights = Matrix::new(weight, outputs, inputs, inputs);
        let blocks = dx.par_chunks_mut(ROWS * inputs).enumerate();
        blocks.run(|(block, dx)| {
            let rows = dx.len() / inputs;
            let dy = Matrix::new(&dy[block * ROWS * outputs..], rows, outputs, outputs);
            let mut result = MatrixMut::new(dx, rows, inputs, inputs);
            product(&mut result, Destination::Set, dy, weights);
        });
    }
    if rows == 0 || outputs == 0 {
        return;
    }

    // Partial sums over blocks of rows: weights, then biases; within each, blocks of outputs.
    let part_rows = if weight.len() > LARGE { rows } else { reduction_block(rows) };
    let each = outputs * (inputs + 1);
    let partials = scratch.narrow.take(rows.div_ceil(part_rows) * each);
    let parts = partials.par_chunks_exact_mut(each).enumerate();
    parts.run(|(part, sums)| {
        let first = part * part_rows;
        let rows = part_rows.min(rows - first);
        let (x, dy) = (&x[first * inputs..], &dy[first * outputs..]);
        let (weight_sums, bias_sums) = sums.split_at_mut(outputs * inputs);
        if inputs > 0 {
            let blocks = weight_sums.par_chunks_mut(OUTPUTS * inputs).enumerate();
            blocks.run(|(block, sums)| {
                let width = sums.len() / inputs;
                let dy = Matrix::new(&dy[block * OUTPUTS..], rows, width, outputs).transposed();
                let mut result = MatrixMut::new(sums, width, inputs, inputs);
                let x = Matrix::new(x, rows, inputs, inputs);
                product(&mut result, Destination::Set, dy, x);
            });
        }
        bias_sums.fill(T::zero());
        if !dbias.is_empty() {
            for row in dy.chunks_exact(outputs).take(rows) {
                for (sum, &dy) in bias_sums.iter_mut().zip(row) {
                    *sum += dy;
                }
            }
        }
    });
    let (weight_sums, bias_sums) = sum_partials(partials, each).split_at(outputs * inputs);
    for (dweight, &sum) in dweight.iter_mut().zip(weight_sums) {
        *dweight += sum;
    }
    for (dbias, &sum) in dbias.iter_mut().zip(bias_sums) {
        *dbias += sum;
    }
}
