//! Gauge aggregation with the sums of a vertex in registers.
//!
//! The weights of the edges of a tile of vertices are tabulated first; then, for one vertex and one
//! vector of channels of one order at a time, its edges are walked once: two loads (cosine and sine
//! channels), a rotation, and one multiply-add for each harmonic and component, whose sums stay in
//! registers.

mod harmonics;
mod paired;
mod products;

pub(crate) use harmonics::higher_harmonics;

use super::{Aggregate, Aggregation, Backward, Forward, Radial};
use crate::parallel::{TILE, memory_length, spread, worker_count};
use crate::{EdgePhases, FeatureType, GraphView, Host, HostScratch, Real};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Direction of features along the edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From `q` to `p` along `p <- q`: angle `theta`, rotation by `g - theta`.
    Forward,
    /// From `p` to `q` along `p <- q`, as the transposed operator needs it: angle
    /// `-(g - theta)`, rotation by `-theta`.
    Backward,
}

/// One sum over the neighbours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// 0 for the constant, `2m - 1` for `cos m`, `2m` for `sin m`.
    pub harmonic: usize,
    /// Radial ring.
    pub ring: usize,
    /// Index of the sum in the result of a vertex.
    pub destination: usize,
}

/// One order of the features that are gathered.
#[derive(Debug, Clone, Copy)]
struct Block {
    order: usize,
    channels: usize,
    start: usize,
}

/// A gauge aggregation into rows of any layout.
#[derive(Debug)]
pub(crate) struct Gather {
    direction: Direction,
    blocks: Vec<Block>,
    dimension: usize,
    highest_source_order: usize,
    rows: Vec<Row>,
    harmonics: usize,
    radial: Radial,
    aggregation: Aggregation,
    /// Coefficients of each edge of the graph.
    columns: usize,
    /// True if the rows are the harmonics in order, on one ring.
    plain: bool,
}

impl Gather {
    pub fn new(
        direction: Direction,
        source: &FeatureType,
        rows: Vec<Row>,
        radial: Radial,
        aggregation: Aggregation,
        columns: usize,
    ) -> Self {
        let blocks =
            source.orders().map(|(order, channels)| Block { order, channels, start: source.range(order).start });
        let plain = radial.rings == 1 && rows.iter().enumerate().all(|(k, r)| r.harmonic == k);
        let highest = rows.iter().map(|row| row.harmonic).max().unwrap_or(0);
        Self {
            direction,
            blocks: blocks.collect(),
            dimension: source.dimension(),
            highest_source_order: source.highest_order(),
            harmonics: 2 * highest.div_ceil(2) + 1,
            rows,
            radial,
            aggregation,
            columns,
            plain,
        }
    }

    /// The sums over neighbours.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Number of harmonics up to the highest one that a row needs.
    pub fn harmonic_count(&self) -> usize {
        self.harmonics
    }

    /// Length of a feature vector that is gathered.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// Length of the table of one edge: its weights and rotations, and its harmonics if they differ from the
    /// weights.
    fn columns(&self) -> usize {
        let harmonics = if self.plain { 0 } else { self.harmonics };
        self.weight_columns() + 2 * self.highest_source_order + harmonics
    }

    fn weight_columns(&self) -> usize {
        if self.plain { self.harmonics } else { self.rows.len() }
    }

    /// Working memory for [`tabulate`](Self::tabulate) on up to [`TILE`] vertices in a row.
    pub fn memory<T: Real>(&self, graph: GraphView<'_, T>) -> usize {
        let offsets = graph.offsets();
        let length = TILE.min(graph.vertex_count());
        let edges = offsets.iter().zip(&offsets[length..]);
        let most = edges.fold(0, |most, (start, end)| most.max(end - start));
        most as usize * self.columns()
    }

