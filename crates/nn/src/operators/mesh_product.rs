//! Products with a basis for each mesh of a batch.

use crate::{BasisBatch, Keep, Recipe, Result, Tape, Var};
use gemcnn_kernels::Real;
use gemcnn_kernels::mesh_product::{Expand, MeshProduct, Project};

impl<T: Real> BasisBatch<T> {
    /// Settings of the kernel; a real basis is not equivariant for orders above 0.
    fn product(&self, what: &str, x: &Var<T>) -> Result<MeshProduct> {
        if !self.is_complex() {
            x.expect_scalars(what)?;
        }
        Ok(MeshProduct { features: x.kind().clone(), columns: self.columns(), complex: self.is_complex() })
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Projection on the basis of each mesh, `y = B^H (w x)`: one row for each vertex becomes one row for each column of the
    /// basis of each mesh. Keeps the type.
    ///
    /// The type does not change. A real basis takes scalars. A complex basis takes features of a single order above 0.
    /// The coefficients do not depend on the gauge. They keep their order, because they rotate with the phase of each
    /// column, which is arbitrary for eigenvectors.
    ///
    /// # Errors
    /// A type that the basis does not support, or another number of rows than vertices.
    pub fn project(&mut self, basis: &'a BasisBatch<T>, x: Var<T>) -> Result<Var<T>> {
        self.context().reads_fixed_data();
        let op = basis.product("the input of a projection", &x)?;
        x.expect_rows("the input of a projection", basis.vertex_count())?;
        let (state, output) =
            ((op, basis.mesh_offsets(), basis.on(self.device())?), (x.kind().clone(), basis.row_count()));
        self.record(
            Recipe { state, inputs: [x], parameters: [], output, keep: Keep::Nothing },
            |&(ref op, mesh_offsets, ref basis), run, [x], [], y| {
                Project { op, mesh_offsets, basis: basis.values(), weights: basis.weights(), x, y }.run(run)
            },
            |&(ref op, mesh_offsets, ref basis), run, [(_, x)], [], (_, y)| {
                Expand { op, mesh_offsets, basis: basis.values(), weights: basis.weights(), y, x }.run(run)
            },
        )
    }

    /// Linear combination of the columns of the basis of each mesh, `x = B y`: one row for each column of the basis of each
    /// mesh, of a type as in [`project`](Self::project), becomes one row of the same type for each vertex. Keeps the type.
    ///
    /// # Errors
    /// A type that the basis does not support, or another number of rows than columns.
    pub fn expand(&mut self, basis: &'a BasisBatch<T>, y: Var<T>) -> Result<Var<T>> {
        self.context().reads_fixed_data();
        let op = basis.product("the input of an expansion", &y)?;
        y.expect_rows("the input of an expansion", basis.row_count())?;
        let (state, output) =
            ((op, basis.mesh_offsets(), basis.on(self.device())?), (y.kind().clone(), basis.vertex_count()));
        self.record(
            Recipe { state, inputs: [y], parameters: [], output, keep: Keep::Nothing },
            |&(ref op, mesh_offsets, ref basis), run, [y], [], x| {
                Expand { op, mesh_offsets, basis: basis.values(), weights: None, y, x }.run(run)
            },
            |&(ref op, mesh_offsets, ref basis), run, [(_, y)], [], (_, x)| {
                Project { op, mesh_offsets, basis: basis.values(), weights: None, x, y }.run(run)
            },
        )
    }
}
