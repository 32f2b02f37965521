//! Element-wise operators, and maps between types that only move or rotate features.
//!
//! [`add`], [`accumulate`] and [`scale`] work on any buffers of equal length. [`concatenate`] concatenates the channels
//! of two feature maps: the block of order `n` holds, for each component, the channels of the first map, then those of
//! the second. [`split`] is its inverse and its adjoint, hence its backward pass. [`Slice`] selects a range of channels
//! of each order; [`unslice`] is its adjoint, with zeros in the other channels. [`rotate`] changes the gauge: `y_p =
//! rho(angle_p) x_p`; its adjoint is the rotation by the negative angles. [`softmax`] normalises the exponentials of
//! each row. Nothing is saved but its result. [`block_maximum`] takes the largest of several blocks of each row.

pub mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use crate::error::{Length, check_count, check_length, check_rows};
use crate::parallel::{Loop, for_rows};
use crate::real::compiled;
use crate::{FeatureType, KernelError, Real, irrep_dimension};
use pulp::{Arch, NullaryFnOnce};
use rayon::prelude::*;
use std::ops::Range;

/// Values of one task.
const BLOCK: usize = 1 << 13;
/// Rows of one task.
const TASK_ROWS: usize = 64;

/// `y = a + b`. The backward pass is `da = dy`, `db = dy`.
pub fn add<T: Real>(a: &[T], b: &[T], y: &mut [T]) -> Result<(), KernelError> {
    check_length("add", "b", b, a.len())?;
    check_length("add", "y", y, a.len())?;
    compiled!(add_blocks as fn(&[T], &[T], &mut [T]))(a, b, y);
    Ok(())
}

fn add_blocks<T: Real>(a: &[T], b: &[T], y: &mut [T]) {
    y.par_chunks_mut(BLOCK).zip(a.par_chunks(BLOCK).zip(b.par_chunks(BLOCK))).run(|(y, (a, b))| {
        for (y, (&a, &b)) in y.iter_mut().zip(a.iter().zip(b)) {
            *y = a + b;
        }
    });
}

/// `y += a`.
pub fn accumulate<T: Real>(a: &[T], y: &mut [T]) -> Result<(), KernelError> {
    check_length("accumulate", "y", y, a.len())?;
    compiled!(accumulate_blocks as fn(&[T], &mut [T]))(a, y);
    Ok(())
}

fn accumulate_blocks<T: Real>(a: &[T], y: &mut [T]) {
    y.par_chunks_mut(BLOCK).zip(a.par_chunks(BLOCK)).run(|(y, a)| {
        for (y, &a) in y.iter_mut().zip(a) {
            *y += a;
        }
    });
}

/// `y = factor x`. The backward pass is the same map of `dy`.
pub fn scale<T: Real>(factor: f64, x: &[T], y: &mut [T]) -> Result<(), KernelError> {
    check_length("scale", "y", y, x.len())?;
    compiled!(scale_blocks as fn(T, &[T], &mut [T]))(T::of(factor), x, y);
    Ok(())
}

fn scale_blocks<T: Real>(factor: T, x: &[T], y: &mut [T]) {
    y.par_chunks_mut(BLOCK).zip(x.par_chunks(BLOCK)).run(|(y, x)| {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = factor * x;
        }
    });
}

/// `y` = the softmax of each row of `width` values.
pub fn softmax<T: Real>(width: usize, x: &[T], y: &mut [T]) -> Result<(), KernelError> {
    compiled!(softmax_rows as fn(usize, &[T], &mut [T]) -> Result<(), KernelError>)(width, x, y)
}

fn softmax_rows<T: Real>(width: usize, x: &[T], y: &mut [T]) -> Result<(), KernelError> {
    check_rows("softmax", "x", x, x.len() / width.max(1), width)?;
    check_length("softmax", "y", y, x.len())?;
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
    Ok(())
}

/// Overwrites `dx` with the gradient of [`softmax`], from its output `y`.
pub fn softmax_backward<T: Real>(width: usize, y: &[T], dy: &[T], dx: &mut [T]) -> Result<(), KernelError> {
    compiled!(softmax_backward_rows as fn(usize, &[T], &[T], &mut [T]) -> Result<(), KernelError>)(width, y, dy, dx)
}

fn softmax_backward_rows<T: Real>(width: usize, y: &[T], dy: &[T], dx: &mut [T]) -> Result<(), KernelError> {
    check_rows("softmax", "y", y, y.len() / width.max(1), width)?;
    check_length("softmax", "dy", dy, y.len())?;
    check_length("softmax", "dx", dx, y.len())?;
    for_rows(dx, width, |row, dx| {
        let (y, dy) = (&y[row * width..][..width], &dy[row * width..][..width]);
        let mean: T = y.iter().zip(dy).map(|(&y, &dy)| y * dy).sum();
        for (dx, (&y, &dy)) in dx.iter_mut().zip(y.iter().zip(dy)) {
            *dx = y * (dy - mean);
        }
    });
    Ok(())
}

