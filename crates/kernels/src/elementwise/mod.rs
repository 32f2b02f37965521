//! Element-wise operators, and maps between types that only move or rotate features.
//!
//! [`Add`], [`Accumulate`] and [`Scale`] work on any buffers of equal length. [`Concatenate`] concatenates the channels
//! of two feature maps: the block of order `n` holds, for each component, the channels of the first map, then those of
//! the second. [`Split`] is its inverse and its adjoint, hence its backward pass. [`Select`] selects a range of channels
//! of each order ([`Slice`]); [`Unselect`] is its adjoint, with zeros in the other channels. [`rotate`] changes the gauge:
//! `y_p = rho(angle_p) x_p`; its adjoint is the rotation by the negative angles. [`Softmax`] normalises the exponentials
//! of each row. [`BlockMaximum`] takes the largest of several blocks of each row.

pub mod cuda;
mod fast;
#[cfg(test)]
mod tests;

use crate::arguments::arguments;
use crate::{FeatureType, KernelError, irrep_dimension};
use std::ops::Range;

pub use fast::rotate;

/// Refuses a maximum over no blocks.
fn check_blocks(blocks: usize) -> Result<(), KernelError> {
    if blocks > 0 {
        return Ok(());
    }
    let problem = "there are no blocks, but a maximum needs one".into();
    Err(KernelError::Setting { operator: "block maximum", problem })
}

arguments! {
    /// `y = a + b`. The gradient of both is that of `y`.
    Add = add("add") {
        ;
        a: read,
        b: read[a.len()],
        y: write[a.len()]
    }

    /// `y += a`.
    Accumulate = accumulate("accumulate") {
        ;
        a: read,
        y: add[a.len()]
    }

    /// `y = factor x`. The gradient is the same map.
    Scale = scale("scale") {
        factor: f64;
        x: read,
        y: write[x.len()]
    }

    /// `y` = the softmax of each row of `width` values.
    Softmax = softmax("softmax") {
        width: usize, rows: usize;
        x: read[rows, width],
        y: write[rows, width]
    }

    /// Overwrites `dx` with the gradient of [`Softmax`], from its output `y`.
    SoftmaxBackward = softmax_backward("softmax") {
        width: usize, rows: usize;
        y: read[rows, width],
        dy: read[rows, width],
        dx: write[rows, width]
    }

    /// `y` = the largest of the `blocks` blocks of `width` values of each row.
    BlockMaximum = block_maximum("block maximum") {
        blocks: usize, width: usize, rows: usize;
        x: read[rows, blocks, width],
        y: write[rows, width];
        check_blocks(blocks)?;
    }

    /// Overwrites `dx` with the gradient of [`BlockMaximum`], from its input and output: that of the first block with the
    /// largest value, 0 in the others.
    BlockMaximumBackward = block_maximum_backward("block maximum") {
        blocks: usize, width: usize, rows: usize;
        x: read[rows, blocks, width],
        y: read[rows, width],
        dy: read[rows, width],
        dx: write[rows, blocks, width];
        check_blocks(blocks)?;
    }

    /// `y` = the concatenation of `a` and `b`: rows of `first.concatenated(second)`.
    ///
    /// ```
    /// use gemcnn_kernels::elementwise::Concatenate;
    /// let (first, second) = (&"1x0 + 1x1".parse()?, &"2x1".parse()?);
    /// let (a, b, mut y) = (&[1., 2., 3.][..], &[4., 5., 6., 7.][..], [0.0; 7]);
    /// Concatenate { first, second, rows: 1, a, b, y: &mut y[..] }.on_host()?;
    /// assert_eq!(y, [1., 2., 4., 5., 3., 6., 7.]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Concatenate = concatenate("concatenate") {
        first: &'a FeatureType, second: &'a FeatureType, rows: usize;
        a: read[rows, first.dimension()],
        b: read[rows, second.dimension()],
        y: write[rows, first.dimension() + second.dimension()]
    }

    /// The parts of a concatenated feature map: the inverse of [`Concatenate`], and its backward pass.
    Split = split("split") {
        first: &'a FeatureType, second: &'a FeatureType, rows: usize;
        y: read[rows, first.dimension() + second.dimension()],
        a: write[rows, first.dimension()],
        b: write[rows, second.dimension()]
    }

    /// `y` = the selected channels of `x`.
    Select = select("slice") {
        slice: &'a Slice, rows: usize;
        x: read[rows, slice.kind.dimension()],
        y: write[rows, output.dimension()];
        let output = slice.output()?;
    }

    /// The backward pass of [`Select`]: `dx` is `dy` in the selected channels, zero in the others.
    Unselect = unselect("slice") {
        slice: &'a Slice, rows: usize;
        dy: read[rows, output.dimension()],
        dx: write[rows, slice.kind.dimension()];
        let output = slice.output()?;
    }
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
