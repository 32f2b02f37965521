//! Remeshing of surfaces that are open, not manifold, not orientable, degenerate or random.

use gemcnn_mesh::remesh::{MeshSize, RemeshError, remesh};
use gemcnn_mesh::shapes::icosphere;
use gemcnn_mesh::{DVec3, Mesh, MeshReport};
use proptest::prelude::*;

use super::{FLIP, JITTER, MIDPOINT, REFINE, RESAMPLE, SIMPLIFY, all_kinds, assert_valid, iso};
use crate::common::fixture;

fn mesh_of(vertices: usize, faces: &[&[u32]]) -> Mesh {
    let curve = (0..vertices).map(|i| i as f64 / vertices as f64);
    let points = curve.map(|t| DVec3::new(t, t * t, t * t * t));
    Mesh::new(points.collect(), faces.iter().collect()).unwrap()
}

/// A strip that closes after half a turn.
fn moebius_strip(cells: u32) -> Mesh {
    let vertices = (0..cells).flat_map(|i| {
        let angle = f64::from(i) / f64::from(cells) * std::f64::consts::TAU;
        let out = DVec3::new(angle.cos(), angle.sin(), 0.0);
        let across = (angle / 2.0).cos() * out + (angle / 2.0).sin() * DVec3::Z;
        [-0.3, -0.1, 0.1, 0.3].map(|t| out + t * across)
    });
    let vertex = |i: u32, j: u32| if i < cells { 4 * i + j } else { 3 - j };
    let faces = (0..cells)
        .flat_map(|i| (0..3).map(move |j| [vertex(i, j), vertex(i + 1, j), vertex(i + 1, j + 1), vertex(i, j + 1)]));
    Mesh::new(vertices.collect(), faces.collect()).unwrap()
}

/// Meshes that are not oriented manifolds, or have no area, or no faces.
fn trouble() -> Vec<(String, Mesh)> {
    let mut meshes = vec![
        ("empty".into(), mesh_of(0, &[])),
        ("points".into(), mesh_of(5, &[])),
        ("one triangle".into(), mesh_of(4, &[&[0, 1, 2]])),
        ("pillow".into(), mesh_of(3, &[&[0, 1, 2], &[2, 1, 0]])),
        ("twice".into(), mesh_of(3, &[&[0, 1, 2], &[0, 1, 2]])),
        ("repeats".into(), mesh_of(4, &[&[0, 0, 2], &[0, 1, 2, 1], &[1, 2, 3]])),
        ("pages".into(), mesh_of(5, &[&[0, 1, 2], &[0, 1, 3], &[1, 0, 4]])),
        ("pinch".into(), mesh_of(5, &[&[0, 1, 2], &[0, 3, 4]])),
        ("turned".into(), mesh_of(4, &[&[0, 1, 2], &[0, 1, 3]])),
        ("moebius".into(), moebius_strip(24)),
    ];
    let tetrahedron = [[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]];
    for (name, place) in [
        ("one point", (|_| DVec3::ONE) as fn(usize) -> DVec3),
        ("line", |i| DVec3::X * i as f64),
        ("huge", |i| 1e200 * [DVec3::ZERO, DVec3::X, DVec3::Y, DVec3::Z][i]),
        ("largest", |i| 1.5e308 * [DVec3::NEG_X, DVec3::X, DVec3::Y, DVec3::Z][i]),
        ("tiny", |i| 1e-300 * [DVec3::ZERO, DVec3::X, DVec3::Y, DVec3::Z][i]),
    ] {
        let vertices = (0..4).map(place).collect();
        let faces = tetrahedron.iter().collect();
        meshes.push((name.into(), Mesh::new(vertices, faces).unwrap()));
    }
    // Two spheres that share a vertex, and two that share an edge.
    let sphere = icosphere(2).unwrap();
    let face = sphere.face(0).to_vec();
    for shared in [&face[..1], &face[..2]] {
        let mut vertices = sphere.vertices().to_vec();
        vertices.extend(sphere.vertices().iter().map(|&v| 1.1 * v + 0.01 * DVec3::Z));
        let renamed = |v: u32| if shared.contains(&v) { v } else { v + 162 };
        let other = sphere.faces().iter().map(|f| [f[0], f[1], f[2]].map(renamed));
        let faces = sphere.faces().iter().map(|f| [f[0], f[1], f[2]]).chain(other);
        let mesh = Mesh::new(vertices, faces.collect()).unwrap();
        meshes.push((format!("spheres that share {}", shared.len()), mesh));
    }
    for entry in std::fs::read_dir(fixture("trouble")).unwrap() {
        let path = entry.unwrap().path();
        if let Ok(mesh) = Mesh::read(&path) {
            meshes.push((path.display().to_string(), mesh));
        }
    }
    assert!(meshes.len() > 25, "{}", meshes.len());
    meshes
}

