//! The surfaces of the experiment: closed and open, of unit area, with irregular triangles.

use gemcnn_mesh::remesh::{Isotropic, MeshSize, RemeshKind, remesh};
use gemcnn_mesh::shapes::{self, Cells, ShapeError};
use gemcnn_mesh::{DVec3, Faces, Mesh, MeshError, vertex_areas};
use gemcnn_tasks::TaskError;

/// A surface: its name, its size relative to the others, and a fine mesh of it.
pub(super) struct Shape {
    pub name: &'static str,
    /// True if training sees it.
    pub is_trained: bool,
    density: f64,
    fine: fn() -> Result<Mesh, ShapeError>,
}

/// All surfaces. The open ones are `sheet`, `bowl` and `tube`.
pub(super) const SHAPES: [Shape; 9] = [
    Shape::trained("sphere", 1.0, || shapes::icosphere(4)),
    Shape::trained("torus", 1.3, || shapes::torus(80, 34, 1.0, 0.4, Cells::Triangles)),
    Shape::trained("capsule", 0.8, || shapes::capsule(40, 12, 24, 0.5, 1.2, Cells::Triangles)),
    Shape::trained("pebble", 1.2, || {
        Ok(shapes::icosphere(4)?.map_vertices(|p| {
            let wave = 0.25 * (2.5 * p.x + 1.0).sin() + 0.15 * (4.0 * p.y + 2.0 * p.z).cos();
            DVec3::new(1.3, 1.0, 0.8) * p * (1.0 + wave)
        })?)
    }),
    Shape::trained("sheet", 0.9, || {
        Ok(shapes::grid(50, 60, Cells::Triangles)?.map_vertices(|p| {
            let [x, y] = [p.x / 50.0, p.y / 50.0];
            DVec3::new(x, y, 0.15 * (5.0 * x).sin() * (4.0 * y + 1.0).cos())
        })?)
    }),
    Shape::trained("bowl", 1.1, || Ok(upper_part(&shapes::icosphere(4)?, -0.3)?)),
    Shape::unseen("peanut", 1.0, || {
        Ok(shapes::icosphere(4)?.map_vertices(|p| {
            let waist = 0.55 + 0.45 * p.x * p.x;
            DVec3::new(1.5 * p.x, waist * p.y + 0.4 * p.x * p.x, waist * p.z)
        })?)
    }),
    Shape::unseen("ring", 1.4, || {
        let torus = shapes::torus(80, 34, 1.0, 0.35, Cells::Triangles)?;
        Ok(torus.map_vertices(|p| {
            let angle = p.y.atan2(p.x);
            let scale = 1.0 + 0.2 * (3.0 * angle).cos();
            DVec3::new(1.3 * p.x * scale, p.y * scale, p.z * (1.2 - 0.3 * angle.sin()))
        })?)
    }),
    Shape::unseen("tube", 0.9, || {
        Ok(shapes::grid(50, 64, Cells::Triangles)?.map_vertices(|p| {
            // Most of a cylinder, whose axis is bent.
            let (around, along) = (5.5 * p.x / 63.0, p.y / 49.0);
            let radius = 0.3 + 0.08 * (7.0 * along).sin();
            let bend = 0.3 * (2.0 * along).sin();
            DVec3::new(radius * around.cos() + bend, radius * around.sin(), 1.6 * along)
        })?)
    }),
];

impl Shape {
    const fn trained(name: &'static str, density: f64, fine: fn() -> Result<Mesh, ShapeError>) -> Self {
        Self { name, is_trained: true, density, fine }
    }

    const fn unseen(name: &'static str, density: f64, fine: fn() -> Result<Mesh, ShapeError>) -> Self {
        Self { is_trained: false, ..Self::trained(name, density, fine) }
    }

    /// The surface with about so many vertices, remeshed with a seed.
    pub(super) fn mesh(&self, vertices: usize, seed: u64) -> Result<Mesh, TaskError> {
        let refuse = |error: String| TaskError::setting(self.name, error);
        let fine = (self.fine)().map_err(|error| refuse(error.to_string()))?;
        let kind = RemeshKind::Isotropic(Isotropic {
            size: MeshSize::Vertices((self.density * vertices as f64).round() as usize),
            ..Default::default()
        });
        let mesh = remesh(&fine, &kind, seed).map_err(|error| refuse(error.to_string()))?;
        let scale = (vertex_areas(&mesh.mesh).iter().sum::<f64>().sqrt()).recip();
        (mesh.mesh).map_vertices(|p| scale * p).map_err(|error| refuse(error.to_string()))
    }
}

/// The faces of a mesh that lie above a height, with their vertices.
fn upper_part(mesh: &Mesh, height: f64) -> Result<Mesh, MeshError> {
    let mut number = vec![None; mesh.vertex_count()];
    let (mut vertices, mut faces) = (Vec::new(), Faces::default());
    for face in mesh.faces().iter() {
        let is_above = |&v: &u32| mesh.vertices()[v as usize].z >= height;
        if !face.iter().all(is_above) {
            continue;
        }
        let corners: Vec<u32> = (face.iter())
            .map(|&vertex| {
                *number[vertex as usize].get_or_insert_with(|| {
                    vertices.push(mesh.vertices()[vertex as usize]);
                    vertices.len() as u32 - 1
                })
            })
            .collect();
        faces.push(&corners);
    }
    Mesh::new(vertices, faces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_mesh::MeshReport;

    #[test]
    fn shapes_are_sound_surfaces_of_unit_area() {
        for shape in &SHAPES {
            let mesh = shape.mesh(300, 1).unwrap();
            let area: f64 = vertex_areas(&mesh).iter().sum();
            assert!((area - 1.0).abs() < 1e-12, "{}", shape.name);
            let wanted = 300.0 * shape.density;
            let found = mesh.vertex_count() as f64;
            assert!((found / wanted - 1.0).abs() < 0.2, "{}: {found}", shape.name);
            let report = MeshReport::new(&mesh);
            let is_open = ["sheet", "bowl", "tube"].contains(&shape.name);
            assert_eq!(report.boundary_loops > 0, is_open, "{}", shape.name);
            assert!(report.is_sound(), "{}", shape.name);
        }
    }
}
