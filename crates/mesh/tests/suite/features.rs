//! Input features: published numbers, and the laws they obey under rigid motion and changes of frame.

use crate::common::{graph, read};
use gemcnn_fixtures::Golden;
use gemcnn_mesh::features::{
    FeatureField, MatrixOptions, RelativeTangentialOptions, matrix_features, positions, relative_tangential,
};
use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{Adjacency, DVec3, Faces, Frame, Gauge, GaugeGraph, GeometryError, GeometryOptions, Mesh};
use glam::DQuat;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// An open sheet of triangles, displaced at random.
fn rough_sheet() -> Mesh {
    shapes::rough_grid(12, 9, Cells::Triangles, &shapes::Roughness::new(1.5, 3)).unwrap()
}

fn turned_and_shifted(mesh: &Mesh) -> Mesh {
    let turn = DQuat::from_xyzw(0.3, -0.5, 0.7, 0.4).normalize();
    let shift = DVec3::new(3.0, -2.0, 1.0);
    mesh.map_vertices(|v| turn * v + shift).unwrap()
}

fn matrix(mesh: &Mesh, graph: &GaugeGraph) -> FeatureField {
    matrix_features(mesh, graph, &MatrixOptions::default()).unwrap()
}

fn tangential(mesh: &Mesh, graph: &GaugeGraph) -> FeatureField {
    let options = RelativeTangentialOptions { normal_part: true, ..Default::default() };
    relative_tangential(mesh, graph, &options).unwrap()
}

type Feature = fn(&Mesh, &GaugeGraph) -> FeatureField;

const INVARIANT: [(&str, Feature); 2] = [("matrix", matrix), ("relative tangential", tangential)];

fn assert_same(ours: &FeatureField, expected: &FeatureField, tolerance: f64, what: &str) {
    assert_eq!(ours.kind, expected.kind, "{what}");
    assert_eq!(ours.values.len(), expected.values.len(), "{what}");
    for (at, (ours, expected)) in ours.values.iter().zip(&expected.values).enumerate() {
        let error = (ours - expected).abs();
        assert!(error <= tolerance, "{what}: entry {at}, error {error:e}");
    }
}

#[test]
fn matrix_features_equal_the_published_code() {
    let golden = Golden::read("pool_irregular200");
    let rows: Vec<[DVec3; 3]> = golden.data("frames");
    let frames = rows.into_iter().map(|[e1, e2, normal]| Frame { e1, e2, normal });
    let points = golden.mesh();
    // The neighbourhoods of the finest level are balls of radius 0.4.
    let adjacency = Adjacency::within_radius(points.vertices(), 0.4, usize::MAX).unwrap();
    let graph = GaugeGraph::with_frames(points.vertices(), frames.collect(), adjacency).unwrap();
    let options = MatrixOptions { unit_edges: false, count_self: true };
    let ours = matrix_features(&points, &graph, &options).unwrap();
    let published: Vec<[[f64; 5]; 7]> = golden.data("matrix_features");
    assert_eq!(ours.values.len(), 35 * published.len());
    for (vertex, (row, channels)) in ours.rows().zip(&published).enumerate() {
        for (channel, components) in channels.iter().enumerate() {
            for (component, expected) in components.iter().enumerate() {
                let ours = row[component * 7 + channel];
                assert!(
                    (ours - expected).abs() <= 1e-10,
                    "vertex {vertex}, channel {channel}, component {component}: {ours} is not {expected}"
                );
            }
        }
    }
}

