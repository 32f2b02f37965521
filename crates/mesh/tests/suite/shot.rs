//! SHOT frames and descriptors: repeatable on generic meshes, ambiguous on symmetric ones.

use crate::common::read;
use gemcnn_mesh::features::shot::{self, ShotFrame, ShotOptions};
use gemcnn_mesh::shapes::{self, Cells};
use gemcnn_mesh::{DVec3, GaugeGraph, GeometryError, GeometryOptions, Mesh};
use glam::DQuat;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A long closed body with smooth bumps and a rough surface, without any symmetry.
fn bumpy_body() -> Mesh {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    shapes::icosphere(4)
        .unwrap()
        .map_vertices(|v| {
            let bumps = (3.0 * v.x + 0.4).sin() * (4.0 * v.y - 1.0).cos() + (5.0 * v.z + 2.0).sin();
            let rough = 0.01 * rng.random::<f64>();
            (1.0 + 0.15 * bumps + rough) * v * DVec3::new(1.0, 1.4, 2.3)
        })
        .unwrap()
}

fn turn() -> DQuat {
    DQuat::from_xyzw(0.3, -0.5, 0.7, 0.4).normalize()
}

fn moved(mesh: &Mesh) -> Mesh {
    let shift = DVec3::new(3.0, -2.0, 1.0);
    mesh.map_vertices(|v| turn() * v + shift).unwrap()
}

/// Which frames follow the rotation.
fn followed(before: &[ShotFrame], after: &[ShotFrame], turn: DQuat) -> Vec<bool> {
    let same = |a: DVec3, b: DVec3| (turn * a - b).length() < 1e-6;
    before.iter().zip(after).map(|(a, b)| same(a.x, b.x) && same(a.y, b.y) && same(a.z, b.z)).collect()
}

#[test]
fn frames_and_descriptors_of_generic_meshes_follow_rigid_motion() {
    for (name, mesh) in [("spot", read("spot.obj")), ("bumpy body", bumpy_body())] {
        for radius in [None, Some(1.7 * shot::default_radius(&mesh))] {
            let options = ShotOptions { radius, ..Default::default() };
            let turned = moved(&mesh);
            let before = shot::frames(&mesh, &options).unwrap();
            let after = shot::frames(&turned, &options).unwrap();
            let followed = followed(&before, &after, turn());
            let count = followed.iter().filter(|&&followed| followed).count();
            assert!(
                count as f64 > 0.99 * mesh.vertex_count() as f64,
                "{name}: {count} of {} frames",
                mesh.vertex_count()
            );
            // Frames that say they are reliable are.
            for (frame, followed) in before.iter().zip(&followed) {
                assert!(*followed || frame.reliability < 1e-6, "{name}: {frame:?}");
            }
            let before = shot::descriptors(&mesh, &options).unwrap();
            let after = shot::descriptors(&turned, &options).unwrap();
            for (vertex, (a, b)) in before.rows().zip(after.rows()).enumerate() {
                let error = a.iter().zip(b).map(|(a, b)| (a - b).abs());
                let error = error.fold(0.0, f64::max);
                assert!(!followed[vertex] || error < 1e-6, "{name}, vertex {vertex}: {error}");
            }
        }
    }
}

#[test]
fn frames_are_right_handed_and_point_to_the_majority() {
    let mesh = bumpy_body();
    let radius = shot::default_radius(&mesh);
    for (vertex, frame) in shot::frames(&mesh, &ShotOptions::default()).unwrap().iter().enumerate() {
        assert!((frame.x.length() - 1.0).abs() < 1e-12 && (frame.z.length() - 1.0).abs() < 1e-12);
        assert!(frame.x.dot(frame.z).abs() < 1e-12);
        assert!((frame.x.cross(frame.y) - frame.z).length() < 1e-12);
        let centre = mesh.vertices()[vertex];
        let near = mesh.vertices().iter().map(|v| *v - centre);
        let near = near.filter(|d| d.length() <= radius && d.length() > 0.0);
        for axis in [frame.x, frame.z] {
            let sides: i32 = near.clone().map(|d| if d.dot(axis) > 0.0 { 1 } else { -1 }).sum();
            assert!(sides >= 0, "vertex {vertex}: {sides}");
        }
        // x spreads most, z least.
        let spread = |axis: DVec3| {
            let term = |d: DVec3| (radius - d.length()) * d.dot(axis).powi(2);
            near.clone().map(term).sum::<f64>()
        };
        assert!(spread(frame.x) >= spread(frame.y) && spread(frame.y) >= spread(frame.z));
    }
}

