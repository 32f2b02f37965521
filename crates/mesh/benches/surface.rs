//! Surface operators: preparation (Laplacian and jets) and eigenpairs of orders 0, 1 and 2.
//!
//! `cargo bench -p gemcnn-mesh --bench surface`. Everything runs on one thread.

use divan::{Bencher, black_box};
use gemcnn_mesh::shapes::{BodyFamily, BodyOptions, Cells, torus};
use gemcnn_mesh::surface::{Jets, OperatorOptions, SurfaceLaplacian, SurfaceOperators};
use gemcnn_mesh::{GaugeGraph, GeometryOptions, Mesh};

fn main() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    pool.expect("a thread").install(divan::main);
}

/// A mesh, named as it should stand in the table.
#[derive(Clone, Copy, Debug)]
enum Case {
    Body(usize),
    Torus(usize, usize),
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Body(vertices) => write!(f, "body, {vertices} vertices"),
            Self::Torus(a, b) => write!(f, "torus, {} vertices", a * b),
        }
    }
}

const CASES: [Case; 5] =
    [Case::Body(6890), Case::Torus(130, 53), Case::Body(14_000), Case::Torus(316, 158), Case::Torus(447, 224)];

impl Case {
    fn mesh(self) -> Mesh {
        match self {
            Self::Body(vertices) => {
                let options = BodyOptions { vertices, ..BodyOptions::default() };
                BodyFamily::new(&options).expect("a body family").body(1)
            }
            Self::Torus(a, b) => torus(a, b, 1.0, 0.4, Cells::Triangles).expect("a valid torus"),
        }
    }

    fn with_graph(self) -> (Mesh, GaugeGraph) {
        let mesh = self.mesh();
        let graph = GaugeGraph::new(&mesh, &GeometryOptions::default()).expect("a graph");
        (mesh, graph)
    }
}

/// Laplacian and jets, without eigenpairs.
#[divan::bench(args = CASES, max_time = 5)]
fn preparation(bencher: Bencher, case: Case) {
    let (mesh, graph) = case.with_graph();
    bencher.bench_local(|| {
        let laplacian = SurfaceLaplacian::new(black_box(&mesh)).expect("a surface");
        Jets::new(&laplacian, graph.frames()).expect("jets")
    });
}

#[divan::bench(args = CASES, max_time = 5)]
fn laplacian(bencher: Bencher, case: Case) {
    let mesh = case.mesh();
    bencher.bench_local(|| SurfaceLaplacian::new(black_box(&mesh)).expect("a surface"));
}

/// Eigenpairs of one order.
fn eigenpairs(bencher: Bencher, case: Case, order: usize, count: usize) {
    let (mesh, graph) = case.with_graph();
    let laplacian = SurfaceLaplacian::new(&mesh).expect("a surface");
    let connection = laplacian.connection(order, graph.frames()).expect("frames");
    bencher.bench_local(|| connection.eigenbasis(black_box(count)).expect("eigenpairs"));
}

#[divan::bench(args = CASES, sample_count = 3, sample_size = 1)]
fn eigenpairs_order_0_128(bencher: Bencher, case: Case) {
    eigenpairs(bencher, case, 0, 128);
}

#[divan::bench(args = CASES, sample_count = 3, sample_size = 1)]
fn eigenpairs_order_1_64(bencher: Bencher, case: Case) {
    eigenpairs(bencher, case, 1, 64);
}

#[divan::bench(args = CASES, sample_count = 3, sample_size = 1)]
fn eigenpairs_order_2_64(bencher: Bencher, case: Case) {
    eigenpairs(bencher, case, 2, 64);
}

/// Everything: Laplacian, jets, eigenpairs of three orders and gradients.
#[divan::bench(args = CASES, sample_count = 3, sample_size = 1)]
fn operators(bencher: Bencher, case: Case) {
    let (mesh, graph) = case.with_graph();
    let options = OperatorOptions::default();
    bencher.bench_local(|| SurfaceOperators::new(black_box(&mesh), &graph, &options));
}
