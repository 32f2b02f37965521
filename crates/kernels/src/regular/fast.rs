//! Sampling and projection as two small matrices: their entries are broadcast, SIMD vectors run over the
//! channels.
//!
//! For 3, 5 and 7 components (band limits 1, 2, 3) all coefficients of a vector of channels stay in
//! registers, and samples are processed one at a time. Other sizes process four samples at a time, so that
//! each loaded coefficient is used four times. The code uses loops rather than closures: a closure that is
//! not inlined would be compiled without the vector instructions of its caller.

use super::{Backward, Forward, Rows, Shape, harmonic, projection_weight};
use crate::batch_norm::{Affine, backward_with};
use crate::parallel::Loop;
use crate::real::compiled;
use crate::{Host, HostScratch, Real};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use std::ops::Range;

/// Rows of one task.
const TASK_ROWS: usize = 64;
/// Samples that the general version processes at a time.
const PANEL: usize = 4;

pub(super) fn forward<T: Real>(pass: Forward<'_, Host<T>>) {
    let Forward { plan, norm, x, y, .. } = pass;
    let affine = norm.map(|norm| Affine::new(&norm));
    let (input, output) = (TASK_ROWS * plan.input_width(), TASK_ROWS * plan.output_width());
    y.par_chunks_mut(output).zip(x.par_chunks(input)).run(|(y, x)| plan.forward_rows(affine.as_ref(), x, y));
}

pub(super) fn backward<T: Real>(pass: Backward<'_, Host<T>>, scratch: HostScratch<'_, T>) {
    let Backward { rows, plan, norm, x, dy, dx, dgamma, dbeta } = pass;
    let (input, output) = (plan.input_width(), plan.output_width());
    let Some(norm) = norm else {
        let rows = dx.par_chunks_mut(TASK_ROWS * input).zip(x.par_chunks(TASK_ROWS * input));
        rows.zip(dy.par_chunks(TASK_ROWS * output)).run(|((dx, x), dy)| plan.backward_rows(None, x, dy, dx));
        return;
    };
    let affine = Affine::new(&norm);
    let fill = |rows: Range<usize>, gradient: &mut [T]| {
        let x = &x[rows.start * input..rows.end * input];
        let dy = &dy[rows.start * output..rows.end * output];
        plan.backward_rows(Some(&affine), x, dy, gradient);
    };
    backward_with(&norm, rows, x, dx, [dgamma, dbeta], scratch.wide, &fill);
}

/// The matrices from coefficients to samples and back, one entry per sample and component.
#[derive(Debug)]
pub(super) enum Matrices<T> {
    /// Sample by sample, for the versions with a fixed number of components.
    Samples { synthesis: Vec<T>, projection: Vec<T> },
    /// Four samples at a time, component by component; zeros for the samples after the last.
    Panels { synthesis: Vec<[T; PANEL]>, projection: Vec<[T; PANEL]> },
}

impl<T: Real> Matrices<T> {
    pub(super) fn new(shape: Shape, samples: usize) -> Self {
        let synthesis = |t: usize, k: usize| T::of(harmonic(t, k, samples));
        let projection = |t: usize, k: usize| T::of(harmonic(t, k, samples) * projection_weight(k, samples));
        if shape.inputs == shape.outputs && matches!(shape.inputs, 3 | 5 | 7) {
            let places =
                |components: usize| (0..samples * components).map(move |at| (at / components, at % components));
            Self::Samples {
                synthesis: places(shape.inputs).map(|(t, k)| synthesis(t, k)).collect(),
                projection: places(shape.outputs).map(|(t, k)| projection(t, k)).collect(),
            }
        } else {
            let panels = |components: usize, entry: &dyn Fn(usize, usize) -> T| {
                let places = 0..samples.div_ceil(PANEL) * components;
                let panel = |at: usize| {
                    std::array::from_fn(|i| {
                        let t = PANEL * (at / components) + i;
                        if t < samples { entry(t, at % components) } else { T::zero() }
                    })
                };
                places.map(panel).collect()
            };
            Self::Panels { synthesis: panels(shape.inputs, &synthesis), projection: panels(shape.outputs, &projection) }
        }
    }

