//! The meshes.

use super::{DEFORMATION_STREAM, Draws};
use gemcnn_mesh::{Mesh, shapes};
use gemcnn_tasks::TaskError;
use serde::{Deserialize, Serialize};

/// Standard deviation of the deformation (variance 0.01).
const DEVIATION: f64 = 0.1;

/// A mesh to measure on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Surface {
    /// All 12 vertices at distance 1 from the centre.
    Icosahedron,
    /// Each vertex scaled from the centre by a normally distributed factor of mean 1 and standard deviation
    /// 0.1.
    DeformedIcosahedron,
}

impl Surface {
    pub(super) const ALL: [Self; 2] = [Self::Icosahedron, Self::DeformedIcosahedron];

    /// Makes the mesh. The seed decides the deformation.
    ///
    /// # Errors
    /// A deformation without a valid mesh; no such seed is known.
    pub fn mesh(self, seed: u64) -> Result<Mesh, TaskError> {
        let mesh = shapes::icosahedron();
        match self {
            Self::Icosahedron => Ok(mesh),
            Self::DeformedIcosahedron => {
                let mut draws = Draws::new(seed, DEFORMATION_STREAM);
                mesh.map_vertices(|p| (1.0 + DEVIATION * draws.normal()) * p)
                    .map_err(|error| TaskError::setting("seed", error.to_string()))
            }
        }
    }
}
