//! The verdict and the repairs, on shapes whose topology is known.

use gemcnn_mesh::shapes::icosahedron;
use gemcnn_mesh::{DVec3, Mesh, MeshReport, Repair, RepairError, repair};
use proptest::prelude::*;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const WELD: Repair = Repair::Weld { tolerance: 0.0 };

/// Points in general position on a curve: no two equal, no three on a line.
fn curve(count: usize) -> Vec<DVec3> {
    (0..count).map(|i| i as f64 / count as f64).map(|t| DVec3::new(t, t * t, t * t * t)).collect()
}

fn mesh<F: AsRef<[u32]>>(vertices: Vec<DVec3>, faces: impl IntoIterator<Item = F>) -> Mesh {
    Mesh::new(vertices, faces.into_iter().collect()).unwrap()
}

/// A mesh given by its faces alone.
fn complex<F: AsRef<[u32]>>(vertices: usize, faces: impl IntoIterator<Item = F>) -> Mesh {
    mesh(curve(vertices), faces)
}

fn tetrahedron() -> Mesh {
    complex(4, [[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]])
}

fn cube_of_quads() -> Mesh {
    let vertices = (0..8).map(|i| DVec3::new((i & 1) as f64, (i >> 1 & 1) as f64, (i >> 2) as f64));
    mesh(vertices.collect(), [[0, 2, 3, 1], [4, 5, 7, 6], [0, 1, 5, 4], [2, 6, 7, 3], [0, 4, 6, 2], [1, 3, 7, 5]])
}

/// Quads of a `columns` x `rows` lattice; `vertex` says which vertex stands at a lattice point.
fn lattice(columns: u32, rows: u32, vertex: impl Fn(u32, u32) -> u32) -> Vec<[u32; 4]> {
    let mut faces = Vec::new();
    for j in 0..rows {
        for i in 0..columns {
            faces.push([vertex(i, j), vertex(i + 1, j), vertex(i + 1, j + 1), vertex(i, j + 1)]);
        }
    }
    faces
}

fn open_grid(n: u32) -> Mesh {
    let points = (0..(n + 1) * (n + 1)).map(|v| DVec3::new((v % (n + 1)) as f64, (v / (n + 1)) as f64, 0.0));
    mesh(points.collect(), lattice(n, n, |i, j| j * (n + 1) + i))
}

fn torus(n: u32, m: u32) -> Mesh {
    let quads = lattice(n, m, |i, j| (j % m) * n + i % n);
    complex((n * m) as usize, quads.iter().flat_map(|&[a, b, c, d]| [[a, b, c], [a, c, d]]))
}

/// Around the columns plainly, around the rows with a reflection.
fn klein_bottle(n: u32, m: u32) -> Mesh {
    let vertex = |i: u32, j: u32| {
        if j < m { j * n + i % n } else { (n - i % n) % n }
    };
    complex((n * m) as usize, lattice(n, m, vertex))
}

fn annulus(n: u32) -> Mesh {
    complex(2 * n as usize, lattice(n, 1, |i, j| j * n + i % n))
}

fn moebius_strip(n: u32) -> Mesh {
    let vertex = |i: u32, j: u32| if i < n { 2 * i + j } else { 1 - j };
    complex(2 * n as usize, lattice(n, 1, vertex))
}

/// Both meshes side by side.
fn both(a: &Mesh, b: &Mesh) -> Mesh {
    Mesh::side_by_side([(a, DVec3::ZERO), (b, DVec3::splat(1000.0))]).unwrap()
}

#[test]
fn closed_surfaces() {
    for (shape, counts, euler, genus) in [
        (tetrahedron(), (4, 6, 4), 2, 0),
        (icosahedron(), (12, 30, 20), 2, 0),
        (cube_of_quads(), (8, 12, 6), 2, 0),
        (torus(7, 5), (35, 105, 70), 0, 1),
        (both(&torus(4, 3), &torus(3, 9)), (39, 117, 78), 0, 2),
        (both(&tetrahedron(), &torus(3, 3)), (13, 33, 22), 2, 1),
    ] {
        let report = MeshReport::new(&shape);
        assert_eq!((report.vertices, report.edges, report.faces), counts);
        assert_eq!((report.euler, report.genus), (euler, Some(genus)));
        assert!(report.closed && report.manifold && report.orientable);
        assert!(report.consistently_oriented && report.is_sound());
        assert_eq!((report.boundary_edges, report.boundary_loops), (0, 0));
        assert_eq!(report.suggested_repairs(), []);
    }
}

