//! Sums and means over a sparse incidence, such as faces and their vertices, in both directions.

use crate::{Context, IncidenceBatch, NnError, Operator, Storage, Tape, Var};
use gemcnn_kernels::incidence::Mixture;
use gemcnn_kernels::{Aggregation, FeatureType, Real, dispatch, incidence};

/// Sum or mean of the features of the columns in each row of an incidence, transported to the row. Saves the
/// type.
///
/// # Shapes
/// `x`: features of each column of the incidence; `y`: features of the same type of each row. Features of order
/// above 0 need an incidence with angles.
#[derive(Debug, Clone, Copy)]
pub struct ApplyIncidence<'a, T> {
    /// Scale of the sum.
    pub aggregation: Aggregation,
    /// The incidence.
    pub incidence: &'a IncidenceBatch<T>,
}

/// Sum or mean of the features of the rows in each column of an incidence, transported to the column. Saves the
/// type.
///
/// # Shapes
/// `x`: features of each row of the incidence; `y`: features of the same type of each column. Features of order
/// above 0 need an incidence with angles.
#[derive(Debug, Clone, Copy)]
pub struct ApplyIncidenceTransposed<'a, T> {
    /// Scale of the sum.
    pub aggregation: Aggregation,
    /// The incidence.
    pub incidence: &'a IncidenceBatch<T>,
}

/// Sums of the scalars of the rows in each column of an incidence, with several weights for every row. Saves both
/// inputs.
///
/// # Shapes
/// `x` and `w`: scalars of each row of the incidence; `y`: for each column the scalars of `x` with the first weight,
/// then with the second, and so on. The incidence has no angles and no weights of its own.
#[derive(Debug, Clone, Copy)]
pub struct MixIncidence<'a, T> {
    /// Scale of the sums.
    pub aggregation: Aggregation,
    /// The incidence.
    pub incidence: &'a IncidenceBatch<T>,
}

impl<T: Real> MixIncidence<'_, T> {
    fn mixture(&self, x: &Var<T>, w: &Var<T>) -> Mixture {
        Mixture { aggregation: self.aggregation, weights: w.kind().dimension(), channels: x.kind().dimension() }
    }
}

impl<T: Real> Operator<T, 2> for MixIncidence<'_, T> {
    type Saved = [Var<T>; 2];

    fn forward(&self, context: &mut Context<'_, T>, [x, w]: [Var<T>; 2]) -> Result<(Var<T>, Self::Saved), NnError> {
        context.reads_fixed_data();
        for (what, input) in [("the values of a mixture", &x), ("the weights of a mixture", &w)] {
            input.expect_scalars(what)?;
            input.expect_rows(what, self.incidence.row_count())?;
        }
        let mixture = self.mixture(&x, &w);
        let rows = self.incidence.column_count();
        let mut y = context.buffer(rows * mixture.outputs())?;
        let arrays = self.incidence.on(context.device())?;
        dispatch!(
            context.executor(),
            incidence::mix(&mixture; arrays.view(), x.view(), w.view(), y.view_mut())
        );
        let y = Var::new(FeatureType::scalars(mixture.outputs()), rows, y);
        Ok((y, [x, w]))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        [x, w]: Self::Saved,
        dy: Storage<T>,
        _: [bool; 2],
    ) -> Result<[Option<Storage<T>>; 2], NnError> {
        let mixture = self.mixture(&x, &w);
        let (mut dx, mut dw) = (context.buffer(x.values_len())?, context.buffer(w.values_len())?);
        let arrays = self.incidence.on(context.device())?;
        dispatch!(
            context.executor(),
            incidence::mix_backward(
                &mixture;
                arrays.view(),
                x.view(),
                w.view(),
                dy.view(),
                dx.view_mut(),
                dw.view_mut()
            )
        );
        Ok([Some(dx), Some(dw)])
    }
}

/// The two directions differ in their counts and in their kernels.
macro_rules! incidence_map {
    ($name:ident, $label:literal, $from:ident -> $to:ident, $forward:ident, $backward:ident) => {
        impl<T: Real> Operator<T> for $name<'_, T> {
            type Saved = FeatureType;

            fn forward(
                &self,
                context: &mut Context<'_, T>,
                [x]: [Var<T>; 1],
            ) -> Result<(Var<T>, Self::Saved), NnError> {
                context.reads_fixed_data();
                let kind = x.kind().clone();
                if !self.incidence.has_angles() {
                    x.expect_scalars(concat!("the input of an ", $label))?;
                }
                x.expect_rows(concat!("the input of an ", $label), self.incidence.$from())?;
                let rows = self.incidence.$to();
                let mut y = context.buffer(rows * kind.dimension())?;
                let arrays = self.incidence.on(context.device())?;
                dispatch!(
                    context.executor(),
                    incidence::$forward(&kind, self.aggregation; arrays.view(), x.view(), y.view_mut())
                );
                Ok((Var::new(kind.clone(), rows, y), kind))
            }

            fn backward(
                &self,
                context: &mut Context<'_, T>,
                kind: Self::Saved,
                dy: Storage<T>,
                _: [bool; 1],
            ) -> Result<[Option<Storage<T>>; 1], NnError> {
                let mut dx = context.buffer(self.incidence.$from() * kind.dimension())?;
                let arrays = self.incidence.on(context.device())?;
                dispatch!(
                    context.executor(),
                    incidence::$backward(&kind, self.aggregation; arrays.view(), dy.view(), dx.view_mut())
                );
                Ok([Some(dx)])
            }
        }
    };
}

incidence_map!(
    ApplyIncidence,
    "incidence map",
    column_count -> row_count,
    apply,
    apply_backward
);
incidence_map!(
    ApplyIncidenceTransposed,
    "incidence map to columns",
    row_count -> column_count,
    apply_transposed,
    apply_transposed_backward
);

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`ApplyIncidence`].
    pub fn apply_incidence(
        &mut self,
        aggregation: Aggregation,
        incidence: &'a IncidenceBatch<T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        let operator = ApplyIncidence { aggregation, incidence };
        self.apply(operator, [x])
    }

    /// Applies [`ApplyIncidenceTransposed`].
    pub fn apply_incidence_transposed(
        &mut self,
        aggregation: Aggregation,
        incidence: &'a IncidenceBatch<T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        let operator = ApplyIncidenceTransposed { aggregation, incidence };
        self.apply(operator, [x])
    }

    /// Applies [`MixIncidence`] to values and weights.
    pub fn mix_incidence(
        &mut self,
        aggregation: Aggregation,
        incidence: &'a IncidenceBatch<T>,
        x: Var<T>,
        w: Var<T>,
    ) -> Result<Var<T>, NnError> {
        let operator = MixIncidence { aggregation, incidence };
        self.apply(operator, [x, w])
    }
}
