//! Sums and means over a sparse incidence, such as faces and their vertices, in both directions.

use crate::{IncidenceBatch, Keep, Recipe, Result, Tape, Var};
use gemcnn_kernels::incidence::{Mix, MixBackward, Mixture, Normalise, Sum, Target};
use gemcnn_kernels::{Aggregation, FeatureType, Real};

impl<'a, T: Real> Tape<'a, T> {
    /// Sum or mean of the features of the columns in each row of an incidence, transported to the row: one row of any type
    /// for each column becomes one row of the same type for each row of the incidence. Features of order above 0 need an
    /// incidence with angles. Saves nothing.
    pub fn apply_incidence(
        &mut self,
        aggregation: Aggregation,
        incidence: &'a IncidenceBatch<T>,
        x: Var<T>,
    ) -> Result<Var<T>> {
        self.sum_incidence("the input of an incidence map", Target::Rows, aggregation, incidence, x)
    }

    /// The same from rows to columns.
    pub fn apply_incidence_transposed(
        &mut self,
        aggregation: Aggregation,
        incidence: &'a IncidenceBatch<T>,
        x: Var<T>,
    ) -> Result<Var<T>> {
        self.sum_incidence("the input of an incidence map to columns", Target::Columns, aggregation, incidence, x)
    }

    fn sum_incidence(
        &mut self,
        what: &str,
        target: Target,
        aggregation: Aggregation,
        incidence: &'a IncidenceBatch<T>,
        x: Var<T>,
    ) -> Result<Var<T>> {
        if !incidence.has_angles() {
            x.expect_scalars(what)?;
        }
        x.expect_rows(what, incidence.count(target.other()))?;
        let output = (x.kind().clone(), incidence.count(target));
        self.sum_entries(target, aggregation, incidence, x, output)
    }

    /// The same without checks, as rows of the type of `output`.
    pub(super) fn sum_entries(
        &mut self,
        target: Target,
        aggregation: Aggregation,
        incidence: &'a IncidenceBatch<T>,
        x: Var<T>,
        output: (FeatureType, usize),
    ) -> Result<Var<T>> {
        self.context().reads_fixed_data();
        let state = (x.kind().clone(), aggregation, target, incidence.on(self.device())?);
        self.record(
            Recipe { state, inputs: [x], parameters: [], output, keep: Keep::Nothing },
            |&(ref features, aggregation, target, ref incidence), run, [x], [], y| {
                let (normalise, incidence) = (Normalise::Target, incidence.get());
                Sum { features, aggregation, target, normalise, incidence, x, y }.run(run)
            },
            |&(ref features, aggregation, target, ref incidence), run, [(_, y)], [], (_, x)| {
                let (target, normalise, incidence) = (target.other(), Normalise::Source, incidence.get());
                Sum { features, aggregation, target, normalise, incidence, x, y }.run(run)
            },
        )
    }

    /// Sums of the scalars `x` of the rows in each column of an incidence without angles and weights, with several weights
    /// `w` for every row: for each column the scalars of `x` with the first weight, then with the second, and so on. Keeps
    /// both inputs.
    pub fn mix_incidence(
        &mut self,
        aggregation: Aggregation,
        incidence: &'a IncidenceBatch<T>,
        x: Var<T>,
        w: Var<T>,
    ) -> Result<Var<T>> {
        self.context().reads_fixed_data();
        for (what, input) in [("the values of a mixture", &x), ("the weights of a mixture", &w)] {
            input.expect_scalars(what)?;
            input.expect_rows(what, incidence.row_count())?;
        }
        let op = Mixture { aggregation, weights: w.kind().dimension(), channels: x.kind().dimension() };
        let output = (FeatureType::scalars(op.outputs()), incidence.column_count());
        self.record(
            Recipe {
                state: (op, incidence.on(self.device())?),
                inputs: [x, w],
                parameters: [],
                output,
                keep: Keep::Inputs,
            },
            |(op, incidence), run, [x, w], [], y| Mix { op, incidence: incidence.get(), x, w, y }.run(run),
            |(op, incidence), run, [(x, dx), (w, dw)], [], (_, dy)| {
                MixBackward { op, incidence: incidence.get(), x, w, dy, dx, dw }.run(run)
            },
        )
    }
}
