//! Gauge aggregation with the sums of a vertex in registers.
//!
//! For one vertex the weights of its edges are tabulated first; then, for one vector of channels of
//! one order at a time, the edges are walked once: two loads (cosine and sine channels), a rotation,
//! and one multiply-add for each harmonic and component, whose sums stay in registers.

use super::{Aggregate, Aggregation, Radial};
use crate::parallel::{TILE, spread, worker_count};
use crate::{EdgePhases, FeatureType, GraphArrays, Real, Scratch};
use pulp::{Simd, WithSimd};

/// Which way features flow along the edges.
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
    /// Where the sum lies in the result of a vertex.
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
    /// Whether the rows are just the harmonics in their order, on one ring.
    plain: bool,
}

impl Gather {
    pub fn new(
        direction: Direction,
        source: &FeatureType,
        rows: Vec<Row>,
        radial: Radial,
        aggregation: Aggregation,
    ) -> Self {
        let blocks = source.orders().map(|(order, channels)| Block {
            order,
            channels,
            start: source.range(order).start,
        });
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
            plain,
        }
    }

    /// The sums over neighbours.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Number of harmonics up to the highest one that a row needs.
    pub fn harmonics(&self) -> usize {
        self.harmonics
    }

    /// Length of a feature vector that is gathered.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// Working memory for one vertex: weights and rotations of its edges, and one list of harmonics.
    pub fn memory<T: Real>(&self, graph: &GraphArrays<T>) -> usize {
        let degrees = (0..graph.vertex_count()).map(|p| graph.row(p).len());
        let degree = degrees.max().unwrap_or(0);
        degree * (self.weight_stride() + self.rotation_stride()) + self.harmonics
    }

    fn weight_stride(&self) -> usize {
        if self.plain {
            self.harmonics
        } else {
            self.rows.len()
        }
    }

    fn rotation_stride(&self) -> usize {
        2 * self.highest_source_order
    }

    /// Writes all rows of vertex `p` to their destinations in `out`.
    #[inline(always)]
    pub fn vertex<S: Simd, T: Real>(
        &self,
        simd: S,
        graph: &GraphArrays<T>,
        x: &[T],
        p: usize,
        out: &mut [T],
        memory: &mut [T],
    ) {
        let edges = graph.row(p);
        let degree = edges.len();
        let (weights, memory) = memory.split_at_mut(degree * self.weight_stride());
        let (rotations, harmonics) = memory.split_at_mut(degree * self.rotation_stride());
        self.tabulate(
            graph,
            p,
            weights,
            rotations,
            &mut harmonics[..self.harmonics],
        );
        let walk = Walk {
            neighbours: &graph.neighbours()[edges],
            x,
            dimension: self.dimension,
            weights,
            weight_stride: self.weight_stride(),
            rotations,
            rotation_stride: self.rotation_stride(),
        };
        for block in &self.blocks {
            walk.block(simd, *block, &self.rows, out);
        }
    }

    /// Weights `s phi_r t_k` of every row, and `(cos n, sin n)` of every order, for every edge.
    #[inline(always)]
    fn tabulate<T: Real>(
        &self,
        graph: &GraphArrays<T>,
        p: usize,
        weights: &mut [T],
        rotations: &mut [T],
        harmonics: &mut [T],
    ) {
        let own_scale: T = self.aggregation.scale(graph.row(p).len());
        for (place, edge) in graph.row(p).enumerate() {
            let (angle, rotation, scale, edge) = match self.direction {
                Direction::Forward => {
                    let EdgePhases { angle, transport } = graph.phases()[edge];
                    (angle, transport, own_scale, edge)
                }
                Direction::Backward => {
                    let target = graph.neighbours()[edge] as usize;
                    let edge = graph.reverse()[edge] as usize;
                    let EdgePhases { angle, transport } = graph.phases()[edge];
                    let scale = self.aggregation.scale(graph.row(target).len());
                    let negative = |[c, s]: [T; 2]| [c, -s];
                    (negative(transport), negative(angle), scale, edge)
                }
            };
            let turns = &mut rotations[place * self.rotation_stride()..][..self.rotation_stride()];
            powers(rotation, rotation, turns);
            let weights = &mut weights[place * self.weight_stride()..][..self.weight_stride()];
            let [c, s] = angle;
            if self.plain {
                weights[0] = scale;
                powers([scale * c, scale * s], angle, &mut weights[1..]);
            } else {
                harmonics[0] = scale;
                powers([scale * c, scale * s], angle, &mut harmonics[1..]);
                let radius = graph.radius()[edge];
                for (weight, row) in weights.iter_mut().zip(&self.rows) {
                    *weight = harmonics[row.harmonic] * self.radial.weight(row.ring, radius);
                }
            }
        }
    }
}

/// `first`, then each pair the one before turned by `step`.
#[inline(always)]
fn powers<T: Real>(first: [T; 2], step: [T; 2], pairs: &mut [T]) {
    let [mut c, mut s] = first;
    for pair in pairs.chunks_exact_mut(2) {
        pair[0] = c;
        pair[1] = s;
        (c, s) = (c * step[0] - s * step[1], s * step[0] + c * step[1]);
    }
}

/// The edges of one vertex with their tables.
#[derive(Clone, Copy)]
struct Walk<'a, T> {
    neighbours: &'a [u32],
    x: &'a [T],
    dimension: usize,
    weights: &'a [T],
    weight_stride: usize,
    rotations: &'a [T],
    rotation_stride: usize,
}

