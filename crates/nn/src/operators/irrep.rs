//! Invariants of irreps: norms, dot products, and products with invariants.

use crate::{Keep, Recipe, Result, Tape, Var};
use gemcnn_kernels::irrep::{Dot, Grouping, Norm, NormBackward, Scale};
use gemcnn_kernels::{FeatureType, Real};

impl<'a, T: Real> Tape<'a, T> {
    /// Norm `sqrt(|x|^2 + epsilon)` of each irrep: one scalar for each irrep of a row, in ascending order. Keeps `x`.
    ///
    /// # Errors
    /// An epsilon that is not positive; it keeps the gradient finite at zero.
    pub fn irrep_norm(&mut self, epsilon: f64, x: Var<T>) -> Result<Var<T>> {
        let (features, rows) = (x.kind().clone(), x.rows());
        let output = (FeatureType::scalars(Grouping::Irreps.count(&features)), rows);
        self.record(
            Recipe { state: (features, epsilon, rows), inputs: [x], parameters: [], output, keep: Keep::Inputs },
            |&(ref features, epsilon, rows), run, [x], [], y| Norm { features, epsilon, rows, x, y }.run(run),
            |&(ref features, epsilon, rows), run, [(x, dx)], [], (_, dy)| {
                NormBackward { features, epsilon, rows, x, dy, dx }.run(run)
            },
        )
    }

    /// Dot products of the irreps, or of the heads, of features of the same type: rows of [`Grouping::count`] scalars.
    /// Keeps both inputs.
    ///
    /// # Errors
    /// Different types or numbers of rows, or heads that do not divide the multiplicities.
    pub fn irrep_dot(&mut self, grouping: Grouping, a: Var<T>, b: Var<T>) -> Result<Var<T>> {
        let (features, rows) = (a.kind().clone(), a.rows());
        b.expect_kind("right operand of a dot product", &features)?;
        b.expect_rows("the right operand of a dot product", rows)?;
        let output = (FeatureType::scalars(grouping.count(&features)), rows);
        self.record_wanted(
            Recipe { state: (features, grouping, rows), inputs: [a, b], parameters: [], output, keep: Keep::Inputs },
            |&(ref features, grouping, rows), run, [a, b], [], y| Dot { features, grouping, rows, a, b, y }.run(run),
            |&(ref features, grouping, rows), run, [(a, da), (b, db)], [], (_, factors)| {
                for (x, y) in [(b, da), (a, db)] {
                    y.map_or(Ok(()), |y| Scale { features, grouping, rows, x, factors, y }.run(run))?;
                }
                Ok(())
            },
        )
    }

    /// Product of the irreps, or of the heads, of features with as many rows of [`Grouping::count`] scalars. Keeps both
    /// inputs.
    ///
    /// # Errors
    /// Factors that are not [`Grouping::count`] scalars for each row of `x`, or heads that do not divide the
    /// multiplicities.
    pub fn irrep_scale(&mut self, grouping: Grouping, x: Var<T>, factors: Var<T>) -> Result<Var<T>> {
        let (features, rows) = (x.kind().clone(), x.rows());
        factors.expect_kind("factors of an irrep scale", &FeatureType::scalars(grouping.count(&features)))?;
        factors.expect_rows("the factors of an irrep scale", rows)?;
        let (output, inputs) = ((features.clone(), rows), [x, factors]);
        self.record_wanted(
            Recipe { state: (features, grouping, rows), inputs, parameters: [], output, keep: Keep::Inputs },
            |&(ref features, grouping, rows), run, [x, factors], [], y| {
                Scale { features, grouping, rows, x, factors, y }.run(run)
            },
            |&(ref features, grouping, rows), run, [(a, dx), (factors, dfactors)], [], (_, b)| {
                dx.map_or(Ok(()), |y| Scale { features, grouping, rows, x: b, factors, y }.run(run))?;
                dfactors.map_or(Ok(()), |y| Dot { features, grouping, rows, a, b, y }.run(run))
            },
        )
    }
}
