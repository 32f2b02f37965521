//! The same maps, rows or blocks of values in parallel.

use super::{
    Accumulate, Add, BlockMaximum, BlockMaximumBackward, Concatenate, Run, Scale, Select, Softmax, SoftmaxBackward,
    Split, Unselect, concatenation,
};
use crate::error::check_rows;
use crate::parallel::{Loop, for_rows};
use crate::real::compiled;
use crate::{FeatureType, Host, KernelError, Real, irrep_dimension};
use pulp::{Arch, NullaryFnOnce};
use rayon::prelude::*;

/// Values of one task.
const BLOCK: usize = 1 << 13;
/// Rows of one task.
const TASK_ROWS: usize = 64;

pub(super) fn add<T: Real>(Add { a, b, y }: Add<'_, Host<T>>) {
    y.par_chunks_mut(BLOCK).zip(a.par_chunks(BLOCK).zip(b.par_chunks(BLOCK))).run(|(y, (a, b))| {
        for (y, (&a, &b)) in y.iter_mut().zip(a.iter().zip(b)) {
            *y = a + b;
        }
    });
}

pub(super) fn accumulate<T: Real>(Accumulate { a, y }: Accumulate<'_, Host<T>>) {
    y.par_chunks_mut(BLOCK).zip(a.par_chunks(BLOCK)).run(|(y, a)| {
        for (y, &a) in y.iter_mut().zip(a) {
            *y += a;
        }
    });
}

pub(super) fn scale<T: Real>(Scale { factor, x, y }: Scale<'_, Host<T>>) {
    let factor = T::of(factor);
    y.par_chunks_mut(BLOCK).zip(x.par_chunks(BLOCK)).run(|(y, x)| {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = factor * x;
        }
    });
}

pub(super) fn softmax<T: Real>(Softmax { width, x, y, .. }: Softmax<'_, Host<T>>) {
    for_rows(y, width, |row, y| {
        let x = &x[row * width..][..width];
        let largest = x.iter().fold(T::neg_infinity(), |most, &x| most.max(x));
        let mut sum = T::zero();
        for (y, &x) in y.iter_mut().zip(x) {
            *y = (x - largest).exp();
            sum += *y;
        }
        y.iter_mut().for_each(|y| *y /= sum);
    });
}

pub(super) fn softmax_backward<T: Real>(SoftmaxBackward { width, y, dy, dx, .. }: SoftmaxBackward<'_, Host<T>>) {
    for_rows(dx, width, |row, dx| {
        let (y, dy) = (&y[row * width..][..width], &dy[row * width..][..width]);
        let mean: T = y.iter().zip(dy).map(|(&y, &dy)| y * dy).sum();
        for (dx, (&y, &dy)) in dx.iter_mut().zip(y.iter().zip(dy)) {
            *dx = y * (dy - mean);
        }
    });
}

pub(super) fn block_maximum<T: Real>(BlockMaximum { blocks, width, x, y, .. }: BlockMaximum<'_, Host<T>>) {
    for_rows(y, width, |row, y| {
        let (first, others) = x[row * blocks * width..][..blocks * width].split_at(width);
        y.copy_from_slice(first);
        for block in others.chunks_exact(width) {
            let pairs = y.iter_mut().zip(block);
            pairs.for_each(|(y, &x)| *y = if x > *y { x } else { *y });
        }
    });
}

pub(super) fn block_maximum_backward<T: Real>(pass: BlockMaximumBackward<'_, Host<T>>) {
    let BlockMaximumBackward { blocks, width, x, y, dy, dx, .. } = pass;
    for_rows(dx, blocks * width, |row, dx| {
        dx.fill(T::zero());
        let x = &x[row * blocks * width..][..blocks * width];
        for at in 0..width {
            let mut places = (at..blocks * width).step_by(width);
            if let Some(place) = places.find(|&place| x[place] == y[row * width + at]) {
                dx[place] = dy[row * width + at];
            }
        }
    });
}

/// Rows of a feature map of this width; none if the width is zero.
fn row_blocks<T: Real>(values: &[T], width: usize) -> impl IndexedParallelIterator<Item = &[T]> {
    values.par_chunks((TASK_ROWS * width).max(1))
}

pub(super) fn concatenate<T: Real>(Concatenate { first, second, a, b, y, .. }: Concatenate<'_, Host<T>>) {
    let widths = (first.dimension(), second.dimension());
    let both = widths.0 + widths.1;
    let (first_runs, second_runs) = concatenation(first, second);
    y.par_chunks_mut((TASK_ROWS * both).max(1)).enumerate().run(|(task, y)| {
        for (row, y) in y.chunks_exact_mut(both).enumerate() {
            let vertex = task * TASK_ROWS + row;
            for (runs, from, width) in [(&first_runs, a, widths.0), (&second_runs, b, widths.1)] {
                let from = &from[vertex * width..(vertex + 1) * width];
                for run in runs {
                    y[run.wide..run.wide + run.length].copy_from_slice(&from[run.narrow..run.narrow + run.length]);
                }
            }
        }
    });
}

