//! Pieces of work whose number depends on the size of a problem, never on the number of threads, so
//! that sums over pieces come out the same to the bit everywhere.

/// Most pieces that a loop over vertices is cut into.
const MOST_PIECES: usize = 64;

/// Length of a piece of `count` items: at least `least` (and 1), and so that there are at most 64.
pub(crate) fn piece_length(count: usize, least: usize) -> usize {
    count.div_ceil(MOST_PIECES).max(least).max(1)
}
