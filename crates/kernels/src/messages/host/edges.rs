//! Chunks of edges: harmonics of their angles, sums of rows of vertices over harmonics and back, products that skip
//! zeros.

use super::Layer;
use super::neighbours::Neighbours;
use crate::aggregate::higher_harmonics;
use crate::simd::prefetch;
use crate::{Activation, Destination, EdgePhases, GraphView, Real};
use pulp::{Arch, Simd, WithSimd};
use std::ops::Range;

/// Edges from the one that is computed to the one whose neighbour is prefetched.
const AHEAD: usize = 3;

/// Edges of a chunk.
pub(super) const CHUNK: usize = 144;

/// Edges that are computed together, and where those of each vertex are among them.
#[derive(Default)]
pub(super) struct Chunk {
    pub edges: Vec<u32>,
    /// Places of vertices in their tile, with ranges of `edges`, and true for the first range of a vertex.
    segments: Vec<(usize, Range<usize>, bool)>,
}

impl Chunk {
    /// Calls `work` with all edges of some vertices that `edge` maps to an edge, in chunks.
    pub fn for_each(
        &mut self,
        graph: GraphView<'_, impl Real>,
        vertices: Range<usize>,
        edge: impl Fn(usize) -> Option<usize>,
        mut work: impl FnMut(&Self),
    ) {
        for (place, vertex) in vertices.enumerate() {
            let (mut start, mut is_first) = (self.edges.len(), true);
            for edge in graph.row(vertex).filter_map(&edge) {
                if self.edges.len() == CHUNK {
                    self.segments.push((place, start..CHUNK, is_first));
                    self.finish(&mut work);
                    (start, is_first) = (0, false);
                }
                self.edges.push(edge as u32);
            }
            self.segments.push((place, start..self.edges.len(), is_first));
        }
        self.finish(&mut work);
    }

    fn finish(&mut self, work: &mut impl FnMut(&Self)) {
        if !self.edges.is_empty() {
            work(self);
        }
        self.edges.clear();
        self.segments.clear();
    }

    /// `1, cos a, sin a, cos 2 a, ...` of an angle of every edge, one column after the other.
    #[inline(always)]
    pub fn harmonics<T: Real>(
        &self,
        graph: GraphView<'_, T>,
        angle: impl Fn(&EdgePhases<T>) -> [T; 2],
        table: &mut [T],
    ) {
        let count = self.edges.len();
        let (ones, table) = table.split_at_mut(count);
        ones.fill(T::one());
        if !table.is_empty() {
            let (cosines, rest) = table.split_at_mut(count);
            let pairs = cosines.iter_mut().zip(rest).zip(&self.edges);
            for ((c, s), &edge) in pairs {
                [*c, *s] = angle(&graph.phases()[edge as usize]);
            }
            higher_harmonics(table, count, None);
        }
    }
}

/// `out[e] = sum_k t_k(e) rows[vertex of e, k] + t'_k(e) D[neighbour of e, k]`.
pub(super) struct Combine<'a, 'm, T: Real> {
    pub chunk: &'a Chunk,
    pub graph: GraphView<'a, T>,
    /// `[vertices of a tile, harmonics, width]`.
    pub rows: &'a [T],
    /// Factors `[harmonics, edges]`.
    pub table: &'a [T],
    /// Rows of the neighbours, and their factors.
    pub neighbours: Option<(&'a Neighbours<'a, 'm, T>, &'a [T])>,
    pub harmonics: usize,
    /// A multiple of all vectors.
    pub width: usize,
    /// True for zeros in place of negative numbers.
    pub relu: bool,
    pub out: &'a mut [T],
}

/// Adds `VECTORS` vectors of the sum over the harmonics of a row, starting at a column.
#[inline(always)]
fn add_harmonics<S: Simd, T: Real, const VECTORS: usize>(
    simd: S,
    (row, width, column): (&[T], usize, usize),
    (table, edges, place): (&[T], usize, usize),
    sums: &mut [T::Vector<S>; VECTORS],
) {
    let harmonics = row.len() / width;
    let table = &table[..harmonics * edges];
    assert!(place < edges && column + VECTORS * T::count::<S>() <= width);
    for k in 0..harmonics {
        // SAFETY: the table has `harmonics` columns of `edges` numbers, and `place < edges`.
        let factor = T::splat(simd, unsafe { *table.get_unchecked(k * edges + place) });
        let from = row.as_ptr().wrapping_add(k * width + column);
        for (v, sum) in sums.iter_mut().enumerate() {
            // SAFETY: `column` and the vectors after it lie in part `k` of `harmonics` parts of the row.
            let value = unsafe { T::load_from::<S>(from.wrapping_add(v * T::count::<S>())) };
            *sum = T::times_plus(simd, factor, value, *sum);
        }
    }
}