    /// Tabulates, for every edge of some vertices, the weights `s phi_r t_k` of every row and
    /// `(cos n, sin n)` of every order of the rotation; one column after the other, so that the
    /// recurrences run over edges side by side.
    #[inline(always)]
    pub fn tabulate<'a, T: Real>(
        &'a self,
        graph: GraphView<'a, T>,
        x: &'a [T],
        vertices: Range<usize>,
        memory: &'a mut [T],
    ) -> Table<'a, T> {
        assert!(x.len() == graph.vertex_count() * self.dimension);
        let offsets = &graph.offsets()[vertices.start..=vertices.end];
        let first_edge = offsets[0] as usize;
        let edges = first_edge..offsets[offsets.len() - 1] as usize;
        let count = edges.len();
        let (weights, memory) = memory.split_at_mut(self.weight_columns() * count);
        let (rotations, memory) = memory.split_at_mut(2 * self.highest_source_order * count);
        if self.plain {
            self.harmonics(graph, vertices, weights, rotations, count);
        } else {
            let harmonics = &mut memory[..self.harmonics * count];
            self.harmonics(graph, vertices, harmonics, rotations, count);
            for (row, weights) in self.rows.iter().zip(weights.chunks_exact_mut(count.max(1))) {
                let harmonic = &harmonics[row.harmonic * count..][..count];
                for (place, (weight, &harmonic)) in weights.iter_mut().zip(harmonic).enumerate() {
                    let edge = match self.direction {
                        Direction::Forward => first_edge + place,
                        Direction::Backward => graph.reverse()[first_edge + place] as usize,
                    };
                    *weight = harmonic * self.radial.weight(row.ring, graph.radius()[edge]);
                }
            }
        }
        Table { gather: self, graph, x, edges, weights, rotations }
    }
}

/// The tables of the edges of some vertices.
pub(crate) struct Table<'a, T> {
    gather: &'a Gather,
    graph: GraphView<'a, T>,
    x: &'a [T],
    edges: Range<usize>,
    /// `[rows, edges]`.
    weights: &'a [T],
    /// `[cos 1, sin 1, cos 2, ...; edges]`.
    rotations: &'a [T],
}

/// One vector of channels of one order.
#[derive(Clone, Copy)]
struct Columns {
    block: Block,
    first: usize,
    width: usize,
}

impl<T: Real> Table<'_, T> {
    /// Writes all rows of vertex `p`, which must be one of the tabulated ones, to their destinations
    /// in `out`.
    #[inline(always)]
    pub fn vertex<S: Simd>(&self, simd: S, p: usize, out: &mut [T]) {
        let row = self.graph.row(p);
        assert!(self.edges.start <= row.start && row.end <= self.edges.end);
        let lanes = T::count::<S>();
        for &block in &self.gather.blocks {
            for first in (0..block.channels).step_by(lanes) {
                let width = lanes.min(block.channels - first);
                let columns = Columns { block, first, width };
                if width == lanes {
                    self.all_rows::<S, false>(simd, row.clone(), columns, out);
                } else {
                    self.all_rows::<S, true>(simd, row.clone(), columns, out);
                }
            }
        }
    }

    /// All rows for one vector of channels, as many at a time as registers hold.
    #[inline(always)]
    fn all_rows<S: Simd, const TAIL: bool>(&self, simd: S, edges: Range<usize>, columns: Columns, out: &mut [T]) {
        let rows = self.gather.rows.len();
        let mut first = 0;
        macro_rules! sums {
            ($($count:literal)*) => {$(
                while rows - first >= $count {
                    // SAFETY: `vertex` checked that the edges are tabulated, and there are
                    // `$count` rows from `first`.
                    unsafe {
                        if columns.block.order == 0 {
                            self.sums::<S, $count, false, TAIL>(
                                simd, edges.clone(), columns, first, out,
                            );
                        } else if TAIL && columns.block.is_paired::<S, T>() {
                            self.paired_sums::<S, $count>(
                                simd, edges.clone(), columns.block, first, out,
                            );
                        } else {
                            self.sums::<S, $count, true, TAIL>(
                                simd, edges.clone(), columns, first, out,
                            );
                        }
                    }
                    first += $count;
                }
            )*};
        }
        sums!(5 3 2 1);
    }

    /// `COUNT` rows for one vector of channels: of the cosine and the sine component where the
    /// order is `TURNED`, of the one component of order 0 otherwise.
    ///
    /// # Safety
    /// `edges` are tabulated edges, and there are `COUNT` rows from `first_row`.
    #[inline(always)]
    unsafe fn sums<S: Simd, const COUNT: usize, const TURNED: bool, const TAIL: bool>(
        &self,
        simd: S,
        edges: Range<usize>,
        columns: Columns,
        first_row: usize,
        out: &mut [T],
    ) {
        let Columns { block, first, width } = columns;
        let count = self.edges.len();
        let start = edges.start - self.edges.start;
        let (cosine, sine) = (block.start + first, block.start + first + block.channels);
        // SAFETY: `from` is one of the places below, with `width` numbers behind it; without a tail
        // that is one full vector.
        let load = |from: *const T| unsafe {
            if TAIL { T::load(simd, std::slice::from_raw_parts(from, width)) } else { T::load_from::<S>(from) }
        };
        let zero = T::splat(simd, T::zero());
        let (mut cosines, mut sines) = ([zero; COUNT], [zero; COUNT]);
        let weights = self.weights.as_ptr().wrapping_add(first_row * count + start);
        let turns = block.order.saturating_sub(1) * 2 * count + start;
        let turns = self.rotations.as_ptr().wrapping_add(turns);
        for (place, &q) in self.graph.neighbours()[edges].iter().enumerate() {
            // Graph arrays name existing vertices only, and `tabulate` checked the length of `x`.
            let features = self.x.as_ptr().wrapping_add(q as usize * self.gather.dimension);
            let mut u = load(features.wrapping_add(cosine));
            let mut w = zero;
            if TURNED {
                // SAFETY: the rotations have two columns of `count` edges for each order.
                let (c, s) = unsafe {
                    let at = turns.wrapping_add(place);
                    (*at, *at.wrapping_add(count))
                };
                let (c, s) = (T::splat(simd, c), T::splat(simd, s));
                let v = load(features.wrapping_add(sine));
                w = T::times_plus(simd, s, u, T::times(simd, c, v));
                u = T::minus_times(simd, s, v, T::times(simd, c, u));
            }
            for k in 0..COUNT {
                // SAFETY: the weights have one column of `count` edges for each row.
                let weight = unsafe { *weights.wrapping_add(k * count + place) };
                let weight = T::splat(simd, weight);
                cosines[k] = T::times_plus(simd, weight, u, cosines[k]);
                if TURNED {
                    sines[k] = T::times_plus(simd, weight, w, sines[k]);
                }
            }
        }
        let mut store = |at: usize, values| {
            let to = &mut out[at..][..width];
            if TAIL {
                T::store(simd, to, values);
            } else {
                // SAFETY: without a tail, `width` is one full vector.
                unsafe { T::store_to::<S>(to.as_mut_ptr(), values) };
            }
        };
        for k in 0..COUNT {
            let destination = self.gather.rows[first_row + k].destination;
            store(destination + cosine, cosines[k]);
            if TURNED {
                store(destination + sine, sines[k]);
            }
        }
    }
}