#[test]
fn components_are_counted_and_their_genera_added() {
    let pair = MeshReport::new(&both(&torus(5, 4), &annulus(6)));
    assert_eq!((pair.components, pair.boundary_loops), (2, 2));
    assert_eq!((pair.euler, pair.genus), (0, Some(1)));
    assert!(!pair.closed && pair.is_sound());
}

#[test]
fn surfaces_with_boundary() {
    for (shape, edges, boundary, loops, euler) in [(open_grid(4), 40, 16, 1, 1), (annulus(6), 18, 12, 2, 0)] {
        let report = MeshReport::new(&shape);
        assert_eq!((report.edges, report.boundary_edges), (edges, boundary));
        assert_eq!((report.boundary_loops, report.euler), (loops, euler));
        assert_eq!((report.genus, report.components), (Some(0), 1));
        assert!(!report.closed && report.is_sound());
    }
    let grid = MeshReport::new(&open_grid(4));
    assert_eq!(grid.examples.boundary_edges, [[0, 1], [0, 5], [1, 2], [2, 3], [3, 4]]);
}

#[test]
fn one_sided_surfaces_are_not_orientable_and_have_no_genus() {
    let strip = MeshReport::new(&moebius_strip(5));
    assert_eq!((strip.euler, strip.boundary_loops, strip.boundary_edges), (0, 1, 10));
    let bottle = MeshReport::new(&klein_bottle(5, 4));
    assert_eq!((bottle.euler, bottle.boundary_loops, bottle.edges), (0, 0, 40));
    assert!(bottle.closed);
    for report in [&strip, &bottle] {
        assert!(report.manifold && !report.orientable && !report.consistently_oriented);
        assert_eq!((report.genus, report.nonorientable_components), (None, 1));
        assert!(report.inconsistent_edges > 0 && !report.is_sound());
        // Turning faces cannot help.
        assert_eq!((report.misoriented_faces, report.suggested_repairs()), (0, vec![]));
    }
    let mixed = MeshReport::new(&both(&torus(3, 3), &moebius_strip(4)));
    assert_eq!((mixed.components, mixed.nonorientable_components), (2, 1));
    assert_eq!(mixed.examples.nonorientable_components, [9]);
}

#[test]
fn triangles_that_share_only_a_vertex_pinch_it() {
    let report = MeshReport::new(&complex(5, [[0, 1, 2], [0, 3, 4]]));
    assert_eq!((report.nonmanifold_vertices, report.nonmanifold_edges), (1, 0));
    assert_eq!(report.examples.nonmanifold_vertices, [0]);
    assert_eq!((report.components, report.boundary_loops), (1, 2));
    assert_eq!((report.euler, report.genus), (1, None));
    assert!(!report.manifold && !report.is_sound());
}

#[test]
fn three_pages_on_an_edge_make_it_nonmanifold_but_pinch_nothing() {
    let report = MeshReport::new(&complex(5, [[0, 1, 2], [0, 1, 3], [1, 0, 4]]));
    assert_eq!((report.nonmanifold_edges, report.nonmanifold_vertices), (1, 0));
    assert_eq!(report.examples.nonmanifold_edges, [[0, 1]]);
    // All six free edges meet in the two fans at 0 and 1.
    assert_eq!((report.boundary_edges, report.boundary_loops), (6, 1));
    assert_eq!((report.edges, report.euler, report.genus), (7, 1, None));
    // There is no edge with exactly two sides that could be inconsistent.
    assert!(report.orientable && report.consistently_oriented && !report.manifold);
}

#[test]
fn every_kind_of_degenerate_face() {
    let vertices = vec![
        DVec3::ZERO,
        DVec3::X,
        DVec3::Y,
        DVec3::X * 2.0, // on the line 0 1
        DVec3::Z,       // only in a face that repeats it
        DVec3::ONE,     // in no face
    ];
    let faces: [&[u32]; 6] = [&[0, 1, 2], &[4, 4, 0], &[0, 1, 3], &[2, 1, 0], &[0, 1, 0, 2], &[0, 1, 3, 1]];
    let shape = mesh(vertices, faces);
    let report = MeshReport::new(&shape);
    assert_eq!(report.degenerate_faces, 4);
    assert_eq!(report.examples.degenerate_faces, [1, 2, 4, 5]);
    assert_eq!((report.triangles, report.quads, report.polygons), (4, 2, 0));
    // The triangle, its reverse and the flat triangle are proper; vertex 4 is used, but not by them.
    assert_eq!((report.edges, report.euler, report.components), (5, 4 - 5 + 3, 1));
    assert_eq!((report.isolated_vertices, report.duplicate_faces), (1, 1));
    assert_eq!(report.examples.isolated_vertices, [5]);
    assert_eq!(report.examples.duplicate_faces, [[0, 3]]);
    assert_eq!(report.nonmanifold_edges, 1);
    assert_eq!(report.area, 1.0);

    let repaired = repair(&shape, &report.suggested_repairs()).unwrap();
    let after = MeshReport::new(&repaired.mesh);
    assert!(after.is_sound());
    assert_eq!((after.vertices, after.faces), (3, 1));
    assert_eq!(repaired.vertex_map, [Some(0), Some(1), Some(2), None, None, None]);
    let steps: Vec<_> = repaired.steps.iter().map(|step| (step.repair, step.changed, step.total)).collect();
    assert_eq!(
        steps,
        [
            (Repair::DropDegenerateFaces, 4, 6),
            (Repair::DropDuplicateFaces, 1, 2),
            (Repair::DropIsolatedVertices, 3, 6),
            (Repair::Orient, 0, 1),
        ]
    );
}

