//! Generated shapes: counts, orientation, exact isometry of the bends, statistics of the rough grids.

use crate::common::volume;
use std::collections::{HashMap, HashSet};
use std::f64::consts::PI;

use gemcnn_mesh::shapes::{
    Axis, Cells, Harmonic, Profile, Roughness, ShapeError, bent_grid, capsule, grid, icosahedron, icosphere,
    rough_grid, torus,
};
use gemcnn_mesh::{DVec3, Mesh};

/// Distinct edges, lower index first.
fn edges(mesh: &Mesh) -> HashSet<(u32, u32)> {
    half_edges(mesh).map(|(a, b)| (a.min(b), a.max(b))).collect()
}

fn half_edges(mesh: &Mesh) -> impl Iterator<Item = (u32, u32)> {
    mesh.faces().iter().flat_map(|face| (0..face.len()).map(move |i| (face[i], face[(i + 1) % face.len()])))
}

fn euler(mesh: &Mesh) -> i64 {
    mesh.vertex_count() as i64 - edges(mesh).len() as i64 + mesh.face_count() as i64
}

/// Every half edge once and its reverse once: closed, manifold along edges, consistently oriented.
fn assert_closed_and_oriented(mesh: &Mesh) {
    let mut seen = HashMap::new();
    for half_edge in half_edges(mesh) {
        *seen.entry(half_edge).or_insert(0) += 1;
    }
    for (&(a, b), &count) in &seen {
        assert_eq!(count, 1, "half edge {a}->{b}");
        assert_eq!(seen.get(&(b, a)), Some(&1), "reverse of {a}->{b}");
    }
}

fn assert_error<T: std::fmt::Debug>(result: Result<T, ShapeError>, text: &str) {
    let error = result.expect_err(text).to_string();
    assert!(error.contains(text), "{error:?} does not say {text:?}");
}

#[test]
fn icospheres_are_round_closed_and_outward() {
    for level in 0..5 {
        let mesh = icosphere(level).unwrap();
        assert_eq!(mesh.vertex_count(), 10 * 4_usize.pow(level) + 2);
        assert_eq!(mesh.face_count(), 20 * 4_usize.pow(level));
        assert_closed_and_oriented(&mesh);
        assert_eq!(euler(&mesh), 2);
        for vertex in mesh.vertices() {
            assert!((vertex.length() - 1.0).abs() < 1e-15);
        }
        for face in 0..mesh.face_count() {
            let p: Vec<DVec3> = mesh.face_positions(face).collect();
            assert!((p[1] - p[0]).cross(p[2] - p[0]).dot(p[0]) > 0.0);
        }
        let coarser = icosphere(level.saturating_sub(1)).unwrap();
        assert!(mesh.vertices().starts_with(coarser.vertices()));
    }
    assert_eq!(icosphere(0).unwrap(), icosahedron());
    let ball = volume(&icosphere(5).unwrap());
    assert!((ball / (4.0 / 3.0 * PI) - 1.0).abs() < 2e-3, "{ball}");
    assert_error(icosphere(14), "subdivisions is 14");
}

#[test]
fn torus_and_capsule_have_their_genus_and_volume() {
    for cells in [Cells::Quads, Cells::Triangles] {
        let mesh = torus(96, 48, 2.0, 0.5, cells).unwrap();
        assert_eq!(mesh.vertex_count(), 96 * 48);
        assert_closed_and_oriented(&mesh);
        assert_eq!(euler(&mesh), 0);
        let exact = 2.0 * PI * PI * 2.0 * 0.25;
        assert!((volume(&mesh) / exact - 1.0).abs() < 5e-3);

        let mesh = capsule(64, 16, 5, 0.5, 3.0, cells).unwrap();
        assert_eq!(mesh.vertex_count(), 64 * (2 * 16 + 5 - 1) + 2);
        assert_closed_and_oriented(&mesh);
        assert_eq!(euler(&mesh), 2);
        let exact = PI * 0.25 * (3.0 + 4.0 / 3.0 * 0.5);
        assert!((volume(&mesh) / exact - 1.0).abs() < 5e-3);
        for vertex in mesh.vertices() {
            let on_axis = DVec3::Z * vertex.z.clamp(-1.5, 1.5);
            assert!((vertex.distance(on_axis) - 0.5).abs() < 1e-12);
        }

        // The smallest of their kinds.
        assert_closed_and_oriented(&torus(3, 3, 1.0, 0.5, cells).unwrap());
        assert_closed_and_oriented(&capsule(3, 1, 1, 1.0, 1.0, cells).unwrap());
    }
    assert_error(torus(2, 9, 2.0, 1.0, Cells::Quads), "major_segments is 2, but must be at least 3");
    assert_error(torus(9, 9, 1.0, 1.0, Cells::Quads), "minor_radius is 1");
    assert_error(torus(9, 9, f64::NAN, 1.0, Cells::Quads), "major_radius is NaN");
    assert_error(torus(9, 9, 1.7e308, 1.6e308, Cells::Quads), "not finite");
    assert_error(capsule(9, 0, 1, 1.0, 1.0, Cells::Quads), "cap_bands is 0, but must be at least 1");
    assert_error(capsule(9, 1, 1, 1.0, -2.0, Cells::Quads), "length is -2, but must be a finite number over 0");
}

