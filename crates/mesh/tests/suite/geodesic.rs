//! Geodesic distances against surfaces where they are known.

use gemcnn_mesh::shapes::{self, Axis, Cells, Profile};
use gemcnn_mesh::surface::SurfaceError;
use gemcnn_mesh::{DVec3, Faces, GeodesicError, GeodesicSolver, Mesh};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::f64::consts::TAU;

fn distances(mesh: &Mesh, source: usize) -> Vec<f64> {
    let solver = GeodesicSolver::new(mesh).unwrap_or_else(|e| panic!("{e}"));
    solver.distances_from(source).unwrap()
}

/// Mean and largest relative error against exact distances from `source`.
fn errors(mesh: &Mesh, source: usize, exact: impl Fn(DVec3, DVec3) -> f64) -> [f64; 2] {
    let from = mesh.vertices()[source];
    let distances = distances(mesh, source);
    assert_eq!(distances[source], 0.0);
    let (mut total, mut largest) = (0.0, 0.0f64);
    for (vertex, distance) in distances.into_iter().enumerate() {
        if vertex != source {
            let error = (distance / exact(from, mesh.vertices()[vertex]) - 1.0).abs();
            total += error;
            largest = largest.max(error);
        }
    }
    [total / (mesh.vertex_count() - 1) as f64, largest]
}

#[test]
fn spheres_converge_to_great_circles() {
    let mut before = f64::INFINITY;
    for (subdivisions, most) in [(2, 0.02), (3, 0.01), (4, 0.005), (5, 0.0025)] {
        let sphere = shapes::icosphere(subdivisions).unwrap();
        let source = sphere.vertex_count() - 1;
        let [mean, largest] = errors(&sphere, source, |a, b| a.angle_between(b));
        assert!(mean < most, "{subdivisions} subdivisions: {mean}");
        assert!(mean < 0.6 * before, "{subdivisions}: {mean} after {before}");
        assert!(largest < 0.06, "{subdivisions} subdivisions: {largest}");
        before = mean;
    }
}

#[test]
fn planes_are_exact_whatever_their_cells() {
    for cells in [Cells::Quads, Cells::Triangles] {
        for source in [0, 5, 245] {
            let sheet = shapes::grid(20, 25, cells).unwrap();
            let [_, largest] = errors(&sheet, source, DVec3::distance);
            assert!(largest < 1e-9, "{cells:?} from {source}: {largest}");
        }
    }
}

#[test]
fn obtuse_triangles_cost_little_accuracy() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for (jitter, stretch, most) in [(0.4, 1.0, 0.001), (0.45, 1.0, 0.002), (0.3, 3.0, 0.001)] {
        let mut draw = || jitter * (2.0 * rng.random::<f64>() - 1.0);
        let sheet = shapes::grid(40, 40, Cells::Triangles).unwrap();
        let sheet = sheet.map_vertices(|v| DVec3::new(stretch * (v.x + draw()), v.y + draw(), 0.0)).unwrap();
        let [mean, _] = errors(&sheet, 820, DVec3::distance);
        assert!(mean < most, "jitter {jitter}: {mean}");
    }
}

#[test]
fn bending_a_sheet_changes_no_distance() {
    let flat = shapes::grid(15, 30, Cells::Quads).unwrap();
    let profile = Profile::Cylinder { turn: 5.0 };
    let bent = shapes::bent_grid(15, 30, Cells::Quads, Axis::Columns, &profile).unwrap();
    let from_corner = (distances(&flat, 0), distances(&bent, 0));
    for (flat, bent) in from_corner.0.iter().zip(&from_corner.1) {
        assert!((flat - bent).abs() < 1e-9 * flat.max(1.0), "{flat} {bent}");
    }
    // And they are not those of space: the bent sheet comes back close to where it began.
    let ends = bent.vertices()[0].distance(bent.vertices()[29]);
    assert!(from_corner.1[29] > 2.0 * ends);
}

#[test]
fn paths_bend_around_the_corner_of_an_l() {
    // A square without its last quarter: what lies behind the inner corner is reached through it.
    for (cells, most) in [(20, 0.04), (40, 0.025), (80, 0.015)] {
        let square = shapes::grid(cells + 1, cells + 1, Cells::Triangles).unwrap();
        let (vertices, faces) = square.into_parts();
        let half = 0.5 * cells as f64;
        let missing = |v: &DVec3| v.x > half && v.y < half;
        let kept = |face: &&[u32]| !face.iter().any(|&v| missing(&vertices[v as usize]));
        let kept: Faces = faces.iter().filter(kept).collect();
        let mesh = Mesh::new(vertices.clone(), kept).unwrap();
        let (from, corner) = (DVec3::new(half, 0.0, 0.0), DVec3::new(half, half, 0.0));
        let source = vertices.iter().position(|v| *v == from).unwrap();
        for (position, distance) in vertices.iter().zip(distances(&mesh, source)) {
            if missing(position) {
                assert_eq!(distance, f64::INFINITY, "of no face");
            } else if position.x > half {
                let around = from.distance(corner) + corner.distance(*position);
                let error = distance / around - 1.0;
                assert!(error > -1e-9 && error < most, "{position}: {error}");
            } else {
                let straight = from.distance(*position);
                assert!((distance - straight).abs() < 1e-9, "{position}: {distance}");
            }
        }
    }
}

