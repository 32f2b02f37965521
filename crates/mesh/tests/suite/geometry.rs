//! The laws of gauge geometry, through the public interface.

use crate::common::{self, angle_difference, read};
use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{
    Adjacency, DVec3, Faces, Frame, Gauge, GaugeGraph, GeometryError, GeometryOptions, Mesh, Neighbourhood,
    NormalTrouble, NormalWeighting, StoreError, vertex_normals,
};
use glam::DQuat;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::f64::consts::{FRAC_PI_2, PI, TAU};

fn radius_options(radius: f64, limit: usize) -> GeometryOptions {
    GeometryOptions { neighbourhood: Neighbourhood::Radius { radius, limit }, ..Default::default() }
}

fn random_angles(count: usize, seed: u64) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| 40.0 * rng.random::<f64>() - 20.0).collect()
}

/// A bumpy closed surface without any symmetry.
fn bumpy_sphere(subdivisions: u32, seed: u64) -> Mesh {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    shapes::icosphere(subdivisions).unwrap().map_vertices(|v| v * (0.8 + 0.4 * rng.random::<f64>())).unwrap()
}

/// Two sheets over each other, `gap` apart, the upper one facing up or down.
fn two_sheets(gap: f64, upper_faces_down: bool) -> Mesh {
    let lower = shapes::grid(4, 5, Cells::Triangles).unwrap();
    let upper = if upper_faces_down { lower.clone().with_reversed_faces() } else { lower.clone() };
    Mesh::side_by_side([(&lower, DVec3::ZERO), (&upper, gap * DVec3::Z)]).unwrap()
}

#[track_caller]
fn assert_same_angles(a: &[f64], b: &[f64], tolerance: f64, what: &str) {
    assert_eq!(a.len(), b.len());
    for (edge, (x, y)) in a.iter().zip(b).enumerate() {
        assert!(angle_difference(*x, *y).abs() <= tolerance, "{what} of edge {edge}: {x} and {y}");
    }
}

#[track_caller]
fn assert_same_geometry(a: &GaugeGraph, b: &GaugeGraph, tolerance: f64) {
    assert_eq!(a.adjacency(), b.adjacency());
    assert_same_angles(a.theta(), b.theta(), tolerance, "theta");
    assert_same_angles(a.transport(), b.transport(), tolerance, "transport");
    for (x, y) in a.radius().iter().zip(b.radius()) {
        assert!((x - y).abs() <= tolerance, "radius {x} and {y}");
    }
}

#[track_caller]
fn assert_finite_and_orthonormal(graph: &GaugeGraph) {
    for values in [graph.theta(), graph.transport(), graph.radius()] {
        assert!(values.iter().all(|v| v.is_finite()));
    }
    for Frame { e1, e2, normal } in graph.frames() {
        for (a, b, dot) in
            [(e1, e1, 1.0), (e2, e2, 1.0), (normal, normal, 1.0), (e1, e2, 0.0), (e1, normal, 0.0), (e2, normal, 0.0)]
        {
            assert!((a.dot(*b) - dot).abs() < 1e-14);
        }
        assert!((e1.cross(*e2) - *normal).length() < 1e-14, "right-handed");
    }
}

#[test]
fn turning_the_frames_turns_angles_and_transport_by_the_law() {
    for (mesh, options) in [
        (bumpy_sphere(2, 1), GeometryOptions::default()),
        (read("spot.obj"), GeometryOptions::default()),
        (read("trouble/moebius.obj"), GeometryOptions::default()),
        (read("trouble/fan3.obj"), GeometryOptions::default()),
        (read("trouble/dodecahedron_poly.obj"), GeometryOptions::default()),
        // Edges along the normal, and between coincident vertices, obey it too.
        (two_sheets(1.0, false), radius_options(1.5, 64)),
        (two_sheets(0.0, false), radius_options(1.5, 64)),
    ] {
        let graph = GaugeGraph::new(&mesh, &options).unwrap();
        let angles = random_angles(mesh.vertex_count(), 7);
        let turned = graph.clone().gauge_transform(&angles).unwrap();
        // Computed anew from the turned frames, not from the old angles.
        let frames = graph.frames().iter().zip(&angles);
        let again = GaugeGraph::with_frames(
            mesh.vertices(),
            frames.map(|(frame, &angle)| frame.turned(angle)).collect(),
            graph.adjacency().clone(),
        )
        .unwrap();
        assert_same_geometry(&turned, &again, 1e-12);
        for p in 0..mesh.vertex_count() {
            for edge in graph.row(p) {
                let q = graph.neighbours()[edge] as usize;
                let theta = graph.theta()[edge] - angles[p];
                let transport = graph.transport()[edge] - angles[p] + angles[q];
                assert!(angle_difference(again.theta()[edge], theta).abs() <= 1e-12);
                assert!(angle_difference(again.transport()[edge], transport).abs() <= 1e-12);
            }
        }
        let options = GeometryOptions { gauge: Gauge::Angles(angles), ..options };
        assert_eq!(GaugeGraph::new(&mesh, &options).unwrap(), turned);
        assert_finite_and_orthonormal(&turned);
        assert!(turned.theta().iter().chain(turned.transport()).all(|a| a.abs() <= PI));
    }
}

