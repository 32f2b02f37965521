//! Sums over vertices that are the same for any number of threads: partial sums in f64, whose number depends
//! only on the number of vertices, added in order.

use crate::parallel::piece_length;

/// Smallest number of rows of a partial sum.
const FEWEST_ROWS: usize = 256;

/// Rows of a partial sum. Depends only on the number of vertices.
pub(crate) fn partial_rows(vertices: usize) -> usize {
    piece_length(vertices, FEWEST_ROWS)
}

/// Length of all partial sums of `width` values each.
pub(crate) fn partials_length(vertices: usize, width: usize) -> usize {
    vertices.div_ceil(partial_rows(vertices)) * width
}

/// The sum of partial sums of `width` values each, added in order.
pub(crate) fn fold_partials(partials: &[f64], width: usize) -> Vec<f64> {
    let mut sums = vec![0.0; width];
    for partial in partials.chunks_exact(width.max(1)) {
        sums.iter_mut().zip(partial).for_each(|(sum, part)| *sum += part);
    }
    sums
}
