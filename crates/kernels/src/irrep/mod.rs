//! Invariants of irreps: norms, dot products, and products with invariants.
//!
//! ```text
//! norm:   r_i = sqrt(|x_i|^2 + epsilon)                   dx_i = dr_i x_i / r_i
//! dot:    d_i = <a_i, b_i>                                da_i = dd_i b_i,  db_i = dd_i a_i
//! scale:  y_i = s_i x_i                                   dx_i = s_i dy_i,  ds_i = <x_i, dy_i>
//! ```
//!
//! `i` runs over the irreps of a row: the channels of order 0, then those of order 1, and so on. [`Dot`] and
//! [`Scale`] also work on heads ([`Grouping`]), whose irreps share one scalar. Scalars are rows of
//! [`Grouping::count`] numbers. Only the inputs are needed in the backward pass.

pub mod cuda;
mod fast;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::reference;

use crate::arguments::arguments;
use crate::{FeatureType, KernelError, irrep_dimension};

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

    fn check(self, features: &FeatureType) -> Result<(), KernelError> {
        match self {
            Self::Irreps => Ok(()),
            Self::Heads(heads) => check_heads(OPERATOR, features, heads),
        }
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

arguments! {
    /// `y` = the norm of every irrep, `sqrt(|x|^2 + epsilon)`.
    Norm = norm(OPERATOR) {
        features: &'a FeatureType, epsilon: f64, rows: usize;
        x: read[rows, features.dimension()],
        y: write[rows, Grouping::Irreps.count(features)];
        check_epsilon(epsilon)?;
    }

    /// Overwrites `dx` with the gradient of [`Norm`].
    NormBackward = norm_backward(OPERATOR) {
        features: &'a FeatureType, epsilon: f64, rows: usize;
        x: read[rows, features.dimension()],
        dy: read[rows, Grouping::Irreps.count(features)],
        dx: write[rows, features.dimension()];
        check_epsilon(epsilon)?;
    }

    /// `y` = invariant products of `a` and `b`. The gradient by one is the other, [scaled](Scale) with `dy`.
    Dot = dot(OPERATOR) {
        features: &'a FeatureType, grouping: Grouping, rows: usize;
        a: read[rows, features.dimension()],
        b: read[rows, features.dimension()],
        y: write[rows, grouping.count(features)];
        grouping.check(features)?;
    }

    /// `y` = `x` times invariants. The gradient by `x` is `dy`, scaled likewise; that by the factors is the [product](Dot)
    /// of `x` and `dy`.
    Scale = scale(OPERATOR) {
        features: &'a FeatureType, grouping: Grouping, rows: usize;
        x: read[rows, features.dimension()],
        factors: read[rows, grouping.count(features)],
        y: write[rows, features.dimension()];
        grouping.check(features)?;
    }
}