#[test]
fn transport_there_and_back_is_the_identity() {
    for (mesh, options) in [
        (bumpy_sphere(2, 2), GeometryOptions::default()),
        (read("trouble/moebius.obj"), GeometryOptions::default()),
        (two_sheets(0.3, true), radius_options(1.2, 64)),
    ] {
        let graph = GaugeGraph::new(&mesh, &options).unwrap();
        for p in 0..mesh.vertex_count() {
            for edge in graph.row(p) {
                let q = graph.neighbours()[edge] as usize;
                let back = graph.reverse()[edge] as usize;
                assert_eq!(graph.neighbours()[back] as usize, p);
                assert_eq!(graph.reverse()[back] as usize, edge);
                assert!(graph.row(q).contains(&back));
                // Each direction computed from its own frames.
                let vector = mesh.vertices()[q] - mesh.vertices()[p];
                let (at_p, at_q) = (&graph.frames()[p], &graph.frames()[q]);
                let angle = |[x, y]: [f64; 2]| y.atan2(x);
                let there = angle(at_p.transport_from(at_q, vector));
                let home = angle(at_q.transport_from(at_p, -vector));
                assert!(angle_difference(there, -home).abs() <= 1e-12);
                assert!(angle_difference(there, graph.transport()[edge]).abs() <= 1e-12);
                assert_eq!(graph.transport()[back], -graph.transport()[edge]);
            }
        }
    }
}

#[test]
fn transport_is_the_smallest_rotation_between_the_normals() {
    let mesh = bumpy_sphere(2, 3);
    let graph = common::graph(&mesh);
    for p in 0..mesh.vertex_count() {
        for edge in graph.row(p) {
            let at_p = &graph.frames()[p];
            let at_q = &graph.frames()[graph.neighbours()[edge] as usize];
            let rotation = DQuat::from_rotation_arc(at_q.normal, at_p.normal);
            let moved = rotation * at_q.vector([0.6, -0.8]);
            let (sine, cosine) = graph.transport()[edge].sin_cos();
            let expected = [0.6 * cosine + 0.8 * sine, 0.6 * sine - 0.8 * cosine];
            let ours = at_p.coefficients(moved);
            assert!((ours[0] - expected[0]).abs() < 1e-12);
            assert!((ours[1] - expected[1]).abs() < 1e-12);
        }
    }
}

#[test]
fn a_flat_mesh_has_no_turning_around_any_closed_path() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let tilt = DQuat::from_euler(glam::EulerRot::XYZ, 0.4, -1.1, 2.0);
    let mesh = shapes::grid(9, 8, Cells::Triangles)
        .unwrap()
        .map_vertices(|v| {
            let jitter = DVec3::new(rng.random(), rng.random(), 0.0);
            tilt * (v + 0.4 * jitter)
        })
        .unwrap();
    let graph = common::graph(&mesh).gauge_transform(&random_angles(mesh.vertex_count(), 5)).unwrap();
    let step = |p: u32, q: u32| {
        let edge = graph.row(p as usize).find(|&edge| graph.neighbours()[edge] == q).unwrap();
        graph.transport()[edge]
    };
    for face in mesh.faces().iter() {
        let around = step(face[0], face[1]) + step(face[1], face[2]) + step(face[2], face[0]);
        assert!(angle_difference(around, 0.0).abs() < 1e-12);
    }
    // The closed fan of every inner vertex: the corner angles add up to a full turn, and a vector
    // carried around the link comes home.
    for p in 0..mesh.vertex_count() {
        let (row, column) = (p / 8, p % 8);
        if row == 0 || column == 0 || row == 8 || column == 7 {
            continue;
        }
        let mut ring: Vec<(f64, u32)> =
            graph.row(p).map(|edge| (graph.theta()[edge], graph.neighbours()[edge])).collect();
        ring.sort_by(|a, b| a.0.total_cmp(&b.0));
        let next = |i: usize| ring[(i + 1) % ring.len()];
        let turn: f64 = (0..ring.len()).map(|i| (next(i).0 - ring[i].0).rem_euclid(TAU)).sum();
        assert!((turn - TAU).abs() < 1e-12);
        let carried: f64 = (0..ring.len()).map(|i| step(next(i).1, ring[i].1)).sum();
        assert!(angle_difference(carried, 0.0).abs() < 1e-12);
    }
}

