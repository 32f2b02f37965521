//! One pass over the features for the sums, one for the result, with SIMD vectors over the columns.

use super::{Backward, BatchNorm, Forward, HostNormalisation, Normalisation, Origin, Statistics, moment_weight};
use crate::parallel::Loop;
use crate::partials::{fold_partials, partial_rows, partials_length};
use crate::real::compiled;
use crate::{Host, HostScratch, Real, Scratch};
use pulp::{Arch, NullaryFnOnce};
use rayon::prelude::*;
use std::ops::Range;

/// Rows that stay in the first-level cache between two passes.
const CACHED_ROWS: usize = 32;
/// Rows of one task.
const TASK_ROWS: usize = 128;

/// `sum (x - shift)` and `sum (x - shift)^2` of every column.
struct Moments<'a, T> {
    x: &'a [T],
    shift: &'a [f64],
    sums: &'a mut [f64],
    squares: &'a mut [f64],
}

impl<T: Real> NullaryFnOnce for Moments<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for row in self.x.chunks_exact(self.shift.len()) {
            let sums = self.sums.iter_mut().zip(self.squares.iter_mut());
            for ((&x, &shift), (sum, square)) in row.iter().zip(self.shift).zip(sums) {
                let difference = x.as_f64() - shift;
                *sum += difference;
                *square += difference * difference;
            }
        }
    }
}

/// `sum dy` and `sum dy (x - mean)` of every column.
struct Products<'a, T> {
    x: &'a [T],
    dy: &'a [T],
    mean: &'a [f64],
    sums: &'a mut [f64],
    products: &'a mut [f64],
}

impl<T: Real> NullaryFnOnce for Products<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let width = self.mean.len();
        let rows = self.x.chunks_exact(width).zip(self.dy.chunks_exact(width));
        for (x, dy) in rows {
            let sums = self.sums.iter_mut().zip(self.products.iter_mut());
            let inputs = x.iter().zip(dy).zip(self.mean);
            for (((&x, &dy), &mean), (sum, product)) in inputs.zip(sums) {
                let dy = dy.as_f64();
                *sum += dy;
                *product += dy * (x.as_f64() - mean);
            }
        }
    }
}

pub(super) fn statistics<T: Real>(
    config: &BatchNorm,
    vertices: usize,
    x: &[T],
    scratch: &mut Scratch<f64>,
) -> Statistics {
    let width = config.kind.dimension();
    let scalars = config.kind.multiplicity(0);
    // Order 0 is shifted by its first row, so that a large common offset does not cost precision.
    let shift: Vec<f64> = (0..width)
        .map(|column| match x.get(column) {
            Some(value) if column < scalars => value.as_f64(),
            _ => 0.0,
        })
        .collect();
    let rows = partial_rows(vertices);
    let partials = scratch.take(partials_length(vertices, 2 * width));
    partials.fill(0.0);
    (partials.par_chunks_mut((2 * width).max(1))).zip(x.par_chunks((rows * width).max(1))).run(|(partial, x)| {
        let (sums, squares) = partial.split_at_mut(width);
        Arch::new().dispatch(Moments { x, shift: &shift, sums, squares });
    });
    let folded = fold_partials(partials, 2 * width);
    let (sums, squares) = folded.split_at(width);
    let count = (vertices as f64).max(1.0);
    let slots = config.columns().map(|(slot, _)| slot + 1).max();
    let mut mean = vec![0.0; slots.unwrap_or(0)];
    let mut variance = mean.clone();
    for (column, (slot, order)) in config.columns().enumerate() {
        let square = squares[column] / count;
        if order == 0 {
            let shifted = sums[column] / count;
            mean[slot] = shift[column] + shifted;
            variance[slot] += (square - shifted * shifted).max(0.0);
        } else {
            variance[slot] += moment_weight(order) * square;
        }
    }
    Statistics { mean, variance, origin: Origin::Batch { vertices } }
}

/// `y = (x - centre) scale + shift`, column by column.
#[derive(Debug, Clone)]
pub(crate) struct Affine<T> {
    pub(crate) centre: Vec<T>,
    pub(crate) scale: Vec<T>,
    pub(crate) shift: Vec<T>,
}

impl<T: Real> Affine<T> {
    pub(crate) fn new(normalisation: &HostNormalisation<'_, T>) -> Self {
        let Normalisation { config, statistics, gamma, beta } = normalisation;
        let scalar = |order: usize, value: T| if order == 0 { value } else { T::zero() };
        Self {
            centre: (config.columns()).map(|(slot, order)| scalar(order, T::of(statistics.mean[slot]))).collect(),
            scale: (config.columns())
                .map(|(slot, _)| T::of(gamma[slot].as_f64() * inverse_deviation(config, statistics, slot)))
                .collect(),
            shift: (config.columns()).map(|(slot, order)| scalar(order, beta[slot])).collect(),
        }
    }
}

fn inverse_deviation(config: &BatchNorm, statistics: &Statistics, slot: usize) -> f64 {
    1.0 / (statistics.variance[slot] + config.epsilon).sqrt()
}

struct Apply<'a, T> {
    affine: &'a Affine<T>,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> NullaryFnOnce for Apply<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Affine { centre, scale, shift } = self.affine;
        let width = centre.len();
        let rows = self.x.chunks_exact(width).zip(self.y.chunks_exact_mut(width));
        for (x, y) in rows {
            let map = centre.iter().zip(scale).zip(shift);
            for ((y, &x), ((&centre, &scale), &shift)) in y.iter_mut().zip(x).zip(map) {
                *y = (x - centre) * scale + shift;
            }
        }
    }
}

