//! Meshes and measures that the tests share.

use gemcnn_mesh::{DVec3, GaugeGraph, GeometryOptions, Mesh};
use std::path::{Path, PathBuf};

/// Path of a mesh file of the fixtures.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/meshes").join(name)
}

/// A mesh of the fixtures.
pub fn read(name: &str) -> Mesh {
    Mesh::read(fixture(name)).unwrap_or_else(|error| panic!("{error}"))
}

/// The gauge graph of a mesh with default options.
pub fn graph(mesh: &Mesh) -> GaugeGraph {
    GaugeGraph::new(mesh, &GeometryOptions::default()).unwrap()
}

/// Difference of two angles, in [-pi, pi].
pub fn angle_difference(a: f64, b: f64) -> f64 {
    (a - b).sin().atan2((a - b).cos())
}

/// The enclosed volume, by signed tetrahedra over the fan of each face.
pub fn volume(mesh: &Mesh) -> f64 {
    let fans = (0..mesh.face_count()).flat_map(|face| {
        let corners: Vec<DVec3> = mesh.face_positions(face).collect();
        (1..corners.len() - 1).map(move |i| corners[0].dot(corners[i].cross(corners[i + 1])) / 6.0)
    });
    fans.sum()
}