/// Runs `$strip::<N>(column)` on all columns of a row, as many vectors `N` at a time as there are and registers hold.
macro_rules! strips {
    ($lanes:expr, $width:expr, [$($count:literal)*], |$column:ident| $strip:ident $arguments:tt) => {
        let mut $column = 0;
        $(
            while $column + $count * $lanes <= $width {
                $strip::<_, _, $count> $arguments;
                $column += $count * $lanes;
            }
        )*
    };
}

impl<T: Real> WithSimd for Combine<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        #[inline(always)]
        fn strip<S: Simd, T: Real, const VECTORS: usize>(
            simd: S,
            combine: &mut Combine<'_, '_, T>,
            neighbour: Option<(&[T], &[T])>,
            [vertex, place, column]: [usize; 3],
        ) {
            let (edges, width) = (combine.chunk.edges.len(), combine.width);
            let mut sums = [T::splat(simd, T::zero()); VECTORS];
            let length = combine.harmonics * width;
            let own = &combine.rows[vertex * length..][..length];
            let at = (combine.table, edges, place);
            add_harmonics(simd, (own, width, column), at, &mut sums);
            if let Some((row, table)) = neighbour {
                let at = (table, edges, place);
                add_harmonics(simd, (row, width, column), at, &mut sums);
            }
            let out = &mut combine.out[place * width + column..];
            store(simd, out, sums, combine.relu);
        }
        let (chunk, width, mut combine) = (self.chunk, self.width, self);
        for (vertex, places, _) in &chunk.segments {
            for place in places.clone() {
                // Before the sums: a call that computes rows would spill them from registers to memory.
                let neighbour = combine.neighbours.map(|(neighbours, table)| {
                    if place + AHEAD < chunk.edges.len() {
                        prefetch(neighbours.row(combine.neighbour(place + AHEAD)));
                    }
                    (neighbours.row(combine.neighbour(place)), table)
                });
                strips!(T::count::<S>(), width, [5 1], |column| strip(
                    simd,
                    &mut combine,
                    neighbour,
                    [*vertex, place, column]
                ));
            }
        }
    }
}

impl<T: Real> Combine<'_, '_, T> {
    #[inline(always)]
    fn neighbour(&self, place: usize) -> usize {
        self.graph.neighbours()[self.chunk.edges[place] as usize] as usize
    }
}

#[inline(always)]
fn store<S: Simd, T: Real, const VECTORS: usize>(
    simd: S,
    out: &mut [T],
    mut vectors: [T::Vector<S>; VECTORS],
    relu: bool,
) {
    if relu {
        for vector in &mut vectors {
            *vector = T::without_negative(simd, *vector);
        }
    }
    let lanes = T::count::<S>();
    let out = &mut out[..VECTORS * lanes];
    for (v, vector) in vectors.into_iter().enumerate() {
        // SAFETY: `out` has as many numbers as the vectors.
        unsafe { T::store_to::<S>(out.as_mut_ptr().wrapping_add(v * lanes), vector) };
    }
}

/// The adjoint: adds to the rows of vertices the rows of their edges, times the factor of each harmonic; or overwrites
/// the rows of vertices with edges.
pub(super) struct Collect<'a, T> {
    pub chunk: &'a Chunk,
    /// Rows of edges starting at `first`.
    pub rows: &'a [T],
    pub first: usize,
    pub width: usize,
    pub table: &'a [T],
    pub harmonics: usize,
    pub destination: Destination,
    /// `[vertices of a tile, harmonics, width]`.
    pub sums: &'a mut [T],
}

