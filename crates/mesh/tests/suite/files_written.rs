//! Round trips through the formats with a place for labels, values and vectors.

use crate::files::{bits, faces, sample};
use crate::samples;
use gemcnn_mesh::{
    AttributeValues, DVec3, FileProblem, Mesh, VertexAttribute, WriteOptions, parse_mesh, read_mesh, write_mesh,
    write_mesh_with_faces,
};
use std::path::PathBuf;

fn column(name: &str, values: AttributeValues) -> VertexAttribute {
    VertexAttribute::new(name, values)
}

/// Columns of every type, a vector, a normal and a colour.
fn columns(count: usize) -> Vec<VertexAttribute> {
    let number = |v: usize| v as f32 * 0.5 - 1.0;
    let floats = |shift: f32| AttributeValues::F32((0..count).map(|v| number(v) + shift).collect());
    let mut columns = vec![
        column("label", AttributeValues::I32((0..count).map(|v| v as i32 - 2).collect())),
        column("value", floats(0.25)),
        column("small", AttributeValues::I8((0..count).map(|v| v as i8 - 2).collect())),
        column("b", AttributeValues::I16((0..count).map(|v| -300 * v as i16).collect())),
        column("c", AttributeValues::U16((0..count).map(|v| 60_000 + v as u16).collect())),
        column("<d>&\"", AttributeValues::U32((0..count).map(|v| v as u32).collect())),
        column("e", AttributeValues::F64((0..count).map(|v| v as f64 * 0.125).collect())),
    ];
    for (place, name) in ["vx0", "vy0", "vz0", "vx1", "vy1", "vz1", "nx", "ny", "nz"].iter().enumerate() {
        columns.push(column(name, floats(place as f32)));
    }
    for (place, name) in ["red", "green", "blue"].iter().enumerate() {
        let values = (0..count).map(|v| (v * 40 + place) as u8).collect();
        columns.push(column(name, AttributeValues::U8(values)));
    }
    columns
}

fn folder() -> (tempfile::TempDir, impl Fn(&str) -> PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_path_buf();
    (folder, move |name: &str| path.join(name))
}

#[test]
fn vtp_and_ply_restore_every_bit_of_vertices_and_faces() {
    let (_folder, path) = folder();
    let mesh = sample();
    let (attributes, face_attributes) = (columns(5), columns(3));
    for name in ["a.vtp", "a.ply"] {
        let options = WriteOptions::default();
        write_mesh_with_faces(path(name), &mesh, &attributes, &face_attributes, &options).unwrap();
        let back = read_mesh(path(name)).unwrap();
        assert_eq!(bits(&back.mesh), bits(&mesh), "{name}");
        assert_eq!(back.mesh.faces(), mesh.faces());
        assert_eq!(back.attributes, attributes, "{name}");
        assert_eq!(back.face_attributes, face_attributes, "{name}");
        assert!(back.notes.is_empty());
    }
    // Vectors are arrays of three components, as viewers expect them.
    let text = std::fs::read_to_string(path("a.vtp")).unwrap();
    assert!(text.contains("Name=\"v1\" NumberOfComponents=\"3\" ComponentName0=\"vx1\""));
    assert!(text.contains("Name=\"RGB\" NumberOfComponents=\"3\""));
    let empty = Mesh::new(Vec::new(), [[0_u32; 3]; 0].iter().collect()).unwrap();
    for name in ["a.vtp", "a.glb", "a.stl"] {
        empty.write(path(name)).unwrap();
        assert_eq!(Mesh::read(path(name)).unwrap(), empty, "{name}");
    }
}

/// A mesh of coordinates that are exact in single precision, with a vertex in no face.
fn single_mesh() -> Mesh {
    let mut points: Vec<DVec3> = samples::POINTS.iter().map(|p| DVec3::from_array(p.map(f64::from))).collect();
    points.push(DVec3::splat(-4.0));
    Mesh::new(points, [vec![0, 1, 2], vec![1, 3, 2]].iter().collect()).unwrap()
}

#[test]
fn glb_restores_triangles_labels_values_and_vectors() {
    let (_folder, path) = folder();
    let mesh = single_mesh();
    let attributes = columns(5);
    write_mesh(path("a.glb"), &mesh, &attributes, &WriteOptions::default()).unwrap();
    let back = read_mesh(path("a.glb")).unwrap();
    assert_eq!(back.mesh, mesh);
    assert_eq!(back.attributes.len(), attributes.len());
    for expected in &attributes {
        let found = back.attributes.iter().find(|a| a.name == expected.name);
        let found = found.unwrap_or_else(|| panic!("{}", expected.name));
        let (found, expected) = (&found.values, &expected.values);
        assert!(found.iter_f64().eq(expected.iter_f64()), "{found:?}");
        // Integers stay integers, so that labels are told from values.
        let is_float = |v: &AttributeValues| matches!(v, AttributeValues::F32(_) | AttributeValues::F64(_));
        assert_eq!(is_float(found), is_float(expected));
    }
    let large = [column("ids", AttributeValues::I32(vec![16_777_217; 5]))];
    let error = write_mesh(path("b.glb"), &mesh, &large, &WriteOptions::default()).unwrap_err();
    assert!(matches!(error.problem, FileProblem::ValueNotHeld { .. }), "{error}");
    let error = write_mesh_with_faces(path("b.glb"), &mesh, &[], &columns(2), &WriteOptions::default());
    assert!(matches!(error.unwrap_err().problem, FileProblem::FaceAttributesNotHeld { .. }));
    let error = sample().write(path("b.glb")).unwrap_err();
    assert!(matches!(error.problem, FileProblem::CoordinateNotHeld { vertex: 1, .. }), "{error}");
}

#[test]
fn stl_restores_the_triangles() {
    let (_folder, path) = folder();
    let mesh = single_mesh();
    mesh.write(path("a.stl")).unwrap();
    let content = std::fs::read(path("a.stl")).unwrap();
    assert_eq!(content.len(), 84 + 2 * 50);
    let back = parse_mesh("a".as_ref(), &content).unwrap().mesh;
    assert_eq!(back.vertices(), &mesh.vertices()[..4]);
    assert_eq!(faces(&back), [[0, 1, 2], [1, 3, 2]]);
    // The normal of the first triangle.
    let normal = (DVec3::X * 1.5).cross(DVec3::new(0.0, 2.5, 0.25)).normalize();
    for axis in 0..3 {
        let value = f32::from_le_bytes(*content[84 + 4 * axis..].first_chunk().unwrap());
        assert!((f64::from(value) - normal[axis]).abs() < 1e-7);
    }
    let square = [DVec3::ZERO, DVec3::X, DVec3::X + DVec3::Y, DVec3::Y];
    let square = Mesh::new(square.to_vec(), [[0, 1, 2, 3]].iter().collect()).unwrap();
    square.write(path("b.stl")).unwrap();
    assert_eq!(faces(&Mesh::read(path("b.stl")).unwrap()), [[0, 1, 2], [0, 2, 3]]);
    let error = write_mesh(path("c.stl"), &mesh, &columns(5), &WriteOptions::default());
    assert!(matches!(error.unwrap_err().problem, FileProblem::AttributesNotHeld { .. }));
}
