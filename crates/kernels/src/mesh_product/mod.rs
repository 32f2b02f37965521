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
#[cfg(test)]
mod tests;

pub(crate) use fast::weighted;

use crate::arguments::arguments;
use crate::error::check_mesh_offsets;
use crate::{FeatureType, KernelError};
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

    fn check(&self) -> Result<(), KernelError> {
        if self.complex && (self.features.orders().count() != 1 || self.features.is_scalar()) {
            return Err(KernelError::Setting {
                operator: OPERATOR,
                problem: format!(
                    "a complex basis acts on features of a single order above 0, such as 16x1, not on {}",
                    self.features
                ),
            });
        }
        Ok(())
    }
}

/// The vertices of each mesh.
fn meshes(mesh_offsets: &[u32]) -> impl Iterator<Item = Range<usize>> + '_ {
    let bounds = mesh_offsets.windows(2);
    bounds.map(|bounds| bounds[0] as usize..bounds[1] as usize)
}

arguments! {
    /// `y_b = B_b^H (w x_b)` for each mesh; without weights, `w` is 1. Its gradient is [`Expand`] with the same weights.
    Project = project(OPERATOR, scratch) {
        op: &'a MeshProduct, mesh_offsets: &'a [u32];
        basis: read[vertices, op.stride()],
        weights: read_if[vertices],
        x: read[vertices, op.features.dimension()],
        y: write[mesh_offsets.len() - 1, op.columns, op.features.dimension()];
        op.check()?;
        let vertices = check_mesh_offsets(mesh_offsets)?;
    }

    /// `x_b = w (B_b y_b)` for each mesh; without weights, `w` is 1. Its gradient is [`Project`] with the same weights.
    Expand = expand(OPERATOR, scratch) {
        op: &'a MeshProduct, mesh_offsets: &'a [u32];
        basis: read[vertices, op.stride()],
        weights: read_if[vertices],
        y: read[mesh_offsets.len() - 1, op.columns, op.features.dimension()],
        x: write[vertices, op.features.dimension()];
        op.check()?;
        let vertices = check_mesh_offsets(mesh_offsets)?;
    }
}
