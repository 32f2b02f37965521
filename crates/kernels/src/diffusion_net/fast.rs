//! The block on the CPU: a tile of rows goes through all layers while it is in the cache.

use super::{DiffusionNet, Saved, Weights};
use crate::diffusion::fast::Batch;
use crate::diffusion::{Filters, Spectra};
use crate::dropout::{scale, threshold};
use crate::parallel::sum_partials;
use crate::random::Stream;
use crate::simd::vectorised;
use crate::{Destination, Matrix, MatrixMut, Real, Scratch, product};
use rayon::prelude::*;

/// Most partial sums of the gradients of the weights, and fewest rows of one.
const MAX_PARTS: usize = 16;
const PART_ROWS: usize = 256;

/// Matrices that are laid out anew.
struct Matrices<T> {
    /// Columns of `W1` for `[p | x]`, `[out, in]`.
    first: Vec<T>,
    /// What applies to spectra: `a`, `b`, and the columns of `W1` for `d`, each `[out, in]`.
    maps: Vec<T>,
}

impl<T: Real> Matrices<T> {
    fn new(c: usize, weights: &Weights<&[T]>) -> Self {
        let scalars = weights.scalars.chunks_exact(2 * c);
        let rows = weights.invariants.chunks_exact(c).zip(scalars.clone());
        let first = rows.flat_map(|(p, scalars)| p.iter().chain(&scalars[..c]));
        let diffused = scalars.flat_map(|scalars| &scalars[c..]);
        Self { first: first.copied().collect(), maps: weights.product.iter().chain(diffused).copied().collect() }
    }

    /// Right factors of all meshes, each in rows `[S | S (a + b)^T | S (b - a)^T | S | S a^T | S W1d^T]`: three
    /// products instead of four for both components of `A g`.
    fn factors(&self, c: usize, spectra: &[T]) -> Vec<T> {
        let square = c * c;
        let (a, b) = (&self.maps[..square], &self.maps[square..2 * square]);
        let pairs = || a.iter().zip(b);
        let sums = pairs().map(|(&a, &b)| a + b);
        let sums = sums.chain(pairs().map(|(&a, &b)| b - a));
        let middle: Vec<T> = sums.collect();
        let last = [a, &self.maps[2 * square..]].concat();
        let rows = spectra.len() / c;
        let mut factors = vec![T::zero(); 6 * spectra.len()];
        for (row, s) in factors.chunks_exact_mut(6 * c).zip(spectra.chunks_exact(c)) {
            row[..c].copy_from_slice(s);
            row[3 * c..4 * c].copy_from_slice(s);
        }
        for (place, map) in [(c, middle), (4 * c, last)] {
            let mut to = MatrixMut::new(&mut factors[place..], rows, 2 * c, 6 * c);
            let map = Matrix::new(&map, 2 * c, c, c).transposed();
            let s = Matrix::new(spectra, rows, c, c);
            product(&mut to, Destination::Set, s, map);
        }
        factors
    }
}

/// `rows` rows of a width, starting at a column, in rows of a stride.
fn part<T>(values: &[T], column: usize, rows: usize, width: usize, stride: usize) -> Matrix<'_, T> {
    Matrix::new(&values[column..], rows, width, stride)
}

/// `y = x W^T` with `W` `[out, in]`.
fn map<T: Real>(x: Matrix<'_, T>, weight: &[T], y: &mut [T], c: usize) {
    let (rows, inputs) = (y.len() / c, weight.len() / c);
    let weight = Matrix::new(weight, c, inputs, inputs).transposed();
    product(&mut MatrixMut::new(y, rows, c, c), Destination::Set, x, weight);
}