#[test]
fn flat_grids_are_pictures_seen_from_above() {
    let mesh = grid(3, 4, Cells::Quads).unwrap();
    assert_eq!((mesh.vertex_count(), mesh.face_count()), (12, 6));
    assert_eq!(mesh.vertices()[0], DVec3::new(0.0, 2.0, 0.0));
    assert_eq!(mesh.vertices()[4 + 2], DVec3::new(2.0, 1.0, 0.0));
    let triangles = grid(3, 4, Cells::Triangles).unwrap();
    assert_eq!(triangles.face_count(), 12);
    for mesh in [mesh, triangles] {
        assert_eq!(euler(&mesh), 1);
        for face in 0..mesh.face_count() {
            let p: Vec<DVec3> = mesh.face_positions(face).collect();
            assert_eq!((p[1] - p[0]).cross(p[2] - p[0]), DVec3::Z);
        }
    }
    assert_error(grid(1, 4, Cells::Quads), "rows is 1, but must be at least 2");
    assert_error(grid(4, 0, Cells::Quads), "columns is 0");
}

#[test]
fn sizes_beyond_32_bits_are_refused_at_once() {
    let huge = usize::MAX;
    for cells in [Cells::Quads, Cells::Triangles] {
        assert_error(grid(huge, huge, cells), "coarser");
        assert_error(grid(1 << 16, 1 << 16, cells), "4294967296 vertices");
        assert_error(grid((1 << 15) + 1, (1 << 15) + 1, cells), "face corners");
        assert_error(bent_grid(2, huge, cells, Axis::Columns, &Profile::Flat), "coarser");
        assert_error(rough_grid(huge, 3, cells, &Roughness::new(1.0, 0)), "coarser");
        assert_error(torus(huge, huge, 2.0, 1.0, cells), "coarser");
        assert_error(capsule(huge, huge, huge, 1.0, 1.0, cells), "coarser");
    }
}

fn profiles() -> Vec<Profile> {
    let mut profiles = vec![
        Profile::Cylinder { turn: 3.0 },
        Profile::Cylinder { turn: -7.5 },
        Profile::Spiral { inner_radius: 2.0, gap: 1.5 },
        Profile::Spiral { inner_radius: 0.3, gap: 0.0 },
        Profile::Wave { amplitude: 1.2, periods: 2.5 },
        Profile::from_heading(|s| 0.01 * s * s),
    ];
    profiles.extend((0..50).map(Profile::random));
    profiles
}

#[test]
fn bends_keep_every_length_and_every_angle() {
    let (rows, columns) = (28, 31);
    for profile in profiles() {
        for axis in [Axis::Rows, Axis::Columns] {
            let mesh = bent_grid(rows, columns, Cells::Quads, axis, &profile).unwrap();
            let mut height: f64 = 0.0;
            for face in 0..mesh.face_count() {
                let p: Vec<DVec3> = mesh.face_positions(face).collect();
                for i in 0..4 {
                    let (to_next, to_last) = (p[(i + 1) % 4] - p[i], p[(i + 3) % 4] - p[i]);
                    assert!((to_next.length() - 1.0).abs() < 1e-12, "{profile:?}");
                    assert!(to_next.dot(to_last).abs() < 1e-12, "{profile:?}");
                    height = height.max(p[i].z.abs());
                }
                let off_plane = (p[1] - p[0]).cross(p[3] - p[0]).dot(p[2] - p[0]);
                assert!(off_plane.abs() < 1e-12, "{profile:?}");
            }
            assert!(height > 0.5, "{profile:?} stayed flat");
            // The lines along the axis stay straight.
            let straight = match axis {
                Axis::Rows => mesh.vertices()[columns - 1] - mesh.vertices()[0],
                Axis::Columns => mesh.vertices()[0] - mesh.vertices()[(rows - 1) * columns],
            };
            let expected = match axis {
                Axis::Rows => DVec3::X * 30.0,
                Axis::Columns => DVec3::Y * 27.0,
            };
            assert_eq!(straight, expected);
        }
    }
}

