//! Products with a basis for each mesh of a batch.

use crate::{BasisBatch, Context, NnError, Operator, Storage, Tape, Var};
use gemcnn_kernels::mesh_product::{self, MeshProduct};
use gemcnn_kernels::{FeatureType, Real, dispatch};

/// Projection on the basis of each mesh, `y = B^H (w x)`. Saves the type.
///
/// The type does not change. A real basis takes scalars. A complex basis takes features of a single order above 0.
/// The coefficients do not depend on the gauge. They keep their order, because they rotate with the phase of each
/// column, which is arbitrary for eigenvectors.
///
/// # Shapes
/// `x`: one row for each vertex; `y`: one row for each column of the basis of each mesh.
#[derive(Debug, Clone, Copy)]
pub struct Project<'a, T>(pub &'a BasisBatch<T>);

impl<T: Real> BasisBatch<T> {
    /// Settings of the kernel; a real basis is not equivariant for orders above 0.
    fn product(&self, what: &str, x: &Var<T>) -> Result<MeshProduct, NnError> {
        if !self.is_complex() {
            x.expect_scalars(what)?;
        }
        Ok(self.settings(x.kind()))
    }

    fn settings(&self, kind: &FeatureType) -> MeshProduct {
        MeshProduct { features: kind.clone(), columns: self.columns(), complex: self.is_complex() }
    }
}

impl<T: Real> Operator<T> for Project<'_, T> {
    type Saved = FeatureType;

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved), NnError> {
        context.reads_fixed_data();
        let kind = x.kind().clone();
        let config = self.0.product("the input of a projection", &x)?;
        x.expect_rows("the input of a projection", self.0.vertex_count())?;
        let mut y = context.buffer(self.0.row_count() * kind.dimension())?;
        let (offsets, basis) = (self.0.mesh_offsets(), self.0.on(context.device())?);
        dispatch!(
            context.executor(),
            mesh_product::project(
                &config, offsets; basis.values(), basis.weights(), x.view(), y.view_mut(); scratch
            )
        );
        Ok((Var::new(kind.clone(), self.0.row_count(), y), kind))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        kind: Self::Saved,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let mut dx = context.buffer(self.0.vertex_count() * kind.dimension())?;
        let (config, offsets) = (self.0.settings(&kind), self.0.mesh_offsets());
        let basis = self.0.on(context.device())?;
        dispatch!(
            context.executor(),
            mesh_product::project_backward(
                &config, offsets; basis.values(), basis.weights(), dy.view(), dx.view_mut(); scratch
            )
        );
        Ok([Some(dx)])
    }
}

/// Linear combination of the columns of the basis of each mesh, `x = B y`. Saves the type.
///
/// # Shapes
/// `y`: one row for each column of the basis of each mesh, of a type as in [`Project`]; `x`: one row of the
/// same type for each vertex.
#[derive(Debug, Clone, Copy)]
pub struct Expand<'a, T>(pub &'a BasisBatch<T>);

impl<T: Real> Operator<T> for Expand<'_, T> {
    type Saved = FeatureType;

    fn forward(&self, context: &mut Context<'_, T>, [y]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved), NnError> {
        context.reads_fixed_data();
        let kind = y.kind().clone();
        let config = self.0.product("the input of an expansion", &y)?;
        y.expect_rows("the input of an expansion", self.0.row_count())?;
        let mut x = context.buffer(self.0.vertex_count() * kind.dimension())?;
        let (offsets, basis) = (self.0.mesh_offsets(), self.0.on(context.device())?);
        dispatch!(
            context.executor(),
            mesh_product::expand(&config, offsets; basis.values(), y.view(), x.view_mut(); scratch)
        );
        Ok((Var::new(kind.clone(), self.0.vertex_count(), x), kind))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        kind: Self::Saved,
        dx: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let mut dy = context.buffer(self.0.row_count() * kind.dimension())?;
        let (config, offsets) = (self.0.settings(&kind), self.0.mesh_offsets());
        let basis = self.0.on(context.device())?;
        dispatch!(
            context.executor(),
            mesh_product::expand_backward(
                &config, offsets; basis.values(), dx.view(), dy.view_mut(); scratch
            )
        );
        Ok([Some(dy)])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`Project`].
    ///
    /// # Errors
    /// A type that the basis does not support, or another number of rows than vertices.
    pub fn project(&mut self, basis: &'a BasisBatch<T>, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(Project(basis), [x])
    }

    /// Applies [`Expand`].
    ///
    /// # Errors
    /// A type that the basis does not support, or another number of rows than columns.
    pub fn expand(&mut self, basis: &'a BasisBatch<T>, y: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(Expand(basis), [y])
    }
}