    pub(super) fn forward(&self, rows: Rows<'_, T>, y: &mut [T]) {
        compiled!(run_forward as fn(&Matrices<T>, Rows<'_, T>, &mut [T]))(self, rows, y);
    }

    pub(super) fn backward(&self, rows: Rows<'_, T>, dy: &[T], dx: &mut [T]) {
        compiled!(run_backward as fn(&Matrices<T>, Rows<'_, T>, &[T], &mut [T]))(self, rows, dy, dx);
    }
}

fn run_forward<T: Real>(matrices: &Matrices<T>, rows: Rows<'_, T>, y: &mut [T]) {
    Arch::new().dispatch(ForwardRows { matrices, rows, y });
}

fn run_backward<T: Real>(matrices: &Matrices<T>, rows: Rows<'_, T>, dy: &[T], dx: &mut [T]) {
    Arch::new().dispatch(BackwardRows { matrices, rows, dy, dx });
}

struct ForwardRows<'a, T> {
    matrices: &'a Matrices<T>,
    rows: Rows<'a, T>,
    y: &'a mut [T],
}

struct BackwardRows<'a, T> {
    matrices: &'a Matrices<T>,
    rows: Rows<'a, T>,
    dy: &'a [T],
    dx: &'a mut [T],
}

impl<T: Real> WithSimd for ForwardRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { matrices, rows, y } = self;
        match matrices {
            Matrices::Samples { synthesis: m, projection: p } => match rows.shape.inputs {
                3 => forward_samples::<T, S, 3>(simd, rows, m, p, y),
                5 => forward_samples::<T, S, 5>(simd, rows, m, p, y),
                _ => forward_samples::<T, S, 7>(simd, rows, m, p, y),
            },
            Matrices::Panels { synthesis, projection } => forward_panels(simd, rows, synthesis, projection, y),
        }
    }
}

impl<T: Real> WithSimd for BackwardRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { matrices, rows, dy, dx } = self;
        match matrices {
            Matrices::Samples { synthesis: m, projection: p } => match rows.shape.inputs {
                3 => backward_samples::<T, S, 3>(simd, rows, m, p, dy, dx),
                5 => backward_samples::<T, S, 5>(simd, rows, m, p, dy, dx),
                _ => backward_samples::<T, S, 7>(simd, rows, m, p, dy, dx),
            },
            Matrices::Panels { synthesis, projection } => backward_panels(simd, rows, synthesis, projection, dy, dx),
        }
    }
}

impl<T: Real> Rows<'_, T> {
    /// Starts of the vectors of channels.
    #[inline(always)]
    fn tiles<S: Simd>(&self) -> impl Iterator<Item = std::ops::Range<usize>> + use<S, T> {
        let (channels, width) = (self.shape.channels, T::count::<S>());
        (0..channels).step_by(width).map(move |start| start..channels.min(start + width))
    }

    /// Coefficient `k` of a vector of channels, normalised.
    #[inline(always)]
    fn load<S: Simd>(&self, simd: S, row: &[T], k: usize, tile: &std::ops::Range<usize>) -> T::Vector<S> {
        let place = k * self.shape.channels + tile.start..k * self.shape.channels + tile.end;
        let x = T::load(simd, &row[place.clone()]);
        let Some(affine) = self.affine else { return x };
        let scale = T::load(simd, &affine.scale[place.clone()]);
        if k > 0 {
            return T::times(simd, x, scale);
        }
        let centre = T::load(simd, &affine.centre[place.clone()]);
        let shift = T::load(simd, &affine.shift[place]);
        T::times_plus(simd, T::minus(simd, x, centre), scale, shift)
    }
}