#[test]
fn relative_tangential_features_follow_their_formula() {
    // A fan of three triangles around the origin in the plane, with sides of length 1, 2 and 4.
    let vertices = vec![DVec3::ZERO, DVec3::X, 2.0 * DVec3::Y, DVec3::new(-4.0, 0.0, 0.0), DVec3::new(0.0, -1.0, 0.0)];
    let faces: Faces = [[0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 4, 1]].iter().collect();
    let mesh = Mesh::new(vertices, faces).unwrap();
    let options = RelativeTangentialOptions { powers: vec![1.0, 0.0, 0.5], normal_part: true };
    let field = relative_tangential(&mesh, &graph(&mesh), &options).unwrap();
    assert_eq!(field.kind, [(3, 0), (3, 1)]);
    let row = field.rows().next().unwrap();
    let root = 2f64.sqrt();
    let expected = [
        [0.0, 0.0],
        // (1 + 1/2 + 1/4 + 1) / 8 times the sum of the vectors.
        [-3.0 * 2.75 / 8.0, 2.75 / 8.0],
        [-(1.0 + 1.0 / root + 0.5 + 1.0) / 8.0, (1.0 + 1.0 / root + 0.5 + 1.0) / 8.0 * (root - 1.0)],
    ];
    for (channel, [x, y]) in expected.into_iter().enumerate() {
        assert!(row[channel].abs() < 1e-15, "a flat fan has no normal part");
        assert!((row[3 + channel] - x).abs() < 1e-14, "{row:?}");
        assert!((row[6 + channel] - y).abs() < 1e-14, "{row:?}");
    }
    // Default: the published features, tangent vectors only, with the same numbers.
    let tangent = RelativeTangentialOptions { normal_part: false, ..options };
    let alone = relative_tangential(&mesh, &graph(&mesh), &tangent).unwrap();
    assert_eq!(alone.kind, [(3, 1)]);
    assert_eq!(alone.rows().next().unwrap(), &row[3..]);
}

#[test]
fn rigid_motion_changes_positions_only() {
    for mesh in [read("spot.obj"), rough_sheet()] {
        let moved = turned_and_shifted(&mesh);
        for (name, feature) in INVARIANT {
            let (before, after) = (feature(&mesh, &graph(&mesh)), feature(&moved, &graph(&moved)));
            assert_same(&after, &before, 1e-10, name);
            assert!(before.values.iter().any(|value| value.abs() > 0.1), "{name}");
        }
        assert_ne!(positions(&mesh), positions(&moved));
        assert_eq!(positions(&mesh).values[4], mesh.vertices()[1].y);
    }
}

#[test]
fn scale_does_not_matter() {
    let mesh = read("spot.obj");
    let large = mesh.map_vertices(|v| 1000.0 * v).unwrap();
    for (name, feature) in INVARIANT {
        let (before, after) = (feature(&mesh, &graph(&mesh)), feature(&large, &graph(&large)));
        assert_same(&after, &before, 1e-11, name);
    }
}

#[test]
fn turning_the_frames_turns_the_features() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for mesh in [read("spot.obj"), rough_sheet()] {
        let angles: Vec<f64> = (0..mesh.vertex_count()).map(|_| 20.0 * rng.random::<f64>() - 10.0).collect();
        let turned = graph(&mesh).gauge_transform(&angles).unwrap();
        for (name, feature) in INVARIANT {
            let expected = feature(&mesh, &graph(&mesh)).gauge_transform(&angles).unwrap();
            let ours = feature(&mesh, &turned);
            assert_same(&ours, &expected, 1e-12, name);
            // The law says something: the features did change.
            let before = feature(&mesh, &graph(&mesh));
            let change = ours.values.iter().zip(&before.values);
            assert!(change.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) > 0.1);
        }
    }
}

#[test]
fn isolated_vertices_have_zeros_and_coincident_ones_no_nan() {
    let (mut vertices, faces) = shapes::icosahedron().into_parts();
    vertices.push(DVec3::ZERO);
    // A second sheet on the first: with radius neighbourhoods, edges of length zero.
    let count = vertices.len() as u32;
    vertices.extend_from_within(..);
    let mut both = faces.clone();
    for face in faces.iter() {
        both.push(&[face[0] + count, face[1] + count, face[2] + count]);
    }
    let mesh = Mesh::new(vertices, both).unwrap();
    let one_ring = graph(&mesh);
    let options = GeometryOptions {
        neighbourhood: gemcnn_mesh::Neighbourhood::Radius { radius: 1.2, limit: usize::MAX },
        ..Default::default()
    };
    let balls = GaugeGraph::new(&mesh, &options).unwrap();
    for (name, feature) in INVARIANT {
        let field = feature(&mesh, &one_ring);
        let lonely = field.rows().nth(12).unwrap();
        assert!(lonely.iter().all(|&value| value == 0.0), "{name}");
        assert!(feature(&mesh, &balls).values.iter().all(|value| value.is_finite()), "{name}");
    }
}