impl<T: Real> WithSimd for Collect<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        #[inline(always)]
        fn strip<S: Simd, T: Real, const COUNT: usize>(
            simd: S,
            collect: &mut Collect<'_, T>,
            (vertex, places, is_first): (usize, &Range<usize>, bool),
            (harmonic, column): (usize, usize),
        ) {
            let (width, edges) = (collect.width, &collect.chunk.edges);
            let start = (vertex * collect.harmonics + harmonic) * width + column;
            let to = &mut collect.sums[start..][..(COUNT - 1) * width + T::count::<S>()];
            let to = to.as_mut_ptr();
            let table = &collect.table[harmonic * edges.len()..][..COUNT * edges.len()];
            let mut sums = [T::splat(simd, T::zero()); COUNT];
            if !(is_first && collect.destination == Destination::Set) {
                for (k, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: `sums` has `COUNT` rows starting at this harmonic, each a multiple of a vector.
                    *sum = unsafe { T::load_from::<S>(to.wrapping_add(k * width)) };
                }
            }
            for (place, &edge) in edges[places.clone()].iter().enumerate() {
                let place = places.start + place;
                let row = (edge as usize - collect.first) * width + column;
                // SAFETY: `with_simd` checked that the rows of all edges exist; they are multiples of a vector.
                let value = unsafe { T::load_from::<S>(collect.rows.as_ptr().wrapping_add(row)) };
                for (k, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: `table` has `COUNT` columns, one number for each edge.
                    let factor = unsafe { *table.get_unchecked(k * edges.len() + place) };
                    *sum = T::times_plus(simd, T::splat(simd, factor), value, *sum);
                }
            }
            for (k, sum) in sums.into_iter().enumerate() {
                // SAFETY: as for the loads.
                unsafe { T::store_to::<S>(to.wrapping_add(k * width), sum) };
            }
        }
        let (chunk, mut collect) = (self.chunk, self);
        let rows = collect.first..collect.first + collect.rows.len() / collect.width;
        assert!(chunk.edges.iter().all(|&edge| rows.contains(&(edge as usize))));
        for (vertex, places, is_first) in &chunk.segments {
            for column in (0..collect.width).step_by(T::count::<S>()) {
                strips!(1, collect.harmonics, [5 3 1], |harmonic| strip(
                    simd,
                    &mut collect,
                    (*vertex, places, *is_first),
                    (harmonic, column)
                ));
            }
        }
    }
}

/// `out = rows weights + bias`; the product skips zeros of `rows`.
pub(super) struct Multiply<'a, T> {
    /// `[rows, inputs]`.
    pub rows: &'a [T],
    /// `[inputs, outputs]`.
    pub weights: &'a [T],
    /// `[outputs]`.
    pub bias: Option<&'a [T]>,
    /// Both multiples of [`PAD`](super::PAD).
    pub sizes: [usize; 2],
    /// True for zeros in place of negative numbers.
    pub relu: bool,
    pub out: &'a mut [T],
}

/// Bit `i` is set unless number `i` of at most 128, a multiple of a vector, is zero.
#[inline(always)]
fn nonzero<S: Simd, T: Real>(simd: S, numbers: &[T]) -> u128 {
    let (lanes, mut bits) = (T::count::<S>(), 0);
    for (place, vector) in numbers.chunks_exact(lanes).enumerate() {
        bits |= u128::from(T::nonzero(simd, T::load(simd, vector))) << (place * lanes);
    }
    bits
}

/// The index of the lowest set bit and its number, or 0 if no bit is set. Clears the bit.
#[inline(always)]
fn next<T: Real>(numbers: &[T], bits: &mut u128) -> (usize, T) {
    if *bits == 0 {
        return (0, T::zero());
    }
    let place = bits.trailing_zeros() as usize;
    *bits &= *bits - 1;
    (place, numbers[place])
}

