//! Vertex positions as scalar features.

use super::FeatureField;
use crate::Mesh;

/// The coordinates of every vertex as three scalars, `3x0`: the XYZ features of the paper. They are
/// not invariant under rigid motion.
pub fn positions(mesh: &Mesh) -> FeatureField {
    FeatureField {
        kind: vec![(3, 0)],
        values: bytemuck::cast_slice(mesh.vertices()).to_vec(),
    }
}
