//! Gathers over the entries of each row or column, in parallel.

use super::{IncidenceArrays, Mix, MixBackward, Mixture, Normalise, Sum, Target};
use crate::parallel::for_rows;
use crate::rotated_sum::{Term, rotated_sum};
use crate::{Host, Real};

pub(super) fn sum<T: Real>(pass: Sum<'_, Host<T>>) {
    let Sum { features, aggregation, target, normalise, incidence, x, y } = pass;
    let (own, other) = match target {
        Target::Rows => (&incidence.rows, &incidence.columns),
        Target::Columns => (&incidence.columns, &incidence.rows),
    };
    rotated_sum(features, x, y, |index| {
        let entries = own.entries(index);
        let count = entries.len();
        entries.map(move |entry| {
            let source = own.others[entry] as usize;
            let count = match normalise {
                Normalise::Target => count,
                Normalise::Source => other.entries(source).len(),
            };
            let place = match target {
                Target::Rows => entry,
                Target::Columns => incidence.places[entry] as usize,
            };
            let mut phase = match &incidence.phases[..] {
                [] => [T::one(), T::zero()],
                phases => phases[place],
            };
            if target == Target::Columns {
                phase[1] = -phase[1];
            }
            let weight = *incidence.weights.get(place).unwrap_or(&T::one());
            Term { scale: aggregation.scale::<T>(count) * weight, ..Term::new(source, phase) }
        })
    });
}

pub(super) fn mix<T: Real>(Mix { op, incidence, x, w, y }: Mix<'_, Host<T>>) {
    for_rows(y, op.outputs(), |column, y| {
        let entries = incidence.columns.entries(column);
        let scale = op.aggregation.scale::<T>(entries.len());
        y.fill(T::zero());
        for &row in &incidence.columns.others[entries] {
            let x = &x[row as usize * op.channels..][..op.channels];
            let w = &w[row as usize * op.weights..][..op.weights];
            for (y, &w) in y.chunks_exact_mut(op.channels).zip(w) {
                let weight = scale * w;
                y.iter_mut().zip(x).for_each(|(y, &x)| *y += weight * x);
            }
        }
    });
}

/// The scale and the gradient of each column of a row.
fn gradients<'a, T: Real>(
    op: &Mixture,
    incidence: &'a IncidenceArrays<T>,
    dy: &'a [T],
    row: usize,
) -> impl Iterator<Item = (T, &'a [T])> {
    let (outputs, aggregation) = (op.outputs(), op.aggregation);
    let columns = &incidence.rows.others[incidence.rows.entries(row)];
    columns.iter().map(move |&column| {
        let count = incidence.columns.entries(column as usize).len();
        let dy = &dy[column as usize * outputs..][..outputs];
        (aggregation.scale::<T>(count), dy)
    })
}

pub(super) fn mix_backward<T: Real>(pass: MixBackward<'_, Host<T>>) {
    let MixBackward { op, incidence, x, w, dy, dx, dw } = pass;
    for_rows(dx, op.channels, |row, dx| {
        dx.fill(T::zero());
        let w = &w[row * op.weights..][..op.weights];
        for (scale, dy) in gradients(op, incidence, dy, row) {
            for (dy, &w) in dy.chunks_exact(op.channels).zip(w) {
                let weight = scale * w;
                dx.iter_mut().zip(dy).for_each(|(dx, &dy)| *dx += weight * dy);
            }
        }
    });
    for_rows(dw, op.weights, |row, dw| {
        dw.fill(T::zero());
        let x = &x[row * op.channels..][..op.channels];
        for (scale, dy) in gradients(op, incidence, dy, row) {
            for (dw, dy) in dw.iter_mut().zip(dy.chunks_exact(op.channels.max(1))) {
                let product: T = x.iter().zip(dy).map(|(&x, &dy)| x * dy).sum();
                *dw += scale * product;
            }
        }
    });
}
