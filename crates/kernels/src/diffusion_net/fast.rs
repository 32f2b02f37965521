//! The block on the CPU: a tile of rows goes through all layers while it is in the cache.

use super::{DiffusionNet, Saved, Weights};
use crate::diffusion::fast::Batch;
use crate::diffusion::{Filters, Spectra};
use crate::dropout::{scale, threshold};
use crate::parallel::sum_partials;
use crate::random::Stream;
use crate::self_map::{blocks, fill_matrices, signed};
use crate::{Destination, FeatureType, Matrix, MatrixMut, Real, Scratch, product};
use pulp::Arch;
use rayon::prelude::*;

/// Most partial sums of the gradients of the weights, and fewest rows of one.
const MOST_PARTS: usize = 16;
const PART_ROWS: usize = 256;

/// Matrices that are laid out anew: `A` `[in, out]`, and `W1` `[out, in]` of `[p | x | d]`.
struct Matrices<T> {
    product: Vec<T>,
    first: Vec<T>,
}

impl<T: Real> Matrices<T> {
    fn new(c: usize, weights: &Weights<&[T]>) -> Self {
        let vectors = FeatureType::new(&[0, c]);
        let blocks: Vec<_> = blocks(&vectors, &vectors).collect();
        let mut product = vec![T::zero(); 4 * c * c];
        fill_matrices(&blocks, false, weights.product, &mut product);
        let rows = weights.invariants.chunks_exact(c);
        let rows = rows.zip(weights.scalars.chunks_exact(2 * c));
        let first = rows.flat_map(|(p, xd)| p.iter().chain(xd)).copied();
        Self {
            product,
            first: first.collect(),
        }
    }
}

/// `rows` rows of a width, from a column on, in rows of a stride.
fn part<T>(values: &[T], column: usize, rows: usize, width: usize, stride: usize) -> Matrix<'_, T> {
    Matrix::new(&values[column..], rows, width, stride)
}

/// `y = x W^T` with `W` `[out, in]`.
fn map<T: Real>(x: Matrix<'_, T>, weight: &[T], y: &mut [T], c: usize) {
    let (rows, inputs) = (y.len() / c, weight.len() / c);
    let weight = Matrix::new(weight, c, inputs, inputs).transposed();
    product(
        &mut MatrixMut::new(y, rows, c, c),
        Destination::Set,
        x,
        weight,
    );
}

/// `y = drop(relu(y + bias))`, for rows from `first` on.
fn activate<T: Real>(y: &mut [T], bias: &[T], first: usize, dropout: Option<(Stream, f64)>) {
    let relu = |y: T, bias: T| (y + bias).max(T::zero());
    let c = bias.len();
    let Some((stream, probability)) = dropout else {
        for row in y.chunks_exact_mut(c) {
            row.iter_mut()
                .zip(bias)
                .for_each(|(y, &b)| *y = relu(*y, b));
        }
        return;
    };
    let (limit, factor) = (threshold(probability), T::of(scale(probability)));
    let mut words = vec![0u32; y.len()];
    stream.fill((first * c) as u64, &mut words);
    for (row, words) in y.chunks_exact_mut(c).zip(words.chunks_exact(c)) {
        for ((y, &b), &word) in row.iter_mut().zip(bias).zip(words) {
            let kept = if u64::from(word) >= limit {
                factor
            } else {
                T::zero()
            };
            *y = relu(*y, b) * kept;
        }
    }
}

/// The gradient before `activate` from that behind it, in place, and the sum of its rows.
fn activate_backward<T: Real>(activated: &[T], factor: T, d: &mut [T], sums: &mut [T]) {
    let c = sums.len();
    sums.fill(T::zero());
    for (d, activated) in d.chunks_exact_mut(c).zip(activated.chunks_exact(c)) {
        for ((d, &activated), sum) in d.iter_mut().zip(activated).zip(sums.iter_mut()) {
            *d = if activated > T::zero() {
                factor * *d
            } else {
                T::zero()
            };
            *sum += *d;
        }
    }
}

/// Rows of all buffers of the forward pass.
struct Tile<'a, T> {
    mesh: usize,
    first: usize,
    x: &'a [T],
    features: &'a mut [T],
    mapped: &'a mut [T],
    hidden: [&'a mut [T]; 2],
    y: &'a mut [T],
}

