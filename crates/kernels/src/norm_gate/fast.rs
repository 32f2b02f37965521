//! Loops over the channels of an order, which are contiguous.

use super::{Block, GatedNonlinearity, NormNonlinearity, blocks, sigmoid};
use crate::activation::{Slopes, Values};
use crate::parallel::Loop;
use crate::partials::{fold_partials, partial_rows, partials_length};
use crate::{Real, Scratch};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Rows of one task.
const TASK_ROWS: usize = 64;

struct NormForward<'a, T> {
    config: &'a NormNonlinearity,
    blocks: &'a [Block],
    bias: &'a [T],
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> WithSimd for NormForward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let activation = &self.config.activation;
        let (width, scalars) = (self.config.kind.dimension(), self.config.kind.multiplicity(0));
        let epsilon = T::of(self.config.epsilon);
        let mut radius = vec![T::zero(); self.bias.len()];
        let (mut shifted, mut value) = (radius.clone(), radius.clone());
        let rows = self.x.chunks_exact(width).zip(self.y.chunks_exact_mut(width));
        for (x, y) in rows {
            let (x_scalars, y_scalars) = (&x[..scalars], &mut y[..scalars]);
            Values { activation, x: x_scalars, y: y_scalars }.with_simd(simd);
            radii(self.blocks, epsilon, x, self.bias, &mut radius, &mut shifted);
            Values { activation, x: &shifted, y: &mut value }.with_simd(simd);
            for block in self.blocks {
                let (xa, xb) = block.components(x);
                let (ya, yb) = block.components_mut(y);
                let factors = block.of(&value).iter().zip(block.of(&radius));
                let places = xa.iter().zip(xb).zip(ya.iter_mut().zip(yb));
                for (((&xa, &xb), (ya, yb)), (&value, &radius)) in places.zip(factors) {
                    let factor = value / radius;
                    *ya = xa * factor;
                    *yb = xb * factor;
                }
            }
        }
    }
}

/// `r = sqrt(|x|^2 + epsilon)` and `r + bias` of every irrep of a row.
#[inline(always)]
fn radii<T: Real>(blocks: &[Block], epsilon: T, x: &[T], bias: &[T], radius: &mut [T], shifted: &mut [T]) {
    for block in blocks {
        let (xa, xb) = block.components(x);
        let outputs = block.of_mut(radius).iter_mut().zip(block.of_mut(shifted));
        let inputs = xa.iter().zip(xb).zip(block.of(bias));
        for (((&xa, &xb), &bias), (radius, shifted)) in inputs.zip(outputs) {
            *radius = (xa * xa + xb * xb + epsilon).sqrt();
            *shifted = *radius + bias;
        }
    }
}

impl Block {
    #[inline(always)]
    fn components<'a, T>(&self, row: &'a [T]) -> (&'a [T], &'a [T]) {
        row[self.start..self.start + 2 * self.channels].split_at(self.channels)
    }

    #[inline(always)]
    fn components_mut<'a, T>(&self, row: &'a mut [T]) -> (&'a mut [T], &'a mut [T]) {
        row[self.start..self.start + 2 * self.channels].split_at_mut(self.channels)
    }

    /// The irreps of this order in a list of one value per irrep.
    #[inline(always)]
    fn of<'a, T>(&self, irreps: &'a [T]) -> &'a [T] {
        &irreps[self.first..self.first + self.channels]
    }

    #[inline(always)]
    fn of_mut<'a, T>(&self, irreps: &'a mut [T]) -> &'a mut [T] {
        &mut irreps[self.first..self.first + self.channels]
    }
}

pub(super) fn norm_forward<T: Real>(config: &NormNonlinearity, x: &[T], bias: &[T], y: &mut [T]) {
    let blocks = &blocks(&config.kind);
    let task = (TASK_ROWS * config.kind.dimension()).max(1);
    y.par_chunks_mut(task).zip(x.par_chunks(task)).run(|(y, x)| {
        Arch::new().dispatch(NormForward { config, blocks, bias, x, y });
    });
}