#[test]
fn the_icosahedron_has_no_unique_frames() {
    let mesh = shapes::icosahedron();
    let options = ShotOptions::default();
    let frames = shot::frames(&mesh, &options).unwrap();
    assert!(frames.iter().all(|frame| frame.reliability < 1e-12));
    // Every symmetry of the solid takes vertices to vertices, but not frames to frames.
    let mut symmetries = 0;
    let mut frames_kept = 0;
    for axis in mesh.vertices() {
        for fifth in 1..5 {
            let turn = DQuat::from_axis_angle(*axis, f64::from(fifth) * std::f64::consts::TAU / 5.0);
            let image = |v: &DVec3| {
                let place = |w: &DVec3| (turn * *v - *w).length() < 1e-9;
                mesh.vertices().iter().position(place).unwrap()
            };
            let images: Vec<ShotFrame> = mesh.vertices().iter().map(|v| frames[image(v)]).collect();
            symmetries += 1;
            let kept = followed(&frames, &images, turn);
            frames_kept += usize::from(kept.iter().all(|&kept| kept));
        }
    }
    assert_eq!((symmetries, frames_kept), (48, 0));
    // Nor do they follow a rotation of the solid: rounding decides.
    let after = shot::frames(&moved(&mesh), &options).unwrap();
    let followed = followed(&frames, &after, turn());
    assert!(followed.iter().filter(|&&followed| followed).count() <= 3);
}

#[test]
fn a_plane_has_its_normal_as_z_axis_on_either_side() {
    for flip in [1.0, -1.0] {
        let sheet = shapes::grid(9, 13, Cells::Triangles).unwrap();
        let sheet = sheet.map_vertices(|v| turn() * DVec3::new(v.x, flip * v.y, 0.0)).unwrap();
        for frame in shot::frames(&sheet, &ShotOptions::default()).unwrap() {
            assert!((frame.z - flip * (turn() * DVec3::Z)).length() < 1e-9);
        }
    }
}

#[test]
fn descriptors_tell_vertices_apart_and_mirrored_bodies_too() {
    let mesh = bumpy_body();
    let field = shot::descriptors(&mesh, &ShotOptions::default()).unwrap();
    let rows: Vec<&[f64]> = field.rows().collect();
    let distance = |a: &[f64], b: &[f64]| {
        let squares = a.iter().zip(b).map(|(a, b)| (a - b).powi(2));
        squares.sum::<f64>().sqrt()
    };
    for row in &rows {
        let length = distance(row, &[0.0; 352]);
        assert!((length - 1.0).abs() < 1e-12 && row.iter().all(|&value| value >= 0.0));
    }
    assert!(distance(rows[0], rows[1]) > 0.1);
    let mirrored = mesh.map_vertices(|v| v * DVec3::new(-1.0, 1.0, 1.0)).unwrap();
    let (vertices, faces) = mirrored.into_parts();
    let faces = faces.iter().map(|f| [f[0], f[2], f[1]]).collect::<Vec<_>>();
    let mirrored = Mesh::new(vertices, faces.iter().collect()).unwrap();
    let other = shot::descriptors(&mirrored, &ShotOptions::default()).unwrap();
    let apart = rows.iter().zip(other.rows()).map(|(a, b)| distance(a, b));
    assert!(apart.sum::<f64>() / rows.len() as f64 > 0.1);
}