#[allow(clippy::too_many_arguments)]
pub(super) fn forward<T: Real>(
    op: &DiffusionNet,
    mesh_offsets: &[u32],
    spectra: Spectra<&[T]>,
    weights: Weights<&[T]>,
    streams: Option<[Stream; 2]>,
    x: &[T],
    y: &mut [T],
    saved: Saved<&mut [T]>,
    scratch: &mut Scratch<T>,
) {
    let (c, diffusion) = (op.channels, op.diffusion());
    let batch = Batch::new(&diffusion, mesh_offsets, spectra);
    let memory = scratch.take(x.len() + batch.spectrum_length());
    let (massive, spectrum) = memory.split_at_mut(x.len());
    let filters = weights.filters();
    batch.filtered(&diffusion, filters, (x, massive), spectrum, saved.spectrum);
    let (spectrum, terms) = (&*spectrum, diffusion.output_terms());
    let matrices = Matrices::new(c, &weights);
    let (mut features, mut mapped, mut y) = (saved.features, saved.mapped, y);
    let (mut one, mut two) = (saved.first, saved.second);
    let mut tiles = Vec::new();
    for (mesh, first, rows) in batch.tiles() {
        fn rows_of<'a, T>(from: &mut &'a mut [T], count: usize) -> &'a mut [T] {
            from.split_off_mut(..count).unwrap_or_default()
        }
        tiles.push(Tile {
            mesh,
            first,
            x: &x[first * c..(first + rows) * c],
            features: rows_of(&mut features, 5 * rows * c),
            mapped: rows_of(&mut mapped, 2 * rows * c),
            hidden: [rows_of(&mut one, rows * c), rows_of(&mut two, rows * c)],
            y: rows_of(&mut y, rows * c),
        });
    }
    let dropout = |at: usize| streams.map(|streams| (streams[at], op.dropout));
    tiles.into_par_iter().for_each(|tile| {
        let Tile {
            mesh,
            first,
            x,
            features,
            mapped,
            hidden: [one, two],
            y,
        } = tile;
        let rows = x.len() / c;
        let diffused = (&mut features[2 * c..], rows, 5 * c);
        batch.expand_rows(&terms, spectrum, (mesh, first), diffused);
        let vectors = part(features, 3 * c, rows, 2 * c, 5 * c);
        let mut result = MatrixMut::new(mapped, rows, 2 * c, 2 * c);
        let right = Matrix::new(&matrices.product, 2 * c, 2 * c, 2 * c);
        product(&mut result, Destination::Set, vectors, right);
        Arch::new().dispatch(
            #[inline(always)]
            || {
                let inputs = x.chunks_exact(c).zip(mapped.chunks_exact(2 * c));
                for (row, (x, mapped)) in features.chunks_exact_mut(5 * c).zip(inputs) {
                    let (scalars, g) = row.split_at_mut(3 * c);
                    scalars[c..2 * c].copy_from_slice(x);
                    let ((g1, g2), (m1, m2)) = (g.split_at(c), mapped.split_at(c));
                    let pairs = g1.iter().zip(g2).zip(m1.iter().zip(m2));
                    for (p, ((&g1, &g2), (&m1, &m2))) in scalars.iter_mut().zip(pairs) {
                        *p = (g1 * m1 + g2 * m2).fast_tanh();
                    }
                }
            },
        );
        map(
            part(features, 0, rows, 3 * c, 5 * c),
            &matrices.first,
            one,
            c,
        );
        let bias = weights.scalars_bias;
        Arch::new().dispatch(
            #[inline(always)]
            || activate(one, bias, first, dropout(0)),
        );
        map(part(one, 0, rows, c, c), weights.hidden, two, c);
        let bias = weights.hidden_bias;
        Arch::new().dispatch(
            #[inline(always)]
            || activate(two, bias, first, dropout(1)),
        );
        map(part(two, 0, rows, c, c), weights.update, y, c);
        for (y, x) in y.chunks_exact_mut(c).zip(x.chunks_exact(c)) {
            for ((y, &x), &bias) in y.iter_mut().zip(x).zip(weights.update_bias) {
                *y += x + bias;
            }
        }
    });
}