#[test]
fn sizes() {
    let faces: [&[u32]; 3] = [&[0, 1, 2, 3, 4], &[0, 1, 5], &[1, 2, 6, 5]];
    let report = MeshReport::new(&complex(7, faces));
    assert_eq!((report.triangles, report.quads, report.polygons), (1, 1, 1));
    let cube = MeshReport::new(&cube_of_quads());
    assert_eq!((cube.area, cube.bounds), (6.0, Some([[0.0; 3], [1.0; 3]])));
    let box_ = cube_of_quads().map_vertices(|p| p * DVec3::new(1.0, 2.0, 6.0)).unwrap();
    let report = MeshReport::new(&box_);
    let lengths = (report.min_edge_length, report.mean_edge_length, report.max_edge_length);
    assert_eq!((report.area, lengths), (40.0, (1.0, 3.0, 6.0)));
}

#[test]
fn a_mesh_of_nothing_has_a_report() {
    let report = MeshReport::new(&mesh(vec![], [[0u32; 0]; 0]));
    assert_eq!((report.vertices, report.components, report.euler), (0, 0, 0));
    assert_eq!((report.genus, report.bounds, report.mean_edge_length), (None, None, 0.0));
    assert!(!report.closed && !report.is_sound());
    // Only a face that takes no part in the topology.
    let report = MeshReport::new(&complex(2, [[0, 1, 0]]));
    assert_eq!((report.components, report.euler, report.isolated_vertices), (0, 0, 0));
    assert_eq!((report.genus, report.closed, report.degenerate_faces), (None, false, 1));
}

#[test]
fn weld_makes_a_cube_of_six_loose_quads() {
    let cube = cube_of_quads();
    let mut corners: Vec<DVec3> = cube.faces().corners().iter().map(|&v| cube.vertices()[v as usize]).collect();
    for corner in &mut corners[12..] {
        if corner.x == 0.0 {
            corner.x = -0.0;
        }
    }
    let soup = mesh(corners, (0..6).map(|f| [4 * f, 4 * f + 1, 4 * f + 2, 4 * f + 3]));
    let before = MeshReport::new(&soup);
    assert_eq!((before.coincident_vertices, before.components, before.boundary_loops), (16, 6, 6));

    let welded = repair(&soup, &[WELD]).unwrap();
    assert_eq!(welded.steps[0].to_string(), "weld: merged 24 vertices into 8");
    assert_eq!((welded.steps[0].changed, welded.steps[0].total), (16, 24));
    let after = MeshReport::new(&welded.mesh);
    assert!(after.is_sound() && after.closed);
    assert_eq!((after.vertices, after.edges, after.faces, after.genus), (8, 12, 6, Some(0)));
    // Old corners lead to the vertex at their place, and the kept ones stay in order.
    for (old, new) in welded.vertex_map.iter().enumerate() {
        let new = new.unwrap() as usize;
        assert_eq!(soup.vertices()[old], welded.mesh.vertices()[new]);
        assert!(welded.vertex_origin[new] as usize <= old);
    }
    assert!(welded.vertex_origin.is_sorted());
}

