//! `D` of all vertices, computed when it is first asked for.

use super::HostChain;
use crate::Real;
use crate::simd::prefetch;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Vertices whose rows are computed together.
const ROWS: usize = 32;

/// Rows of `D`, by tiles. An edge asks for the row of its neighbour, so rows are used soon after they are written,
/// while they are in the cache, if neighbours have near numbers.
pub(super) struct Neighbours<'a, 'm, T: Real> {
    chain: &'a HostChain<'a, T>,
    stacked: &'a [T],
    x: &'a [T],
    tiles: Vec<Tile<'m, T>>,
}

struct Tile<'m, T> {
    /// Memory of rows that are not computed.
    memory: Mutex<Option<&'m mut [T]>>,
    rows: OnceLock<&'m [T]>,
}

impl<'a, 'm, T: Real> Neighbours<'a, 'm, T> {
    /// Rows for features `x` with stacked weights, in memory for one row of each vertex.
    pub fn new(chain: &'a HostChain<'a, T>, stacked: &'a [T], x: &'a [T], memory: &'m mut [T]) -> Self {
        let tiles = memory.chunks_mut(ROWS * chain.first_row());
        let tiles = tiles.map(|rows| Tile { memory: Mutex::new(Some(rows)), rows: OnceLock::new() });
        Self { chain, stacked, x, tiles: tiles.collect() }
    }

    /// The row of a vertex.
    #[inline(always)]
    pub fn row(&self, vertex: usize) -> &[T] {
        let (place, length) = (vertex % ROWS, self.chain.first_row());
        let rows = match self.tiles[vertex / ROWS].rows.get() {
            Some(rows) => rows,
            None => self.compute(vertex / ROWS),
        };
        &rows[place * length..][..length]
    }

    #[inline(never)]
    fn compute(&self, tile: usize) -> &[T] {
        let Tile { memory, rows } = &self.tiles[tile];
        rows.get_or_init(|| {
            let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
            let rows = memory.take().unwrap_or_default();
            prefetch(rows);
            let x = &self.x[tile * ROWS * self.chain.dimension..];
            self.chain.vertex_rows(self.stacked, None, x, rows);
            rows
        })
    }
}
