//! Conjugate gradients on all threads.

use super::{Backward, Forward, Heat, Implicit, MAX_ITERATIONS, Masses};
use crate::incidence::{IncidenceArrays, Normalise, Sum, Target};
use crate::parallel::piece_length;
use crate::{Aggregation, Host, HostScratch, KernelError, Real};
use rayon::prelude::*;

/// Fewest numbers of a partial sum.
const MIN_NUMBERS: usize = 4096;

/// A batch and its matrices.
struct System<'a, T> {
    op: &'a Implicit,
    heat: Heat<&'a IncidenceArrays<T>, &'a [T]>,
    width: usize,
}

/// Largest relative residual.
fn tolerance<T: Real>() -> f64 {
    if size_of::<T>() == 4 { 1e-6 } else { 1e-14 }
}

impl<T: Real> System<'_, T> {
    /// Calls `each(vertex, numbers of its row in all slices)` in parallel, and adds up what it returns in one order.
    fn sum<const N: usize>(
        &self,
        mut slices: [&mut [T]; N],
        each: impl Fn(usize, usize, &mut [&mut [T]; N]) -> f64 + Sync,
    ) -> f64 {
        let rows = slices[0].len() / self.width.max(1);
        let piece = piece_length(rows, MIN_NUMBERS.div_ceil(self.width.max(1)));
        let mut pieces = Vec::new();
        for first in (0..rows).step_by(piece) {
            let count = piece.min(rows - first) * self.width;
            let parts = slices.each_mut().map(|slice| slice.split_off_mut(..count).unwrap_or_default());
            pieces.push((first, parts));
        }
        let partials: Vec<f64> = pieces
            .into_par_iter()
            .map(|(first, mut parts)| {
                let rows = parts[0].len() / self.width;
                (0..rows).map(|row| each(first + row, row * self.width, &mut parts)).sum()
            })
            .collect();
        partials.iter().sum()
    }

    /// A sparse map, to its rows or transposed.
    fn multiply(&self, target: Target, map: &IncidenceArrays<T>, x: &[T], y: &mut [T]) -> Result<(), KernelError> {
        let (features, aggregation, normalise) = (&self.op.features, Aggregation::Sum, Normalise::Target);
        Sum { features, aggregation, target, normalise, incidence: map, x, y }.on_host()
    }

    /// `q = K p`, and `<p, q>`.
    fn apply(&self, time: T, p: &[T], q: &mut [T]) -> Result<f64, KernelError> {
        self.multiply(Target::Rows, self.heat.coupling, p, q)?;
        let Masses { node, stiffness, .. } = self.heat.masses;
        let width = self.width;
        Ok(self.sum([q], |vertex, at, [q]| {
            let diagonal = node[vertex] + time * stiffness[vertex];
            let mut sum = 0.0;
            for (q, &p) in q[at..at + width].iter_mut().zip(&p[vertex * width..]) {
                *q = diagonal * p - time * *q;
                sum += (p * *q).as_f64();
            }
            sum
        }))
    }

    /// Improves `y` to the solution of `K y = b`. `work` has three times the length of `b`.
    fn solve(&self, time: T, b: &[T], y: &mut [T], work: &mut [T]) -> Result<(), KernelError> {
        let (r, work) = work.split_at_mut(b.len());
        let (p, q) = work.split_at_mut(b.len());
        let Masses { node, stiffness, .. } = self.heat.masses;
        let (width, inverse) = (self.width, |vertex: usize| (node[vertex] + time * stiffness[vertex]).recip());
        self.apply(time, y, q)?;
        let mut size = 0.0;
        for (row, b) in b.chunks_exact(width.max(1)).enumerate() {
            let inverse = inverse(row).as_f64();
            size += b.iter().map(|b| b.as_f64().powi(2)).sum::<f64>() * inverse;
        }
        let mut rest = self.sum([r, p], |vertex, at, [r, p]| {
            let (inverse, mut sum) = (inverse(vertex), 0.0);
            for j in 0..width {
                let place = vertex * width + j;
                r[at + j] = b[place] - q[place];
                p[at + j] = inverse * r[at + j];
                sum += (r[at + j] * p[at + j]).as_f64();
            }
            sum
        });
        let enough = size * tolerance::<T>().powi(2);
        for _ in 0..MAX_ITERATIONS {
            if rest.is_nan() || rest <= enough {
                break;
            }
            let curvature = self.apply(time, p, q)?;
            if curvature.is_nan() || curvature <= 0.0 {
                break;
            }
            let step = T::of(rest / curvature);
            let next = self.sum([y, r], |vertex, at, [y, r]| {
                let (inverse, mut sum) = (inverse(vertex).as_f64(), 0.0);
                for j in 0..width {
                    let place = vertex * width + j;
                    y[at + j] += step * p[place];
                    r[at + j] -= step * q[place];
                    sum += r[at + j].as_f64().powi(2);
                }
                inverse * sum
            });
            let keep = T::of(next / rest);
            rest = next;
            self.sum([p], |vertex, at, [p]| {
                let inverse = inverse(vertex);
                for j in 0..width {
                    p[at + j] = inverse * r[vertex * width + j] + keep * p[at + j];
                }
                0.0
            });
        }
        Ok(())
    }

    /// `b = S^H (w f x)`, with optional weights of vertices and factors of irreps.
    fn gather(
        &self,
        weights: Option<&[T]>,
        factors: Option<(&[T], &[u32])>,
        x: &[T],
        weighted: &mut [T],
        b: &mut [T],
    ) -> Result<(), KernelError> {
        for (vertex, (to, x)) in
            weighted.chunks_exact_mut(self.width.max(1)).zip(x.chunks_exact(self.width.max(1))).enumerate()
        {
            let weight = weights.map_or(T::one(), |weights| weights[vertex]);
            for (j, (to, &x)) in to.iter_mut().zip(x).enumerate() {
                let factor = factors.map_or(T::one(), |(f, irrep)| f[irrep[j] as usize]);
                *to = weight * factor * x;
            }
        }
        self.multiply(Target::Columns, self.heat.copies, weighted, b)
    }

    /// `y = b / N`: what diffusion for no time gives.
    fn start(&self, b: &[T], y: &mut [T]) {
        let rows = y.chunks_exact_mut(self.width.max(1));
        for ((y, b), &mass) in rows.zip(b.chunks_exact(self.width.max(1))).zip(self.heat.masses.node) {
            y.iter_mut().zip(b).for_each(|(y, &b)| *y = b / mass);
        }
    }

    /// `u = S z`.
    fn spread(&self, z: &[T], u: &mut [T]) -> Result<(), KernelError> {
        self.multiply(Target::Rows, self.heat.copies, z, u)
    }
}