/// `y = drop(relu(y + bias))`, for rows starting at `first`.
#[inline(always)]
fn activate<T: Real>(y: &mut [T], bias: &[T], first: usize, dropout: Option<(Stream, f64)>) {
    let relu = |y: T, bias: T| (y + bias).max(T::zero());
    let c = bias.len();
    let Some((stream, probability)) = dropout else {
        for row in y.chunks_exact_mut(c) {
            row.iter_mut().zip(bias).for_each(|(y, &b)| *y = relu(*y, b));
        }
        return;
    };
    let (limit, factor) = (threshold(probability), T::of(scale(probability)));
    let mut words = vec![0u32; y.len()];
    stream.fill((first * c) as u64, &mut words);
    for (row, words) in y.chunks_exact_mut(c).zip(words.chunks_exact(c)) {
        for ((y, &b), &word) in row.iter_mut().zip(bias).zip(words) {
            let kept = if u64::from(word) >= limit { factor } else { T::zero() };
            *y = relu(*y, b) * kept;
        }
    }
}

/// The gradient before `activate` from that behind it, in place, and the sum of its rows.
#[inline(always)]
fn activate_backward<T: Real>(activated: &[T], factor: T, d: &mut [T], sums: &mut [T]) {
    let c = sums.len();
    sums.fill(T::zero());
    for (d, activated) in d.chunks_exact_mut(c).zip(activated.chunks_exact(c)) {
        for ((d, &activated), sum) in d.iter_mut().zip(activated).zip(sums.iter_mut()) {
            *d = if activated > T::zero() { factor * *d } else { T::zero() };
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
    let matrices = Matrices::new(c, &weights);
    let factors = matrices.factors(c, spectrum);
    let columns = op.columns[0];
    let factor_size = 6 * columns * c;
    let scalars = &diffusion.input_terms()[0];
    let gradients = diffusion.gradient_terms(c);
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
            features: rows_of(&mut features, 2 * rows * c),
            mapped: rows_of(&mut mapped, 4 * rows * c),
            hidden: [rows_of(&mut one, rows * c), rows_of(&mut two, rows * c)],
            y: rows_of(&mut y, rows * c),
        });
    }
    let dropout = |at: usize| streams.map(|streams| (streams[at], op.dropout));
    tiles.into_par_iter().for_each(|tile| {
        let Tile { mesh, first, x, features, mapped, hidden: [one, two], y } = tile;
        let rows = x.len() / c;
        let of_mesh = &factors[mesh * factor_size..][..factor_size];
        let factor = |place: usize, width| part(&of_mesh[place * c..], 0, columns, width, 6 * c);
        let basis = |term| batch.basis(term, first, rows, (0, columns));
        for (place, term) in gradients.iter().enumerate() {
            let right = factor(2 * place, 2 * c);
            let mut to = MatrixMut::new(&mut mapped[2 * place * c..], rows, 2 * c, 4 * c);
            product(&mut to, Destination::Set, basis(term), right);
        }
        let both = batch.basis_rows(&gradients[0], first);
        let mut memory = vec![T::zero(); rows * (columns + c)];
        let (sums, shared) = memory.split_at_mut(rows * columns);
        let pairs = sums.chunks_exact_mut(columns).zip(both.chunks_exact(2 * columns));
        for (sums, both) in pairs {
            let (one, two) = both.split_at(columns);
            for ((sum, &one), &two) in sums.iter_mut().zip(one).zip(two) {
                *sum = one + two;
            }
        }
        let mut to = MatrixMut::new(shared, rows, c, c);
        product(&mut to, Destination::Set, part(sums, 0, rows, columns, columns), factor(4, c));
        vectorised(
            #[inline(always)]
            || invariants(c, x, shared, mapped, features),
        );
        let mut to = MatrixMut::new(one, rows, c, c);
        product(&mut to, Destination::Set, basis(scalars), factor(5, c));
        let weight = Matrix::new(&matrices.first, c, 2 * c, 2 * c).transposed();
        product(&mut to, Destination::Add, part(features, 0, rows, 2 * c, 2 * c), weight);
        let bias = weights.scalars_bias;
        vectorised(
            #[inline(always)]
            || activate(one, bias, first, dropout(0)),
        );
        map(part(one, 0, rows, c, c), weights.hidden, two, c);
        let bias = weights.hidden_bias;
        vectorised(
            #[inline(always)]
            || activate(two, bias, first, dropout(1)),
        );
        map(part(two, 0, rows, c, c), weights.update, y, c);
        vectorised(
            #[inline(always)]
            || {
                for (y, x) in y.chunks_exact_mut(c).zip(x.chunks_exact(c)) {
                    for ((y, &x), &bias) in y.iter_mut().zip(x).zip(weights.update_bias) {
                        *y += x + bias;
                    }
                }
            },
        );
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
    let factor = if dropped { T::of(scale(op.dropout)) } else { T::one() };
    let matrices = Matrices::new(c, &weights);
    let part_rows = rows.div_ceil(MAX_PARTS).max(PART_ROWS);
    // Partial sums of the gradients: update, hidden, W1 for [p | x], and biases.
    let sizes = [c * c, c * c, 2 * c * c, 3 * c];
    let each: usize = sizes.iter().sum();
    let count = rows.div_ceil(part_rows);
    let vectors = batch.with_raw(6 * op.columns[0] * c);
    let spectra = [2 * batch.spectrum_length(), vectors.spectrum_length()];
    let memory = scratch.take(3 * dy.len() + count * each + spectra.iter().sum::<usize>());
    let (dfirst, memory) = memory.split_at_mut(dy.len());
    let (dfeatures, memory) = memory.split_at_mut(2 * dy.len());
    let (partials, memory) = memory.split_at_mut(count * each);
    let (dscalars, dvectors) = memory.split_at_mut(spectra[0]);
    let (dscalars, filtered) = dscalars.split_at_mut(spectra[0] / 2);
    let parts = (dfeatures.par_chunks_mut(2 * part_rows * c))
        .zip(dfirst.par_chunks_mut(part_rows * c))
        .zip(saved.mapped.par_chunks_mut(4 * part_rows * c))
        .zip(partials.par_chunks_exact_mut(each))
        .enumerate();
    parts.for_each(|(index, (((dfeatures, done), mapped), sums))| {
        let rows = done.len() / c;
        let of_width = |values: &'_ [T], width: usize| -> std::ops::Range<usize> {
            let first = index * part_rows * width;
            first..(first + rows * width).min(values.len())
        };
        let dy = &dy[of_width(dy, c)];
        let (one, two) = (&saved.first[of_width(saved.first, c)], &saved.second[of_width(saved.second, c)]);
        let features = &saved.features[of_width(saved.features, 2 * c)];
        let mut rest = sums;
        let [update, hidden, first, biases] = sizes.map(|size| rest.split_off_mut(..size).unwrap_or_default());
        let (bias_sums, update_bias) = biases.split_at_mut(2 * c);
        let (first_bias, hidden_bias) = bias_sums.split_at_mut(c);
        // `sums = a^T b`.
        let over_rows = |sums: &mut [T], a: Matrix<'_, T>, b: Matrix<'_, T>, n: usize| {
            product(&mut MatrixMut::new(sums, c, n, n), Destination::Set, a.transposed(), b);
        };
        let square = |weight| Matrix::new(weight, c, c, c);
        let narrow = |values| Matrix::new(values, rows, c, c);
        let mut dtwo = vec![T::zero(); rows * c];
        update_bias.fill(T::zero());
        for row in dy.chunks_exact(c) {
            update_bias.iter_mut().zip(row).for_each(|(sum, &dy)| *sum += dy);
        }
        over_rows(update, narrow(dy), narrow(two), c);
        let mut to = MatrixMut::new(&mut dtwo, rows, c, c);
        product(&mut to, Destination::Set, narrow(dy), square(weights.update));
        vectorised(
            #[inline(always)]
            || activate_backward(two, factor, &mut dtwo, hidden_bias),
        );
        over_rows(hidden, narrow(&dtwo), narrow(one), c);
        let mut to = MatrixMut::new(done, rows, c, c);
        product(&mut to, Destination::Set, narrow(&dtwo), square(weights.hidden));
        vectorised(
            #[inline(always)]
            || activate_backward(one, factor, done, first_bias),
        );
        let wide = Matrix::new(features, rows, 2 * c, 2 * c);
        over_rows(first, narrow(done), wide, 2 * c);
        let mut to = MatrixMut::new(dfeatures, rows, 2 * c, 2 * c);
        let weight = Matrix::new(&matrices.first, c, 2 * c, 2 * c);
        product(&mut to, Destination::Set, narrow(done), weight);
        vectorised(
            #[inline(always)]
            || invariants_backward(c, features, dfeatures, mapped),
        );
    });
    let total = sum_partials(partials, each);
    batch.project(&diffusion.input_terms(), (dfirst, c), dscalars);
    let terms = diffusion.gradient_terms(3 * c);
    vectors.project(&terms, (saved.mapped, 4 * c), dvectors);
    // Gradients of what applies to spectra, in rows [S a^T | S b^T | S W1d^T], and of S.
    let mut dmaps = vec![T::zero(); 3 * dscalars.len()];
    combine(c, op.columns[0], dvectors, dscalars, &mut dmaps);
    let spectral = dscalars.len() / c;
    let dmaps = Matrix::new(&dmaps, spectral, 3 * c, 3 * c);
    let maps = Matrix::new(&matrices.maps, 3 * c, c, c);
    let mut to = MatrixMut::new(dscalars, spectral, c, c);
    product(&mut to, Destination::Add, dmaps, maps);
    batch.filter_saved(&diffusion, weights.filters(), saved.spectrum, filtered);
    let mut dweights = vec![T::zero(); 3 * c * c];
    let mut to = MatrixMut::new(&mut dweights, 3 * c, c, c);
    let filtered = Matrix::new(filtered, spectral, c, c);
    product(&mut to, Destination::Set, dmaps.transposed(), filtered);
    let mut rest = total;
    let [update, hidden, first, biases] = sizes.map(|size| rest.split_off(..size).unwrap_or_default());
    add(gradients.update, update);
    add(gradients.hidden, hidden);
    add(gradients.product, &dweights[..2 * c * c]);
    let rows_of_first = first.chunks_exact(2 * c);
    let rows_of_first = rows_of_first.zip(dweights[2 * c * c..].chunks_exact(c));
    for (row, (first, diffused)) in rows_of_first.enumerate() {
        let (p, x) = first.split_at(c);
        add(&mut gradients.invariants[row * c..], p);
        let scalars = &mut gradients.scalars[row * 2 * c..];
        add(scalars, x);
        add(&mut scalars[c..], diffused);
    }
    let dbiases = [gradients.scalars_bias, gradients.hidden_bias, gradients.update_bias];
    for (gradient, sums) in dbiases.into_iter().zip(biases.chunks_exact(c)) {
        add(gradient, sums);
    }
    let dfilters = Filters { log_times: gradients.log_times, bands: gradients.bands };
    batch.filter_backward(&diffusion, weights.filters(), dscalars, saved.spectrum, dfilters);
    let Some(dx) = dx else { return };
    batch.expand(&diffusion.input_terms(), dscalars, true, (dx, c));
    let others = dy.par_chunks(c).zip(dfeatures.par_chunks(2 * c));
    dx.par_chunks_mut(c).with_min_len(64).zip(others).for_each(|(dx, (dy, dfeatures))| {
        for ((dx, &dy), &d) in dx.iter_mut().zip(dy).zip(&dfeatures[c..]) {
            *dx += dy + d;
        }
    });
}