#[test]
fn weld_with_a_tolerance_keeps_the_lowest_and_does_not_chain() {
    let points = [0.0, 0.9, 1.8, 2.7, 10.0, 0.5].map(|x| DVec3::X * x);
    let shape = mesh(points.to_vec(), [[0, 4, 2], [1, 3, 5]]);
    let welded = repair(&shape, &[Repair::Weld { tolerance: 1.0 }]).unwrap();
    // 0.9 and 0.5 go to 0.0; 1.8 is too far from it, stays, and takes 2.7.
    assert_eq!(welded.vertex_origin, [0, 2, 4]);
    let map = [0, 0, 1, 1, 2, 0].map(Some);
    assert_eq!(welded.vertex_map, map);
    assert_eq!(welded.mesh.faces().corners(), [0, 2, 1, 0, 1, 0]);
    assert_eq!(welded.steps[0].to_string(), "weld=1.0: merged 6 vertices into 3");
    let again = repair(&welded.mesh, &[Repair::Weld { tolerance: 1.0 }]).unwrap();
    assert_eq!(again.steps[0].to_string(), "weld=1.0: no vertices to merge");
    // Exactly the tolerance away is within.
    let pair = mesh([0.0, 1.0, 5.0].map(|x| DVec3::X * x).to_vec(), [[0, 1, 2]]);
    let welded = repair(&pair, &[Repair::Weld { tolerance: 1.0 }]).unwrap();
    assert_eq!(welded.mesh.vertex_count(), 2);
}

#[test]
fn welding_prefers_the_lower_of_two_kept_points() {
    let points = [0.0, 1.5, 0.9].map(|x| DVec3::X * x);
    let shape = mesh(points.to_vec(), [[0, 1, 2]]);
    let welded = repair(&shape, &[Repair::Weld { tolerance: 1.0 }]).unwrap();
    assert_eq!(welded.vertex_map, [Some(0), Some(1), Some(0)]);
}

#[test]
fn bad_tolerances_are_refused_before_anything_is_done() {
    for tolerance in [-1e-9, f64::NAN, f64::INFINITY] {
        let result = repair(&tetrahedron(), &[Repair::Orient, Repair::Weld { tolerance }]);
        assert!(matches!(result, Err(RepairError::Tolerance { .. })));
    }
}

#[test]
fn drop_isolated_keeps_the_order_of_the_rest() {
    let shape = complex(7, [[6, 1, 4], [4, 1, 3]]);
    let repaired = repair(&shape, &[Repair::DropIsolatedVertices]).unwrap();
    assert_eq!(repaired.vertex_origin, [1, 3, 4, 6]);
    assert_eq!(repaired.vertex_map, [None, Some(0), None, Some(1), Some(2), None, Some(3)]);
    assert_eq!(repaired.mesh.faces().corners(), [3, 0, 2, 2, 0, 1]);
    assert_eq!(repaired.mesh.vertices()[3], shape.vertices()[6]);
}

#[test]
fn maps_compose_over_the_repairs() {
    let mut vertices = curve(8);
    vertices[5] = vertices[2];
    let shape = mesh(vertices, [[1, 2, 3], [3, 5, 6]]);
    let repaired = repair(&shape, &[Repair::DropIsolatedVertices, WELD]).unwrap();
    assert_eq!(repaired.vertex_origin, [1, 2, 3, 6]);
    assert_eq!(repaired.vertex_map, [None, Some(0), Some(1), Some(2), None, Some(1), Some(3), None]);
    assert_eq!(repaired.mesh.faces().corners(), [0, 1, 2, 2, 1, 3]);
}

#[test]
fn drop_duplicates_keeps_the_first_as_it_stands() {
    let shape = complex(5, [[2, 0, 1], [0, 1, 2], [1, 3, 2], [2, 1, 0], [4, 3, 0], [2, 1, 3]]);
    let repaired = repair(&shape, &[Repair::DropDuplicateFaces]).unwrap();
    assert_eq!(repaired.mesh.faces().corners(), [2, 0, 1, 1, 3, 2, 4, 3, 0]);
    assert_eq!(MeshReport::new(&shape).duplicate_faces, 3);
    assert_eq!(MeshReport::new(&repaired.mesh).duplicate_faces, 0);
}

/// The mesh with the chosen faces reversed.
fn flipped(shape: &Mesh, mut choose: impl FnMut(usize) -> bool) -> Mesh {
    let faces = shape.faces().iter().enumerate().map(|(index, face)| {
        let mut face = face.to_vec();
        if choose(index) {
            face.reverse();
        }
        face
    });
    mesh(shape.vertices().to_vec(), faces)
}