struct NormBackward<'a, T> {
    config: &'a NormNonlinearity,
    blocks: &'a [Block],
    bias: &'a [T],
    x: &'a [T],
    dy: &'a [T],
    dx: &'a mut [T],
    dbias: &'a mut [f64],
}

impl<T: Real> WithSimd for NormBackward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let activation = &self.config.activation;
        let (width, scalars) = (self.config.kind.dimension(), self.config.kind.multiplicity(0));
        let epsilon = T::of(self.config.epsilon);
        let ones = vec![T::one(); self.bias.len()];
        let (mut radius, mut shifted) = (ones.clone(), ones.clone());
        let (mut value, mut slope) = (ones.clone(), ones.clone());
        let inputs = self.x.chunks_exact(width).zip(self.dy.chunks_exact(width));
        for ((x, dy), dx) in inputs.zip(self.dx.chunks_exact_mut(width)) {
            Slopes { activation, x: &x[..scalars], dy: &dy[..scalars], dx: &mut dx[..scalars] }.with_simd(simd);
            radii(self.blocks, epsilon, x, self.bias, &mut radius, &mut shifted);
            Values { activation, x: &shifted, y: &mut value }.with_simd(simd);
            Slopes { activation, x: &shifted, dy: &ones, dx: &mut slope }.with_simd(simd);
            for block in self.blocks {
                let ((xa, xb), (da, db)) = (block.components(x), block.components(dy));
                let (dxa, dxb) = block.components_mut(dx);
                let (radius, value) = (block.of(&radius), block.of(&value));
                let (slope, dbias) = (block.of(&slope), block.of_mut(self.dbias));
                let gradients = dxa.iter_mut().zip(dxb).zip(dbias);
                let points = xa.iter().zip(xb).zip(da.iter().zip(db));
                let functions = radius.iter().zip(value).zip(slope);
                for ((((dxa, dxb), dbias), ((&xa, &xb), (&da, &db))), ((&radius, &value), &slope)) in
                    gradients.zip(points).zip(functions)
                {
                    let inverse = T::one() / radius;
                    let along = xa * da + xb * db;
                    let factor = value * inverse;
                    let radial = (slope - factor) * inverse * inverse * along;
                    *dxa = factor * da + radial * xa;
                    *dxb = factor * db + radial * xb;
                    *dbias += (slope * inverse * along).as_f64();
                }
            }
        }
    }
}

#[allow(clippy::too_many_arguments)]
pub(super) fn norm_backward<T: Real>(
    config: &NormNonlinearity,
    vertices: usize,
    x: &[T],
    bias: &[T],
    dy: &[T],
    dx: &mut [T],
    dbias: &mut [T],
    scratch: &mut Scratch<f64>,
) {
    let blocks = &blocks(&config.kind);
    // At least one value per partial sum, so that types with scalars only need no special case.
    let sums = bias.len().max(1);
    let task = (partial_rows(vertices) * config.kind.dimension()).max(1);
    let partials = scratch.take(partials_length(vertices, sums));
    partials.fill(0.0);
    (partials.par_chunks_mut(sums)).zip(dx.par_chunks_mut(task)).zip(x.par_chunks(task).zip(dy.par_chunks(task))).run(
        |((dbias, dx), (x, dy))| {
            Arch::new().dispatch(NormBackward { config, blocks, bias, x, dy, dx, dbias });
        },
    );
    for (dbias, sum) in dbias.iter_mut().zip(fold_partials(partials, sums)) {
        *dbias += T::of(sum);
    }
}

