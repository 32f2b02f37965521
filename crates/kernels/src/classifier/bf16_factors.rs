//! Factors of the three products in bf16; see [`bf16`](crate::bf16).
//!
//! The weights are packed once for all tiles, in blocks of classes: as right factors of the logits and of
//! `dh`. A tile packs its features as left factor of the logits and as right factor of `dW`. The pass that
//! finishes `P` packs it as left factor of `dh` and of `dW`.

use super::Classifier;
use super::plan::{CLASS_BLOCK, class_block};
use crate::bf16::{
    GROUP, Left, Sizes, pack_group_rows, pack_right, pack_right_transposed, pack_row, pack_rows, product, right_length,
};
use crate::parallel::Loop;
use crate::{Destination, Real};
use rayon::prelude::*;
use std::ops::Range;

/// Packed weights.
pub(super) struct Weights<'a> {
    channels: usize,
    classes: usize,
    for_logits: &'a [u32],
    for_features: &'a [u32],
}

impl<'a> Weights<'a> {
    /// Numbers of both forms.
    fn lengths(channels: usize, classes: usize) -> (usize, usize) {
        let pairs = channels.div_ceil(2);
        (right_length(pairs, classes), right_length(classes.div_ceil(2), channels))
    }

    pub fn length(channels: usize, classes: usize) -> usize {
        let (for_logits, for_features) = Self::lengths(channels, classes);
        for_logits + for_features
    }

    /// Packs the weights into memory of [`length`](Self::length).
    pub fn new<T: Real>(classifier: &Classifier<'_, T>, memory: &'a mut [T]) -> Self {
        let (channels, classes) = (classifier.channels, classifier.targets.classes);
        let (for_logits, for_features) = bits_mut(memory).split_at_mut(Self::lengths(channels, classes).0);
        let weight: &[f32] = bytemuck::cast_slice(classifier.weight);
        weight
            .par_chunks((CLASS_BLOCK * channels).max(1))
            .zip(for_logits.par_chunks_mut(logits_stride(channels).max(1)))
            .zip(for_features.par_chunks_mut(features_stride(channels).max(1)))
            .run(|((weight, for_logits), for_features)| {
                pack_right_transposed(weight, channels, for_logits);
                pack_right(weight, channels, for_features);
            });
        Self { channels, classes, for_logits, for_features }
    }
}

/// Numbers of a block of classes as right factor of the logits.
fn logits_stride(channels: usize) -> usize {
    right_length(channels.div_ceil(2), CLASS_BLOCK)
}

/// Numbers of a block of classes as right factor of `dh`.
fn features_stride(channels: usize) -> usize {
    right_length(CLASS_BLOCK / 2, channels)
}

/// Packed factors of one tile.
pub(super) struct Factors<'a> {
    weights: &'a Weights<'a>,
    rows: usize,
    /// Features as left factor.
    features: &'a [u32],
    /// Features as right factor.
    features_right: &'a [u32],
    /// Block after block of `P` by rows.
    gradient_rows: &'a mut [u32],
    /// Block after block of `P^T` by groups of classes.
    gradient_groups: &'a mut [u32],
}

/// Where one block of classes puts its part of `P`.
pub(super) struct BlockGradient<'a> {
    row_pairs: usize,
    class_pairs: usize,
    rows: &'a mut [u32],
    groups: &'a mut [u32],
}

impl BlockGradient<'_> {
    /// Two rows of `P` starting at row `first`, or the last one.
    #[inline(always)]
    pub fn set<T: Real>(&mut self, first: usize, values: &[T], width: usize) {
        let (one, two) = bytemuck::cast_slice(values).split_at(width);
        for (row, values) in (first..).zip([one, two]) {
            if !values.is_empty() {
                let at = row * self.class_pairs;
                pack_row(values, &mut self.rows[at..at + self.class_pairs]);
            }
        }
        pack_group_rows(one, two, self.row_pairs, &mut self.groups[first / 2 * GROUP..]);
    }
}