#[test]
fn orient_restores_a_randomly_flipped_torus() {
    let torus = torus(20, 15);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for share in [0.05, 0.3, 0.5, 0.9] {
        let mut flips = 0;
        let messed = flipped(&torus, |_| {
            let flip = rng.random::<f64>() < share;
            flips += usize::from(flip);
            flip
        });
        let before = MeshReport::new(&messed);
        assert!(before.orientable && !before.consistently_oriented);
        assert_eq!(before.suggested_repairs(), [Repair::Orient]);
        // The faces that point inwards, also if they are the majority.
        assert_eq!(before.misoriented_faces, flips);

        let repaired = repair(&messed, &[Repair::Orient]).unwrap();
        let step = &repaired.steps[0];
        assert_eq!((step.changed, step.total), (flips, 600));
        let after = MeshReport::new(&repaired.mesh);
        assert!(after.is_sound());
        assert_eq!((after.genus, after.misoriented_faces), (Some(1), 0));
        for (old, new) in messed.faces().iter().zip(repaired.mesh.faces().iter()) {
            assert_eq!(old[0], new[0], "a reversed face keeps its first corner");
        }
    }
}

#[test]
fn orient_reverses_the_smaller_part_of_each_patch() {
    let pair = complex(4, [[0, 1, 2], [1, 2, 3]]);
    let strip = complex(5, [[0, 1, 2], [1, 3, 2], [2, 3, 4]]);
    assert!(MeshReport::new(&strip).consistently_oriented);
    let messed = both(&flipped(&strip, |face| face == 0), &pair);
    let before = MeshReport::new(&messed);
    assert_eq!(before.examples.inconsistent_edges, [[1, 2], [6, 7]]);
    let repaired = repair(&messed, &[Repair::Orient]).unwrap();
    assert_eq!(repaired.steps[0].changed, 2);
    assert!(MeshReport::new(&repaired.mesh).consistently_oriented);
    let faces: Vec<&[u32]> = repaired.mesh.faces().iter().collect();
    assert_eq!(faces, [[2, 0, 1], [1, 3, 2], [2, 3, 4], [5, 6, 7], [6, 8, 7]]);
}

#[test]
fn orient_leaves_what_cannot_be_oriented_and_says_so() {
    let bottle = klein_bottle(4, 5);
    let messed_torus = flipped(&torus(4, 4), |face| face == 3);
    let shape = both(&bottle, &messed_torus);
    let repaired = repair(&shape, &[Repair::Orient]).unwrap();
    let step = &repaired.steps[0];
    assert_eq!((step.changed, step.total, step.nonorientable), (1, 52, 1));
    for face in 0..bottle.face_count() {
        assert_eq!(repaired.mesh.face(face), bottle.face(face));
    }
    let after = MeshReport::new(&repaired.mesh);
    assert_eq!((after.misoriented_faces, after.nonorientable_components), (0, 1));
}

#[test]
fn repairs_are_words() {
    for (word, repair) in [
        ("weld", WELD),
        ("weld=1e-6", Repair::Weld { tolerance: 1e-6 }),
        ("weld=0.25", Repair::Weld { tolerance: 0.25 }),
        ("degenerate", Repair::DropDegenerateFaces),
        ("duplicates", Repair::DropDuplicateFaces),
        ("isolated", Repair::DropIsolatedVertices),
        ("orient", Repair::Orient),
    ] {
        assert_eq!(word.parse(), Ok(repair));
        assert_eq!(repair.to_string(), word);
    }
    assert_eq!("weld=-1".parse::<Repair>(), Err(RepairError::Tolerance { tolerance: -1.0 }));
    for word in ["", "Weld", "weld=", "weld=far", "orient=1", "fix"] {
        let error = word.parse::<Repair>().unwrap_err();
        assert!(error.to_string().contains("weld=DISTANCE"), "{error}");
    }
}

/// Input on which a loop over pairs would take for ever.
mod crowds {
    use super::*;

    const MANY: u32 = 100_000;

    #[test]
    fn a_fan_of_many_triangles_at_one_vertex() {
        let mut vertices = vec![DVec3::Z];
        vertices.extend((0..MANY).map(|i| {
            let angle = std::f64::consts::TAU * f64::from(i) / f64::from(MANY);
            DVec3::new(angle.cos(), angle.sin(), 0.0)
        }));
        let cone = mesh(vertices, (0..MANY).map(|i| [0, 1 + i, 1 + (i + 1) % MANY]));
        let report = MeshReport::new(&cone);
        assert_eq!((report.euler, report.boundary_loops, report.genus), (1, 1, Some(0)));
        assert!(report.is_sound());
        let messed = flipped(&cone, |face| face % 3 == 1);
        let repaired = repair(&messed, &[Repair::Orient, Repair::DropDuplicateFaces]).unwrap();
        assert_eq!(repaired.mesh.faces().len(), MANY as usize);
        assert!(MeshReport::new(&repaired.mesh).is_sound());
    }

    #[test]
    fn many_pages_on_one_edge() {
        let book = complex(MANY as usize + 2, (0..MANY).map(|i| [0, 1, 2 + i]));
        let report = MeshReport::new(&book);
        assert_eq!((report.nonmanifold_edges, report.boundary_loops), (1, 1));
        assert_eq!((report.components, report.euler), (1, 1));
        assert_eq!(report.nonmanifold_vertices, 0);
    }