#[test]
fn flat_profiles_give_the_flat_grid_exactly() {
    let flat_profiles = [
        Profile::Flat,
        Profile::Cylinder { turn: 0.0 },
        Profile::Wave { amplitude: 0.0, periods: 3.0 },
        Profile::Harmonics { turn: 0.0, waves: vec![Harmonic { amplitude: 0.0, periods: 1.0, phase: 1.0 }] },
        Profile::from_heading(|_| 0.0),
    ];
    for cells in [Cells::Quads, Cells::Triangles] {
        for axis in [Axis::Rows, Axis::Columns] {
            for profile in &flat_profiles {
                let bent = bent_grid(5, 9, cells, axis, profile).unwrap();
                assert_eq!(bent, grid(5, 9, cells).unwrap(), "{profile:?}");
            }
        }
    }
}

#[test]
fn profiles_follow_their_curves() {
    let cross_section = |profile: &Profile, columns: usize| {
        let mesh = bent_grid(2, columns, Cells::Quads, Axis::Columns, profile).unwrap();
        mesh.vertices()[..columns].to_vec()
    };
    // A full turn over 60 segments closes to a regular polygon.
    let circle = cross_section(&Profile::Cylinder { turn: 2.0 * PI }, 61);
    assert!(circle[0].distance(circle[60]) < 1e-12);
    let centre = circle[..60].iter().sum::<DVec3>() / 60.0;
    let radius = 0.5 / (PI / 60.0).sin();
    for point in &circle {
        assert!((point.distance(centre) - radius).abs() < 1e-12);
    }
    // The layers of a roll are `gap` apart: the nearest points one layer out are at that distance.
    let (inner_radius, gap) = (20.0, 6.0);
    let roll = cross_section(&Profile::Spiral { inner_radius, gap }, 1000);
    for i in (100..400).step_by(50) {
        let one_turn_on = i + (2.0 * PI * inner_radius) as usize / 2;
        let nearest = roll[one_turn_on..].iter().map(|point| point.distance(roll[i])).fold(f64::INFINITY, f64::min);
        assert!((nearest / gap - 1.0).abs() < 0.02, "{nearest} at {i}");
    }
    // Two waves come back to level, and are as steep as they should be.
    let wave = cross_section(&Profile::Wave { amplitude: 0.5, periods: 2.0 }, 201);
    assert!(wave[200].z.abs() < 1e-9);
    let steepest = wave.windows(2).map(|pair| (pair[1].z - pair[0].z).asin()).fold(0.0, f64::max);
    assert!((steepest - 0.5).abs() < 1e-3);
}

#[test]
fn random_profiles_differ_by_seed_and_stay_the_same() {
    let Profile::Harmonics { turn, waves } = Profile::random(7) else {
        panic!("random profiles are harmonics");
    };
    assert_eq!(waves.len(), 3);
    assert_eq!(turn, -2.150130535259553);
    assert_eq!(waves[2].phase, -2.6197142551571);
    let headings: HashSet<u64> = (0..32).map(|seed| Profile::random(seed).heading(3.0, 27.0).to_bits()).collect();
    assert_eq!(headings.len(), 32);
}

#[test]
fn bad_profiles_are_refused() {
    let bend = |profile: &Profile| bent_grid(4, 4, Cells::Quads, Axis::Columns, profile);
    assert_error(bend(&Profile::Cylinder { turn: f64::INFINITY }), "turn is inf");
    assert_error(
        bend(&Profile::Spiral { inner_radius: 0.0, gap: 1.0 }),
        "inner_radius is 0, but must be a finite number over 0",
    );
    assert_error(bend(&Profile::Wave { amplitude: f64::NAN, periods: 1.0 }), "amplitude is NaN");
    assert_error(bend(&Profile::from_heading(|s| 1.0 / (s - 1.5))), "heading of the profile is inf");
    assert_eq!(
        bend(&Profile::from_heading(|s| if s < 2.0 { 0.0 } else { PI })),
        Err(ShapeError::FoldedBack { line: 2 })
    );
}