#[allow(clippy::too_many_arguments)]
pub(super) fn backward<T: Real>(
    op: &DiffusionNet,
    mesh_offsets: &[u32],
    dropped: bool,
    spectra: Spectra<&[T]>,
    weights: Weights<&[T]>,
    saved: Saved<&mut [T]>,
    dy: &[T],
    dx: Option<&mut [T]>,
    gradients: Weights<&mut [T]>,
    scratch: &mut Scratch<T>,
) {
    let (c, diffusion) = (op.channels, op.diffusion());
    let batch = Batch::new(&diffusion, mesh_offsets, spectra);
    let rows = dy.len() / c;
    if rows == 0 {
        return;
    }
    let factor = if dropped {
        T::of(scale(op.dropout))
    } else {
        T::one()
    };
    let matrices = Matrices::new(c, &weights);
    let part_rows = rows.div_ceil(MOST_PARTS).max(PART_ROWS);
    // Partial sums of the gradients: update, hidden, W1, A, and their biases.
    let sizes = [c * c, c * c, 3 * c * c, 4 * c * c, 3 * c];
    let each: usize = sizes.iter().sum();
    let count = rows.div_ceil(part_rows);
    let memory = scratch.take(5 * dy.len() + count * each + batch.spectrum_length());
    let (dfeatures, memory) = memory.split_at_mut(5 * dy.len());
    let (partials, spectrum) = memory.split_at_mut(count * each);
    let parts = (dfeatures.par_chunks_mut(5 * part_rows * c))
        .zip(saved.mapped.par_chunks_mut(2 * part_rows * c))
        .zip(partials.par_chunks_exact_mut(each))
        .enumerate();
    parts.for_each(|(index, ((dfeatures, mapped), sums))| {
        let rows = dfeatures.len() / (5 * c);
        let of_width = |values: &'_ [T], width: usize| -> std::ops::Range<usize> {
            let first = index * part_rows * width;
            first..(first + rows * width).min(values.len())
        };
        let dy = &dy[of_width(dy, c)];
        let (one, two) = (
            &saved.first[of_width(saved.first, c)],
            &saved.second[of_width(saved.second, c)],
        );
        let features = &saved.features[of_width(saved.features, 5 * c)];
        let mut rest = sums;
        let [update, hidden, first, product_sums, biases] =
            sizes.map(|size| rest.split_off_mut(..size).unwrap_or_default());
        let (bias_sums, update_bias) = biases.split_at_mut(2 * c);
        let (first_bias, hidden_bias) = bias_sums.split_at_mut(c);
        // `sums = a^T b`.
        let over_rows = |sums: &mut [T], a: Matrix<'_, T>, b: Matrix<'_, T>, m: usize, n: usize| {
            product(
                &mut MatrixMut::new(sums, m, n, n),
                Destination::Set,
                a.transposed(),
                b,
            );
        };
        let square = |weight| Matrix::new(weight, c, c, c);
        let narrow = |values| Matrix::new(values, rows, c, c);
        let mut dtwo = vec![T::zero(); rows * c];
        let mut done = vec![T::zero(); rows * c];
        update_bias.fill(T::zero());
        for row in dy.chunks_exact(c) {
            update_bias
                .iter_mut()
                .zip(row)
                .for_each(|(sum, &dy)| *sum += dy);
        }
        over_rows(update, narrow(dy), narrow(two), c, c);
        let mut to = MatrixMut::new(&mut dtwo, rows, c, c);
        product(
            &mut to,
            Destination::Set,
            narrow(dy),
            square(weights.update),
        );
        Arch::new().dispatch(
            #[inline(always)]
            || activate_backward(two, factor, &mut dtwo, hidden_bias),
        );
        over_rows(hidden, narrow(&dtwo), narrow(one), c, c);
        let mut to = MatrixMut::new(&mut done, rows, c, c);
        product(
            &mut to,
            Destination::Set,
            narrow(&dtwo),
            square(weights.hidden),
        );
        Arch::new().dispatch(
            #[inline(always)]
            || activate_backward(one, factor, &mut done, first_bias),
        );
        let scalars = part(features, 0, rows, 3 * c, 5 * c);
        over_rows(first, narrow(&done), scalars, c, 3 * c);
        let mut to = MatrixMut::new(dfeatures, rows, 3 * c, 5 * c);
        let weight = Matrix::new(&matrices.first, c, 3 * c, 3 * c);
        product(&mut to, Destination::Set, narrow(&done), weight);
        Arch::new().dispatch(
            #[inline(always)]
            || invariants_backward(c, features, mapped, dfeatures),
        );
        let mapped = Matrix::new(mapped, rows, 2 * c, 2 * c);
        let mut to = MatrixMut::new(&mut dfeatures[3 * c..], rows, 2 * c, 5 * c);
        let right = Matrix::new(&matrices.product, 2 * c, 2 * c, 2 * c).transposed();
        product(&mut to, Destination::Add, mapped, right);
        let vectors = part(features, 3 * c, rows, 2 * c, 5 * c);
        over_rows(product_sums, vectors, mapped, 2 * c, 2 * c);
    });
    add_gradients(
        c,
        sizes,
        sum_partials(partials, each),
        &mut [
            gradients.update,
            gradients.hidden,
            gradients.invariants,
            gradients.scalars,
            gradients.product,
            gradients.scalars_bias,
            gradients.hidden_bias,
            gradients.update_bias,
        ],
    );
    batch.project(
        &diffusion.output_terms(),
        (&dfeatures[2 * c..], 5 * c),
        spectrum,
    );
    let dfilters = Filters {
        log_times: gradients.log_times,
        bands: gradients.bands,
    };
    batch.filter_backward(
        &diffusion,
        weights.filters(),
        spectrum,
        saved.spectrum,
        dfilters,
    );
    let Some(dx) = dx else { return };
    batch.expand(&diffusion.input_terms(), spectrum, true, (dx, c));
    let others = dy.par_chunks(c).zip(dfeatures.par_chunks(5 * c));
    dx.par_chunks_mut(c)
        .with_min_len(64)
        .zip(others)
        .for_each(|(dx, (dy, dfeatures))| {
            for ((dx, &dy), &d) in dx.iter_mut().zip(dy).zip(&dfeatures[c..2 * c]) {
                *dx += dy + d;
            }
        });
}

