//! Gauge geometry of closed triangle meshes from 1e3 to 1e6 vertices: everything from vertices and
//! faces to normals, one-rings, frames, angles, transport and radii.
//!
//! `cargo bench -p gemcnn-mesh --bench geometry`; items per second are vertices per second.
//! `ordered` meshes are tori numbered row by row, as a mesher or a scanner would; `shuffled` ones are
//! the same tori with vertices and faces in random order, the worst case for the caches.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use gemcnn_mesh::shapes::{Cells, torus};
use gemcnn_mesh::{GaugeGraph, GeometryOptions, Mesh, NormalWeighting};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use rayon::{ThreadPool, ThreadPoolBuilder};

fn main() {
    divan::main();
}

/// Segments around the hole and around the tube: 1,008, 6,890 (a body scan's size), 10,044, 100,352
/// and 1,000,416 vertices.
const SIZES: [(usize, usize); 5] = [(42, 24), (130, 53), (124, 81), (448, 224), (1416, 706)];

/// One mesh size on one number of threads, named as it should stand in the table.
#[derive(Clone, Copy)]
struct Case {
    size: (usize, usize),
    threads: usize,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>7} vertices, {} thread(s)", self.size.0 * self.size.1, self.threads)
    }
}

fn cases() -> impl Iterator<Item = Case> {
    [1, 2].into_iter().flat_map(|threads| SIZES.into_iter().map(move |size| Case { size, threads }))
}

impl Case {
    fn ordered(self) -> Mesh {
        torus(self.size.0, self.size.1, 1.0, 0.4, Cells::Triangles).expect("a valid torus")
    }

    fn shuffled(self) -> Mesh {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let (vertices, faces) = self.ordered().into_parts();
        let mut place: Vec<u32> = (0..vertices.len() as u32).collect();
        place.shuffle(&mut rng);
        let mut moved = vertices.clone();
        for (vertex, &place) in vertices.iter().zip(&place) {
            moved[place as usize] = *vertex;
        }
        let mut faces: Vec<[u32; 3]> =
            faces.iter().map(|face| [face[0], face[1], face[2]].map(|v| place[v as usize])).collect();
        faces.shuffle(&mut rng);
        Mesh::new(moved, faces.iter().collect()).expect("the same torus")
    }

    fn pool(self) -> ThreadPool {
        ThreadPoolBuilder::new().num_threads(self.threads).build().expect("threads")
    }
}

fn bench(bencher: Bencher, case: Case, mesh: &Mesh, normals: NormalWeighting) {
    let options = GeometryOptions { normals, ..Default::default() };
    let pool = case.pool();
    bencher
        .counter(ItemsCount::new(mesh.vertex_count()))
        .bench(|| pool.install(|| GaugeGraph::new(black_box(mesh), &options)));
}

#[divan::bench(args = cases(), max_time = 5)]
fn ordered(bencher: Bencher, case: Case) {
    bench(bencher, case, &case.ordered(), NormalWeighting::Area);
}

#[divan::bench(args = cases(), max_time = 5)]
fn shuffled(bencher: Bencher, case: Case) {
    bench(bencher, case, &case.shuffled(), NormalWeighting::Area);
}

#[divan::bench(args = cases().take(2), max_time = 5)]
fn corner_angle_normals(bencher: Bencher, case: Case) {
    bench(bencher, case, &case.ordered(), NormalWeighting::CornerAngle);
}