#[test]
fn the_gauge_lies_along_the_x_axes() {
    for mesh in [bumpy_body(), shapes::capsule(12, 5, 4, 1.0, 2.0, Cells::Quads).unwrap()] {
        let options = ShotOptions::default();
        let gauge = shot::gauge(&mesh, &options).unwrap();
        let geometry = GeometryOptions { gauge, ..Default::default() };
        let graph = GaugeGraph::new(&mesh, &geometry).unwrap();
        let shot = shot::frames(&mesh, &options).unwrap();
        let mut along = 0;
        for (frame, shot) in graph.frames().iter().zip(&shot) {
            let tangent = shot.x.reject_from_normalized(frame.normal);
            along += usize::from((tangent.normalize() - frame.e1).length() < 1e-9);
        }
        // At the poles of the capsule x may be along the normal.
        assert!(along >= mesh.vertex_count() - 2);
    }
}

#[test]
fn results_are_the_same_bits_for_any_number_of_threads() {
    let mesh = read("spot.obj");
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().unwrap().install(|| shot::descriptors(&mesh, &ShotOptions::default()).unwrap())
    };
    assert_eq!(on(1), on(3));
}

#[test]
fn degenerate_input_gives_zeros_or_an_error_never_nan() {
    let (mut vertices, faces) = shapes::icosahedron().into_parts();
    // A vertex of no face: neither described nor in the support of others.
    vertices.push(DVec3::new(0.0, 0.0, 0.9));
    let mesh = Mesh::new(vertices, faces).unwrap();
    let alone = shapes::icosahedron();
    for radius in [None, Some(0.0), Some(1e-3), Some(1.5), Some(1e300)] {
        let options = ShotOptions { radius, ..Default::default() };
        let field = shot::descriptors(&mesh, &options).unwrap();
        assert!(field.values.iter().all(|value| value.is_finite()));
        let expected = shot::descriptors(&alone, &options).unwrap();
        assert_eq!(field.values[..12 * 352], expected.values[..]);
        for frame in shot::frames(&mesh, &options).unwrap() {
            assert!((frame.x.cross(frame.y) - frame.z).length() < 1e-12);
        }
    }
    for radius in [-1.0, f64::NAN, f64::INFINITY] {
        let options = ShotOptions { radius: Some(radius), ..Default::default() };
        let error = shot::frames(&mesh, &options).unwrap_err();
        assert!(matches!(error, GeometryError::BadRadius { .. }));
    }
    let empty = Mesh::new(vec![], Default::default()).unwrap();
    let nothing = shot::descriptors(&empty, &ShotOptions::default()).unwrap();
    assert!(nothing.values.is_empty());
    // Sizes whose squares overflow or vanish.
    let body = bumpy_body();
    let usual = shot::descriptors(&body, &ShotOptions::default()).unwrap();
    for scale in [2f64.powi(600), 2f64.powi(-600)] {
        let extreme = body.map_vertices(|v| v * scale).unwrap();
        let field = shot::descriptors(&extreme, &ShotOptions::default()).unwrap();
        let error = field.values.iter().zip(&usual.values).map(|(a, b)| (a - b).abs());
        assert!(error.fold(0.0, f64::max) < 1e-9);
    }
}

/// Marching on a lattice makes such vertices.
#[test]
fn vertices_of_flat_faces_are_described_by_their_surroundings() {
    let (mut vertices, faces) = bumpy_body().into_parts();
    let mut faces: Vec<Vec<u32>> = faces.iter().map(<[u32]>::to_vec).collect();
    let [first, second] = [faces[0][0], faces[0][1]];
    let twin = vertices.len() as u32;
    vertices.push(vertices[first as usize]);
    faces.push(vec![first, second, twin]);
    let mesh = Mesh::new(vertices, faces.into_iter().collect()).unwrap();
    let values = (shot::descriptors(&mesh, &ShotOptions::default()).unwrap()).values;
    assert!(values.iter().all(|value| value.is_finite()));
    let of = |vertex: u32| &values[vertex as usize * 352..][..352];
    assert!(of(twin).iter().any(|&value| value > 0.0));
    assert_eq!(of(twin), of(first));
    assert!(shot::gauge(&mesh, &ShotOptions::default()).is_ok());
}
