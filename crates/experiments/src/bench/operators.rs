//! Rows of single operators, on request only: features, geodesic distances, remeshing and surface operators of meshes, and
//! nonlinearities of networks.

use super::case::{BODY, Works, closed_mesh, gauge_graph};
use super::job::Passes;
use super::{Bench, Cost, Extent};
use gemcnn_mesh::features::shot::{self, ShotOptions};
use gemcnn_mesh::features::{MatrixOptions, RelativeTangentialOptions, matrix_features, relative_tangential};
use gemcnn_mesh::remesh::remesh;
use gemcnn_mesh::shapes::{BodyFamily, BodyOptions};
use gemcnn_mesh::surface::{BasisSource, Jets, OperatorOptions, SurfaceLaplacian, SurfaceOperators};
use gemcnn_mesh::{GaugeGraph, GeodesicSolver, GeometryOptions, Mesh, NormalWeighting};
use gemcnn_nn::layers::{Norms, Regular};
use gemcnn_nn::{Activation, Device, FeatureType, Geometry, GraphBatch, Network, NetworkConfig, NnError};
use gemcnn_tasks::TaskError;
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use std::fmt::Display;
use std::hint::black_box;
use std::sync::Arc;

/// All rows whose names are wanted.
pub(super) fn rows(bench: &mut Bench<'_>, works: &Works) -> Result<(), TaskError> {
    type Rows = fn(&mut Bench<'_>, &Works) -> Result<(), TaskError>;
    let groups: [(&str, Rows); 6] = [
        ("geometry_", geometry),
        ("features_", features),
        ("geodesic_", geodesic),
        ("remesh_", remeshing),
        ("surface_", surface),
        ("nonlinearity_", nonlinearities),
    ];
    for (group, rows) in groups {
        if bench.wants_some(group) {
            rows(bench, works)?;
        }
    }
    Ok(())
}

fn known<R, E: Display>(result: Result<R, E>) -> Result<R, NnError> {
    result.map_err(|error| NnError::setting("benchmark mesh", error.to_string()))
}

impl Bench<'_> {
    /// A row of work on a mesh, on the CPU.
    fn mesh_row<R, E: Display>(
        &mut self,
        name: &str,
        mesh: &Mesh,
        mut call: impl FnMut(&Mesh) -> Result<R, E> + Send,
    ) -> Result<(), TaskError> {
        if self.wants(name, false) {
            self.row(name, &Device::Cpu, mesh.vertex_count(), Cost::default(), || {
                black_box(known(call(black_box(mesh)))?);
                Ok(())
            })?;
        }
        Ok(())
    }
}

fn body(vertices: usize) -> Result<Mesh, NnError> {
    Ok(known(BodyFamily::new(&BodyOptions { vertices, ..BodyOptions::default() }))?.body(1))
}

/// Normals by angles, and vertices and faces in random order, the worst case for caches.
fn geometry(bench: &mut Bench<'_>, _: &Works) -> Result<(), TaskError> {
    let options = GeometryOptions { normals: NormalWeighting::CornerAngle, ..GeometryOptions::default() };
    let mesh = closed_mesh(BODY)?;
    bench.mesh_row("geometry_corner_angles", &mesh, |mesh| GaugeGraph::new(mesh, &options))?;
    for &vertices in [BODY].iter().chain(bench.extent.growing_sizes(&Device::Cpu)) {
        bench.mesh_row("geometry_shuffled", &shuffled(&closed_mesh(vertices)?)?, gauge_graph)?;
    }
    Ok(())
}

fn shuffled(mesh: &Mesh) -> Result<Mesh, NnError> {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut order: Vec<usize> = (0..mesh.vertex_count()).collect();
    order.shuffle(&mut random);
    let mut place = vec![0; order.len()];
    for (new, &old) in order.iter().enumerate() {
        place[old] = new as u32;
    }
    let mut faces: Vec<Vec<u32>> =
        mesh.faces().iter().map(|face| face.iter().map(|&v| place[v as usize]).collect()).collect();
    faces.shuffle(&mut random);
    known(Mesh::new(order.iter().map(|&old| mesh.vertices()[old]).collect(), faces.iter().collect()))
}

fn features(bench: &mut Bench<'_>, _: &Works) -> Result<(), TaskError> {
    let mesh = &closed_mesh(BODY)?;
    let (graph, shot) = (gauge_graph(mesh)?, ShotOptions::default());
    let (matrix, tangential) = (MatrixOptions::default(), RelativeTangentialOptions::default());
    bench.mesh_row("features_matrix", mesh, |mesh| matrix_features(mesh, &graph, &matrix))?;
    bench.mesh_row("features_relative_tangential", mesh, |mesh| relative_tangential(mesh, &graph, &tangential))?;
    bench.mesh_row("features_shot_frames", mesh, |mesh| shot::frames(mesh, &shot))?;
    bench.mesh_row("features_shot", mesh, |mesh| shot::descriptors(mesh, &shot))
}

