//! What the tests of networks share.

#![allow(dead_code, reason = "every test file uses a part of it")]

use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{DVec3, GaugeGraph, GeometryOptions, Hierarchy, HierarchyOptions, Mesh};
use gemcnn_nn::{GraphBatch, HierarchyBatch, Real};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Numbers in [-1, 1), the same for the same seed.
pub fn random<T: Real>(count: usize, seed: u64) -> Vec<T> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut draw = || T::of(2.0 * rng.random::<f64>() - 1.0);
    (0..count).map(|_| draw()).collect()
}

/// A closed irregular mesh.
pub fn bumpy_sphere() -> Mesh {
    let noise = random::<f64>(42, 5);
    let mut at = 0;
    shapes::icosphere(1)
        .unwrap()
        .map_vertices(|p| {
            at += 1;
            p * (1.0 + 0.2 * noise[at - 1])
        })
        .unwrap()
}

/// An open irregular mesh.
pub fn bumpy_grid() -> Mesh {
    let noise = random::<f64>(3 * 20, 6);
    let mut at = 0;
    shapes::grid(4, 5, Cells::Triangles)
        .unwrap()
        .map_vertices(|p| {
            at += 3;
            p + 0.2 * DVec3::new(noise[at - 3], noise[at - 2], noise[at - 1])
        })
        .unwrap()
}

/// The gauge graph of a mesh with default options.
pub fn graph(mesh: &Mesh) -> GaugeGraph {
    GaugeGraph::new(mesh, &GeometryOptions::default()).unwrap()
}

/// Two meshes of unequal size, one of them open.
pub fn batch<T: Real>() -> GraphBatch<T> {
    GraphBatch::new([&graph(&bumpy_sphere()), &graph(&bumpy_grid())]).unwrap()
}

/// Three levels.
pub fn hierarchy_options() -> HierarchyOptions {
    HierarchyOptions {
        ratios: vec![0.4, 0.5],
        radii: vec![1.2, 2.0],
        ..Default::default()
    }
}

/// Three levels over the meshes of [`batch`].
pub fn hierarchy<T: Real>() -> HierarchyBatch<T> {
    let options = hierarchy_options();
    let levels = |mesh: &Mesh| Hierarchy::new(mesh, &options).unwrap();
    HierarchyBatch::new(&[levels(&bumpy_sphere()), levels(&bumpy_grid())]).unwrap()
}
