//! Remeshing of a synthetic body of 6,890 vertices.
//!
//! `cargo bench -p gemcnn-mesh --bench remesh`; items per second are vertices of the original.

use std::sync::LazyLock;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use gemcnn_mesh::Mesh;
use gemcnn_mesh::remesh::{IsotropicOptions, MeshSize, RemeshKind, SubdivisionRule, remesh};
use gemcnn_mesh::shapes::{BodyFamily, BodyOptions};

static BODY: LazyLock<Mesh> = LazyLock::new(|| {
    let family = BodyFamily::new(&BodyOptions::default()).expect("valid options");
    family.body(1)
});

fn main() {
    LazyLock::force(&BODY);
    divan::main();
}

fn bench(bencher: Bencher, kind: &RemeshKind) {
    bencher
        .counter(ItemsCount::new(BODY.vertex_count()))
        .bench(|| remesh(black_box(&BODY), kind, 1).expect("a closed body"));
}

fn isotropic(size: MeshSize) -> RemeshKind {
    RemeshKind::Isotropic(IsotropicOptions { size, ..Default::default() })
}

#[divan::bench(args = [0.7, 1.0, 1.5], max_time = 3)]
fn isotropic_edge_length(bencher: Bencher, length: f64) {
    bench(bencher, &isotropic(MeshSize::EdgeLength(length)));
}

#[divan::bench(args = [3000, 5000], max_time = 3)]
fn isotropic_vertices(bencher: Bencher, vertices: usize) {
    bench(bencher, &isotropic(MeshSize::Vertices(vertices)));
}

#[divan::bench(args = [0.25, 0.5], max_time = 3)]
fn simplify(bencher: Bencher, ratio: f64) {
    let size = MeshSize::Ratio(ratio);
    bench(bencher, &RemeshKind::Simplify { size });
}

#[divan::bench(max_time = 3)]
fn subdivide_midpoint(bencher: Bencher) {
    let rule = SubdivisionRule::Midpoint;
    bench(bencher, &RemeshKind::Subdivide { rounds: 1, rule });
}

#[divan::bench(max_time = 3)]
fn subdivide_loop(bencher: Bencher) {
    let rule = SubdivisionRule::Loop;
    bench(bencher, &RemeshKind::Subdivide { rounds: 1, rule });
}

#[divan::bench(max_time = 3)]
fn refine_locally(bencher: Bencher) {
    let (regions, factor) = (5, 3.0);
    bench(bencher, &RemeshKind::RefineLocally { regions, factor });
}

#[divan::bench(max_time = 3)]
fn flip_randomly(bencher: Bencher) {
    bench(bencher, &RemeshKind::FlipRandomly { share: 0.5 });
}

#[divan::bench(max_time = 3)]
fn jitter(bencher: Bencher) {
    bench(bencher, &RemeshKind::Jitter { amount: 1.0 });
}

#[divan::bench(args = [60, 100], max_time = 3)]
fn resample(bencher: Bencher, resolution: usize) {
    bench(bencher, &RemeshKind::Resample { resolution });
}

#[divan::bench(max_time = 3)]
fn subdivide_then_simplify(bencher: Bencher) {
    let rule = SubdivisionRule::Midpoint;
    let steps = vec![RemeshKind::Subdivide { rounds: 1, rule }, RemeshKind::Simplify { size: MeshSize::Ratio(0.5) }];
    bench(bencher, &RemeshKind::Sequence { steps });
}
