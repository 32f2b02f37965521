//! Products with a tall matrix for each mesh of a batch, such as the eigenvectors of its Laplacian.
//!
//! Mesh `b` has a basis `B_b`, a matrix with a row for each of its vertices and `k` columns, the same number for
//! all meshes. With optional weights `w` of the vertices, such as a lumped mass matrix,
//!
//! ```text
//! project:  y_b = B_b^H (w x_b)       dx_b = w (B_b dy_b)
//! expand:   x_b = B_b y_b             dy_b = B_b^H dx_b
//! ```
//!
//! A real basis acts on each number of a row, whatever its type. A complex basis acts on features of a single
//! order above 0: the cosine and sine coefficients of a channel are the real and imaginary part of one complex
//! number, and `^H` conjugates.
//!
//! Shapes: a real basis is `[vertices, k]`, a complex one `[vertices, 2, k]`, real parts first. `x` is
//! `[vertices, dimension]`, `y` is `[meshes * k, dimension]`. Nothing is saved but the basis and the weights.

pub mod cuda;
mod fast;
pub mod reference;
#[cfg(test)]
mod tests;

pub(crate) use fast::weighted;

use crate::error::{Length, check_count, check_mesh_offsets};
use crate::real::compiled;
use crate::{FeatureType, KernelError, Real, Scratch};
use std::ops::Range;

const OPERATOR: &str = "mesh product";

/// Settings of a product with the bases of meshes.
#[derive(Debug, Clone, PartialEq)]
pub struct MeshProduct {
    /// Type of the rows.
    pub features: FeatureType,
    /// Number of columns `k` of every basis.
    pub columns: usize,
    /// Whether bases are complex.
    pub complex: bool,
}

impl MeshProduct {
    /// Numbers in the row of a basis.
    fn stride(&self) -> usize {
        self.columns * if self.complex { 2 } else { 1 }
    }

    /// Checks the settings, and lengths of basis, weights, `x` and `y`.
    fn check<S: Length>(
        &self,
        mesh_offsets: &[u32],
        basis: S,
        weights: Option<S>,
        (x_name, x): (&'static str, S),
        (y_name, y): (&'static str, S),
    ) -> Result<(), KernelError> {
        if self.complex && (self.features.orders().count() != 1 || self.features.is_scalar()) {
            return Err(KernelError::Setting {
                operator: OPERATOR,
                problem: format!(
                    "a complex basis acts on features of a single order above 0, such as 16x1, not on {}",
                    self.features
                ),
            });
        }
        let vertices = check_mesh_offsets(mesh_offsets)?;
        let (meshes, width) = (mesh_offsets.len() - 1, self.features.dimension());
        let weights = weights.map_or(vertices, S::length);
        check_count(OPERATOR, "basis", basis.length(), vertices * self.stride())?;
        check_count(OPERATOR, "weights", weights, vertices)?;
        check_count(OPERATOR, x_name, x.length(), vertices * width)?;
        check_count(OPERATOR, y_name, y.length(), meshes * self.columns * width)
    }
}

/// The vertices of each mesh.
fn meshes(mesh_offsets: &[u32]) -> impl Iterator<Item = Range<usize>> + '_ {
    let bounds = mesh_offsets.windows(2);
    bounds.map(|bounds| bounds[0] as usize..bounds[1] as usize)
}

/// `y_b = B_b^H (w x_b)` for each mesh; without weights, `w` is 1.
pub fn project<T: Real>(
    op: &MeshProduct,
    mesh_offsets: &[u32],
    basis: &[T],
    weights: Option<&[T]>,
    x: &[T],
    y: &mut [T],
    scratch: &mut Scratch<T>,
) -> Result<(), KernelError> {
    op.check(mesh_offsets, basis, weights, ("x", x), ("y", &*y))?;
    compiled!(fast::project as fn(&MeshProduct, &[u32], &[T], Option<&[T]>, &[T], &mut [T], &mut Scratch<T>))(
        op,
        mesh_offsets,
        basis,
        weights,
        x,
        y,
        scratch,
    );
    Ok(())
}

/// Overwrites `dx` with the gradient of [`project`].
pub fn project_backward<T: Real>(
    op: &MeshProduct,
    mesh_offsets: &[u32],
    basis: &[T],
    weights: Option<&[T]>,
    dy: &[T],
    dx: &mut [T],
    scratch: &mut Scratch<T>,
) -> Result<(), KernelError> {
    op.check(mesh_offsets, basis, weights, ("dx", &*dx), ("dy", dy))?;
    compiled!(fast::expand as fn(&MeshProduct, &[u32], &[T], Option<&[T]>, &[T], &mut [T], &mut Scratch<T>))(
        op,
        mesh_offsets,
        basis,
        weights,
        dy,
        dx,
        scratch,
    );
    Ok(())
}

/// `x_b = B_b y_b` for each mesh.
pub fn expand<T: Real>(
    op: &MeshProduct,
    mesh_offsets: &[u32],
    basis: &[T],
    y: &[T],
    x: &mut [T],
    scratch: &mut Scratch<T>,
) -> Result<(), KernelError> {
    op.check(mesh_offsets, basis, None, ("x", &*x), ("y", y))?;
    compiled!(fast::expand as fn(&MeshProduct, &[u32], &[T], Option<&[T]>, &[T], &mut [T], &mut Scratch<T>))(
        op,
        mesh_offsets,
        basis,
        None,
        y,
        x,
        scratch,
    );
    Ok(())
}

/// Overwrites `dy` with the gradient of [`expand`].
pub fn expand_backward<T: Real>(
    op: &MeshProduct,
    mesh_offsets: &[u32],
    basis: &[T],
    dx: &[T],
    dy: &mut [T],
    scratch: &mut Scratch<T>,
) -> Result<(), KernelError> {
    op.check(mesh_offsets, basis, None, ("dx", dx), ("dy", &*dy))?;
    compiled!(fast::project as fn(&MeshProduct, &[u32], &[T], Option<&[T]>, &[T], &mut [T], &mut Scratch<T>))(
        op,
        mesh_offsets,
        basis,
        None,
        dx,
        dy,
        scratch,
    );
    Ok(())
}