#[inline(always)]
fn add<T: Real>(to: &mut [T], sums: &[T]) {
    to.iter_mut().zip(sums).for_each(|(to, &sum)| *to += sum);
}

/// `[p | x]` of rows, and `A g` from three products: `mapped` has rows `[g1 | g1 (a + b) | g2 (b - a) | g2]`, which
/// become `[g1 | (A g)2 | (A g)1 | g2]`, and `shared` rows `(g1 + g2) a`.
#[inline(always)]
fn invariants<T: Real>(c: usize, x: &[T], shared: &[T], mapped: &mut [T], features: &mut [T]) {
    let rows = mapped.chunks_exact_mut(4 * c).zip(shared.chunks_exact(c));
    let rows = rows.zip(x.chunks_exact(c).zip(features.chunks_exact_mut(2 * c)));
    for ((mapped, shared), (x, features)) in rows {
        let (p, to) = features.split_at_mut(c);
        to.copy_from_slice(x);
        let (first, second) = mapped.split_at_mut(2 * c);
        let ((g1, m2), (m1, g2)) = (first.split_at_mut(c), second.split_at_mut(c));
        // Loops over few slices each: the compiler makes no vectors of those over many.
        add(m1, shared);
        for (m2, &shared) in m2.iter_mut().zip(shared) {
            *m2 = shared - *m2;
        }
        let vectors = g1.iter().zip(&*m1).zip(g2.iter().zip(&*m2));
        for (p, ((&g1, &m1), (&g2, &m2))) in p.iter_mut().zip(vectors) {
            *p = g1 * m1 + g2 * m2;
        }
        p.iter_mut().for_each(|p| *p = p.fast_tanh());
    }
}

