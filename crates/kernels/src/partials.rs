//! Sums over vertices that come out the same for any number of threads: a number of partial sums
//! that depends on the number of vertices alone, in f64, added up in their order.

use crate::parallel::piece_length;

/// Fewest rows of a partial sum.
const FEWEST_ROWS: usize = 256;

/// Rows of a partial sum: a function of the number of vertices alone.
pub(crate) fn partial_rows(vertices: usize) -> usize {
    piece_length(vertices, FEWEST_ROWS)
}

/// Length of all partial sums of `width` numbers each.
pub(crate) fn partials_length(vertices: usize, width: usize) -> usize {
    vertices.div_ceil(partial_rows(vertices)) * width
}

/// The partial sums of `width` numbers each, added in their order.
pub(crate) fn fold_partials(partials: &[f64], width: usize) -> Vec<f64> {
    let mut sums = vec![0.0; width];
    for partial in partials.chunks_exact(width.max(1)) {
        sums.iter_mut()
            .zip(partial)
            .for_each(|(sum, part)| *sum += part);
    }
    sums
}