/// Checks sizes and returns the length of the result.
fn check_blocks<S: Length>(
    blocks: usize,
    width: usize,
    (x_name, x): (&'static str, S),
    (y_name, y): (&'static str, S),
) -> Result<usize, KernelError> {
    let operator = "block maximum";
    if blocks == 0 {
        return Err(KernelError::Setting { operator, problem: "there are no blocks, but a maximum needs one".into() });
    }
    let count = y.length() / width.max(1) * width;
    check_count(operator, y_name, y.length(), count)?;
    check_count(operator, x_name, x.length(), count.saturating_mul(blocks))?;
    Ok(count)
}

/// `y` = the largest of the `blocks` blocks of `width` values of each row.
///
/// # Errors
/// No blocks, or buffers of the wrong length.
pub fn block_maximum<T: Real>(blocks: usize, width: usize, x: &[T], y: &mut [T]) -> Result<(), KernelError> {
    compiled!(block_maximum_rows as fn(usize, usize, &[T], &mut [T]) -> Result<(), KernelError>)(blocks, width, x, y)
}

fn block_maximum_rows<T: Real>(blocks: usize, width: usize, x: &[T], y: &mut [T]) -> Result<(), KernelError> {
    check_blocks(blocks, width, ("x", x), ("y", y))?;
    for_rows(y, width, |row, y| {
        let (first, others) = x[row * blocks * width..][..blocks * width].split_at(width);
        y.copy_from_slice(first);
        for block in others.chunks_exact(width) {
            let pairs = y.iter_mut().zip(block);
            pairs.for_each(|(y, &x)| *y = if x > *y { x } else { *y });
        }
    });
    Ok(())
}

/// Overwrites `dx` with the gradient of [`block_maximum`], from its input and output: that of the first block with the
/// largest value, 0 in the others.
pub fn block_maximum_backward<T: Real>(
    blocks: usize,
    width: usize,
    x: &[T],
    y: &[T],
    dy: &[T],
    dx: &mut [T],
) -> Result<(), KernelError> {
    compiled!(block_maximum_backward_rows as fn(usize, usize, &[T], &[T], &[T], &mut [T]) -> Result<(), KernelError>)(
        blocks, width, x, y, dy, dx,
    )
}

fn block_maximum_backward_rows<T: Real>(
    blocks: usize,
    width: usize,
    x: &[T],
    y: &[T],
    dy: &[T],
    dx: &mut [T],
) -> Result<(), KernelError> {
    check_blocks(blocks, width, ("x", x), ("y", y))?;
    check_blocks(blocks, width, ("dx", &*dx), ("dy", dy))?;
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
    Ok(())
}

/// Consecutive values of a narrow row, and their position in a wide one.
#[derive(Debug, Clone, Copy)]
struct Run {
    narrow: usize,
    wide: usize,
    length: usize,
}

/// The runs of a type whose channels start at `first(order)` in the blocks of a wider type.
fn runs(narrow: &FeatureType, wide: &FeatureType, first: impl Fn(usize) -> usize) -> Vec<Run> {
    let mut runs = Vec::new();
    for (order, length) in narrow.orders() {
        let (from, to) = (narrow.range(order).start, wide.range(order).start);
        for component in 0..irrep_dimension(order) {
            runs.push(Run {
                narrow: from + component * length,
                wide: to + component * wide.multiplicity(order) + first(order),
                length,
            });
        }
    }
    runs
}

/// The runs of two types in the type of both.
fn concatenation(first: &FeatureType, second: &FeatureType) -> (Vec<Run>, Vec<Run>) {
    let both = first.concatenated(second);
    (runs(first, &both, |_| 0), runs(second, &both, |order| first.multiplicity(order)))
}

/// Rows of a feature map of this width; none if the width is zero.
fn row_blocks<T: Real>(values: &[T], width: usize) -> impl IndexedParallelIterator<Item = &[T]> {
    values.par_chunks((TASK_ROWS * width).max(1))
}

/// `y` = the concatenation of `a` and `b`: `vertices` rows of `first.concatenated(second)`.
///
/// # Errors
/// Buffers of the wrong length.
///
/// ```
/// use gemcnn_kernels::elementwise::concatenate;
/// let (first, second) = ("1x0 + 1x1".parse()?, "2x1".parse()?);
/// let mut y = [0.0; 7];
/// concatenate(&first, &second, 1, &[1., 2., 3.], &[4., 5., 6., 7.], &mut y)?;
/// assert_eq!(y, [1., 2., 4., 5., 3., 6., 7.]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn concatenate<T: Real>(
    first: &FeatureType,
    second: &FeatureType,
    vertices: usize,
    a: &[T],
    b: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    compiled!(
        concatenate_rows as fn(&FeatureType, &FeatureType, usize, &[T], &[T], &mut [T]) -> Result<(), KernelError>
    )(first, second, vertices, a, b, y)
}

fn concatenate_rows<T: Real>(
    first: &FeatureType,
    second: &FeatureType,
    vertices: usize,
    a: &[T],
    b: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    let widths = (first.dimension(), second.dimension());
    let both = widths.0 + widths.1;
    check_rows("concatenate", "a", a, vertices, widths.0)?;
    check_rows("concatenate", "b", b, vertices, widths.1)?;
    check_rows("concatenate", "y", y, vertices, both)?;
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
    Ok(())
}

/// The parts of a concatenated feature map: the inverse of [`concatenate`], and its backward pass.
pub fn split<T: Real>(
    first: &FeatureType,
    second: &FeatureType,
    vertices: usize,
    y: &[T],
    a: &mut [T],
    b: &mut [T],
) -> Result<(), KernelError> {
    let widths = (first.dimension(), second.dimension());
    let both = widths.0 + widths.1;
    check_rows("split", "y", y, vertices, both)?;
    check_rows("split", "a", a, vertices, widths.0)?;
    check_rows("split", "b", b, vertices, widths.1)?;
    let (first_runs, second_runs) = concatenation(first, second);
    take(&first_runs, both, widths.0, y, a);
    take(&second_runs, both, widths.1, y, b);
    Ok(())
}

/// Copies narrow rows out of wide ones.
fn take<T: Real>(runs: &[Run], wide: usize, narrow: usize, x: &[T], y: &mut [T]) {
    compiled!(take_rows as fn(&[Run], usize, usize, &[T], &mut [T]))(runs, wide, narrow, x, y)
}

fn take_rows<T: Real>(runs: &[Run], wide: usize, narrow: usize, x: &[T], y: &mut [T]) {
    y.par_chunks_mut((TASK_ROWS * narrow).max(1)).zip(row_blocks(x, wide)).run(|(y, x)| {
        for (y, x) in y.chunks_exact_mut(narrow).zip(x.chunks_exact(wide)) {
            for run in runs {
                y[run.narrow..run.narrow + run.length].copy_from_slice(&x[run.wide..run.wide + run.length]);
            }
        }
    });
}

/// A range of channels of each order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// Type that is sliced.
    pub kind: FeatureType,
    /// Channels of each order from 0; orders that are not listed are dropped.
    pub channels: Vec<Range<usize>>,
}