#[test]
fn rigid_motion_changes_nothing_but_the_frames() {
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let spot = read("spot.obj");
    for mesh in [bumpy_sphere(3, 6), spot, read("trouble/bob_small.ply")] {
        let size = mesh.vertices().iter().map(|v| v.length()).fold(0.0, f64::max);
        let mesh = mesh.map_vertices(|v| v / size).unwrap();
        for weighting in [NormalWeighting::Area, NormalWeighting::CornerAngle] {
            let options = GeometryOptions { normals: weighting, ..Default::default() };
            let graph = GaugeGraph::new(&mesh, &options).unwrap();
            for (distance, tolerance) in [(0.0, 1e-10), (3.0, 1e-10), (1e6, 1e-7)] {
                let rotation = DQuat::from_euler(
                    glam::EulerRot::XYZ,
                    TAU * rng.random::<f64>(),
                    PI * rng.random::<f64>(),
                    TAU * rng.random::<f64>(),
                );
                let shift = distance * DVec3::new(0.7, -1.0, 0.4);
                let moved = mesh.map_vertices(|v| rotation * v + shift).unwrap();
                let moved = GaugeGraph::new(&moved, &options).unwrap();
                assert_same_geometry(&graph, &moved, tolerance);
                for (old, new) in graph.frames().iter().zip(moved.frames()) {
                    assert!((rotation * old.e1 - new.e1).length() < 10.0 * tolerance);
                }
            }
        }
    }
}

#[test]
fn bending_a_grid_of_quads_keeps_its_geometry() {
    let flat = common::graph(&shapes::grid(12, 9, Cells::Quads).unwrap());
    for axis in [shapes::Axis::Rows, shapes::Axis::Columns] {
        for profile in [shapes::Profile::Cylinder { turn: 2.5 }, shapes::Profile::random(5), shapes::Profile::random(6)]
        {
            let bent = shapes::bent_grid(12, 9, Cells::Quads, axis, &profile).unwrap();
            assert_same_geometry(&flat, &common::graph(&bent), 1e-12);
        }
    }
    for theta in flat.theta() {
        let quarters = theta / FRAC_PI_2;
        assert!((quarters - quarters.round()).abs() < 1e-12);
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let mesh = bumpy_sphere(5, 8);
    assert!(mesh.vertex_count() > 10_000);
    for options in [
        GeometryOptions::default(),
        radius_options(0.06, 9),
        GeometryOptions { normals: NormalWeighting::CornerAngle, ..Default::default() },
    ] {
        let with = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let graph = pool.unwrap().install(|| GaugeGraph::new(&mesh, &options).unwrap());
            graph.to_safetensors().unwrap()
        };
        let one = with(1);
        for threads in [2, 3, 8] {
            assert!(with(threads) == one, "{threads} threads give other bits");
        }
    }
}