    #[test]
    fn many_fans_at_one_vertex() {
        let star = complex(2 * MANY as usize + 1, (0..MANY).map(|i| [0, 1 + 2 * i, 2 + 2 * i]));
        let report = MeshReport::new(&star);
        assert_eq!((report.nonmanifold_vertices, report.components), (1, 1));
        assert_eq!(report.boundary_loops, MANY as usize);
    }

    #[test]
    fn many_vertices_at_one_place_and_many_equal_faces() {
        let mut vertices = curve(3);
        vertices.extend(vec![DVec3::ONE; MANY as usize]);
        let shape = mesh(vertices, (0..MANY).map(|i| [0, 1, 3 + i]));
        let report = MeshReport::new(&shape);
        assert_eq!(report.coincident_vertices, MANY as usize - 1);
        for tolerance in [0.0, 1e-6] {
            let weld = Repair::Weld { tolerance };
            let repaired = repair(&shape, &[weld, Repair::DropDuplicateFaces]).unwrap();
            assert_eq!(repaired.mesh.vertex_count(), 4);
            assert_eq!(repaired.mesh.faces().corners(), [0, 1, 3]);
        }
    }

    #[test]
    fn one_face_of_many_corners() {
        let disc = complex(MANY as usize, [(0..MANY).collect::<Vec<_>>()]);
        let report = MeshReport::new(&disc);
        assert_eq!((report.edges, report.euler, report.polygons), (MANY as usize, 1, 1));
        // A cycle that repeats one pair for ever is the hard case of finding where it starts.
        let mut corners: Vec<u32> = (0..MANY).map(|i| i % 2).collect();
        corners.push(0);
        let mut turned = corners.clone();
        turned.rotate_left(MANY as usize / 3);
        let twice = complex(2, [corners, turned]);
        assert_eq!(MeshReport::new(&twice).duplicate_faces, 1);
    }
}

/// The mesh with vertices renamed and faces shuffled and rotated at random.
fn relabelled(shape: &Mesh, rng: &mut ChaCha8Rng) -> Mesh {
    let mut name: Vec<u32> = (0..shape.vertex_count() as u32).collect();
    name.shuffle(rng);
    let mut vertices = vec![DVec3::ZERO; name.len()];
    for (&new, &position) in name.iter().zip(shape.vertices()) {
        vertices[new as usize] = position;
    }
    let mut faces: Vec<Vec<u32>> = shape
        .faces()
        .iter()
        .map(|face| {
            let mut face: Vec<u32> = face.iter().map(|&v| name[v as usize]).collect();
            let turns = rng.random_range(0..face.len());
            face.rotate_left(turns);
            face
        })
        .collect();
    faces.shuffle(rng);
    mesh(vertices, faces)
}

/// Every count of a report: all but where the examples lie and the last digits of the sums.
fn counts(mut report: MeshReport) -> MeshReport {
    report.examples = Default::default();
    report.area = (report.area * 1e9).round();
    report.mean_edge_length = (report.mean_edge_length * 1e9).round();
    report
}

/// Faces drawn at random among few vertices at few places: every kind of trouble at once.
fn soup() -> impl Strategy<Value = Mesh> {
    let vertices = prop::collection::vec(prop::array::uniform3(0u8..3), 4..12);
    vertices.prop_flat_map(|vertices| {
        let count = vertices.len() as u32;
        let face = prop::collection::vec(0..count, 3..6);
        prop::collection::vec(face, 0..16).prop_map(move |faces| {
            let places = vertices.iter().map(|place| DVec3::from(place.map(f64::from)));
            mesh(places.collect(), faces)
        })
    })
}

