//! Smooth surfaces and their meshings.

use gemcnn_mesh::remesh::{
    FlipRandomly, Isotropic, Jitter, MeshSize, RemeshError, RemeshKind, Remeshed, Sequence, remesh,
};
use gemcnn_mesh::shapes::{self, Cells, ShapeError};
use gemcnn_mesh::{DVec3, Mesh};
use serde::{Deserialize, Serialize};

/// Radii of the torus.
const TORUS: [f64; 2] = [1.0, 0.4];
/// Half axes of the ellipsoid.
const ELLIPSOID: DVec3 = DVec3::new(1.3, 1.0, 0.7);

/// A smooth surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Surface {
    /// A sphere with smooth bumps of about a fifth of its radius.
    Bumpy,
    /// An ellipsoid with half axes 1.3, 1 and 0.7.
    Ellipsoid,
    /// A torus with radii 1 and 0.4.
    Torus,
}

/// How the second meshing of a surface differs from the regular first one. Its vertices lie on the smooth surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Meshing {
    /// Even triangles, by isotropic remeshing to the same number of vertices.
    Isotropic,
    /// Vertices moved at random within their triangles, and a third of the edges flipped at random.
    Irregular,
}

impl Surface {
    /// All surfaces.
    pub const ALL: [Self; 3] = [Self::Bumpy, Self::Ellipsoid, Self::Torus];

    /// The point of the surface that belongs to a point near it: on the ray from the origin, or for the torus the
    /// nearest one.
    pub fn project(self, point: DVec3) -> DVec3 {
        let direction = point.normalize_or_zero();
        match self {
            Self::Bumpy => {
                let DVec3 { x, y, z } = direction;
                let bumps = (3.0 * x + 1.0).sin() * (2.0 * y).cos() + 0.5 * (4.0 * z).sin();
                direction * (1.0 + 0.15 * bumps)
            }
            Self::Ellipsoid => direction / (direction / ELLIPSOID).length(),
            Self::Torus => {
                let centre = TORUS[0] * point.with_z(0.0).normalize_or_zero();
                centre + TORUS[1] * (point - centre).normalize_or_zero()
            }
        }
    }

    /// The regular meshing: a projected icosphere, or a grid around the torus, of about `10 * 4^s` vertices.
    pub(super) fn regular(self, subdivisions: u32) -> Result<Mesh, ShapeError> {
        if self == Self::Torus {
            let [around, tube] = [5usize, 2].map(|n| n << subdivisions.min(13));
            return shapes::torus(around, tube, TORUS[0], TORUS[1], Cells::Triangles);
        }
        let sphere = shapes::icosphere(subdivisions)?;
        // Points of the surface are finite.
        Ok(sphere.map_vertices(|v| self.project(v)).unwrap_or(sphere))
    }

    /// Another meshing, with the place of its vertices on `mesh`.
    pub(super) fn remeshed(self, mesh: &Mesh, meshing: Meshing, seed: u64) -> Result<Remeshed, RemeshError> {
        let mut remeshed = remesh(mesh, &meshing.kind(), seed)?;
        remeshed.mesh = remeshed.mesh.map_vertices(|v| self.project(v))?;
        Ok(remeshed)
    }
}

impl Meshing {
    /// All meshings.
    pub const ALL: [Self; 2] = [Self::Isotropic, Self::Irregular];

    fn kind(self) -> RemeshKind {
        match self {
            Self::Isotropic => RemeshKind::Isotropic(Isotropic { size: MeshSize::Ratio(1.0), ..Default::default() }),
            Self::Irregular => RemeshKind::Sequence(Sequence {
                steps: vec![
                    RemeshKind::Jitter(Jitter { amount: 0.7 }),
                    RemeshKind::FlipRandomly(FlipRandomly { share: 0.33 }),
                ],
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meshings_lie_on_the_surface_and_differ() {
        for surface in Surface::ALL {
            let regular = surface.regular(3).unwrap();
            assert!((640..=642).contains(&regular.vertex_count()));
            for meshing in Meshing::ALL {
                let other = surface.remeshed(&regular, meshing, 1).unwrap();
                assert_eq!(other.mesh.vertex_count(), regular.vertex_count());
                for mesh in [&regular, &other.mesh] {
                    let away = |v: &DVec3| surface.project(*v).distance(*v) > 1e-12;
                    assert!(!mesh.vertices().iter().any(away), "{surface:?}");
                }
                let moved = regular.vertices().iter().zip(other.mesh.vertices());
                let moved = moved.filter(|(a, b)| a.distance(**b) > 1e-3).count();
                assert!(2 * moved > regular.vertex_count(), "{surface:?}, {meshing:?}");
            }
        }
    }
}