#[test]
fn the_inner_circle_of_a_torus_is_a_geodesic() {
    let (around, tube) = (60, 24);
    let torus = shapes::torus(around, tube, 1.0, 0.4, Cells::Triangles).unwrap();
    let inner = |i: usize| i * tube + tube / 2;
    let distances = distances(&torus, inner(0));
    for i in 1..=around / 2 {
        let exact = 0.6 * TAU * i as f64 / around as f64;
        let error = (distances[inner(i)] / exact - 1.0).abs();
        assert!(error < 0.005, "{i}: {error}");
    }
    // Half around the tube.
    let outside = distances[0];
    assert!((outside / (0.5 * 0.4 * TAU) - 1.0).abs() < 0.01, "{outside}");
}

#[test]
fn distance_is_nearly_a_metric() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/meshes");
    let mesh = Mesh::read(format!("{folder}/spot.obj")).unwrap();
    let solver = GeodesicSolver::new(&mesh).unwrap();
    let sources: Vec<usize> = (0..mesh.vertex_count()).step_by(401).collect();
    let all = solver.distances_from_each(&sources).unwrap();
    for (&source, row) in sources.iter().zip(&all) {
        assert_eq!(&solver.distances_from(source).unwrap(), row);
    }
    let mut asymmetry = 0.0;
    for (i, &a) in sources.iter().enumerate() {
        for (j, &b) in sources.iter().enumerate().filter(|&(j, _)| j != i) {
            let (there, back) = (all[i][b], all[j][a]);
            let difference = (there / back - 1.0).abs();
            assert!(difference < 0.02, "{a} {b}: {there} {back}");
            asymmetry += difference;
            let direct = mesh.vertices()[a].distance(mesh.vertices()[b]);
            assert!(there >= (1.0 - 1e-9) * direct, "no shorter than the straight line");
            for via in &all {
                assert!(there <= 1.02 * (via[a] + via[b]));
            }
        }
    }
    let pairs = sources.len() * (sources.len() - 1);
    assert!(asymmetry / (pairs as f64) < 0.005, "{asymmetry} in {pairs} pairs");
}

#[test]
fn other_components_are_infinitely_far() {
    let (mut vertices, faces) = shapes::icosahedron().into_parts();
    let mut both = faces.clone();
    for face in faces.iter() {
        both.push(&[face[0] + 13, face[1] + 13, face[2] + 13]);
    }
    let first = vertices.clone();
    vertices.push(DVec3::ZERO);
    vertices.extend(first.iter().map(|v| *v + 5.0 * DVec3::X));
    let mesh = Mesh::new(vertices, both).unwrap();
    let solver = GeodesicSolver::new(&mesh).unwrap();
    let alone = distances(&shapes::icosahedron(), 3);
    let from_first = solver.distances_from(3).unwrap();
    let from_second = solver.distances_from(16).unwrap();
    for vertex in 0..12 {
        assert!((from_first[vertex] - alone[vertex]).abs() < 1e-12);
        assert!((from_second[vertex + 13] - alone[vertex]).abs() < 1e-12);
        assert_eq!(from_first[vertex + 13], f64::INFINITY);
        assert_eq!(from_second[vertex], f64::INFINITY);
    }
    // A vertex of no face is on its own.
    assert_eq!(from_first[12], f64::INFINITY);
    let lonely = solver.distances_from(12).unwrap();
    assert!(lonely.iter().enumerate().all(|(v, d)| *d == if v == 12 { 0.0 } else { f64::INFINITY }));
}

#[test]
fn copies_are_one_point_and_collapsed_faces_connect_nothing() {
    let (mut vertices, mut faces) = shapes::icosahedron().into_parts();
    let expected = distances(&shapes::icosahedron(), 3);
    // A copy that no face uses, a vertex of a face that repeats a corner, and three vertices at one point.
    vertices.extend([vertices[3], DVec3::new(0.1, 0.2, 3.0)]);
    vertices.extend([DVec3::new(-4.0, 0.0, 0.0); 3]);
    faces.push(&[13, 13, 0]);
    faces.push(&[14, 15, 16]);
    let mesh = Mesh::new(vertices, faces).unwrap();
    let solver = GeodesicSolver::new(&mesh).unwrap();
    for source in [3, 12] {
        let found = solver.distances_from(source).unwrap();
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-12);
        }
        assert_eq!(found[12], 0.0);
        assert!(found[13..].iter().all(|d| *d == f64::INFINITY));
    }
    let apart = solver.distances_from(13).unwrap();
    assert!(apart[13] == 0.0 && apart[0] == f64::INFINITY);
}

