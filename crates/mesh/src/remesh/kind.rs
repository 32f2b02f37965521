//! Remeshers by name, for configurations.

use serde::{Deserialize, Serialize};

use super::{
    IsotropicOptions, RemeshError, Remeshed, SubdivisionRule, flip_randomly, isotropic, jitter, refine_locally,
    require, resample, simplify, subdivide,
};
use crate::mesh::Mesh;

/// Size of a remeshed surface.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeshSize {
    /// Edge length relative to the mean edge length of the original mesh.
    EdgeLength(f64),
    /// Number of vertices.
    Vertices(usize),
    /// Number of vertices relative to that of the original mesh.
    Ratio(f64),
}

impl MeshSize {
    /// Checks the range of the value.
    pub(super) fn check(self) -> Result<(), RemeshError> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        match self {
            Self::EdgeLength(length) => require(positive(length), "edge_length", length, "positive and finite"),
            Self::Ratio(ratio) => require(positive(ratio), "ratio", ratio, "positive and finite"),
            Self::Vertices(vertices) => require(vertices >= 4, "vertices", vertices, "at least 4"),
        }
    }

    /// The number of vertices for a mesh. Edges of length `l` need `1 / l^2` times the vertices.
    pub(super) fn vertices(self, mesh: &Mesh) -> usize {
        let scaled = |ratio: f64| (ratio * mesh.vertex_count() as f64).round().max(4.0) as usize;
        match self {
            Self::EdgeLength(length) => scaled(1.0 / (length * length)),
            Self::Vertices(vertices) => vertices,
            Self::Ratio(ratio) => scaled(ratio),
        }
    }
}

/// A remesher with its settings, as it stands in a configuration: the field `kind` names the remesher
/// in snake case, and the others are its settings.
///
/// ```
/// use gemcnn_mesh::remesh::{MeshSize, RemeshKind, remesh};
/// use gemcnn_mesh::shapes::icosphere;
/// let kind = RemeshKind::Simplify { size: MeshSize::Ratio(0.5) };
/// let simplified = remesh(&icosphere(2)?, &kind, 0)?;
/// assert_eq!(simplified.mesh.vertex_count(), 81);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RemeshKind {
    /// [`isotropic`]: even triangles.
    Isotropic(IsotropicOptions),
    /// [`simplify`]: fewer vertices by quadric error.
    Simplify {
        /// Size of the result.
        size: MeshSize,
    },
    /// [`subdivide`]: every triangle into four.
    Subdivide {
        /// Number of rounds (default 1).
        #[serde(default = "one")]
        rounds: usize,
        /// Positions of the vertices (default midpoint).
        #[serde(default)]
        rule: SubdivisionRule,
    },
    /// [`refine_locally`]: a few regions refined.
    RefineLocally {
        /// Number of regions (default 5).
        #[serde(default = "five")]
        regions: usize,
        /// Factor by which edges in the regions become shorter (default 3).
        #[serde(default = "three")]
        factor: f64,
    },
    /// [`flip_randomly`]: random edge flips.
    FlipRandomly {
        /// Share of the edges to flip, from 0 to 1.
        share: f64,
    },
    /// [`jitter`]: vertices moved along the surface.
    Jitter {
        /// Amount of the motion, from 0 to 1.
        amount: f64,
    },
    /// [`resample`]: marching tetrahedra on a lattice.
    Resample {
        /// Lattice cells along the longest side of the bounding box.
        resolution: usize,
    },
    /// Several remeshers, one after the other.
    Sequence {
        /// The remeshers in order.
        steps: Vec<RemeshKind>,
    },
}

fn one() -> usize {
    1
}

fn five() -> usize {
    5
}

fn three() -> f64 {
    3.0
}

/// Remeshes a surface as a configuration says. The steps of a sequence have different seeds.
///
/// # Errors
/// Those of the named remesher.
pub fn remesh(mesh: &Mesh, kind: &RemeshKind, seed: u64) -> Result<Remeshed, RemeshError> {
    match kind {
        RemeshKind::Isotropic(options) => isotropic(mesh, options, seed),
        RemeshKind::Simplify { size } => {
            size.check()?;
            simplify(mesh, size.vertices(mesh))
        }
        RemeshKind::Subdivide { rounds, rule } => subdivide(mesh, *rounds, *rule),
        RemeshKind::RefineLocally { regions, factor } => refine_locally(mesh, *regions, *factor, seed),
        RemeshKind::FlipRandomly { share } => flip_randomly(mesh, *share, seed),
        RemeshKind::Jitter { amount } => jitter(mesh, *amount, seed),
        RemeshKind::Resample { resolution } => resample(mesh, *resolution, seed),
        RemeshKind::Sequence { steps } => {
            let mut done = Remeshed::identity(mesh)?;
            for (step, kind) in steps.iter().enumerate() {
                // Distinct seeds for the steps, by the golden ratio.
                let seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(step as u64));
                let next = remesh(&done.mesh, kind, seed)?;
                done = if step == 0 { next } else { done.then(mesh, next) };
            }
            Ok(done)
        }
    }
}