impl Slice {
    /// Type of the result.
    ///
    /// # Errors
    /// Ranges beyond the multiplicities.
    ///
    /// ```
    /// use gemcnn_kernels::elementwise::Slice;
    /// let slice = Slice { kind: "4x0 + 4x1".parse()?, channels: vec![1..3, 0..4] };
    /// assert_eq!(slice.output()?.to_string(), "2x0 + 4x1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn output(&self) -> Result<FeatureType, KernelError> {
        for (order, range) in self.channels.iter().enumerate() {
            if range.start > range.end || range.end > self.kind.multiplicity(order) {
                return Err(KernelError::Setting {
                    operator: "slice",
                    problem: format!(
                        "channels {} to {} of order {order}, but {} has {} of them",
                        range.start,
                        range.end,
                        self.kind,
                        self.kind.multiplicity(order)
                    ),
                });
            }
        }
        let lengths: Vec<usize> = self.channels.iter().map(ExactSizeIterator::len).collect();
        Ok(FeatureType::new(&lengths))
    }

    fn runs(&self, output: &FeatureType) -> Vec<Run> {
        runs(output, &self.kind, |order| self.channels[order].start)
    }
}

/// `y` = the selected channels of `x`.
pub fn slice<T: Real>(config: &Slice, vertices: usize, x: &[T], y: &mut [T]) -> Result<(), KernelError> {
    let output = config.output()?;
    let (wide, narrow) = (config.kind.dimension(), output.dimension());
    check_rows("slice", "x", x, vertices, wide)?;
    check_rows("slice", "y", y, vertices, narrow)?;
    take(&config.runs(&output), wide, narrow, x, y);
    Ok(())
}

/// The backward pass of [`slice()`]: `dx` is `dy` in the selected channels, zero in the others.
pub fn unslice<T: Real>(config: &Slice, vertices: usize, dy: &[T], dx: &mut [T]) -> Result<(), KernelError> {
    compiled!(unslice_rows as fn(&Slice, usize, &[T], &mut [T]) -> Result<(), KernelError>)(config, vertices, dy, dx)
}

fn unslice_rows<T: Real>(config: &Slice, vertices: usize, dy: &[T], dx: &mut [T]) -> Result<(), KernelError> {
    let output = config.output()?;
    let (wide, narrow) = (config.kind.dimension(), output.dimension());
    check_rows("unslice", "dy", dy, vertices, narrow)?;
    check_rows("unslice", "dx", dx, vertices, wide)?;
    let runs = config.runs(&output);
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