#[test]
fn heat_reaches_the_end_of_a_very_long_strip() {
    let strip = shapes::grid(2, 5000, Cells::Triangles).unwrap();
    let [_, largest] = errors(&strip, 0, DVec3::distance);
    assert!(largest < 1e-9, "{largest}");
}

#[test]
fn degenerate_triangles_do_no_harm() {
    let (mut vertices, mut faces) = shapes::grid(12, 12, Cells::Triangles).unwrap().into_parts();
    let expected = distances(&Mesh::new(vertices.clone(), faces.clone()).unwrap(), 0);
    // A sliver, a flat triangle, one of coincident corners, one that repeats a corner, a double face.
    vertices.extend([vertices[50], 0.5 * (vertices[60] + vertices[61])]);
    vertices.push(vertices[70] + 1e-13 * DVec3::Z);
    for face in [[50, 51, 144], [60, 61, 145], [70, 71, 146], [80, 80, 81], [0, 12, 13]] {
        faces.push(&face);
    }
    let mesh = Mesh::new(vertices, faces).unwrap();
    let ours = distances(&mesh, 0);
    for (vertex, expected) in expected.iter().enumerate() {
        assert!((ours[vertex] - expected).abs() < 1e-9, "{vertex}");
    }
    assert!((ours[144] - ours[50]).abs() < 1e-12);
    let middle = mesh.vertices()[0].distance(mesh.vertices()[145]);
    assert!((ours[145] - middle).abs() < 1e-9);
}

#[test]
fn size_does_not_matter() {
    let sphere = shapes::icosphere(2).unwrap();
    let usual = distances(&sphere, 5);
    for scale in [1e-9, 1e9, 2f64.powi(600), 2f64.powi(-600)] {
        let mesh = sphere.map_vertices(|v| scale * v).unwrap();
        for (ours, usual) in distances(&mesh, 5).iter().zip(&usual) {
            assert!((ours / scale - usual).abs() < 1e-9);
        }
    }
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let point = Mesh::new(vec![DVec3::ONE; 3], [[0, 1, 2]].iter().collect()).unwrap();
    for (mesh, faces) in [
        (point, 1),
        (Mesh::new(vec![DVec3::X], Faces::new()).unwrap(), 0),
        (Mesh::new(vec![], Faces::new()).unwrap(), 0),
    ] {
        let error = GeodesicSolver::new(&mesh).unwrap_err();
        assert_eq!(error, GeodesicError::Surface(SurfaceError::NoExtent { faces }));
    }
    let solver = GeodesicSolver::new(&shapes::icosahedron()).unwrap();
    let expected = GeodesicError::NoSuchVertex { vertex: 12, vertices: 12 };
    assert_eq!(solver.distances_from(12).unwrap_err(), expected);
    assert_eq!(solver.distances_from_each(&[3, 12]).unwrap_err(), expected);
    assert!(solver.distances_from_each(&[]).unwrap().is_empty());
}

#[test]
fn coincident_vertices_are_one_point() {
    // A sheet cut along a column, with both banks of the cut at the same positions.
    let cells = 10;
    let sheet = shapes::grid(cells + 1, cells + 1, Cells::Triangles).unwrap();
    let expected = distances(&sheet, 0);
    let (mut vertices, faces) = sheet.into_parts();
    let first = vertices.len() as u32;
    let at_cut = |v: &DVec3| v.x == 5.0;
    let banks: Vec<usize> = (0..vertices.len()).filter(|&v| at_cut(&vertices[v])).collect();
    let mut cut = Faces::new();
    for face in faces.iter() {
        let is_right = face.iter().any(|&v| vertices[v as usize].x > 5.0);
        let bank = |v: &u32| match banks.iter().position(|&b| b == *v as usize) {
            Some(index) if is_right => first + index as u32,
            _ => *v,
        };
        cut.push(&face.iter().map(bank).collect::<Vec<u32>>());
    }
    let copies: Vec<DVec3> = banks.iter().map(|&v| vertices[v]).collect();
    vertices.extend(copies);
    let ours = distances(&Mesh::new(vertices, cut).unwrap(), 0);
    for (vertex, expected) in expected.iter().enumerate() {
        assert!((ours[vertex] - expected).abs() < 1e-9, "{vertex}");
    }
    for (index, &bank) in banks.iter().enumerate() {
        assert_eq!(ours[first as usize + index], ours[bank]);
    }
}
