//! Invariants of irreps: norms, dot products, and products with invariants.

use crate::{Context, NnError, Operator, Storage, Tape, Var};
use gemcnn_kernels::irrep::{self, Grouping};
use gemcnn_kernels::{FeatureType, Real, dispatch};

/// Norm `sqrt(|x|^2 + epsilon)` of each irrep. Saves `x`.
///
/// # Shapes
/// `x`: rows of any type; `y`: the same number of rows, with one scalar for each irrep in ascending order.
#[derive(Debug, Clone, Copy)]
pub struct IrrepNorm {
    /// Keeps the gradient finite at zero; positive.
    pub epsilon: f64,
}

impl<T: Real> Operator<T> for IrrepNorm {
    type Saved = Var<T>;

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved), NnError> {
        let kind = FeatureType::scalars(Grouping::Irreps.count(x.kind()));
        let mut y = context.buffer(x.rows() * kind.dimension())?;
        dispatch!(
            context.executor(),
            irrep::norm(x.kind(), self.epsilon, x.rows(); x.view(), y.view_mut())
        );
        Ok((Var::new(kind, x.rows(), y), x))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        x: Self::Saved,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let mut dx = context.buffer(x.values_len())?;
        dispatch!(
            context.executor(),
            irrep::norm_backward(x.kind(), self.epsilon, x.rows(); x.view(), dy.view(), dx.view_mut())
        );
        Ok([Some(dx)])
    }
}

/// Dot products of the irreps, or of the heads, of two features. Saves both.
///
/// # Shapes
/// Both inputs: the same number of rows of the same type; `y`: as many rows of [`Grouping::count`] scalars.
#[derive(Debug, Clone, Copy)]
pub struct IrrepDot(pub Grouping);

impl<T: Real> Operator<T, 2> for IrrepDot {
    type Saved = [Var<T>; 2];

    fn forward(&self, context: &mut Context<'_, T>, [a, b]: [Var<T>; 2]) -> Result<(Var<T>, Self::Saved), NnError> {
        b.expect_kind("right operand of a dot product", a.kind())?;
        b.expect_rows("the right operand of a dot product", a.rows())?;
        let kind = FeatureType::scalars(self.0.count(a.kind()));
        let mut y = context.buffer(a.rows() * kind.dimension())?;
        dispatch!(
            context.executor(),
            irrep::dot(a.kind(), self.0, a.rows(); a.view(), b.view(), y.view_mut())
        );
        Ok((Var::new(kind, a.rows(), y), [a, b]))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        [a, b]: Self::Saved,
        dy: Storage<T>,
        wanted: [bool; 2],
    ) -> Result<[Option<Storage<T>>; 2], NnError> {
        let mut da = context.buffer_if(wanted[0], a.values_len())?;
        let mut db = context.buffer_if(wanted[1], b.values_len())?;
        dispatch!(
            context.executor(),
            irrep::dot_backward(
                a.kind(), self.0, a.rows();
                a.view(),
                b.view(),
                dy.view(),
                da.as_mut().map(Storage::view_mut),
                db.as_mut().map(Storage::view_mut)
            )
        );
        Ok([da, db])
    }
}

/// Product of the irreps, or of the heads, of features with invariants. Saves both inputs.
///
/// # Shapes
/// Inputs: rows of any type, and as many rows of [`Grouping::count`] scalars; `y`: rows of the first type.
#[derive(Debug, Clone, Copy)]
pub struct IrrepScale(pub Grouping);

impl<T: Real> Operator<T, 2> for IrrepScale {
    type Saved = [Var<T>; 2];

    fn forward(
        &self,
        context: &mut Context<'_, T>,
        [x, factors]: [Var<T>; 2],
    ) -> Result<(Var<T>, Self::Saved), NnError> {
        let scalars = FeatureType::scalars(self.0.count(x.kind()));
        factors.expect_kind("factors of an irrep scale", &scalars)?;
        factors.expect_rows("the factors of an irrep scale", x.rows())?;
        let mut y = context.buffer(x.values_len())?;
        dispatch!(
            context.executor(),
            irrep::scale(x.kind(), self.0, x.rows(); x.view(), factors.view(), y.view_mut())
        );
        Ok((Var::new(x.kind().clone(), x.rows(), y), [x, factors]))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        [x, factors]: Self::Saved,
        dy: Storage<T>,
        wanted: [bool; 2],
    ) -> Result<[Option<Storage<T>>; 2], NnError> {
        let mut dx = context.buffer_if(wanted[0], x.values_len())?;
        let mut dfactors = context.buffer_if(wanted[1], factors.values_len())?;
        dispatch!(
            context.executor(),
            irrep::scale_backward(
                x.kind(), self.0, x.rows();
                x.view(),
                factors.view(),
                dy.view(),
                dx.as_mut().map(Storage::view_mut),
                dfactors.as_mut().map(Storage::view_mut)
            )
        );
        Ok([dx, dfactors])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`IrrepNorm`].
    ///
    /// # Errors
    /// An epsilon that is not positive.
    pub fn irrep_norm(&mut self, epsilon: f64, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(IrrepNorm { epsilon }, [x])
    }

    /// Applies [`IrrepDot`].
    ///
    /// # Errors
    /// Different types or numbers of rows, or heads that do not divide the multiplicities.
    pub fn irrep_dot(&mut self, grouping: Grouping, a: Var<T>, b: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(IrrepDot(grouping), [a, b])
    }

    /// Applies [`IrrepScale`].
    ///
    /// # Errors
    /// Factors that are not [`Grouping::count`] scalars for each row of `x`, or heads that do not divide the
    /// multiplicities.
    pub fn irrep_scale(&mut self, grouping: Grouping, x: Var<T>, factors: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(IrrepScale(grouping), [x, factors])
    }
}