/// From the gradient of `p`, the first half of a row of `dfeatures`: in place of `[g1 | (A g)2 | (A g)1 | g2]`,
/// those of `[g1 | (A g)1 | (A g)2 | g2]`, of which the part of `g` through `A` is missing.
#[inline(always)]
fn invariants_backward<T: Real>(c: usize, features: &[T], dfeatures: &[T], mapped: &mut [T]) {
    let rows = features.chunks_exact(2 * c).zip(dfeatures.chunks_exact(2 * c));
    let mut d = vec![T::zero(); c];
    for (mapped, (p, dp)) in mapped.chunks_exact_mut(4 * c).zip(rows) {
        for (d, (&p, &dp)) in d.iter_mut().zip(p.iter().zip(dp)) {
            *d = dp * (T::one() - p * p);
        }
        let (first, second) = mapped.split_at_mut(2 * c);
        let (one, two) = first.split_at_mut(c);
        let (three, four) = second.split_at_mut(c);
        one.swap_with_slice(three);
        two.swap_with_slice(three);
        three.swap_with_slice(four);
        for part in [one, two, three, four] {
            part.iter_mut().zip(&d).for_each(|(part, &d)| *part *= d);
        }
    }
}

/// From `G1^T [dg1 | dm1 | dm2]` and `G2^T [dm1 | dm2 | dg2]` of all meshes, and the gradient of `S W1d^T` in
/// `dspectra`: that of `S` but for what applies to it, in its place, and rows `[S a^T | S b^T | S W1d^T]` of gradients.
fn combine<T: Real>(c: usize, columns: usize, vectors: &[T], dspectra: &mut [T], dmaps: &mut [T]) {
    let size = 3 * columns * c;
    let meshes =
        vectors.chunks_exact(2 * size).zip(dspectra.chunks_exact_mut(columns * c)).zip(dmaps.chunks_exact_mut(size));
    for ((vectors, dspectra), dmaps) in meshes {
        let (one, two) = vectors.split_at(size);
        let rows = one.chunks_exact(3 * c).zip(two.chunks_exact(3 * c));
        let to = dspectra.chunks_exact_mut(c).zip(dmaps.chunks_exact_mut(3 * c));
        for ((one, two), (dspectra, dmaps)) in rows.zip(to) {
            for at in 0..c {
                dmaps[at] = one[at + c] + two[at + c];
                dmaps[at + c] = two[at] - one[at + 2 * c];
                dmaps[at + 2 * c] = dspectra[at];
                dspectra[at] = one[at] + two[at + 2 * c];
            }
        }
    }
}