impl<T: Real> Walk<'_, T> {
    /// All rows for all channels of one order.
    #[inline(always)]
    fn block<S: Simd>(&self, simd: S, block: Block, rows: &[Row], out: &mut [T]) {
        let lanes = T::count::<S>();
        let mut channel = 0;
        while channel < block.channels {
            let width = lanes.min(block.channels - channel);
            if width == lanes {
                self.columns::<S, false>(simd, block, channel, width, rows, out);
            } else {
                self.columns::<S, true>(simd, block, channel, width, rows, out);
            }
            channel += width;
        }
    }

    /// All rows for one vector of channels, as many rows at a time as registers hold.
    #[inline(always)]
    fn columns<S: Simd, const TAIL: bool>(
        &self,
        simd: S,
        block: Block,
        channel: usize,
        width: usize,
        rows: &[Row],
        out: &mut [T],
    ) {
        let mut first = 0;
        macro_rules! sums {
            ($($count:literal)*) => {$(
                while rows.len() - first >= $count {
                    if block.order == 0 {
                        self.sums::<S, $count, false, TAIL>(
                            simd, block, channel, width, rows, first, out,
                        );
                    } else {
                        self.sums::<S, $count, true, TAIL>(
                            simd, block, channel, width, rows, first, out,
                        );
                    }
                    first += $count;
                }
            )*};
        }
        sums!(5 3 2 1);
    }

    /// `COUNT` rows for one vector of channels: of the cosine and the sine component where the
    /// order is `TURNED`, of the one component of order 0 otherwise.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn sums<S: Simd, const COUNT: usize, const TURNED: bool, const TAIL: bool>(
        &self,
        simd: S,
        block: Block,
        channel: usize,
        width: usize,
        rows: &[Row],
        first: usize,
        out: &mut [T],
    ) {
        let zero = T::splat(simd, T::zero());
        let load = |from: &[T]| {
            if TAIL {
                T::load(simd, from)
            } else {
                debug_assert!(from.len() == T::count::<S>());
                // SAFETY: without a tail, slices are `width` numbers long, one full vector.
                unsafe { T::load_from::<S>(from.as_ptr()) }
            }
        };
        let cosine = block.start + channel;
        let sine = cosine + block.channels;
        let (mut cosines, mut sines) = ([zero; COUNT], [zero; COUNT]);
        for (place, &q) in self.neighbours.iter().enumerate() {
            let features = &self.x[q as usize * self.dimension..][..self.dimension];
            let weights = &self.weights[place * self.weight_stride + first..][..COUNT];
            let mut u = load(&features[cosine..][..width]);
            let mut w = zero;
            if TURNED {
                let at = place * self.rotation_stride + 2 * (block.order - 1);
                let turn = &self.rotations[at..][..2];
                let (c, s) = (T::splat(simd, turn[0]), T::splat(simd, turn[1]));
                let v = load(&features[sine..][..width]);
                w = T::times_plus(simd, s, u, T::times(simd, c, v));
                u = T::minus_times(simd, s, v, T::times(simd, c, u));
            }
            for k in 0..COUNT {
                let weight = T::splat(simd, weights[k]);
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
                debug_assert!(to.len() == T::count::<S>());
                // SAFETY: as for `load`.
                unsafe { T::store_to::<S>(to.as_mut_ptr(), values) };
            }
        };
        for k in 0..COUNT {
            let destination = rows[first + k].destination;
            store(destination + cosine, cosines[k]);
            if TURNED {
                store(destination + sine, sines[k]);
            }
        }
    }
}

pub(super) fn forward<T: Real>(
    op: &Aggregate,
    graph: &GraphArrays<T>,
    x: &[T],
    a: &mut [T],
    scratch: &mut Scratch<T>,
) {
    let width = op.dimension();
    if a.is_empty() {
        return;
    }
    let rows = (0..op.rings * op.harmonics()).map(|row| Row {
        harmonic: row % op.harmonics(),
        ring: row / op.harmonics(),
        destination: row * op.input.dimension(),
    });
    let gather = Gather::new(
        Direction::Forward,
        &op.input,
        rows.collect(),
        op.radial(),
        op.aggregation,
    );
    let each = gather.memory(graph);
    let workers = worker_count(graph.vertex_count().div_ceil(TILE));
    spread(
        scratch.take(workers * each).chunks_exact_mut(each),
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
    graph: &'a GraphArrays<T>,
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
        for (place, out) in self.out.chunks_exact_mut(self.width).enumerate() {
            let p = self.first + place;
            self.gather
                .vertex(simd, self.graph, self.x, p, out, self.memory);
        }
    }
}

pub(super) fn backward<T: Real>(
    op: &Aggregate,
    graph: &GraphArrays<T>,
    da: &[T],
    dx: &mut [T],
    scratch: &mut Scratch<T>,
) {
    let dimension = op.input.dimension();
    if dx.is_empty() {
        return;
    }
    let each = dimension + op.harmonics();
    let workers = worker_count(graph.vertex_count().div_ceil(TILE));
    spread(
        scratch.take(workers * each).chunks_exact_mut(each),
        dx.chunks_mut(TILE * dimension).enumerate(),
        |memory, (tile, dx)| {
            pulp::Arch::new().dispatch(BackwardTile {
                op,
                graph,
                da,
                first: tile * TILE,
                dx,
                memory,
            });
        },
    );
}

struct BackwardTile<'a, T> {
    op: &'a Aggregate,
    graph: &'a GraphArrays<T>,
    da: &'a [T],
    first: usize,
    dx: &'a mut [T],
    memory: &'a mut [T],
}

impl<T: Real> WithSimd for BackwardTile<'_, T> {
    type Output = ();

    /// For every vertex `q`: over its reversed edges, the rows of `da_p` weighted and summed, turned
    /// back, and added up.
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
                let scale: T = op.aggregation.scale(graph.row(p).len());
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
