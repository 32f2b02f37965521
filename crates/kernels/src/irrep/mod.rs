//! Invariants of irreps: norms, dot products, and products with invariants.
//!
//! ```text
//! norm:   r_i = sqrt(|x_i|^2 + epsilon)                   dx_i = dr_i x_i / r_i
//! dot:    d_i = <a_i, b_i>                                da_i = dd_i b_i,  db_i = dd_i a_i
//! scale:  y_i = s_i x_i                                   dx_i = s_i dy_i,  ds_i = <x_i, dy_i>
//! ```
//!
//! `i` runs over the irreps of a row: the channels of order 0, then those of order 1, and so on. [`dot`] and
//! [`scale`] also work on heads ([`Grouping`]), whose irreps share one scalar. Scalars are rows of
//! [`Grouping::count`] numbers. Only the inputs are needed in the backward pass.

pub mod cuda;
mod fast;
pub mod reference;
#[cfg(test)]
mod tests;

use crate::error::{Length, check_count};
use crate::real::compiled;
use crate::{FeatureType, KernelError, Real, irrep_dimension};

const OPERATOR: &str = "irrep";

/// The parts of a row that share one scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Grouping {
    /// One scalar for each irrep.
    Irreps,
    /// One scalar for each head. Heads split the channels of every order evenly, in order; `Heads(1)` is one
    /// scalar for the whole row.
    Heads(usize),
}

impl Grouping {
    /// Number of scalars of a row.
    ///
    /// ```
    /// use gemcnn_kernels::irrep::Grouping;
    /// let features = "4x0 + 2x1".parse()?;
    /// assert_eq!(Grouping::Irreps.count(&features), 6);
    /// assert_eq!(Grouping::Heads(2).count(&features), 2);
    /// # Ok::<(), gemcnn_kernels::ParseTypeError>(())
    /// ```
    pub fn count(self, features: &FeatureType) -> usize {
        match self {
            Self::Irreps => features.multiplicities().iter().sum(),
            Self::Heads(heads) => heads,
        }
    }