#[inline(always)]
fn forward_samples<T: Real, S: Simd, const K: usize>(
    simd: S,
    rows: Rows<'_, T>,
    synthesis: &[T],
    projection: &[T],
    y: &mut [T],
) {
    let channels = rows.shape.channels;
    let (synthesis, projection) = (synthesis.as_chunks::<K>().0, projection.as_chunks::<K>().0);
    let width = K * channels;
    for (x, y) in rows.x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
        for tile in rows.tiles::<S>() {
            let mut xs = [T::splat(simd, T::zero()); K];
            for (k, x_k) in xs.iter_mut().enumerate() {
                *x_k = rows.load(simd, x, k, &tile);
            }
            let mut ys = [T::splat(simd, T::zero()); K];
            for (m, p) in synthesis.iter().zip(projection) {
                let sample = combine::<T, S, K>(simd, m, &xs);
                let value = rows.activation.values::<T, S>(simd, sample);
                accumulate::<T, S, K>(simd, p, value, &mut ys);
            }
            for (k, y_k) in ys.into_iter().enumerate() {
                let place = k * channels + tile.start..k * channels + tile.end;
                T::store(simd, &mut y[place], y_k);
            }
        }
    }
}

#[inline(always)]
fn backward_samples<T: Real, S: Simd, const K: usize>(
    simd: S,
    rows: Rows<'_, T>,
    synthesis: &[T],
    projection: &[T],
    dy: &[T],
    dx: &mut [T],
) {
    let channels = rows.shape.channels;
    let (synthesis, projection) = (synthesis.as_chunks::<K>().0, projection.as_chunks::<K>().0);
    let width = K * channels;
    let inputs = rows.x.chunks_exact(width).zip(dy.chunks_exact(width));
    for ((x, dy), dx) in inputs.zip(dx.chunks_exact_mut(width)) {
        for tile in rows.tiles::<S>() {
            let place = |k: usize| k * channels + tile.start..k * channels + tile.end;
            let mut xs = [T::splat(simd, T::zero()); K];
            for (k, x_k) in xs.iter_mut().enumerate() {
                *x_k = rows.load(simd, x, k, &tile);
            }
            let mut dys = [T::splat(simd, T::zero()); K];
            for (k, dy_k) in dys.iter_mut().enumerate() {
                *dy_k = T::load(simd, &dy[place(k)]);
            }
            let mut dxs = [T::splat(simd, T::zero()); K];
            for (m, p) in synthesis.iter().zip(projection) {
                let sample = combine::<T, S, K>(simd, m, &xs);
                let of_value = combine::<T, S, K>(simd, p, &dys);
                let of_sample = rows.activation.slopes_times::<T, S>(simd, sample, of_value);
                accumulate::<T, S, K>(simd, m, of_sample, &mut dxs);
            }
            for (k, dx_k) in dxs.into_iter().enumerate() {
                T::store(simd, &mut dx[place(k)], dx_k);
            }
        }
    }
}

/// `sum_k row_k x_k`.
#[inline(always)]
fn combine<T: Real, S: Simd, const K: usize>(simd: S, row: &[T; K], x: &[T::Vector<S>; K]) -> T::Vector<S> {
    let mut sum = T::times(simd, T::splat(simd, row[0]), x[0]);
    for k in 1..K {
        sum = T::times_plus(simd, T::splat(simd, row[k]), x[k], sum);
    }
    sum
}

/// `y_k += row_k value`.
#[inline(always)]
fn accumulate<T: Real, S: Simd, const K: usize>(simd: S, row: &[T; K], value: T::Vector<S>, y: &mut [T::Vector<S>; K]) {
    for k in 0..K {
        y[k] = T::times_plus(simd, T::splat(simd, row[k]), value, y[k]);
    }
}

