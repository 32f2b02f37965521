//! Sums over the rows of each column, with several weights for every row.
//!
//! ```text
//! y_c[m] = s(n_c) sum_r w_r[m] x_r
//! dw_r[m] = sum_c s(n_c) <dy_c[m], x_r>        dx_r = sum_c s(n_c) sum_m w_r[m] dy_c[m]
//! ```
//!
//! This is [`apply_transposed`](super::apply_transposed) of the outer products `w_r x_r`, which are never stored. Only
//! the inputs are needed in the backward pass.

use super::{IncidenceArrays, OPERATOR};
use crate::error::{Length, check_count};
use crate::parallel::for_rows;
use crate::real::compiled;
use crate::{Aggregation, KernelError, Real};

/// Sums of scalars with several weights for every row of an incidence without angles and weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mixture {
    /// Scale of the sums.
    pub aggregation: Aggregation,
    /// Number of weights of a row.
    pub weights: usize,
    /// Number of scalars of a row.
    pub channels: usize,
}

impl Mixture {
    /// Numbers of a column of the result: the channels of the first weight, then those of the second, and so on.
    pub fn outputs(&self) -> usize {
        self.weights * self.channels
    }

    /// Checks features and weights at rows and results at columns, of an incidence whose entries carry only their
    /// places.
    pub(super) fn check<S: Length>(
        &self,
        is_plain: bool,
        (rows, columns): (usize, usize),
        [(x_name, x), (w_name, w)]: [(&'static str, S); 2],
        (y_name, y): (&'static str, S),
    ) -> Result<(), KernelError> {
        if !is_plain {
            return Err(KernelError::Setting {
                operator: OPERATOR,
                problem: "a mixture takes an incidence without angles and weights".into(),
            });
        }
        let numbers = |count: usize, width: usize| count.saturating_mul(width);
        check_count(OPERATOR, x_name, x.length(), numbers(rows, self.channels))?;
        check_count(OPERATOR, w_name, w.length(), numbers(rows, self.weights))?;
        check_count(OPERATOR, y_name, y.length(), numbers(columns, self.outputs()))
    }
}

impl<T> IncidenceArrays<T> {
    fn is_plain(&self) -> bool {
        self.phases.is_empty() && self.weights.is_empty()
    }
}

/// `x` `[rows, channels]` and `w` `[rows, weights]` to `y` `[columns, weights * channels]`.
pub fn mix<T: Real>(
    op: &Mixture,
    incidence: &IncidenceArrays<T>,
    x: &[T],
    w: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    let (is_plain, counts) = (incidence.is_plain(), incidence.counts());
    op.check(is_plain, counts, [("x", x), ("w", w)], ("y", y))?;
    compiled!(sum as fn(&Mixture, &IncidenceArrays<T>, &[T], &[T], &mut [T]))(op, incidence, x, w, y);
    Ok(())
}

fn sum<T: Real>(op: &Mixture, incidence: &IncidenceArrays<T>, x: &[T], w: &[T], y: &mut [T]) {
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

/// Overwrites `dx` and `dw` with the gradients of [`mix`].
pub fn mix_backward<T: Real>(
    op: &Mixture,
    incidence: &IncidenceArrays<T>,
    x: &[T],
    w: &[T],
    dy: &[T],
    dx: &mut [T],
    dw: &mut [T],
) -> Result<(), KernelError> {
    let (is_plain, counts) = (incidence.is_plain(), incidence.counts());
    op.check(is_plain, counts, [("x", x), ("w", w)], ("dy", dy))?;
    op.check(is_plain, counts, [("dx", &*dx), ("dw", &*dw)], ("dy", dy))?;
    compiled!(gradient_of_x as fn(&Mixture, &IncidenceArrays<T>, &[T], &[T], &mut [T]))(op, incidence, w, dy, dx);
    compiled!(gradient_of_w as fn(&Mixture, &IncidenceArrays<T>, &[T], &[T], &mut [T]))(op, incidence, x, dy, dw);
    Ok(())
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

fn gradient_of_x<T: Real>(op: &Mixture, incidence: &IncidenceArrays<T>, w: &[T], dy: &[T], dx: &mut [T]) {
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
}

fn gradient_of_w<T: Real>(op: &Mixture, incidence: &IncidenceArrays<T>, x: &[T], dy: &[T], dw: &mut [T]) {
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