pub(super) fn split<T: Real>(Split { first, second, y, a, b, .. }: Split<'_, Host<T>>) {
    let (first_runs, second_runs) = concatenation(first, second);
    let both = first.dimension() + second.dimension();
    take(&first_runs, both, first.dimension(), y, a);
    take(&second_runs, both, second.dimension(), y, b);
}

/// Copies narrow rows out of wide ones.
fn take<T: Real>(runs: &[Run], wide: usize, narrow: usize, x: &[T], y: &mut [T]) {
    y.par_chunks_mut((TASK_ROWS * narrow).max(1)).zip(row_blocks(x, wide)).run(|(y, x)| {
        for (y, x) in y.chunks_exact_mut(narrow).zip(x.chunks_exact(wide)) {
            for run in runs {
                y[run.narrow..run.narrow + run.length].copy_from_slice(&x[run.wide..run.wide + run.length]);
            }
        }
    });
}

pub(super) fn select<T: Real>(Select { slice, x, y, .. }: Select<'_, Host<T>>) -> Result<(), KernelError> {
    let output = slice.output()?;
    take(&slice.runs(&output), slice.kind.dimension(), output.dimension(), x, y);
    Ok(())
}

pub(super) fn unselect<T: Real>(Unselect { slice, dy, dx, .. }: Unselect<'_, Host<T>>) -> Result<(), KernelError> {
    let output = slice.output()?;
    let (wide, narrow) = (slice.kind.dimension(), output.dimension());
    let runs = slice.runs(&output);
    if narrow == 0 {
        dx.fill(T::zero());
        return Ok(());
    }
    dx.par_chunks_mut((TASK_ROWS * wide).max(1)).zip(row_blocks(dy, narrow)).run(|(dx, dy)| {
        dx.fill(T::zero());
        for (dx, dy) in dx.chunks_exact_mut(wide).zip(dy.chunks_exact(narrow)) {
            for run in &runs {
                dx[run.wide..run.wide + run.length].copy_from_slice(&dy[run.narrow..run.narrow + run.length]);
            }
        }
    });
    Ok(())
}

/// `y_p = rho(angle_p) x_p`: every irrep of order `n` at vertex `p` is rotated by `n angle_p`.
pub fn rotate<T: Real>(kind: &FeatureType, angles: &[T], x: &[T], y: &mut [T]) -> Result<(), KernelError> {
    compiled!(rotate_rows as fn(&FeatureType, &[T], &[T], &mut [T]) -> Result<(), KernelError>)(kind, angles, x, y)
}

fn rotate_rows<T: Real>(kind: &FeatureType, angles: &[T], x: &[T], y: &mut [T]) -> Result<(), KernelError> {
    let width = kind.dimension();
    check_rows("rotate", "x", x, angles.len(), width)?;
    check_rows("rotate", "y", y, angles.len(), width)?;
    if width == 0 {
        return Ok(());
    }
    y.par_chunks_mut(TASK_ROWS * width).zip(row_blocks(x, width)).zip(angles.par_chunks(TASK_ROWS)).run(
        |((y, x), angles)| {
            Arch::new().dispatch(RotateRows { kind, angles, x, y });
        },
    );
    Ok(())
}

struct RotateRows<'a, T> {
    kind: &'a FeatureType,
    angles: &'a [T],
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> NullaryFnOnce for RotateRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let width = self.kind.dimension();
        let rows = self.x.chunks_exact(width).zip(self.y.chunks_exact_mut(width));
        for ((x, y), angle) in rows.zip(self.angles) {
            let (sin, cos) = angle.as_f64().sin_cos();
            let (mut sin_n, mut cos_n) = (0.0, 1.0);
            let (mut x, mut y) = (x, y);
            for (order, &channels) in self.kind.multiplicities().iter().enumerate() {
                let (x_block, x_rest) = x.split_at(irrep_dimension(order) * channels);
                let (y_block, y_rest) = y.split_at_mut(x_block.len());
                if order == 0 {
                    y_block.copy_from_slice(x_block);
                } else {
                    let (c, s) = (T::of(cos_n), T::of(sin_n));
                    let (xa, xb) = x_block.split_at(channels);
                    let (ya, yb) = y_block.split_at_mut(channels);
                    for ((&xa, &xb), (ya, yb)) in xa.iter().zip(xb).zip(ya.iter_mut().zip(yb)) {
                        *ya = c * xa - s * xb;
                        *yb = s * xa + c * xb;
                    }
                }
                // cos and sin of (n + 1) times the angle.
                (cos_n, sin_n) = (cos_n * cos - sin_n * sin, sin_n * cos + cos_n * sin);
                (x, y) = (x_rest, y_rest);
            }
        }
    }
}