#[test]
fn no_mesh_is_too_much_trouble() {
    for (name, mesh) in trouble() {
        for kind in all_kinds() {
            match remesh(&mesh, &kind, 6) {
                Ok(result) => {
                    assert_valid(&mesh, &result);
                    let has_surface = MeshReport::new(&mesh).area > 0.0;
                    let empty = result.mesh.face_count() == 0;
                    assert!(!(has_surface && empty), "{name} {kind:?}");
                }
                Err(RemeshError::Open { boundary_edges }) => {
                    assert!(boundary_edges > 0 && kind == RESAMPLE, "{name} {kind:?}");
                }
                Err(RemeshError::TooThin { .. }) => assert_eq!(kind, RESAMPLE, "{name}"),
                Err(RemeshError::Mesh(_)) => assert!(["huge", "largest"].contains(&&*name)),
                Err(error) => panic!("{name} {kind:?}: {error}"),
            }
        }
    }
}

/// Seams stay as they are, and the rest of the surface is remeshed.
#[test]
fn nonmanifold_surfaces_are_remeshed_beside_their_seams() {
    let mesh = moebius_strip(60);
    let kinds = [iso(MeshSize::EdgeLength(0.6)), SIMPLIFY, MIDPOINT, REFINE, FLIP, JITTER];
    for kind in &kinds {
        let result = remesh(&mesh, kind, 2).unwrap();
        let report = MeshReport::new(&result.mesh);
        assert!(report.manifold && !report.orientable, "{kind:?}");
        assert_eq!((report.euler, report.boundary_loops), (0, 1), "{kind:?}");
        let ratio = report.area / MeshReport::new(&mesh).area;
        assert!((0.98..1.02).contains(&ratio), "{kind:?}: {ratio}");
        assert_ne!(result.mesh.faces().corners(), mesh.faces().corners());
    }
    let spheres = trouble().into_iter().filter(|(name, _)| name.starts_with("spheres that share"));
    for (name, mesh) in spheres {
        let before = MeshReport::new(&mesh);
        for kind in &kinds {
            let after = MeshReport::new(&remesh(&mesh, kind, 2).unwrap().mesh);
            assert_eq!(after.components, 1, "{name} {kind:?}");
            assert_eq!(after.euler, before.euler, "{name} {kind:?}");
            assert_eq!(
                (after.nonmanifold_edges > 0, after.nonmanifold_vertices > 0),
                (before.nonmanifold_edges > 0, before.nonmanifold_vertices > 0),
                "{name} {kind:?}"
            );
            assert!(after.closed, "{name} {kind:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn random_meshes_do_not_panic(
        points in prop::collection::vec(prop::array::uniform3(-2i8..3), 3..9),
        faces in prop::collection::vec(prop::collection::vec(0usize..9, 3..6), 0..14),
        seed in 0u64..1000,
    ) {
        let count = points.len();
        let vertices = points.iter().map(|p| DVec3::from(p.map(f64::from))).collect();
        let faces = faces
            .iter()
            .map(|face| face.iter().map(|v| (v % count) as u32).collect::<Vec<u32>>());
        let mesh = Mesh::new(vertices, faces.collect()).unwrap();
        for kind in all_kinds() {
            match remesh(&mesh, &kind, seed) {
                Ok(result) => assert_valid(&mesh, &result),
                Err(error) => {
                    use RemeshError::{Open, TooThin};
                    prop_assert!(matches!(error, Open { .. } | TooThin { .. }), "{}", error);
                },
            }
        }
    }
}
