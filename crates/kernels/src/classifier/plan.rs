//! How rows and classes are divided, and how much scratch memory that takes. Depends only on the sizes.

use super::bf16_factors::{Factors, Weights};
use super::{Classifier, Rows};
use crate::cross_entropy::{IGNORE, Score, Tally};
use std::ops::Range;

/// Classes in a block.
pub(super) const CLASS_BLOCK: usize = 256;
/// Largest number of rows of a tile: more do not speed up the products.
const TILE_ROWS: usize = 512;
/// Largest number of logits of a tile, unless it has fewer than [`ROW_BLOCK`] rows then.
const TILE_LOGITS: usize = 1 << 22;
/// Rows of `dh` of one task.
pub(super) const ROW_BLOCK: usize = 64;
/// Target number of tasks: blocks of classes, or slabs of rows if there are too few blocks.
const TASKS: usize = 16;
/// Smallest number of rows of a slab.
const SLAB_ROWS: usize = 128;
/// Numbers that one block of classes stores for one row.
pub(super) const PARTS: usize = 5;

/// How rows are divided.
pub(super) struct Plan {
    pub rows: usize,
    pub classes: usize,
    pub channels: usize,
    pub slabs: usize,
    pub slab_rows: usize,
    pub tile_rows: usize,
    /// True if the factors of products are rounded to bf16.
    pub bf16: bool,
}

impl Plan {
    pub fn new<T>(classifier: &Classifier<'_, T>) -> Self {
        let (rows, classes) = (classifier.targets.labels.len(), classifier.targets.classes);
        let blocks = classes.div_ceil(CLASS_BLOCK).max(1);
        let most_slabs = (TASKS / blocks).clamp(1, rows.div_ceil(SLAB_ROWS).max(1));
        let slab_rows = rows.div_ceil(most_slabs).max(1);
        let fitting = TILE_LOGITS / classes.max(1) / ROW_BLOCK * ROW_BLOCK;
        Self {
            rows,
            classes,
            channels: classifier.channels,
            slabs: rows.div_ceil(slab_rows),
            slab_rows,
            tile_rows: fitting.clamp(ROW_BLOCK, TILE_ROWS).min(slab_rows),
            bf16: false,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0 || self.classes == 0
    }

    /// The score without rows or classes: nothing is counted.
    pub fn empty_score(&self, rows: Rows<'_>) -> Score {
        for (values, nothing) in [(rows.predictions, 0), (rows.ranks, IGNORE)] {
            values.unwrap_or_default().fill(nothing);
        }
        Score::default()
    }

    /// Scratch memory of a tile: its logits, the parts of its rows, and factors in bf16.
    pub fn tile_numbers(&self) -> usize {
        let factors = if self.bf16 { Factors::length(self.tile_rows, self.channels, self.classes) } else { 0 };
        self.tile_rows * (self.classes + PARTS * self.classes.div_ceil(CLASS_BLOCK)) + factors
    }

    /// Scratch memory of weights in bf16.
    pub fn weights(&self) -> usize {
        if self.bf16 { Weights::length(self.channels, self.classes) } else { 0 }
    }

    /// Length of `dW` and `db` together.
    pub fn parameters(&self) -> usize {
        self.classes * (self.channels + 1)
    }

    pub fn slab(&self, index: usize) -> Range<usize> {
        index * self.slab_rows..self.rows.min((index + 1) * self.slab_rows)
    }

    /// The values of each slab, or as many times nothing.
    pub fn split<'a>(&self, values: Option<&'a mut [u32]>) -> Vec<Option<&'a mut [u32]>> {
        match values {
            Some(values) => values.chunks_mut(self.slab_rows).map(Some).collect(),
            None => (0..self.slabs).map(|_| None).collect(),
        }
    }

    pub fn score(&self, tallies: &[Tally], normaliser: f64) -> Score {
        let mut sum = Tally::default();
        tallies.iter().for_each(|tally| sum.add(tally));
        sum.score(normaliser)
    }
}

pub(super) fn class_block(index: usize, classes: usize) -> Range<usize> {
    index * CLASS_BLOCK..classes.min((index + 1) * CLASS_BLOCK)
}

/// `values` cut into the rows of each slab, also where rows have no channels.
pub(super) fn split_rows<T>(values: &mut [T], slab_rows: usize, channels: usize, slabs: usize) -> Vec<&mut [T]> {
    let mut rest = values;
    (0..slabs)
        .map(|_| {
            let length = rest.len().min(slab_rows * channels);
            rest.split_off_mut(..length).unwrap_or_default()
        })
        .collect()
}