proptest! {
    #[test]
    fn topology_does_not_depend_on_labels(shape in 0usize..7, seed in any::<u64>()) {
        let shape = [
            icosahedron(),
            both(&torus(5, 4), &annulus(7)),
            klein_bottle(5, 4),
            both(&moebius_strip(6), &cube_of_quads()),
            open_grid(5),
            complex(5, [[0, 1, 2], [0, 3, 4]]),
            complex(5, [[0, 1, 2], [0, 1, 3], [1, 0, 4]]),
        ][shape].clone();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let other = relabelled(&shape, &mut rng);
        prop_assert_eq!(counts(MeshReport::new(&shape)), counts(MeshReport::new(&other)));
    }

    #[test]
    fn after_the_suggested_repairs_nothing_is_suggested(shape in soup()) {
        let report = MeshReport::new(&shape);
        let repaired = repair(&shape, &report.suggested_repairs()).unwrap();
        let after = MeshReport::new(&repaired.mesh);
        prop_assert_eq!(after.suggested_repairs(), []);
        prop_assert_eq!(after.is_sound(), after.faces > 0 && after.manifold && after.orientable);
        prop_assert_eq!(repaired.vertex_origin.len(), after.vertices);
        for (new, &old) in repaired.vertex_origin.iter().enumerate() {
            prop_assert_eq!(repaired.vertex_map[old as usize], Some(new as u32));
            prop_assert_eq!(repaired.mesh.vertices()[new], shape.vertices()[old as usize]);
        }
    }

    #[test]
    fn genus_counts_handles_whatever_the_soup(shape in soup()) {
        let report = MeshReport::new(&shape);
        if let Some(genus) = report.genus {
            let euler = 2 * report.components as i64 - 2 * genus as i64 - report.boundary_loops as i64;
            prop_assert_eq!(report.euler, euler);
        }
        prop_assert_eq!(report.genus.is_some(), report.manifold && report.orientable && report.edges > 0);
    }

    #[test]
    fn kept_points_of_a_weld_are_apart_and_the_others_near(
        places in prop::collection::vec(prop::array::uniform3(0.0f64..1.0), 3..80),
        tolerance in 0.0f64..0.5,
    ) {
        let points: Vec<DVec3> = places.into_iter().map(DVec3::from).collect();
        let shape = mesh(points.clone(), [[0, 1, 2]]);
        let welded = repair(&shape, &[Repair::Weld { tolerance }]).unwrap();
        let kept = &welded.vertex_origin;
        let within = |a: u32, b: usize| points[a as usize].distance_squared(points[b]) <= tolerance * tolerance;
        for (old, new) in welded.vertex_map.iter().enumerate() {
            let lowest = kept.iter().position(|&k| k as usize <= old && within(k, old));
            prop_assert_eq!(lowest, new.map(|new| new as usize));
        }
    }
}

/// The definitions of the report, read aloud: loops over pairs and over all ways to turn faces.
mod plainly {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// A label for each of `count` things, equal where a chain of related things connects them.
    fn classes(count: usize, related: impl Fn(usize, usize) -> bool) -> Vec<usize> {
        let mut label: Vec<usize> = (0..count).collect();
        for a in 0..count {
            for b in 0..count {
                if related(a, b) {
                    let (from, to) = (label[a], label[b]);
                    label.iter_mut().filter(|l| **l == from).for_each(|l| *l = to);
                }
            }
        }
        label
    }

    fn distinct<T: Ord>(items: impl IntoIterator<Item = T>) -> usize {
        items.into_iter().collect::<BTreeSet<T>>().len()
    }