impl Aggregate {
    fn gather(&self, columns: usize) -> Gather {
        let rows = (0..self.rings * self.harmonics()).map(|row| Row {
            harmonic: row % self.harmonics(),
            ring: row / self.harmonics(),
            destination: row * self.input.dimension(),
        });
        Gather::new(Direction::Forward, &self.input, rows.collect(), self.radial(), self.aggregation, columns)
    }
}

pub(super) fn forward<T: Real>(pass: Forward<'_, Host<T>>, scratch: HostScratch<'_, T>) {
    let Forward { op, graph, x, a } = pass;
    let width = op.dimension();
    if a.is_empty() {
        return;
    }
    let gather = op.gather(graph.columns());
    let workers = worker_count(graph.vertex_count().div_ceil(TILE));
    let each = memory_length(workers, gather.memory(graph).max(1));
    spread(
        scratch.narrow.take(workers * each).chunks_exact_mut(each),
        a.chunks_mut(TILE * width).enumerate(),
        |memory, (tile, out)| {
            pulp::Arch::new().dispatch(ForwardTile {
                gather: &gather,
                graph,
                x,
                first: tile * TILE,
                out,
                width,
                memory,
            });
        },
    );
}

struct ForwardTile<'a, T> {
    gather: &'a Gather,
    graph: GraphView<'a, T>,
    x: &'a [T],
    first: usize,
    out: &'a mut [T],
    width: usize,
    memory: &'a mut [T],
}

impl<T: Real> WithSimd for ForwardTile<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let vertices = self.first..self.first + self.out.len() / self.width;
        let table = self.gather.tabulate(self.graph, self.x, vertices.clone(), self.memory);
        for (p, out) in vertices.zip(self.out.chunks_exact_mut(self.width)) {
            table.vertex(simd, p, out);
        }
    }
}

pub(super) fn backward<T: Real>(pass: Backward<'_, Host<T>>, scratch: HostScratch<'_, T>) {
    let Backward { op, graph, da, dx } = pass;
    let dimension = op.input.dimension();
    if dx.is_empty() {
        return;
    }
    let workers = worker_count(graph.vertex_count().div_ceil(TILE));
    let each = memory_length(workers, dimension + op.harmonics());
    spread(
        scratch.narrow.take(workers * each).chunks_exact_mut(each),
        dx.chunks_mut(TILE * dimension).enumerate(),
        |memory, (tile, dx)| {
            pulp::Arch::new().dispatch(BackwardTile { op, graph, da, first: tile * TILE, dx, memory });
        },
    );
}