impl<T: Real> WithSimd for Multiply<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        /// Two rows, of which the second may be empty. They share the reads of weights where neither has a zero.
        #[inline(always)]
        fn strip<S: Simd, T: Real, const VECTORS: usize>(
            simd: S,
            multiply: &Multiply<'_, T>,
            (rows, out): (&[T], &mut [T]),
            column: usize,
        ) {
            let ([inputs, outputs], lanes) = (multiply.sizes, T::count::<S>());
            let mut sums = [T::splat(simd, T::zero()); VECTORS];
            if let Some(bias) = multiply.bias {
                let bias = &bias[column..][..VECTORS * lanes];
                for (v, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: the slice has all vectors.
                    *sum = unsafe { T::load_from::<S>(bias.as_ptr().wrapping_add(v * lanes)) };
                }
            }
            let mut others = sums;
            assert!(multiply.weights.len() == inputs * outputs && rows.len() >= inputs);
            assert!(column + VECTORS * lanes <= outputs);
            let (row, other) = rows.split_at(inputs);
            for start in (0..inputs).step_by(128) {
                let row = &row[start..inputs.min(start + 128)];
                let other = other.get(start..start + row.len()).unwrap_or_default();
                let weights = |(input, factor): (usize, T)| {
                    let from = (start + input) * outputs + column;
                    let from = multiply.weights.as_ptr().wrapping_add(from);
                    (T::splat(simd, factor), from)
                };
                let (mut first, mut second) = (nonzero(simd, row), nonzero(simd, other));
                let mut both = first & second;
                (first, second) = (first & !both, second & !both);
                while both != 0 {
                    let input = both.trailing_zeros() as usize;
                    both &= both - 1;
                    let (x, from) = weights((input, row[input]));
                    let y = T::splat(simd, other[input]);
                    for (v, (sum, other)) in sums.iter_mut().zip(&mut others).enumerate() {
                        // SAFETY: checked above: the input is a row and the vectors starting at `column` are in it.
                        let weight = unsafe { T::load_from::<S>(from.wrapping_add(v * lanes)) };
                        *sum = T::times_plus(simd, x, weight, *sum);
                        *other = T::times_plus(simd, y, weight, *other);
                    }
                }
                while first | second != 0 {
                    let (x, from) = weights(next(row, &mut first));
                    let (y, other_from) = weights(next(other, &mut second));
                    for (v, (sum, other)) in sums.iter_mut().zip(&mut others).enumerate() {
                        let places = [from, other_from].map(|from| from.wrapping_add(v * lanes));
                        // SAFETY: as above.
                        let [a, b] = places.map(|place| unsafe { T::load_from::<S>(place) });
                        *sum = T::times_plus(simd, x, a, *sum);
                        *other = T::times_plus(simd, y, b, *other);
                    }
                }
            }
            let (out, other_out) = out.split_at_mut(outputs);
            store(simd, &mut out[column..], sums, multiply.relu);
            if !other_out.is_empty() {
                store(simd, &mut other_out[column..], others, multiply.relu);
            }
        }
        let [inputs, outputs] = self.sizes;
        let mut multiply = self;
        let out = std::mem::take(&mut multiply.out);
        let rows = multiply.rows.chunks(2 * inputs);
        for (rows, out) in rows.zip(out.chunks_mut(2 * outputs)) {
            let out = &mut out[..rows.len() / inputs * outputs];
            strips!(T::count::<S>(), outputs, [5 1], |column| strip(
                simd,
                &multiply,
                (rows, &mut *out),
                column
            ));
        }
    }
}

/// `values = f(sums)`, or `gradients *= f'(sums)`.
pub(super) enum Activate<'a, T> {
    InPlace { values: &'a mut [T] },
    Values { sums: &'a [T], values: &'a mut [T] },
    Slopes { sums: &'a [T], gradients: &'a mut [T] },
}

impl<T: Real> Layer<'_, T> {
    pub fn activate(&self, work: Activate<'_, T>) {
        Arch::new().dispatch(ActivateRows { layer: self, work });
    }
}

struct ActivateRows<'a, T> {
    layer: &'a Layer<'a, T>,
    work: Activate<'a, T>,
}

impl<T: Real> WithSimd for ActivateRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.layer.activation {
            // A loop of its own, which does not ask for the function again.
            Activation::Relu => self.work.run(simd, &Activation::Relu),
            activation => self.work.run(simd, activation),
        }
    }
}

