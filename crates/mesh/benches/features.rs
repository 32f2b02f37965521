//! Input features and geodesic distances of a closed mesh of 6,890 vertices, the size of a body scan.
//!
//! `cargo bench -p gemcnn-mesh --bench features`

use divan::{Bencher, black_box};
use gemcnn_mesh::features::shot::{self, ShotOptions};
use gemcnn_mesh::features::{MatrixOptions, RelativeTangentialOptions, matrix_features, relative_tangential};
use gemcnn_mesh::shapes::{Cells, torus};
use gemcnn_mesh::{GaugeGraph, GeodesicSolver, GeometryOptions, Mesh};
use rayon::{ThreadPool, ThreadPoolBuilder};

fn main() {
    divan::main();
}

const THREADS: [usize; 2] = [1, 2];

fn mesh() -> Mesh {
    torus(130, 53, 1.0, 0.4, Cells::Triangles).expect("a valid torus")
}

fn graph(mesh: &Mesh) -> GaugeGraph {
    GaugeGraph::new(mesh, &GeometryOptions::default()).expect("a torus has a geometry")
}

fn pool(threads: usize) -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(threads).build().expect("threads")
}

#[divan::bench(args = THREADS)]
fn matrix(bencher: Bencher, threads: usize) {
    let (mesh, pool) = (mesh(), pool(threads));
    let (graph, options) = (graph(&mesh), MatrixOptions::default());
    bencher.bench(|| pool.install(|| matrix_features(black_box(&mesh), &graph, &options)));
}

#[divan::bench(args = THREADS)]
fn tangential(bencher: Bencher, threads: usize) {
    let (mesh, pool) = (mesh(), pool(threads));
    let (graph, options) = (graph(&mesh), RelativeTangentialOptions::default());
    bencher.bench(|| pool.install(|| relative_tangential(black_box(&mesh), &graph, &options)));
}

#[divan::bench(args = THREADS, max_time = 5)]
fn shot_frames(bencher: Bencher, threads: usize) {
    let (mesh, pool) = (mesh(), pool(threads));
    bencher.bench(|| pool.install(|| shot::frames(black_box(&mesh), &ShotOptions::default())));
}

#[divan::bench(args = THREADS, max_time = 5)]
fn shot_descriptors(bencher: Bencher, threads: usize) {
    let (mesh, pool) = (mesh(), pool(threads));
    bencher.bench(|| pool.install(|| shot::descriptors(black_box(&mesh), &ShotOptions::default())));
}

#[divan::bench(max_time = 5)]
fn geodesic_factors(bencher: Bencher) {
    let mesh = mesh();
    bencher.bench(|| GeodesicSolver::new(black_box(&mesh)));
}

#[divan::bench(max_time = 5)]
fn geodesic_distances_from_64_sources(bencher: Bencher) {
    let (mesh, pool) = (mesh(), pool(1));
    let solver = GeodesicSolver::new(&mesh).expect("a torus can be measured");
    let sources: Vec<usize> = (0..64).map(|i| i * 997 % mesh.vertex_count()).collect();
    bencher.bench_local(|| pool.install(|| solver.distances_from_each(black_box(&sources))));
}

#[divan::bench(max_time = 5)]
fn geodesic_distances_from_one_source(bencher: Bencher) {
    let mesh = mesh();
    let solver = GeodesicSolver::new(&mesh).expect("a torus can be measured");
    let mut source = 0;
    bencher.bench_local(|| {
        source = (source + 997) % mesh.vertex_count();
        solver.distances_from(black_box(source))
    });
}