#[test]
fn graphs_of_other_meshes_and_bad_powers_are_refused() {
    let mesh = shapes::icosahedron();
    let other = graph(&rough_sheet());
    assert!(matches!(
        matrix_features(&mesh, &other, &MatrixOptions::default()),
        Err(GeometryError::WrongLength { given: 108, vertices: 12, .. })
    ));
    let options = RelativeTangentialOptions { powers: vec![0.5, f64::NAN], ..Default::default() };
    assert!(matches!(
        relative_tangential(&mesh, &graph(&mesh), &options),
        Err(GeometryError::NotFinite { index: 1, .. })
    ));
    assert!(positions(&mesh).gauge_transform(&[0.0; 11]).is_err());
}

#[test]
fn given_directions_are_the_first_axes_of_the_frames() {
    let mesh = read("spot.obj");
    let default = graph(&mesh);
    // Directions off the tangent plane, of any length.
    let directions: Vec<DVec3> =
        default.frames().iter().map(|frame| 3.0 * frame.turned(0.7).e1 - 2.0 * frame.normal).collect();
    let with = |directions: Vec<DVec3>| {
        let gauge = Gauge::Directions(directions);
        GaugeGraph::new(&mesh, &GeometryOptions { gauge, ..Default::default() })
    };
    let given = with(directions.clone()).unwrap();
    let turned = default.clone().gauge_transform(&vec![0.7; mesh.vertex_count()]).unwrap();
    for (ours, expected) in given.frames().iter().zip(turned.frames()) {
        assert!((ours.e1 - expected.e1).length() < 1e-12);
        assert!((ours.e2 - expected.e2).length() < 1e-12);
    }
    for (ours, expected) in given.theta().iter().zip(turned.theta()) {
        assert!((ours - expected).sin().abs() < 1e-10);
    }
    for bad in [DVec3::ZERO, default.frames()[5].normal, DVec3::splat(f64::NAN)] {
        let mut directions = directions.clone();
        directions[5] = bad;
        assert_eq!(with(directions), Err(GeometryError::NoTangentDirection { vertex: 5 }));
    }
    assert!(matches!(with(directions[1..].to_vec()), Err(GeometryError::WrongLength { .. })));
}

#[test]
fn channels_are_divided_by_their_median_by_area() {
    // Lengths 1, 5, 10 of the vector; the second vertex has most of the area.
    let values = vec![2.0, 0.0, 1.0, 4.0, 3.0, 4.0, -8.0, 6.0, 8.0];
    let field = FeatureField { kind: vec![(1, 0), (1, 2)], values };
    let areas = [1.0, 3.0, 1.0];
    let made = field.clone().normalised(&areas).unwrap();
    assert_eq!(made.values, [0.5, 0.0, 0.2, 1.0, 0.6, 0.8, -2.0, 1.2, 1.6]);
    let light = field.clone().normalised(&[0.1, 0.2, 1.0]).unwrap();
    assert_eq!(light.values[..3], [0.25, 0.0, 0.1]);
    let angles = [0.3, -1.0, 2.0];
    let turned = field.clone().gauge_transform(&angles).unwrap().normalised(&areas).unwrap();
    for (a, b) in turned.values.iter().zip(made.gauge_transform(&angles).unwrap().values) {
        assert!((a - b).abs() < 1e-12);
    }
    let flat = FeatureField { kind: vec![(1, 0)], values: vec![0.0, 0.0, 7.0] };
    assert_eq!(flat.clone().normalised(&areas).unwrap(), flat);
    assert!(field.normalised(&[1.0]).is_err());
}
