//! Loops over the channels of an order, which are contiguous.

use super::{Block, GatedBackward, GatedForward, NormBackward, NormForward, blocks, rotating_irreps, sigmoid};
use crate::activation::{Slopes, Values};
use crate::parallel::Loop;
use crate::partials::{fold_partials, partial_rows, partials_length};
use crate::{FeatureType, Host, HostScratch, Real};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Rows of one task.
const TASK_ROWS: usize = 64;

impl<T: Real> WithSimd for NormForward<'_, Host<T>> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { op, bias, x, y, .. } = self;
        let (width, scalars, blocks) = (op.kind.dimension(), op.kind.multiplicity(0), blocks(&op.kind));
        let activation = &op.activation;
        let mut radius = vec![T::zero(); bias.len()];
        let (mut shifted, mut value) = (radius.clone(), radius.clone());
        for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
            Values { activation, x: &x[..scalars], y: &mut y[..scalars] }.with_simd(simd);
            radii(&blocks, T::of(op.epsilon), x, bias, &mut radius, &mut shifted);
            Values { activation, x: &shifted, y: &mut value }.with_simd(simd);
            for block in &blocks {
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

/// A task is the pass over some of the rows.
pub(super) fn norm_forward<T: Real>(NormForward { op, rows, x, bias, y }: NormForward<'_, Host<T>>) {
    let task = (TASK_ROWS * op.kind.dimension()).max(1);
    y.par_chunks_mut(task).zip(x.par_chunks(task)).run(|(y, x)| {
        Arch::new().dispatch(NormForward { op, rows, x, bias, y });
    });
}

/// The pass over some of the rows, and partial sums in place of the gradient of the bias.
struct PartialNormBackward<'a, T: Real>(NormBackward<'a, Host<T>>, &'a mut [f64]);

impl<T: Real> WithSimd for PartialNormBackward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self(NormBackward { op, x, bias, dy, dx, .. }, dbias) = self;
        let (width, scalars, blocks) = (op.kind.dimension(), op.kind.multiplicity(0), blocks(&op.kind));
        let activation = &op.activation;
        let ones = vec![T::one(); bias.len()];
        let (mut radius, mut shifted) = (ones.clone(), ones.clone());
        let (mut value, mut slope) = (ones.clone(), ones.clone());
        let inputs = x.chunks_exact(width).zip(dy.chunks_exact(width));
        for ((x, dy), dx) in inputs.zip(dx.chunks_exact_mut(width)) {
            Slopes { activation, x: &x[..scalars], dy: &dy[..scalars], dx: &mut dx[..scalars] }.with_simd(simd);
            radii(&blocks, T::of(op.epsilon), x, bias, &mut radius, &mut shifted);
            Values { activation, x: &shifted, y: &mut value }.with_simd(simd);
            Slopes { activation, x: &shifted, dy: &ones, dx: &mut slope }.with_simd(simd);
            for block in &blocks {
                let ((xa, xb), (da, db)) = (block.components(x), block.components(dy));
                let (dxa, dxb) = block.components_mut(dx);
                let (radius, value) = (block.of(&radius), block.of(&value));
                let (slope, dbias) = (block.of(&slope), block.of_mut(dbias));
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

pub(super) fn norm_backward<T: Real>(pass: NormBackward<'_, Host<T>>, scratch: HostScratch<'_, T>) {
    let NormBackward { op, rows, x, bias, dy, dx, dbias } = pass;
    // At least one value per partial sum, so that types with scalars only need no special case.
    let sums = bias.len().max(1);
    let task = (partial_rows(rows) * op.kind.dimension()).max(1);
    let partials = scratch.wide.take(partials_length(rows, sums));
    partials.fill(0.0);
    (partials.par_chunks_mut(sums)).zip(dx.par_chunks_mut(task)).zip(x.par_chunks(task).zip(dy.par_chunks(task))).run(
        |((sums, dx), (x, dy))| {
            let rows = PartialNormBackward(NormBackward { op, rows, x, bias, dy, dx, dbias: &mut [] }, sums);
            Arch::new().dispatch(rows);
        },
    );
    for (dbias, sum) in dbias.iter_mut().zip(fold_partials(partials, sums)) {
        *dbias += T::of(sum);
    }
}

impl<T: Real> WithSimd for GatedForward<'_, Host<T>> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { op, x, y, .. } = self;
        let (output, scalars) = (op.output.dimension(), op.output.multiplicity(0));
        let (count, blocks) = (rotating_irreps(&op.output), blocks(&op.output));
        let mut open = vec![T::zero(); count];
        for (x, y) in x.chunks_exact(output + count).zip(y.chunks_exact_mut(output)) {
            Values { activation: &op.activation, x: &x[..scalars], y: &mut y[..scalars] }.with_simd(simd);
            let (gates, x) = split_gates(x, scalars, count);
            for (open, &gate) in open.iter_mut().zip(gates) {
                *open = sigmoid(gate);
            }
            for block in &blocks {
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

pub(super) fn gated_forward<T: Real>(GatedForward { op, rows, x, y }: GatedForward<'_, Host<T>>) {
    let task = |kind: &FeatureType| (TASK_ROWS * kind.dimension()).max(1);
    y.par_chunks_mut(task(&op.output)).zip(x.par_chunks(task(&op.input()))).run(|(y, x)| {
        Arch::new().dispatch(GatedForward { op, rows, x, y });
    });
}

impl<T: Real> WithSimd for GatedBackward<'_, Host<T>> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { op, x, dy, dx, .. } = self;
        let (output, scalars) = (op.output.dimension(), op.output.multiplicity(0));
        let (count, blocks) = (rotating_irreps(&op.output), blocks(&op.output));
        let inputs = x.chunks_exact(output + count).zip(dy.chunks_exact(output));
        for ((x, dy), dx) in inputs.zip(dx.chunks_exact_mut(output + count)) {
            let (dy_scalars, dx_scalars) = (&dy[..scalars], &mut dx[..scalars]);
            Slopes { activation: &op.activation, x: &x[..scalars], dy: dy_scalars, dx: dx_scalars }.with_simd(simd);
            let (gates, x) = split_gates(x, scalars, count);
            let (dgates, dx) = dx[scalars..].split_at_mut(count);
            for block in &blocks {
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

pub(super) fn gated_backward<T: Real>(GatedBackward { op, rows, x, dy, dx }: GatedBackward<'_, Host<T>>) {
    let task = |kind: &FeatureType| (TASK_ROWS * kind.dimension()).max(1);
    let (input, output) = (task(&op.input()), task(&op.output));
    dx.par_chunks_mut(input).zip(x.par_chunks(input)).zip(dy.par_chunks(output)).run(|((dx, x), dy)| {
        Arch::new().dispatch(GatedBackward { op, rows, x, dy, dx });
    });
}