impl<T: Real> Activate<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S, f: &Activation) {
        let lanes = T::count::<S>();
        match self {
            Self::Values { sums, values } => {
                for (sum, value) in sums.chunks_exact(lanes).zip(values.chunks_exact_mut(lanes)) {
                    T::store(simd, value, f.values::<T, S>(simd, T::load(simd, sum)));
                }
            }
            Self::InPlace { values } => {
                for value in values.chunks_exact_mut(lanes) {
                    let sum = T::load(simd, value);
                    T::store(simd, value, f.values::<T, S>(simd, sum));
                }
            }
            Self::Slopes { sums, gradients } => {
                let rows = sums.chunks_exact(lanes);
                for (sum, gradient) in rows.zip(gradients.chunks_exact_mut(lanes)) {
                    let (sum, before) = (T::load(simd, sum), T::load(simd, gradient));
                    T::store(simd, gradient, f.slopes_times::<T, S>(simd, sum, before));
                }
            }
        }
    }
}

/// The projection of samples to components, rotated by `theta`: sums over the harmonics of `theta` of samples,
/// `[harmonics, components, channels]`, to `[components, channels]`.
pub(super) struct Project<'a, T> {
    pub layer: &'a Layer<'a, T>,
    pub scale: T,
    pub sums: &'a [T],
    pub y: &'a mut [T],
}

/// The adjoint: gradients of the sums.
pub(super) struct ProjectBack<'a, T> {
    pub layer: &'a Layer<'a, T>,
    pub scale: T,
    pub dy: &'a [T],
    pub dsums: &'a mut [T],
}

impl<T: Real> WithSimd for Project<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Layer { channels, components, row, ref projection, .. } = *self.layer;
        for first in (0..channels).step_by(T::count::<S>()) {
            let width = T::count::<S>().min(channels - first);
            // Sine 0 is the constant, which has no partner.
            for sine in (0..components).step_by(2) {
                let cosine = sine.saturating_sub(1);
                let mut sums = [T::splat(simd, T::zero()); 2];
                for sample in 0..components {
                    let load = |harmonic: usize| {
                        let start = harmonic * row + sample * channels + first;
                        T::load(simd, &self.sums[start..][..width])
                    };
                    let factor = |component: usize| {
                        let factor = projection[sample * components + component];
                        T::splat(simd, self.scale * factor)
                    };
                    let (a, c) = (load(cosine), factor(cosine));
                    sums[0] = T::times_plus(simd, c, a, sums[0]);
                    if sine > 0 {
                        let (b, s) = (load(sine), factor(sine));
                        sums[0] = T::minus_times(simd, s, b, sums[0]);
                        sums[1] = T::times_plus(simd, c, b, sums[1]);
                        sums[1] = T::times_plus(simd, s, a, sums[1]);
                    }
                }
                let mut store = |component: usize, sum| {
                    let to = &mut self.y[component * channels + first..][..width];
                    T::store(simd, to, sum);
                };
                store(cosine, sums[0]);
                if sine > 0 {
                    store(sine, sums[1]);
                }
            }
        }
    }
}

impl<T: Real> WithSimd for ProjectBack<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Layer { channels, components, row, ref projection, .. } = *self.layer;
        let zero = T::splat(simd, T::zero());
        let padding = channels * components..row;
        for first in (0..channels).step_by(T::count::<S>()) {
            let width = T::count::<S>().min(channels - first);
            for sine in (0..components).step_by(2) {
                let cosine = sine.saturating_sub(1);
                let load = |component: usize| {
                    let from = &self.dy[component * channels + first..][..width];
                    T::times(simd, T::splat(simd, self.scale), T::load(simd, from))
                };
                let (a, b) = (load(cosine), if sine > 0 { load(sine) } else { zero });
                for sample in 0..components {
                    let factor = |component: usize| T::splat(simd, projection[sample * components + component]);
                    let mut store = |harmonic: usize, gradient| {
                        let start = harmonic * row + sample * channels + first;
                        T::store(simd, &mut self.dsums[start..][..width], gradient);
                    };
                    let c = factor(cosine);
                    if sine == 0 {
                        store(0, T::times(simd, c, a));
                        continue;
                    }
                    let s = factor(sine);
                    store(cosine, T::times_plus(simd, s, b, T::times(simd, c, a)));
                    store(sine, T::minus_times(simd, s, a, T::times(simd, c, b)));
                }
            }
        }
        for row in self.dsums.chunks_exact_mut(row) {
            row[padding.clone()].fill(T::zero());
        }
    }
}
