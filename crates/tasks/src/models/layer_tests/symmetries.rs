//! What the layers are invariant to, and how far off they are otherwise.

use super::*;
use gemcnn_nn::equivariance::{Symmetry, Trial, mesh_error};

/// Relative errors of a layer under rotations of frames, motions, and a rotation of the icosphere onto itself.
fn symmetry_errors(layer: Layer) -> [f64; 3] {
    let rough = bumpy_sphere();
    let even = shapes::icosphere(1).unwrap();
    let kinds = [FeatureType::scalars(INPUTS), FeatureType::scalars(OUTPUTS)];
    let options = GeometryOptions::default();
    let error = |mesh: &Mesh, symmetry: &Symmetry| {
        let trial = Trial { mesh, options: &options, input: &kinds[0], output: &kinds[1], seed: 1 };
        let apply =
            |mesh: &Mesh, graph: &GaugeGraph, x: &[f64]| forward(layer, &layer.batch::<f64>(&[(mesh, graph)]), x);
        mesh_error(&trial, symmetry, apply).unwrap()
    };
    [
        error(&rough, &Symmetry::Gauge),
        error(&rough, &Symmetry::Motion),
        error(&even, &Symmetry::Isometry(half_turn(&even))),
    ]
}

/// The permutation of the vertices of a mesh under a half turn about an axis that maps it onto itself.
fn half_turn(mesh: &Mesh) -> Vec<u32> {
    let points = mesh.vertices();
    let image = |p: &DVec3| DVec3::new(-p.x, -p.y, p.z);
    let find = |p: DVec3| points.iter().position(|q| q.distance(p) < 1e-9);
    (points.iter()).map(|p| find(image(p)).expect("the mesh is symmetric") as u32).collect()
}

/// Invariance to frames, motions and isometries: exact, or off by a number between two bounds.
#[test]
fn layers_have_the_symmetries_that_they_should_have() {
    let exact = 0.0..2e-5;
    let off = |from: f64, to: f64| from..to;
    for (layer, bounds) in [
        // Spirals start at the lowest vertex, which an isometry moves.
        (Layer::Spiral, [exact.clone(), exact.clone(), off(0.5, 2.0)]),
        (Layer::Feast, [exact.clone(), exact.clone(), exact.clone()]),
        (Layer::Edge, [exact.clone(), exact.clone(), off(0.1, 1.0)]),
        // The angle is that of a frame.
        (Layer::Monet, [off(0.3, 1.5), exact.clone(), off(0.3, 1.5)]),
        // The maximum over a few rotations is not that over all.
        (Layer::Geodesic, [off(0.05, 1.0), exact.clone(), off(0.05, 1.0)]),
        (Layer::Acnn, [exact.clone(), exact.clone(), off(0.02, 0.5)]),
        (Layer::Zernike, [off(0.05, 1.0), exact.clone(), off(0.05, 1.0)]),
    ] {
        let errors = symmetry_errors(layer);
        println!("{layer:?}: {errors:?}");
        for (error, bounds) in errors.iter().zip(bounds) {
            assert!(bounds.contains(error), "{layer:?}: {error:.2e} is not in {bounds:?}");
        }
    }
}

/// Frames that rotate by multiples of the angle between two rotations of a kernel change nothing.
#[test]
fn rotations_of_the_kernel_are_those_of_the_frames() {
    let mesh = bumpy_sphere();
    let still = graph(&mesh);
    let turns = |vertex: usize| TAU * (vertex % ANGLES) as f64 / ANGLES as f64;
    let angles: Vec<f64> = (0..mesh.vertex_count()).map(turns).collect();
    let turned = still.clone().gauge_transform(&angles).unwrap();
    let x = random(mesh.vertex_count() * INPUTS, 1);
    for layer in [Layer::Geodesic, Layer::Zernike] {
        let output = |graph| forward(layer, &layer.batch::<f64>(&[(&mesh, graph)]), &x).unwrap();
        let pairs = output(&still).into_iter().zip(output(&turned));
        let off = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(off < 1e-5, "{layer:?}: {off}");
    }
}