/// Root mean square slope along the rows and columns of a rough grid.
fn rms_slope(mesh: &Mesh, rows: usize, columns: usize) -> f64 {
    let vertices = mesh.vertices();
    let mut squares = Vec::new();
    for row in 0..rows {
        for column in 0..columns {
            let here = vertices[row * columns + column];
            if column + 1 < columns {
                let step = vertices[row * columns + column + 1] - here;
                squares.push((step.z / step.x).powi(2));
            }
            if row + 1 < rows {
                let step = vertices[(row + 1) * columns + column] - here;
                squares.push((step.z / step.y).powi(2));
            }
        }
    }
    (squares.iter().sum::<f64>() / squares.len() as f64).sqrt()
}

#[test]
fn rough_grids_have_unit_edges_on_average() {
    for cells in [Cells::Quads, Cells::Triangles] {
        for roughness in [-1.0, 0.5, 1.5, 2.5, 2.999] {
            let mesh = rough_grid(28, 20, cells, &Roughness::new(roughness, 3)).unwrap();
            let edges = edges(&mesh);
            let total: f64 =
                edges.iter().map(|&(a, b)| mesh.vertices()[a as usize].distance(mesh.vertices()[b as usize])).sum();
            assert!((total / edges.len() as f64 - 1.0).abs() < 1e-12);
        }
    }
    let still = Roughness { amplitude: 0.0, ..Roughness::new(2.0, 3) };
    assert_eq!(rough_grid(6, 5, Cells::Quads, &still), grid(6, 5, Cells::Quads));
}

/// Prints the slopes of `docs/shapes.md`:
/// `cargo test -p gemcnn-mesh --test suite slopes -- --nocapture`.
#[test]
fn slopes_grow_with_roughness_as_documented() {
    let documented = [
        (0.5, 0.101),
        (1.0, 0.153),
        (1.25, 0.198),
        (1.5, 0.266),
        (1.75, 0.377),
        (2.0, 0.572),
        (2.25, 0.979),
        (2.5, 2.28),
    ];
    println!("| roughness | sigma | rms slope | mean angle |");
    for (roughness, expected) in documented {
        let slopes = (0..64).map(|seed| {
            let mesh = rough_grid(28, 28, Cells::Quads, &Roughness::new(roughness, seed)).unwrap();
            rms_slope(&mesh, 28, 28).powi(2)
        });
        let slope = (slopes.sum::<f64>() / 64.0).sqrt();
        println!("| {roughness} | {} | {slope:.3} | {:.0} |", 3.0 - roughness, slope.atan().to_degrees());
        assert!((slope / expected - 1.0).abs() < 0.01, "roughness {roughness}: {slope} instead of {expected}");
    }
}

#[test]
fn rough_grids_are_seeded_and_stay_the_same() {
    let rough = |seed| rough_grid(28, 28, Cells::Quads, &Roughness::new(1.5, seed)).unwrap();
    assert_eq!(rough(7), rough(7));
    assert_ne!(rough(7), rough(8));
    // The draw is value stable; the last digits are those of the platform's exponential.
    for (vertex, height) in [(0, -0.9192512794849703), (400, -0.13306797641420506), (783, 1.5601725409787455)] {
        let z = rough(7).vertices()[vertex].z;
        assert!((z - height).abs() < 1e-12, "vertex {vertex}: {z:?}");
    }
}

#[test]
fn bad_roughness_is_refused() {
    let rough = |roughness, amplitude| {
        let options = Roughness { roughness, amplitude, seed: 0 };
        rough_grid(4, 4, Cells::Quads, &options)
    };
    assert_error(rough(3.0, 1.0), "roughness is 3, but must be at least -97");
    assert_error(rough(f64::NAN, 1.0), "roughness is NaN");
    assert_error(rough(-1e9, 1.0), "roughness is -1000000000");
    assert_error(rough(1.0, -1.0), "amplitude is -1");
    assert_error(rough(1.0, f64::INFINITY), "amplitude is inf");
}