#[test]
fn vertices_without_a_tangent_plane_are_named() {
    // Vertex 4 has only a face without area; 5 and 6 are on a sheet folded onto itself.
    let vertices = vec![
        DVec3::ZERO,
        DVec3::X,
        DVec3::X + DVec3::Y,
        DVec3::Y,
        DVec3::new(0.5, 0.0, 0.0),
        DVec3::new(5.0, 0.0, 0.0),
        DVec3::new(6.0, 0.0, 0.0),
        DVec3::new(5.0, 1.0, 0.0),
    ];
    let mut faces = Faces::new();
    faces.push(&[0, 1, 2, 3]);
    faces.push(&[0, 4, 1]);
    let degenerate = Mesh::new(vertices.clone(), faces.clone()).unwrap();
    assert_eq!(
        GaugeGraph::new(&degenerate, &GeometryOptions::default()),
        Err(GeometryError::NoTangentPlane { count: 1, examples: vec![(4, NormalTrouble::DegenerateFaces)] })
    );
    faces.push(&[5, 6, 7]);
    faces.push(&[7, 6, 5]);
    let both = Mesh::new(vertices, faces).unwrap();
    // With estimates, vertex 4 has the normal of its neighbours, and the fold, which has none, z.
    let options = GeometryOptions { estimate_normals: true, ..Default::default() };
    let graph = GaugeGraph::new(&both, &options).unwrap();
    assert!(graph.frames().iter().all(|frame| frame.normal == DVec3::Z));
    let tilted = both.map_vertices(|p| DVec3::new(p.z, p.x, p.y)).unwrap();
    let graph = GaugeGraph::new(&tilted, &options).unwrap();
    assert_eq!(graph.frames()[4].normal, graph.frames()[0].normal);
    assert_ne!(graph.frames()[4].normal, DVec3::Z);
    for weighting in [NormalWeighting::Area, NormalWeighting::CornerAngle] {
        let error = vertex_normals(&both, weighting).unwrap_err();
        assert_eq!(
            error,
            GeometryError::NoTangentPlane {
                count: 4,
                examples: vec![
                    (4, NormalTrouble::DegenerateFaces),
                    (5, NormalTrouble::CancellingFaces),
                    (6, NormalTrouble::CancellingFaces),
                    (7, NormalTrouble::CancellingFaces),
                ],
            }
        );
        assert!(error.to_string().starts_with("4 vertices have no tangent plane: vertex 4"));
    }
}

#[test]
fn isolated_vertices_have_an_empty_row_and_a_frame() {
    let mesh =
        Mesh::new(vec![DVec3::ONE, DVec3::ZERO, DVec3::X, DVec3::Y, DVec3::NEG_ONE], [[1, 2, 3]].iter().collect())
            .unwrap();
    let graph = common::graph(&mesh);
    assert_eq!(graph.offsets(), [0, 0, 2, 4, 6, 6]);
    assert_eq!(graph.frames()[4].normal, DVec3::Z);
    assert_finite_and_orthonormal(&graph);
    // The normal rotates with the mesh.
    let moved = mesh.map_vertices(|v| DVec3::new(v.z, v.x, v.y)).unwrap();
    assert_eq!(common::graph(&moved).frames()[4].normal, DVec3::X);
    // Only vertices of faces can lack a tangent plane.
    let flat = [DVec3::ZERO, DVec3::X, 2.0 * DVec3::X, DVec3::Y];
    let flat = Mesh::new(flat.to_vec(), [[0, 1, 2]].iter().collect()).unwrap();
    assert!(matches!(
        GaugeGraph::new(&flat, &GeometryOptions::default()),
        Err(GeometryError::NoTangentPlane { count: 3, .. })
    ));

    let empty = Mesh::new(vec![], Faces::new()).unwrap();
    assert_eq!(common::graph(&empty).offsets(), [0]);
}

#[test]
fn edges_along_the_normal_take_the_direction_of_a_neighbour() {
    let mesh = two_sheets(1.0, false);
    let graph = GaugeGraph::new(&mesh, &radius_options(1.0, 64)).unwrap();
    assert_finite_and_orthonormal(&graph);
    for p in 0..mesh.vertex_count() {
        let above = (p as u32 + 20) % 40;
        let row = graph.row(p);
        let edge = row.clone().find(|&e| graph.neighbours()[e] == above).unwrap();
        let first = row.clone().find(|&e| graph.neighbours()[e] != above).unwrap();
        assert_eq!(graph.theta()[edge], graph.theta()[first]);
        assert_eq!(graph.radius()[edge], 1.0);
        assert!(graph.transport()[edge].abs() < 1e-14);
    }
}