impl<'a> Factors<'a> {
    /// Numbers of the parts, in the order of the fields.
    fn lengths(rows: usize, channels: usize, classes: usize) -> [usize; 4] {
        let row_pairs = rows.div_ceil(2);
        [
            rows * channels.div_ceil(2),
            right_length(row_pairs, channels),
            rows * classes.div_ceil(2),
            row_pairs * classes.next_multiple_of(GROUP),
        ]
    }

    pub fn length(rows: usize, channels: usize, classes: usize) -> usize {
        Self::lengths(rows, channels, classes).iter().sum()
    }

    /// Packs the features of a tile into memory of [`length`](Self::length).
    pub fn new<T: Real>(weights: &'a Weights<'a>, features: &[T], rows: usize, memory: &'a mut [T]) -> Self {
        let channels = weights.channels;
        let [left, right, by_rows, by_groups] = Self::lengths(rows, channels, weights.classes);
        let (features_left, rest) = bits_mut(memory).split_at_mut(left);
        let (features_right, rest) = rest.split_at_mut(right);
        let (gradient_rows, rest) = rest.split_at_mut(by_rows);
        let features: &[f32] = bytemuck::cast_slice(features);
        pack_rows(features, channels, features_left);
        pack_right(features, channels, features_right);
        Self {
            weights,
            rows,
            features: features_left,
            features_right,
            gradient_rows,
            gradient_groups: &mut rest[..by_groups],
        }
    }

    /// `z = h W^T` of a block of classes, without the bias.
    pub fn logits<T: Real>(&self, block: usize, width: usize, logits: &mut [T]) {
        let channels = self.weights.channels;
        let pairs = channels.div_ceil(2);
        product(
            bytemuck::cast_slice_mut(logits),
            Destination::Set,
            Left::rows(self.features, pairs),
            &self.weights.for_logits[block * logits_stride(channels)..],
            Sizes { rows: self.rows, pairs, columns: width },
        );
    }

    /// Where each block of classes puts its part of `P`.
    pub fn gradients(&mut self) -> impl IndexedParallelIterator<Item = BlockGradient<'_>> {
        let (rows, classes) = (self.rows, self.weights.classes);
        let row_pairs = rows.div_ceil(2);
        self.gradient_rows
            .par_chunks_mut(rows * CLASS_BLOCK / 2)
            .zip(self.gradient_groups.par_chunks_mut(row_pairs * CLASS_BLOCK))
            .enumerate()
            .map(move |(block, (rows, groups))| BlockGradient {
                row_pairs,
                class_pairs: class_block(block, classes).len().div_ceil(2),
                rows,
                groups,
            })
    }

    /// `dW += P^T h` of a block of classes.
    pub fn weight_gradient<T: Real>(&self, block: usize, width: usize, dweight: &mut [T]) {
        let pairs = self.rows.div_ceil(2);
        product(
            bytemuck::cast_slice_mut(dweight),
            Destination::Add,
            Left::groups(&self.gradient_groups[block * pairs * CLASS_BLOCK..], pairs),
            self.features_right,
            Sizes { rows: width, pairs, columns: self.weights.channels },
        );
    }

    /// `dh = P W` of some rows.
    pub fn feature_gradient<T: Real>(&self, range: Range<usize>, dfeatures: &mut [T]) {
        let (channels, classes) = (self.weights.channels, self.weights.classes);
        for block in 0..classes.div_ceil(CLASS_BLOCK) {
            let pairs = class_block(block, classes).len().div_ceil(2);
            let start = block * self.rows * CLASS_BLOCK / 2 + range.start * pairs;
            let destination = match block {
                0 => Destination::Set,
                _ => Destination::Add,
            };
            product(
                bytemuck::cast_slice_mut(dfeatures),
                destination,
                Left::rows(&self.gradient_rows[start..], pairs),
                &self.weights.for_features[block * features_stride(channels)..],
                Sizes { rows: range.len(), pairs, columns: channels },
            );
        }
    }
}

/// Scratch memory as bits. Only f32 has factors in bf16.
fn bits_mut<T: Real>(memory: &mut [T]) -> &mut [u32] {
    bytemuck::cast_slice_mut(memory)
}