fn geodesic(bench: &mut Bench<'_>, _: &Works) -> Result<(), TaskError> {
    let mesh = &closed_mesh(BODY)?;
    let solver = known(GeodesicSolver::new(mesh))?;
    let sources: Vec<usize> = (0..64).map(|source| source * 997 % BODY).collect();
    bench.mesh_row("geodesic_factor", mesh, GeodesicSolver::new)?;
    bench.mesh_row("geodesic_from_one_vertex", mesh, |_| solver.distances_from(sources[1]))?;
    bench.mesh_row("geodesic_from_64_vertices", mesh, |_| solver.distances_from_each(&sources))
}

fn remeshing(bench: &mut Bench<'_>, works: &Works) -> Result<(), TaskError> {
    let mesh = body(BODY)?;
    for (name, kind) in &works.remeshers {
        bench.mesh_row(&format!("remesh_{name}"), &mesh, |mesh| remesh(mesh, kind, 1))?;
    }
    Ok(())
}

/// Preparation (Laplacian and jets) and eigenpairs; with [`Extent::Large`] on meshes of up to 100,128 vertices.
fn surface(bench: &mut Bench<'_>, _: &Works) -> Result<(), TaskError> {
    let mut meshes = vec![body(BODY)?];
    if bench.extent == Extent::Large {
        meshes.extend([body(14_000)?, closed_mesh(49_928)?, closed_mesh(100_128)?]);
    }
    for mesh in &meshes {
        let (graph, laplacian) = (gauge_graph(mesh)?, known(SurfaceLaplacian::new(mesh))?);
        bench.mesh_row("surface_laplacian", mesh, SurfaceLaplacian::new)?;
        bench.mesh_row("surface_laplacian_and_jets", mesh, |mesh| {
            SurfaceLaplacian::new(mesh).and_then(|laplacian| Jets::new(&laplacian, graph.frames()))
        })?;
        for (order, count) in [128, 64, 64].into_iter().enumerate() {
            let connection = known(laplacian.connection(order, graph.frames()))?;
            bench.mesh_row(&format!("surface_eigenpairs_{order}"), mesh, |_| connection.eigenbasis(count))?;
        }
        let options = OperatorOptions::default();
        bench.mesh_row("surface_operators", mesh, |mesh| SurfaceOperators::new(mesh, &graph, &options))?;
        let derived = OperatorOptions { basis: BasisSource::Derived, ..options };
        bench.mesh_row("surface_operators_derived", mesh, |mesh| SurfaceOperators::new(mesh, &graph, &derived))?;
    }
    Ok(())
}

/// Layers of `16x(0,1,2)` on a body, and regular nonlinearities of other sizes on about 200 vertices: forward, and
/// forward with backward pass.
fn nonlinearities(bench: &mut Bench<'_>, _: &Works) -> Result<(), TaskError> {
    let layer = |kind: FeatureType, regular: Regular| Network::builder(kind).nonlinearity(regular);
    let hidden = || FeatureType::uniform(16, 2);
    let mut rows: Vec<(String, usize, NetworkConfig<f32>)> = vec![
        ("norm".into(), BODY, Network::builder(hidden()).nonlinearity(Norms::relu())),
        ("dropout".into(), BODY, Network::builder(hidden()).dropout(0.5)),
    ];
    for samples in [5, 7, 101] {
        let regular = Regular::relu(samples);
        rows.push((format!("regular_{samples}"), BODY, layer(hidden(), regular.clone())));
        rows.push((format!("regular_{samples}_with_batch_norm"), BODY, layer(hidden(), regular.with_batch_norm())));
    }
    for (name, activation) in [("elu", Activation::Elu), ("gelu", Activation::Gelu), ("tanh", Activation::Tanh)] {
        rows.push((name.into(), BODY, layer(hidden(), Regular { activation, ..Regular::relu(7) })));
    }
    for (band_limit, samples) in
        [(2, 101), (2, 1024), (8, 1024), (16, 1024), (32, 128), (32, 1024), (64, 129), (64, 1024)]
    {
        let kind = FeatureType::uniform(16, band_limit);
        rows.push((format!("regular_band_{band_limit}_samples_{samples}"), 200, layer(kind, Regular::relu(samples))));
    }
    for (name, vertices, config) in rows {
        let graph = gauge_graph(&closed_mesh(vertices)?)?;
        let graphs = Arc::new(Geometry::from(GraphBatch::new([&graph])?));
        for (passes, is_backward) in [("forward", false), ("forward_backward", true)] {
            let name = format!("nonlinearity_{name}_{passes}");
            if bench.wants(&name, false) {
                let (network, parameters) = config.init(1)?;
                let graphs = Arc::clone(&graphs);
                let job = Passes::new(Box::new(network), parameters, graphs, &bench.setup(), is_backward)?;
                bench.job(&name, graph.vertex_count(), Cost::default(), Box::new(job))?;
            }
        }
    }
    Ok(())
}