#[inline(always)]
fn forward_panels<T: Real, S: Simd>(
    simd: S,
    rows: Rows<'_, T>,
    synthesis: &[[T; PANEL]],
    projection: &[[T; PANEL]],
    y: &mut [T],
) {
    let Shape { channels, inputs, outputs } = rows.shape;
    let zero = T::splat(simd, T::zero());
    let (mut xs, mut ys) = (vec![zero; inputs], vec![zero; outputs]);
    let rows_y = y.chunks_exact_mut(outputs * channels);
    for (x, y) in rows.x.chunks_exact(inputs * channels).zip(rows_y) {
        for tile in rows.tiles::<S>() {
            for (k, x_k) in xs.iter_mut().enumerate() {
                *x_k = rows.load(simd, x, k, &tile);
            }
            ys.fill(zero);
            let panels = synthesis.chunks_exact(inputs).zip(projection.chunks_exact(outputs));
            for (m, p) in panels {
                let mut values = combine_panel::<T, S>(simd, m, &xs);
                for value in &mut values {
                    *value = rows.activation.values::<T, S>(simd, *value);
                }
                accumulate_panel::<T, S>(simd, p, values, &mut ys);
            }
            for (k, &y_k) in ys.iter().enumerate() {
                let place = k * channels + tile.start..k * channels + tile.end;
                T::store(simd, &mut y[place], y_k);
            }
        }
    }
}

#[inline(always)]
fn backward_panels<T: Real, S: Simd>(
    simd: S,
    rows: Rows<'_, T>,
    synthesis: &[[T; PANEL]],
    projection: &[[T; PANEL]],
    dy: &[T],
    dx: &mut [T],
) {
    let Shape { channels, inputs, outputs } = rows.shape;
    let zero = T::splat(simd, T::zero());
    let (mut xs, mut dxs) = (vec![zero; inputs], vec![zero; inputs]);
    let mut dys = vec![zero; outputs];
    let (input, output) = (inputs * channels, outputs * channels);
    let row_inputs = rows.x.chunks_exact(input).zip(dy.chunks_exact(output));
    for ((x, dy), dx) in row_inputs.zip(dx.chunks_exact_mut(input)) {
        for tile in rows.tiles::<S>() {
            let place = |k: usize| k * channels + tile.start..k * channels + tile.end;
            for (k, x_k) in xs.iter_mut().enumerate() {
                *x_k = rows.load(simd, x, k, &tile);
            }
            for (k, dy_k) in dys.iter_mut().enumerate() {
                *dy_k = T::load(simd, &dy[place(k)]);
            }
            dxs.fill(zero);
            let panels = synthesis.chunks_exact(inputs).zip(projection.chunks_exact(outputs));
            for (m, p) in panels {
                let samples = combine_panel::<T, S>(simd, m, &xs);
                let mut gradients = combine_panel::<T, S>(simd, p, &dys);
                for (gradient, sample) in gradients.iter_mut().zip(samples) {
                    *gradient = rows.activation.slopes_times::<T, S>(simd, sample, *gradient);
                }
                accumulate_panel::<T, S>(simd, m, gradients, &mut dxs);
            }
            for (k, &dx_k) in dxs.iter().enumerate() {
                T::store(simd, &mut dx[place(k)], dx_k);
            }
        }
    }
}

/// `sum_k panel[k][i] x_k` for four samples `i`.
#[inline(always)]
fn combine_panel<T: Real, S: Simd>(simd: S, panel: &[[T; PANEL]], x: &[T::Vector<S>]) -> [T::Vector<S>; PANEL] {
    let mut sums = [T::splat(simd, T::zero()); PANEL];
    for (entries, &x_k) in panel.iter().zip(x) {
        for i in 0..PANEL {
            sums[i] = T::times_plus(simd, T::splat(simd, entries[i]), x_k, sums[i]);
        }
    }
    sums
}

/// `y_k += sum_i panel[k][i] value_i`.
#[inline(always)]
fn accumulate_panel<T: Real, S: Simd>(
    simd: S,
    panel: &[[T; PANEL]],
    values: [T::Vector<S>; PANEL],
    y: &mut [T::Vector<S>],
) {
    for (entries, y_k) in panel.iter().zip(y) {
        for i in 0..PANEL {
            *y_k = T::times_plus(simd, T::splat(simd, entries[i]), values[i], *y_k);
        }
    }
}
