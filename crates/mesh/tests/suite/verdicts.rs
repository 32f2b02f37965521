//! The verdict on every mesh file of the fixtures, from the file to the report. The expected numbers
//! come from a separate count of the files, and from what the shapes are.

use crate::common::fixture;
use gemcnn_mesh::{FileFormat, Mesh, MeshFile, MeshReport, Repair, read_mesh, repair};

fn read(file: &str) -> MeshFile {
    read_mesh(fixture(file)).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn closed_surfaces() {
    for (file, format, elements, genus) in [
        ("spot.obj", FileFormat::OBJ, (2930, 8784, 5856), 0),
        ("trouble/tet.obj", FileFormat::OBJ, (4, 6, 4), 0),
        ("trouble/fox.ply", FileFormat::PLY_LITTLE_ENDIAN, (313, 933, 622), 0),
        // A swimming ring.
        ("trouble/bob_small.ply", FileFormat::PLY_LITTLE_ENDIAN, (250, 750, 500), 1),
        ("trouble/dodecahedron_poly.obj", FileFormat::OBJ, (20, 30, 12), 0),
        // Corners of STL files are welded as they are read.
        ("trouble/stl_box_ascii.stl", FileFormat::STL_ASCII, (8, 18, 12), 0),
        ("trouble/stl_box_binary.stl", FileFormat::STL_BINARY, (8, 18, 12), 0),
    ] {
        let read = read(file);
        assert_eq!((read.format, read.attributes.len()), (format, 0), "{file}");
        let report = MeshReport::new(&read.mesh);
        assert_eq!((report.vertices, report.edges, report.faces), elements, "{file}");
        assert_eq!((report.components, report.genus), (1, Some(genus)), "{file}");
        assert_eq!(report.euler, 2 - 2 * genus as i64, "{file}");
        assert!(report.closed && report.is_sound(), "{file}: {report:?}");
        assert_eq!(report.suggested_repairs(), [], "{file}");
    }
}

#[test]
fn sizes() {
    for (file, faces, area) in [
        ("spot.obj", (5856, 0, 0), 5.709518785165168),
        ("trouble/dodecahedron_poly.obj", (0, 0, 12), 10.51461368517088),
        ("trouble/stl_box_ascii.stl", (12, 0, 0), 600.0),
        ("trouble/stl_box_binary.stl", (12, 0, 0), 600.0),
    ] {
        let report = MeshReport::new(&read(file).mesh);
        assert_eq!((report.triangles, report.quads, report.polygons), faces, "{file}");
        assert!((report.area - area).abs() < 1e-9 * area, "{file}: area {} instead of {area}", report.area);
    }
}

/// All of one component.
#[test]
fn surfaces_with_boundary_or_trouble() {
    // Elements, border, non-manifold edges and vertices, Euler characteristic and genus.
    for (file, elements, border, nonmanifold, topology) in [
        // A disc.
        ("lego.ply", (1649, 4720, 3072), (224, 1), (0, 0), (1, Some(0))),
        // Three triangles on an edge.
        ("fan3.obj", (5, 7, 3), (6, 1), (1, 0), (1, None)),
        // Two spheres that touch.
        ("hourglass_ico.obj", (23, 60, 40), (0, 0), (0, 1), (3, None)),
        ("moebius.obj", (280, 504, 224), (112, 1), (0, 0), (0, None)),
        ("triple_vierbein.obj", (75, 182, 108), (60, 1), (20, 0), (1, None)),
    ] {
        let read = read(&format!("trouble/{file}"));
        let lego = file == "lego.ply";
        assert_eq!(read.format, if lego { FileFormat::PLY_LITTLE_ENDIAN } else { FileFormat::OBJ });
        let report = MeshReport::new(&read.mesh);
        assert_eq!((report.vertices, report.edges, report.faces), elements, "{file}");
        assert_eq!((report.boundary_edges, report.boundary_loops), border, "{file}");
        assert_eq!((report.nonmanifold_edges, report.nonmanifold_vertices), nonmanifold, "{file}");
        assert_eq!((report.euler, report.genus), topology, "{file}");
        assert_eq!((report.components, report.closed), (1, border.0 == 0), "{file}");
        assert_eq!((report.manifold, report.orientable), (nonmanifold == (0, 0), file != "moebius.obj"), "{file}");
        assert_eq!(report.is_sound(), lego, "{file}");
        let turned = file == "triple_vierbein.obj";
        assert_eq!(report.suggested_repairs(), if turned { vec![Repair::Orient] } else { vec![] }, "{file}");
    }
}

#[test]
fn faces_are_turned_where_a_surface_has_two_sides() {
    let orient = |mesh: &Mesh| repair(mesh, &[Repair::Orient]).unwrap();
    let strip = read("trouble/moebius.obj").mesh;
    let report = MeshReport::new(&strip);
    assert_eq!((report.quads, report.inconsistent_edges, report.nonorientable_components), (224, 4, 1));
    let repaired = orient(&strip);
    assert_eq!((repaired.steps[0].changed, repaired.steps[0].nonorientable), (0, 1));
    assert_eq!(repaired.mesh, strip);

    let vierbein = read("trouble/triple_vierbein.obj").mesh;
    let report = MeshReport::new(&vierbein);
    assert_eq!((report.inconsistent_edges, report.misoriented_faces), (3, 10));
    assert!(!report.consistently_oriented && MeshReport::new(&orient(&vierbein).mesh).consistently_oriented);
}
