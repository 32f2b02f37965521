//! The meshings of the test bodies.

use gemcnn_mesh::remesh::{
    FlipRandomly, Isotropic, Jitter, MeshSize, RefineLocally, RemeshKind, Resample, Sequence, Simplify, Subdivide,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Seed of the remeshers of test bodies.
const SEED: u64 = 20_211_015;

/// A meshing of the test bodies. The first four remeshings follow the policies of the *discretization-robust
/// correspondence benchmark*; its files can take the place of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Meshing {
    /// The meshing of the training bodies.
    Registered,
    /// Isotropic: even triangles.
    Iso,
    /// Refined, then simplified by quadric errors to twice the vertices.
    Qes,
    /// Marching on a lattice, with slivers and coincident vertices.
    Mc,
    /// Five regions refined.
    Dense,
    /// Vertices moved within their cells, and random edge flips.
    Shuffled,
}

impl Meshing {
    /// All meshings, in the order of the table.
    pub const ALL: [Self; 6] = [Self::Registered, Self::Iso, Self::Qes, Self::Mc, Self::Dense, Self::Shuffled];

    /// Name, as in the folders of the benchmark.
    pub fn word(self) -> &'static str {
        match self {
            Self::Registered => "registered",
            Self::Iso => "iso",
            Self::Qes => "qes",
            Self::Mc => "mc",
            Self::Dense => "dense",
            Self::Shuffled => "shuffled",
        }
    }

    /// True if the public benchmark has it.
    pub fn is_in_benchmark(self) -> bool {
        matches!(self, Self::Iso | Self::Qes | Self::Mc | Self::Dense)
    }

    /// The remesher of test bodies with a number of vertices, and its seed.
    pub fn test_meshing(self, vertices: usize) -> Option<(RemeshKind, u64)> {
        self.remesher(vertices).map(|kind| (kind, SEED))
    }

    /// The remesher for bodies with a number of vertices; `None` for the registered meshing. Its settings are none of
    /// those that augmentation draws.
    pub fn remesher(self, vertices: usize) -> Option<RemeshKind> {
        let subdivide = || RemeshKind::Subdivide(Subdivide { rounds: 1, rule: Default::default() });
        let simplify = |ratio: f64| RemeshKind::Simplify(Simplify { size: MeshSize::Ratio(ratio) });
        let isotropic = |length: f64| {
            RemeshKind::Isotropic(Isotropic { size: MeshSize::EdgeLength(length), ..Isotropic::default() })
        };
        let steps = match self {
            Self::Registered => return None,
            Self::Iso => vec![isotropic(0.7)],
            Self::Qes => vec![subdivide(), simplify(0.5)],
            Self::Mc => {
                // One and a half times the vertices of the bodies.
                let resolution = (0.8 * (vertices as f64).sqrt()).clamp(8.0, 500.0) as usize;
                vec![RemeshKind::Resample(Resample { resolution })]
            }
            Self::Dense => {
                vec![
                    RemeshKind::RefineLocally(RefineLocally { regions: 5, factor: 3.0 }),
                    RemeshKind::Jitter(Jitter { amount: 0.1 }),
                ]
            }
            Self::Shuffled => {
                vec![RemeshKind::Jitter(Jitter { amount: 0.4 }), RemeshKind::FlipRandomly(FlipRandomly { share: 0.5 })]
            }
        };
        Some(RemeshKind::Sequence(Sequence { steps }))
    }
}

impl fmt::Display for Meshing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