    fn check<S: Length>(
        self,
        features: &FeatureType,
        rows: usize,
        maps: &[(&'static str, S)],
        (name, scalars): (&'static str, S),
    ) -> Result<(), KernelError> {
        if let Self::Heads(heads) = self {
            check_heads(OPERATOR, features, heads)?;
        }
        let (width, count) = (features.dimension(), self.count(features));
        for (name, values) in maps {
            check_count(OPERATOR, name, values.length(), rows.saturating_mul(width))?;
        }
        check_count(OPERATOR, name, scalars.length(), rows.saturating_mul(count))
    }

    /// The runs of numbers of a row that have consecutive scalars, or share one.
    fn runs(self, features: &FeatureType) -> Vec<Run> {
        let (mut runs, mut irreps) = (Vec::new(), 0);
        for (order, channels) in features.orders() {
            let start = features.range(order).start;
            let heads = match self {
                Self::Irreps => 1,
                Self::Heads(heads) => heads,
            };
            let length = channels / heads;
            for component in 0..irrep_dimension(order) {
                runs.extend((0..heads).map(|head| Run {
                    start: start + component * channels + head * length,
                    length,
                    scalar: if self == Self::Irreps { irreps } else { head },
                }));
            }
            irreps += channels;
        }
        runs
    }
}

/// Numbers of a row, and their scalar: of the first number with [`Grouping::Irreps`], of all with heads.
#[derive(Debug, Clone, Copy)]
struct Run {
    start: usize,
    length: usize,
    scalar: usize,
}

/// Checks that the channels of every order can be split evenly between heads.
pub(crate) fn check_heads(operator: &'static str, features: &FeatureType, heads: usize) -> Result<(), KernelError> {
    let uneven = |&multiplicity: &usize| heads == 0 || !multiplicity.is_multiple_of(heads);
    if heads > 0 && !features.multiplicities().iter().any(uneven) {
        return Ok(());
    }
    Err(KernelError::Setting {
        operator,
        problem: format!("{heads} heads cannot share {features}; the number of heads has to divide every multiplicity"),
    })
}

fn check_epsilon(epsilon: f64) -> Result<(), KernelError> {
    if epsilon > 0.0 && epsilon.is_finite() {
        return Ok(());
    }
    Err(KernelError::Setting {
        operator: OPERATOR,
        problem: format!("epsilon is {epsilon}, but has to be positive and finite"),
    })
}

/// `y` = the norm of every irrep, `sqrt(|x|^2 + epsilon)`: `x` `[rows, dimension]` to `y` `[rows, irreps]`.
///
/// # Errors
/// An epsilon that is not positive, or lengths that do not fit.
pub fn norm<T: Real>(
    features: &FeatureType,
    epsilon: f64,
    rows: usize,
    x: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    check_epsilon(epsilon)?;
    Grouping::Irreps.check(features, rows, &[("x", x)], ("y", y))?;
    dots(features, Grouping::Irreps, x, x, y, Some(T::of(epsilon)));
    Ok(())
}

/// Overwrites `dx` with the gradient of [`norm`].
pub fn norm_backward<T: Real>(
    features: &FeatureType,
    epsilon: f64,
    rows: usize,
    x: &[T],
    dy: &[T],
    dx: &mut [T],
) -> Result<(), KernelError> {
    check_epsilon(epsilon)?;
    Grouping::Irreps.check(features, rows, &[("x", x), ("dx", dx)], ("dy", dy))?;
    compiled!(fast::norm_backward as fn(&FeatureType, T, &[T], &[T], &mut [T]))(features, T::of(epsilon), x, dy, dx);
    Ok(())
}

/// `y` = invariant products of `a` and `b`, both `[rows, dimension]`: `[rows, scalars]`.
pub fn dot<T: Real>(
    features: &FeatureType,
    grouping: Grouping,
    rows: usize,
    a: &[T],
    b: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    grouping.check(features, rows, &[("a", a), ("b", b)], ("y", y))?;
    dots(features, grouping, a, b, y, None);
    Ok(())
}

fn dots<T: Real>(features: &FeatureType, grouping: Grouping, a: &[T], b: &[T], y: &mut [T], epsilon: Option<T>) {
    compiled!(fast::dot as fn(&FeatureType, Grouping, &[T], &[T], &mut [T], Option<T>))(
        features, grouping, a, b, y, epsilon,
    );
}

/// Overwrites the gradients of [`dot`] that are wanted.
#[allow(clippy::too_many_arguments)]
pub fn dot_backward<T: Real>(
    features: &FeatureType,
    grouping: Grouping,
    rows: usize,
    a: &[T],
    b: &[T],
    dy: &[T],
    da: Option<&mut [T]>,
    db: Option<&mut [T]>,
) -> Result<(), KernelError> {
    if let Some(da) = da {
        scale(features, grouping, rows, b, dy, da)?;
    }
    match db {
        Some(db) => scale(features, grouping, rows, a, dy, db),
        None => Ok(()),
    }
}

/// `y` = `x` times invariants: `x` and `y` are `[rows, dimension]`, `factors` is `[rows, scalars]`.
pub fn scale<T: Real>(
    features: &FeatureType,
    grouping: Grouping,
    rows: usize,
    x: &[T],
    factors: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    grouping.check(features, rows, &[("x", x), ("y", y)], ("factors", factors))?;
    compiled!(fast::scale as fn(&FeatureType, Grouping, &[T], &[T], &mut [T]))(features, grouping, x, factors, y);
    Ok(())
}

/// Overwrites the gradients of [`scale`] that are wanted.
#[allow(clippy::too_many_arguments)]
pub fn scale_backward<T: Real>(
    features: &FeatureType,
    grouping: Grouping,
    rows: usize,
    x: &[T],
    factors: &[T],
    dy: &[T],
    dx: Option<&mut [T]>,
    dfactors: Option<&mut [T]>,
) -> Result<(), KernelError> {
    if let Some(dx) = dx {
        scale(features, grouping, rows, dy, factors, dx)?;
    }
    match dfactors {
        Some(dfactors) => dot(features, grouping, rows, x, dy, dfactors),
        None => Ok(()),
    }
}
