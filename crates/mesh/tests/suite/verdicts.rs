//! The verdict on every mesh file of the fixtures, from the file to the report. The expected numbers
//! come from a separate count of the files, and from what the shapes are.

use gemcnn_mesh::{Mesh, MeshReport, Repair, repair};

fn read(file: &str) -> Mesh {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/meshes");
    Mesh::read(format!("{folder}/{file}")).unwrap_or_else(|error| panic!("{error}"))
}

/// All counts and verdicts of a sound closed surface of one component.
fn assert_sound_and_closed(file: &str, vertices: usize, edges: usize, faces: usize, genus: usize) {
    let report = MeshReport::new(&read(file));
    assert_eq!((report.vertices, report.edges, report.faces), (vertices, edges, faces), "{file}");
    assert_eq!((report.components, report.genus), (1, Some(genus)), "{file}");
    assert_eq!(report.euler, 2 - 2 * genus as i64, "{file}");
    assert!(report.closed && report.is_sound(), "{file}: {report:?}");
    assert_eq!(report.suggested_repairs(), [], "{file}");
}

fn assert_area(report: &MeshReport, area: f64) {
    assert!((report.area - area).abs() < 1e-9 * area, "area {} instead of {area}", report.area);
}

#[test]
fn sound_closed_surfaces() {
    assert_sound_and_closed("spot.obj", 2930, 8784, 5856, 0);
    assert_sound_and_closed("trouble/tet.obj", 4, 6, 4, 0);
    assert_sound_and_closed("trouble/fox.ply", 313, 933, 622, 0);
    // A swimming ring.
    assert_sound_and_closed("trouble/bob_small.ply", 250, 750, 500, 1);
}

#[test]
fn sizes() {
    let spot = MeshReport::new(&read("spot.obj"));
    assert_eq!(spot.triangles, 5856);
    assert_area(&spot, 5.709518785165168);
}

#[test]
fn pentagons() {
    assert_sound_and_closed("trouble/dodecahedron_poly.obj", 20, 30, 12, 0);
    let report = MeshReport::new(&read("trouble/dodecahedron_poly.obj"));
    assert_eq!((report.triangles, report.quads, report.polygons), (0, 0, 12));
    assert_area(&report, 10.51461368517088);
}

#[test]
fn stl_corners_are_welded_as_they_are_read() {
    for file in ["trouble/stl_box_ascii.stl", "trouble/stl_box_binary.stl"] {
        assert_sound_and_closed(file, 8, 18, 12, 0);
        assert_area(&MeshReport::new(&read(file)), 600.0);
    }
}

#[test]
fn lego_is_a_disc() {
    let report = MeshReport::new(&read("trouble/lego.ply"));
    assert_eq!((report.vertices, report.edges, report.faces), (1649, 4720, 3072));
    assert_eq!((report.boundary_edges, report.boundary_loops), (224, 1));
    assert_eq!((report.euler, report.genus), (1, Some(0)));
    assert!(report.is_sound() && !report.closed);
}

#[test]
fn fan3_is_three_triangles_on_an_edge() {
    let report = MeshReport::new(&read("trouble/fan3.obj"));
    assert_eq!((report.vertices, report.edges, report.faces), (5, 7, 3));
    assert_eq!((report.nonmanifold_edges, report.nonmanifold_vertices), (1, 0));
    assert_eq!((report.boundary_edges, report.boundary_loops), (6, 1));
    assert_eq!((report.euler, report.genus), (1, None));
    assert!(report.orientable && !report.manifold && !report.is_sound());
    assert_eq!(report.suggested_repairs(), [], "no repair separates sheets");
}

#[test]
fn hourglass_is_two_spheres_that_touch() {
    let report = MeshReport::new(&read("trouble/hourglass_ico.obj"));
    assert_eq!((report.vertices, report.edges, report.faces), (23, 60, 40));
    assert_eq!((report.nonmanifold_edges, report.nonmanifold_vertices), (0, 1));
    assert_eq!((report.components, report.euler, report.genus), (1, 3, None));
    assert!(report.closed && report.orientable && !report.manifold);
    assert_eq!(report.suggested_repairs(), []);
}

#[test]
fn moebius_has_one_side() {
    let strip = read("trouble/moebius.obj");
    let report = MeshReport::new(&strip);
    assert_eq!((report.vertices, report.edges, report.faces), (280, 504, 224));
    assert_eq!((report.quads, report.euler, report.genus), (224, 0, None));
    assert_eq!((report.boundary_edges, report.boundary_loops), (112, 1));
    assert_eq!((report.inconsistent_edges, report.nonorientable_components), (4, 1));
    assert!(report.manifold && !report.orientable);
    assert_eq!(report.suggested_repairs(), []);
    let repaired = repair(&strip, &[Repair::Orient]).unwrap();
    assert_eq!((repaired.steps[0].changed, repaired.steps[0].nonorientable), (0, 1));
    assert_eq!(repaired.mesh, strip);
}

#[test]
fn triple_vierbein_has_nonmanifold_edges_and_faces_to_turn() {
    let mesh = read("trouble/triple_vierbein.obj");
    let report = MeshReport::new(&mesh);
    assert_eq!((report.vertices, report.edges, report.faces), (75, 182, 108));
    assert_eq!((report.nonmanifold_edges, report.nonmanifold_vertices), (20, 0));
    assert_eq!((report.boundary_edges, report.boundary_loops), (60, 1));
    assert_eq!((report.components, report.euler, report.genus), (1, 1, None));
    assert_eq!((report.inconsistent_edges, report.misoriented_faces), (3, 10));
    assert!(report.orientable && !report.consistently_oriented);
    assert_eq!(report.suggested_repairs(), [Repair::Orient]);
    let repaired = repair(&mesh, &[Repair::Orient]).unwrap();
    assert!(MeshReport::new(&repaired.mesh).consistently_oriented);
}