    fn steps(face: &[u32]) -> impl Iterator<Item = (u32, u32)> + '_ {
        let next = face.iter().cycle().skip(1);
        face.iter().copied().zip(next.copied())
    }

    pub fn assert_agrees(shape: &Mesh) {
        let faces: Vec<&[u32]> = shape.faces().iter().filter(|face| distinct(face.iter()) == face.len()).collect();
        let mut edges: BTreeMap<[u32; 2], Vec<(usize, bool)>> = BTreeMap::new();
        for (index, face) in faces.iter().enumerate() {
            for (a, b) in steps(face) {
                edges.entry([a.min(b), a.max(b)]).or_default().push((index, a < b));
            }
        }
        let vertices: BTreeSet<u32> = faces.iter().copied().flatten().copied().collect();

        let component = classes(faces.len(), |f, g| faces[f].iter().any(|v| faces[g].contains(v)));
        let fans: BTreeMap<u32, Vec<usize>> = vertices
            .iter()
            .map(|&v| {
                let share_an_edge = |f: usize, g: usize| {
                    edges.iter().any(|(ends, sides)| {
                        let has = |face| sides.iter().any(|side| side.0 == face);
                        ends.contains(&v) && has(f) && has(g)
                    })
                };
                (v, classes(faces.len(), share_an_edge))
            })
            .collect();
        let pinched = vertices.iter().filter(|v| {
            let around = (0..faces.len()).filter(|&f| faces[f].contains(v));
            distinct(around.map(|f| fans[v][f])) > 1
        });

        let boundary: Vec<([u32; 2], usize)> =
            edges.iter().filter(|(_, sides)| sides.len() == 1).map(|(&ends, sides)| (ends, sides[0].0)).collect();
        let meet = |a: usize, b: usize| {
            let ((ends, face), (other_ends, other_face)) = (boundary[a], boundary[b]);
            ends.iter().any(|v| other_ends.contains(v) && fans[v][face] == fans[v][other_face])
        };

        let two_sided: Vec<_> = edges.values().filter(|sides| sides.len() == 2).collect();
        // For each component the fewest turns that leave no two-sided edge inconsistent.
        let fewest_turns: Vec<Option<u32>> = component
            .iter()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .map(|&name| {
                let members = (0..faces.len()).filter(|&f| component[f] == name);
                let members = members.fold(0u32, |set, f| set | 1 << f);
                (0..1u32 << faces.len())
                    .filter(|turned| turned & !members == 0)
                    .filter(|turned| {
                        two_sided.iter().filter(|sides| members >> sides[0].0 & 1 == 1).all(|sides| {
                            let way = |i: usize| sides[i].1 ^ (turned >> sides[i].0 & 1 == 1);
                            way(0) != way(1)
                        })
                    })
                    .map(u32::count_ones)
                    .min()
            })
            .collect();

        let report = MeshReport::new(shape);
        assert_eq!(report.edges, edges.len());
        let euler = vertices.len() as i64 - edges.len() as i64 + faces.len() as i64;
        assert_eq!(report.euler, euler);
        assert_eq!(report.components, distinct(&component));
        assert_eq!(report.nonmanifold_vertices, pinched.count());
        let nonmanifold = edges.values().filter(|sides| sides.len() > 2);
        assert_eq!(report.nonmanifold_edges, nonmanifold.count());
        assert_eq!(report.boundary_edges, boundary.len());
        assert_eq!(report.boundary_loops, distinct(classes(boundary.len(), meet)));
        let inconsistent = two_sided.iter().filter(|sides| sides[0].1 == sides[1].1);
        assert_eq!(report.inconsistent_edges, inconsistent.count());
        let nonorientable = fewest_turns.iter().filter(|turns| turns.is_none()).count();
        assert_eq!(report.nonorientable_components, nonorientable);
        if nonorientable == 0 {
            let turns: u32 = fewest_turns.into_iter().flatten().sum();
            assert_eq!(report.misoriented_faces, turns as usize);
        }
    }
}

proptest! {
    #[test]
    fn the_report_says_what_its_definitions_say(
        faces in prop::collection::vec(prop::collection::vec(0u32..7, 3..5), 0..9)
    ) {
        plainly::assert_agrees(&complex(8, faces));
    }
}

#[test]
fn known_shapes_agree_with_the_definitions_too() {
    for shape in [moebius_strip(4), annulus(3), tetrahedron(), klein_bottle(3, 3), cube_of_quads()] {
        plainly::assert_agrees(&shape);
    }
}

/// A plate with a square hole through it; its top and bottom are keyhole polygons.
fn plate_with_a_hole() -> Mesh {
    let square = |r: f64, z: f64| [(-r, -r), (r, -r), (r, r), (-r, r)].map(|(x, y)| DVec3::new(x, y, z));
    let vertices = [square(2.0, 0.0), square(1.0, 0.0), square(2.0, 1.0), square(1.0, 1.0)].concat();
    let mut faces = vec![
        // Seen from below the outer border is reversed, and the hole is not.
        vec![0, 3, 2, 1, 0, 4, 5, 6, 7, 4],
        vec![8, 9, 10, 11, 8, 12, 15, 14, 13, 12],
    ];
    for side in 0..4 {
        let next = (side + 1) % 4;
        faces.push(vec![side, next, 8 + next, 8 + side]);
        faces.push(vec![4 + next, 4 + side, 12 + side, 12 + next]);
    }
    Mesh::new(vertices, faces.iter().collect()).unwrap()
}

#[test]
fn keyhole_polygons_are_faces_with_holes() {
    let mesh = plate_with_a_hole();
    let report = MeshReport::new(&mesh);
    assert_eq!((report.degenerate_faces, report.inconsistent_edges), (0, 0));
    assert!(report.closed && report.manifold && report.orientable);
    assert_eq!((report.genus, report.euler), (Some(1), 0));
    assert!((report.area - (2.0 * 12.0 + 16.0 + 8.0)).abs() < 1e-12);
    assert!(report.is_sound());
    // As triangles the plate has the same area and topology.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plate.stl");
    mesh.write(&path).unwrap();
    let triangles = MeshReport::new(&Mesh::read(&path).unwrap());
    assert_eq!((triangles.vertices, triangles.triangles), (16, 2 * 8 + 8 * 2));
    assert_eq!((triangles.genus, triangles.closed), (Some(1), true));
    assert!((triangles.area - report.area).abs() < 1e-9);
}
