//! Positions as scalars.

use super::FeatureField;
use crate::Mesh;

/// The coordinates of every vertex as three scalars, `3x0`, the XYZ features of the paper. They are
/// the only features here that change when the mesh is moved.
pub fn positions(mesh: &Mesh) -> FeatureField {
    FeatureField {
        kind: vec![(3, 0)],
        values: bytemuck::cast_slice(mesh.vertices()).to_vec(),
    }
}