pub(super) fn forward<T: Real>(pass: Forward<'_, Host<T>>) {
    let Forward { norm, x, y, .. } = pass;
    let affine = &Affine::new(&norm);
    let block = (TASK_ROWS * affine.centre.len()).max(1);
    y.par_chunks_mut(block).zip(x.par_chunks(block)).run(|(y, x)| Arch::new().dispatch(Apply { affine, x, y }));
}

pub(super) fn backward<T: Real>(pass: Backward<'_, Host<T>>, scratch: HostScratch<'_, T>) {
    let Backward { rows, norm, x, dy, dx, dgamma, dbeta } = pass;
    let width = norm.config.kind.dimension();
    let fill = |rows: Range<usize>, gradient: &mut [T]| {
        gradient.copy_from_slice(&dy[rows.start * width..rows.end * width]);
    };
    backward_with(&norm, rows, x, dx, [dgamma, dbeta], scratch.wide, &fill);
}

/// The whole backward pass, in place: `fill` writes the gradient of the normalised rows into `dx`,
/// block by block, and each block is summed while it is in the cache. `gradients` are those of gamma and beta.
pub(crate) fn backward_with<T: Real>(
    normalisation: &HostNormalisation<'_, T>,
    vertices: usize,
    x: &[T],
    dx: &mut [T],
    gradients: [&mut [T]; 2],
    scratch: &mut Scratch<f64>,
    fill: &Fill<'_, T>,
) {
    compiled!(
        sum_and_combine
            as fn(&HostNormalisation<'_, T>, usize, &[T], &mut [T], [&mut [T]; 2], &mut Scratch<f64>, &Fill<'_, T>)
    )(normalisation, vertices, x, dx, gradients, scratch, fill);
}

/// Writes the gradient of a range of rows.
type Fill<'a, T> = dyn Fn(Range<usize>, &mut [T]) + Sync + 'a;

fn sum_and_combine<T: Real>(
    normalisation: &HostNormalisation<'_, T>,
    vertices: usize,
    x: &[T],
    dx: &mut [T],
    gradients: [&mut [T]; 2],
    scratch: &mut Scratch<f64>,
    fill: &Fill<'_, T>,
) {
    let Normalisation { config, statistics, gamma, .. } = normalisation;
    let width = config.kind.dimension();
    if width == 0 {
        return;
    }
    let mean: Vec<f64> =
        (config.columns()).map(|(slot, order)| if order == 0 { statistics.mean[slot] } else { 0.0 }).collect();

    let rows = partial_rows(vertices);
    let partials = scratch.take(partials_length(vertices, 2 * width));
    partials.fill(0.0);
    (partials.par_chunks_mut(2 * width).enumerate()).zip(dx.par_chunks_mut(rows * width)).run(
        |((partial, sums), dx)| {
            let (sums, products) = sums.split_at_mut(width);
            for (block, dy) in dx.chunks_mut(CACHED_ROWS * width).enumerate() {
                let start = partial * rows + block * CACHED_ROWS;
                let end = start + dy.len() / width;
                fill(start..end, dy);
                Arch::new().dispatch(Products { x: &x[start * width..end * width], dy, mean: &mean, sums, products });
            }
        },
    );
    let folded = fold_partials(partials, 2 * width);
    let (sums, products) = folded.split_at(width);

    let slots = gamma.len();
    let (mut dgamma, mut dbeta) = (vec![0.0; slots], vec![0.0; slots]);
    for (column, (slot, order)) in config.columns().enumerate() {
        dgamma[slot] += products[column] * inverse_deviation(config, statistics, slot);
        if order == 0 {
            dbeta[slot] += sums[column];
        }
    }
    for slot in 0..slots {
        gradients[0][slot] += T::of(dgamma[slot]);
        gradients[1][slot] += T::of(dbeta[slot]);
    }

    let through = match statistics.origin {
        Origin::Batch { vertices } => 1.0 / (vertices as f64).max(1.0),
        Origin::Running => 0.0,
    };
    let mut combine = Combine::default();
    for (slot, order) in config.columns() {
        let inverse = inverse_deviation(config, statistics, slot);
        let scale = gamma[slot].as_f64() * inverse;
        let of_input = -scale * inverse * moment_weight(order) * dgamma[slot] * through;
        let (centre, constant) =
            if order == 0 { (statistics.mean[slot], -scale * dbeta[slot] * through) } else { (0.0, 0.0) };
        combine.of_gradient.push(T::of(scale));
        combine.of_input.push(T::of(of_input));
        combine.centre.push(T::of(centre));
        combine.constant.push(T::of(constant));
    }
    let block = TASK_ROWS * width;
    dx.par_chunks_mut(block).zip(x.par_chunks(block)).run(|(dx, x)| {
        Arch::new().dispatch(CombineRows { combine: &combine, x, dx });
    });
}

/// `dx = of_gradient dx + of_input (x - centre) + constant`, column by column.
#[derive(Default)]
struct Combine<T> {
    of_gradient: Vec<T>,
    of_input: Vec<T>,
    centre: Vec<T>,
    constant: Vec<T>,
}

struct CombineRows<'a, T> {
    combine: &'a Combine<T>,
    x: &'a [T],
    dx: &'a mut [T],
}

impl<T: Real> NullaryFnOnce for CombineRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Combine { of_gradient, of_input, centre, constant } = self.combine;
        let width = centre.len();
        let rows = self.x.chunks_exact(width).zip(self.dx.chunks_exact_mut(width));
        for (x, dx) in rows {
            let map = of_gradient.iter().zip(of_input).zip(centre.iter().zip(constant));
            for ((dx, &x), ((&gradient, &input), (&centre, &constant))) in dx.iter_mut().zip(x).zip(map) {
                *dx = gradient * *dx + input * (x - centre) + constant;
            }
        }
    }
}