#[test]
fn transport_between_opposite_normals_is_a_half_turn() {
    let mesh = two_sheets(0.25, true);
    let graph = GaugeGraph::new(&mesh, &radius_options(1.1, 64)).unwrap();
    assert_finite_and_orthonormal(&graph);
    let mut opposite = 0;
    for p in 0..mesh.vertex_count() {
        for edge in graph.row(p) {
            let q = graph.neighbours()[edge] as usize;
            let (at_p, at_q) = (&graph.frames()[p], &graph.frames()[q]);
            if at_p.normal.dot(at_q.normal) > -0.5 {
                continue;
            }
            opposite += 1;
            // A sheet that folds over along the edge: what points along it comes out reversed,
            // what lies across it stays.
            let along = (mesh.vertices()[q] - mesh.vertices()[p]).reject_from(DVec3::Z);
            if along.length() < 1e-9 {
                continue;
            }
            let carry = |v: DVec3| {
                let [x, y] = at_q.coefficients(v);
                let (sine, cosine) = graph.transport()[edge].sin_cos();
                at_p.vector([cosine * x - sine * y, sine * x + cosine * y])
            };
            let across = along.cross(DVec3::Z);
            assert!((carry(along) + along).length() < 1e-12);
            assert!((carry(across) - across).length() < 1e-12);
        }
    }
    assert!(opposite > 40);
}

#[test]
fn faces_of_mixed_sizes_make_the_same_rows_as_their_edges() {
    // A cube of quads with one side cut in two: 12 + 1 edges.
    let cube: Vec<DVec3> = (0..8).map(|i| DVec3::new((i & 1) as f64, (i >> 1 & 1) as f64, (i >> 2) as f64)).collect();
    let faces: Faces = [
        vec![0, 2, 3, 1],
        vec![4, 5, 7, 6],
        vec![0, 1, 5, 4],
        vec![2, 6, 7, 3],
        vec![0, 4, 6, 2],
        vec![1, 3, 7],
        vec![1, 7, 5],
    ]
    .iter()
    .collect();
    let mesh = Mesh::new(cube, faces).unwrap();
    let graph = common::graph(&mesh);
    assert_eq!(graph.edge_count(), 26);
    assert_eq!(graph.adjacency().neighbours_of(1), [0, 5, 3, 7]);
    for (p, frame) in graph.frames().iter().enumerate() {
        let outward = mesh.vertices()[p] - DVec3::splat(0.5);
        assert!(frame.normal.dot(outward) > 0.7);
    }
    // Repeated corners add no edge from a vertex to itself.
    let (vertices, mut faces) = mesh.into_parts();
    faces.push(&[0, 1, 1]);
    let graph = common::graph(&Mesh::new(vertices, faces).unwrap());
    assert_eq!(graph.edge_count(), 26);
}

#[test]
fn a_vertex_with_a_hundred_thousand_neighbours_is_no_trouble() {
    let rim = 100_000u32;
    let mut vertices = vec![DVec3::Z];
    vertices.extend((0..rim).map(|i| {
        let (y, x) = (TAU * f64::from(i) / f64::from(rim)).sin_cos();
        DVec3::new(x, y, 0.0)
    }));
    let faces = (0..rim).map(|i| [0, 1 + i, 1 + (i + 1) % rim]).collect();
    let graph = common::graph(&Mesh::new(vertices, faces).unwrap());
    assert_eq!(graph.edge_count(), 4 * rim as usize);
    for edge in 0..graph.edge_count() {
        assert_eq!(graph.reverse()[graph.reverse()[edge] as usize] as usize, edge);
    }
}

#[test]
fn radius_neighbourhoods_are_complete_or_mutually_nearest() {
    let mesh = bumpy_sphere(2, 9);
    let points = mesh.vertices();
    let radius = 0.45;
    let near = |p: usize, limit: usize| -> Vec<u32> {
        let mut found: Vec<(f64, u32)> = (0..points.len())
            .filter(|&q| q != p && points[p].distance(points[q]) <= radius)
            .map(|q| (points[p].distance_squared(points[q]), q as u32))
            .collect();
        found.sort_by(|a, b| a.partial_cmp(b).unwrap());
        found.truncate(limit);
        found.into_iter().map(|(_, q)| q).collect()
    };
    let mut cut = 0;
    for limit in [usize::MAX, 1000, 6, 1, 0] {
        let adjacency = Adjacency::within_radius(points, radius, limit).unwrap();
        for p in 0..points.len() {
            let all = near(p, limit);
            let mut expected: Vec<u32> =
                all.iter().copied().filter(|&q| near(q as usize, limit).contains(&(p as u32))).collect();
            cut += all.len() - expected.len();
            expected.sort_unstable();
            assert_eq!(adjacency.neighbours_of(p), expected, "limit {limit}, row {p}");
        }
    }
    assert!(cut > 0, "some neighbours must be one-sided, or the test shows nothing");
    for radius in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(Adjacency::within_radius(points, radius, 5), Err(GeometryError::BadRadius { .. })));
    }
    // Many points in one place, more than the limit.
    let heap = Adjacency::within_radius(&[DVec3::ONE; 50], 0.0, 3).unwrap();
    for p in 0..50 {
        assert!(heap.neighbours_of(p).len() <= 3);
    }
}

