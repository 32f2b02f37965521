//! Augmentation of the training meshes by remeshing.

use gemcnn_mesh::Mesh;
use gemcnn_mesh::remesh::{IsotropicOptions, MeshSize, RemeshKind, Remeshed, remesh};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// Augmentation of the training meshes: the `[augmentation]` table of a configuration.
///
/// Every training mesh has a few versions: the mesh as it is and remeshed ones, with labels and values carried along.
/// Every epoch visits one version of each mesh, chosen at random.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Augmentation {
    /// Number of remeshed versions of each training mesh (default 0).
    pub remeshed: usize,
    /// Remeshers of the versions, in turn (default: a mixture of all remeshers with random settings).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remeshers: Vec<RemeshKind>,
}

impl Augmentation {
    /// Number of versions of each mesh, with the mesh itself.
    pub fn versions(&self) -> usize {
        1 + self.remeshed
    }

    /// The remesher of a version of a mesh and its seed. They depend on the name and the number of vertices of the mesh and
    /// on the version. `None` for version 0, the mesh itself.
    pub fn remesher(
        &self,
        name: &str,
        vertices: usize,
        version: usize,
    ) -> Option<(RemeshKind, u64)> {
        let place = version.checked_sub(1)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(version as u64).to_le_bytes());
        hasher.update(name.as_bytes());
        let mut random = ChaCha8Rng::from_seed(*hasher.finalize().as_bytes());
        let kind = match self.remeshers.is_empty() {
            true => mixed(place, vertices, &mut random),
            false => self.remeshers[place % self.remeshers.len()].clone(),
        };
        Some((kind, random.random()))
    }
}

/// Remeshes a mesh. `None` if the remesher refuses it, as a resampling does with an open mesh: it then stays as it is.
pub(super) fn remeshed(mesh: &Mesh, (kind, seed): &(RemeshKind, u64)) -> Option<Remeshed> {
    remesh(mesh, kind, *seed).ok()
}

/// A remesher with random settings: each kind in turn.
fn mixed(place: usize, vertices: usize, random: &mut ChaCha8Rng) -> RemeshKind {
    let mut between = |low: f64, high: f64| low + (high - low) * random.random::<f64>();
    let jitter = |amount| RemeshKind::Jitter { amount };
    let steps = match place % 5 {
        0 => vec![RemeshKind::Isotropic(IsotropicOptions {
            size: MeshSize::EdgeLength(between(0.75, 1.3)),
            ..IsotropicOptions::default()
        })],
        1 => vec![
            RemeshKind::Subdivide {
                rounds: 1,
                rule: Default::default(),
            },
            RemeshKind::Simplify {
                size: MeshSize::Ratio(between(0.2, 0.45)),
            },
        ],
        2 => vec![
            jitter(between(0.2, 1.0)),
            RemeshKind::RefineLocally {
                regions: between(2.0, 8.0) as usize,
                factor: between(1.5, 2.5),
            },
        ],
        3 => vec![
            jitter(between(0.5, 1.0)),
            RemeshKind::FlipRandomly {
                share: between(0.05, 0.4),
            },
        ],
        // From two thirds to four thirds of the vertices of a body.
        _ => vec![RemeshKind::Resample {
            resolution: ((vertices as f64).sqrt() * between(0.5, 0.7)).clamp(8.0, 500.0) as usize,
        }],
    };
    RemeshKind::Sequence { steps }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_mesh::shapes;

    #[test]
    fn versions_differ_and_depend_on_name_and_number_alone() {
        let augmentation = Augmentation {
            remeshed: 6,
            ..Default::default()
        };
        assert_eq!(augmentation.remesher("a", 642, 0), None);
        let mesh = shapes::icosphere(3).unwrap();
        let mut met = vec![mesh.clone()];
        for version in 1..augmentation.versions() {
            let chosen = augmentation.remesher("a", 642, version).unwrap();
            assert_eq!(
                augmentation.remesher("a", 642, version),
                Some(chosen.clone())
            );
            assert_ne!(
                augmentation.remesher("b", 642, version),
                Some(chosen.clone())
            );
            let made = remeshed(&mesh, &chosen).unwrap().mesh;
            assert!(!met.contains(&made), "version {version}: {chosen:?}");
            met.push(made);
        }
    }

    #[test]
    fn a_mesh_that_a_remesher_refuses_stays() {
        let open = shapes::grid(5, 6, shapes::Cells::Triangles).unwrap();
        let chosen = (RemeshKind::Resample { resolution: 0 }, 1);
        assert_eq!(remeshed(&open, &chosen), None);
    }
}