/// From the gradient of `p`: that of `g`, of which the part through `A` is missing, and that of `mapped` in its place.
#[inline(always)]
fn invariants_backward<T: Real>(c: usize, features: &[T], mapped: &mut [T], dfeatures: &mut [T]) {
    let rows = features
        .chunks_exact(5 * c)
        .zip(mapped.chunks_exact_mut(2 * c));
    for (dfeatures, (features, mapped)) in dfeatures.chunks_exact_mut(5 * c).zip(rows) {
        let (dscalars, dg) = dfeatures.split_at_mut(3 * c);
        let (p, g) = (&features[..c], &features[3 * c..]);
        for component in 0..2 {
            let range = component * c..(component + 1) * c;
            let pairs = g[range.clone()].iter().zip(&mut mapped[range.clone()]);
            let scalars = p.iter().zip(&*dscalars);
            for ((dg, (&g, mapped)), (&p, &dp)) in dg[range].iter_mut().zip(pairs).zip(scalars) {
                let d = dp * (T::one() - p * p);
                *dg = d * *mapped;
                *mapped = d * g;
            }
        }
    }
}

/// Adds the sums over all rows, in the order of `sizes`, to the gradients: update, hidden, invariants, scalars, product and
/// the biases of scalars, hidden and update.
fn add_gradients<T: Real>(c: usize, sizes: [usize; 5], total: &[T], gradients: &mut [&mut [T]; 8]) {
    let mut rest = total;
    let [update, hidden, first, product, biases] =
        sizes.map(|size| rest.split_off(..size).unwrap_or_default());
    let add = |to: &mut [T], sums: &[T]| {
        to.iter_mut().zip(sums).for_each(|(to, &sum)| *to += sum);
    };
    add(gradients[0], update);
    add(gradients[1], hidden);
    for (row, sums) in first.chunks_exact(3 * c).enumerate() {
        let (p, xd) = sums.split_at(c);
        add(&mut gradients[2][row * c..], p);
        add(&mut gradients[3][row * 2 * c..], xd);
    }
    let vectors = FeatureType::new(&[0, c]);
    for block in blocks(&vectors, &vectors) {
        for (row, sums) in product.chunks_exact(2 * c).enumerate() {
            for (column, &sum) in sums.iter().enumerate() {
                let part = block.part(column, row);
                gradients[4][part.weight] += signed(sum, part);
            }
        }
    }
    for (gradient, sums) in gradients[5..].iter_mut().zip(biases.chunks_exact(c)) {
        add(gradient, sums);
    }
}