#[test]
fn meshes_of_any_size_have_the_same_angles() {
    let mesh = bumpy_sphere(2, 10);
    for options in [GeometryOptions::default(), radius_options(0.5, 12)] {
        let graph = GaugeGraph::new(&mesh, &options).unwrap();
        for scale in [2f64.powi(-1000), 2f64.powi(-250), 2f64.powi(400), 2f64.powi(1022)] {
            let scaled = mesh.map_vertices(|v| v * scale).unwrap();
            let mut options = options.clone();
            if let Neighbourhood::Radius { radius, .. } = &mut options.neighbourhood {
                *radius *= scale;
            }
            let scaled = GaugeGraph::new(&scaled, &options).unwrap();
            assert_eq!(scaled.theta(), graph.theta());
            assert_eq!(scaled.transport(), graph.transport());
            for (big, small) in scaled.radius().iter().zip(graph.radius()) {
                assert_eq!(*big, small * scale);
            }
        }
    }
    let huge = shapes::grid(3, 3, Cells::Quads).unwrap();
    let huge = huge.map_vertices(|v| (v - DVec3::ONE) * f64::MAX).unwrap();
    assert_finite_and_orthonormal(&common::graph(&huge));
}

#[test]
fn choices_that_do_not_fit_are_refused() {
    let mesh = shapes::icosahedron();
    let with = |gauge| GaugeGraph::new(&mesh, &GeometryOptions { gauge, ..Default::default() }).unwrap_err();
    assert!(matches!(with(Gauge::Angles(vec![0.0; 11])), GeometryError::WrongLength { given: 11, vertices: 12, .. }));
    let mut angles = vec![0.0; 12];
    angles[7] = f64::INFINITY;
    assert!(matches!(with(Gauge::Angles(angles)), GeometryError::NotFinite { index: 7, .. }));
    assert!(matches!(with(Gauge::Neighbours(vec![])), GeometryError::WrongLength { .. }));
    let opposite = mesh.vertices().iter().map(|v| {
        let far = |w: &&DVec3| (**w + *v).length() < 1e-9;
        mesh.vertices().iter().position(|w| far(&w)).unwrap() as u32
    });
    assert!(matches!(with(Gauge::Neighbours(opposite.collect())), GeometryError::NotANeighbour { vertex: 0, .. }));
    for (offsets, neighbours) in [
        (vec![], vec![]),
        (vec![0, 1], vec![0]),
        (vec![0, 1, 2], vec![1, 5]),
        (vec![0, 1, 1], vec![1]),
        (vec![0, 2, 1], vec![1]),
        (vec![0, 2, 4], vec![1, 1, 0, 0]),
    ] {
        assert!(matches!(Adjacency::new(offsets, neighbours), Err(GeometryError::BadGraph { .. })));
    }
}

#[test]
fn a_graph_survives_storage_and_bad_storage_is_refused() {
    let graph = common::graph(&read("trouble/triple_vierbein.obj"));
    let bytes = graph.to_safetensors().unwrap();
    assert_eq!(GaugeGraph::from_safetensors(&bytes).unwrap(), graph);
    for cut in [0, 7, 100, bytes.len() / 2, bytes.len() - 1] {
        assert!(matches!(GaugeGraph::from_safetensors(&bytes[..cut]), Err(StoreError::Safetensors(_))));
    }
    // Any single damaged byte is refused or read as some other number, never a panic.
    for at in (0..bytes.len()).step_by(37) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        let _ = GaugeGraph::from_safetensors(&damaged);
    }
}