struct GatedForward<'a, T> {
    config: &'a GatedNonlinearity,
    blocks: &'a [Block],
    gates: usize,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> WithSimd for GatedForward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (output, scalars) = (self.config.output.dimension(), self.config.output.multiplicity(0));
        let mut open = vec![T::zero(); self.gates];
        let inputs = self.x.chunks_exact(output + self.gates);
        for (x, y) in inputs.zip(self.y.chunks_exact_mut(output)) {
            Values { activation: &self.config.activation, x: &x[..scalars], y: &mut y[..scalars] }.with_simd(simd);
            let (gates, x) = split_gates(x, scalars, self.gates);
            for (open, &gate) in open.iter_mut().zip(gates) {
                *open = sigmoid(gate);
            }
            for block in self.blocks {
                let (xa, xb) = block.behind_scalars(scalars).components(x);
                let (ya, yb) = block.components_mut(y);
                let places = xa.iter().zip(xb).zip(ya.iter_mut().zip(yb));
                for (((&xa, &xb), (ya, yb)), &open) in places.zip(block.of(&open)) {
                    *ya = open * xa;
                    *yb = open * xb;
                }
            }
        }
    }
}

/// The gates, and the rest of an input row after them.
#[inline(always)]
fn split_gates<T>(x: &[T], scalars: usize, gates: usize) -> (&[T], &[T]) {
    x[scalars..].split_at(gates)
}

impl Block {
    /// The same block in a row that begins after the scalars.
    #[inline(always)]
    fn behind_scalars(self, scalars: usize) -> Self {
        Self { start: self.start - scalars, ..self }
    }
}

pub(super) fn gated_forward<T: Real>(config: &GatedNonlinearity, x: &[T], y: &mut [T]) {
    let gates = super::rotating_irreps(&config.output);
    let blocks = &blocks(&config.output);
    let output = config.output.dimension();
    let task = |width: usize| (TASK_ROWS * width).max(1);
    y.par_chunks_mut(task(output)).zip(x.par_chunks(task(output + gates))).run(|(y, x)| {
        Arch::new().dispatch(GatedForward { config, blocks, gates, x, y });
    });
}

struct GatedBackward<'a, T> {
    config: &'a GatedNonlinearity,
    blocks: &'a [Block],
    gates: usize,
    x: &'a [T],
    dy: &'a [T],
    dx: &'a mut [T],
}

impl<T: Real> WithSimd for GatedBackward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (output, scalars) = (self.config.output.dimension(), self.config.output.multiplicity(0));
        let input = output + self.gates;
        let inputs = self.x.chunks_exact(input).zip(self.dy.chunks_exact(output));
        for ((x, dy), dx) in inputs.zip(self.dx.chunks_exact_mut(input)) {
            Slopes {
                activation: &self.config.activation,
                x: &x[..scalars],
                dy: &dy[..scalars],
                dx: &mut dx[..scalars],
            }
            .with_simd(simd);
            let (gates, x) = split_gates(x, scalars, self.gates);
            let (dgates, dx) = dx[scalars..].split_at_mut(self.gates);
            for block in self.blocks {
                let behind = block.behind_scalars(scalars);
                let ((xa, xb), (da, db)) = (behind.components(x), block.components(dy));
                let (dxa, dxb) = behind.components_mut(dx);
                let gates = block.of(gates).iter().zip(block.of_mut(dgates));
                let points = xa.iter().zip(xb).zip(da.iter().zip(db));
                let gradients = dxa.iter_mut().zip(dxb);
                for ((((&xa, &xb), (&da, &db)), (dxa, dxb)), (&gate, dgate)) in points.zip(gradients).zip(gates) {
                    let open = sigmoid(gate);
                    *dxa = open * da;
                    *dxb = open * db;
                    *dgate = open * (T::one() - open) * (xa * da + xb * db);
                }
            }
        }
    }
}

pub(super) fn gated_backward<T: Real>(config: &GatedNonlinearity, x: &[T], dy: &[T], dx: &mut [T]) {
    let gates = super::rotating_irreps(&config.output);
    let blocks = &blocks(&config.output);
    let output = config.output.dimension();
    let task = |width: usize| (TASK_ROWS * width).max(1);
    dx.par_chunks_mut(task(output + gates))
        .zip(x.par_chunks(task(output + gates)))
        .zip(dy.par_chunks(task(output)))
        .run(|((dx, x), dy)| {
            Arch::new().dispatch(GatedBackward { config, blocks, gates, x, dy, dx });
        });
}