pub(super) fn forward<T: Real>(pass: Forward<'_, Host<T>>, scratch: HostScratch<'_, T>) -> Result<(), KernelError> {
    let Forward { op, heat, mix, x, y, saved } = pass;
    let system = System { op, heat, width: op.features.dimension() };
    let (irrep_of, irreps) = (op.irrep_of(), op.irreps());
    y.fill(T::zero());
    if x.is_empty() {
        return Ok(());
    }
    let (b, work) = scratch.narrow.take(5 * x.len()).split_at_mut(x.len());
    let (z, work) = work.split_at_mut(x.len());
    system.gather(Some(heat.masses.vertex), None, x, z, b)?;
    system.start(b, z);
    for ((&time, u), mix) in (op.times.iter()).zip(saved.chunks_exact_mut(x.len())).zip(mix.chunks_exact(irreps.max(1)))
    {
        system.solve(T::of(time), b, z, work)?;
        system.spread(z, u)?;
        for (y, u) in y.chunks_exact_mut(system.width).zip(u.chunks_exact(system.width)) {
            for ((y, &u), &irrep) in y.iter_mut().zip(u).zip(&irrep_of) {
                *y += mix[irrep as usize] * u;
            }
        }
    }
    Ok(())
}

pub(super) fn backward<T: Real>(pass: Backward<'_, Host<T>>, scratch: HostScratch<'_, T>) -> Result<(), KernelError> {
    let Backward { op, heat, mix, saved, dy, dx, dmix } = pass;
    let width = op.features.dimension();
    let system = System { op, heat, width };
    let (irrep_of, irreps) = (op.irrep_of(), op.irreps());
    if dy.is_empty() {
        return Ok(());
    }
    for (dmix, u) in dmix.chunks_exact_mut(irreps).zip(saved.chunks_exact(dy.len())) {
        let mut sums = vec![0.0; irreps];
        for (dy, u) in dy.chunks_exact(width).zip(u.chunks_exact(width)) {
            for ((dy, u), &irrep) in dy.iter().zip(u).zip(&irrep_of) {
                sums[irrep as usize] += dy.as_f64() * u.as_f64();
            }
        }
        for (dmix, sum) in dmix.iter_mut().zip(sums) {
            *dmix += T::of(sum);
        }
    }
    let Some(dx) = dx else { return Ok(()) };
    dx.fill(T::zero());
    let (b, work) = scratch.narrow.take(5 * dy.len()).split_at_mut(dy.len());
    let (z, work) = work.split_at_mut(dy.len());
    for (&time, mix) in op.times.iter().zip(mix.chunks_exact(irreps)) {
        system.gather(None, Some((mix, &irrep_of)), dy, z, b)?;
        system.start(b, z);
        system.solve(T::of(time), b, z, work)?;
        system.spread(z, b)?;
        let rows = dx.chunks_exact_mut(width).zip(b.chunks_exact(width));
        for ((dx, u), &mass) in rows.zip(heat.masses.vertex) {
            dx.iter_mut().zip(u).for_each(|(dx, &u)| *dx += mass * u);
        }
    }
    Ok(())
}