struct BackwardTile<'a, T> {
    op: &'a Aggregate,
    graph: GraphView<'a, T>,
    da: &'a [T],
    first: usize,
    dx: &'a mut [T],
    memory: &'a mut [T],
}

impl<T: Real> WithSimd for BackwardTile<'_, T> {
    type Output = ();

    /// For every vertex `q`: sums the rows of `da_p` with their weights, rotates the sum back, and adds it
    /// up over the reversed edges.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { op, graph, da, .. } = self;
        let dimension = op.input.dimension();
        let (sum, harmonics) = self.memory.split_at_mut(dimension);
        let radial = op.radial();
        for (place, dx) in self.dx.chunks_exact_mut(dimension).enumerate() {
            dx.fill(T::zero());
            for edge in graph.row(self.first + place) {
                let p = graph.neighbours()[edge] as usize;
                let edge = graph.reverse()[edge] as usize;
                let EdgePhases { angle, transport } = graph.phases()[edge];
                let scale = graph.factor(op.aggregation, p, edge);
                harmonics[0] = scale;
                let start = [scale * angle[0], scale * angle[1]];
                powers(start, angle, &mut harmonics[1..]);
                sum.fill(T::zero());
                let rows = &da[p * op.dimension()..][..op.dimension()];
                for (row, values) in rows.chunks_exact(dimension).enumerate() {
                    let radial = radial.weight(row / op.harmonics(), graph.radius()[edge]);
                    let weight = radial * harmonics[row % op.harmonics()];
                    for (sum, &value) in sum.iter_mut().zip(values) {
                        *sum += weight * value;
                    }
                }
                let [mut c, mut s] = [T::one(), T::zero()];
                let (mut dx, mut sum) = (&mut *dx, &*sum);
                for (order, &channels) in op.input.multiplicities().iter().enumerate() {
                    let cosines = dx.split_off_mut(..channels).unwrap_or_default();
                    let u = sum.split_off(..channels).unwrap_or_default();
                    if order == 0 {
                        for (dx, &u) in cosines.iter_mut().zip(u) {
                            *dx += u;
                        }
                    } else {
                        let sines = dx.split_off_mut(..channels).unwrap_or_default();
                        let v = sum.split_off(..channels).unwrap_or_default();
                        for (((dx, dy), &u), &v) in cosines.iter_mut().zip(sines).zip(u).zip(v) {
                            *dx += c * u + s * v;
                            *dy += c * v - s * u;
                        }
                    }
                    let [tc, ts] = transport;
                    (c, s) = (c * tc - s * ts, s * tc + c * ts);
                }
            }
        }
    }
}

/// `first`, then each pair is the previous one rotated by `step`.
#[inline(always)]
fn powers<T: Real>(first: [T; 2], step: [T; 2], pairs: &mut [T]) {
    let [mut c, mut s] = first;
    for pair in pairs.chunks_exact_mut(2) {
        pair[0] = c;
        pair[1] = s;
        (c, s) = (c * step[0] - s * step[1], s * step[0] + c * step[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::reference;
    use crate::testing::{difference, graphs, random};

    fn check<S: Simd>(simd: S) {
        let (_, graph) = graphs::<f64>().swap_remove(2);
        for (input, highest_order) in [("16x0 + 8x1", 2), ("3x0 + 5x2", 3)] {
            let op = Aggregate {
                input: input.parse().unwrap(),
                highest_order,
                rings: 1,
                max_radius: 1.0,
                aggregation: Aggregation::Mean,
            };
            let x: Vec<f64> = random(graph.vertex_count() * op.input.dimension(), 1);
            let mut expected = vec![0.0; graph.vertex_count() * op.dimension()];
            reference::forward(&op, graph.view(), &x, &mut expected).unwrap();
            let gather = op.gather(0);
            let (mut a, mut memory) = (expected.clone(), vec![0.0; gather.memory(graph.view())]);
            a.fill(f64::NAN);
            simd.vectorize(ForwardTile {
                gather: &gather,
                graph: graph.view(),
                x: &x,
                first: 0,
                out: &mut a,
                width: op.dimension(),
                memory: &mut memory,
            });
            assert!(difference(&a, &expected) < 1e-14);
        }
    }

    #[test]
    fn sums_equal_the_reference_on_every_instruction_set() {
        check(pulp::Scalar::new());
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(simd) = pulp::x86::V3::try_new() {
                check(simd);
            }
            if let Some(simd) = pulp::x86::V4::try_new() {
                check(simd);
            }
        }
    }
}
