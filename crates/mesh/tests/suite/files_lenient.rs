//! Files that bend their format: what is skipped, and the note about it.

use crate::files::{OFF, PLY, faces, load, parse, refuse, values};
use gemcnn_mesh::{AttributeValues, FileProblem, Location};

#[test]
fn short_obj_faces_are_skipped_with_one_note() {
    let text = "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2\nf 1 2 3\nf 3\nf 3 2 1\n";
    let file = load("a.obj", text);
    assert_eq!(faces(&file.mesh), [[0, 1, 2], [2, 1, 0]]);
    assert_eq!(file.notes.len(), 1);
    assert!(file.notes[0].starts_with("2 face"), "{:?}", file.notes);
    assert!(file.notes[0].ends_with("line 4"), "{:?}", file.notes);
    // A corner of a skipped face is still checked as a number.
    assert!(matches!(refuse("a.obj", text.replace("f 1 2\n", "f 1 x\n")).problem, FileProblem::BadNumber { .. }));
    assert_eq!(load("a.obj", text.replace("f 1 2\n", "").replace("f 3\n", "")).notes.len(), 0);
}

#[test]
fn stray_header_lines_of_ply_are_skipped_with_a_note() {
    let file = load("a.ply", PLY.replace("element face", "Made by hand\n12 eggs\nelement face"));
    assert_eq!(file.mesh, load("a.ply", PLY).mesh);
    assert_eq!(file.notes.len(), 1);
    assert!(file.notes[0].contains('2') && file.notes[0].ends_with("line 7"));
}

#[test]
fn ply_face_values_become_attributes() {
    let text = PLY
        .replace(
            "list uchar int vertex_indices",
            "uchar part\nproperty list uchar int vertex_indices\nproperty float q",
        )
        .replace("3 0 1 2\n", "7 3 0 1 2 0.5\n");
    let file = load("a.ply", &text);
    assert_eq!(faces(&file.mesh), [[0, 1, 2]]);
    let found: Vec<_> = file.face_attributes.iter().map(|a| (&a.name[..], a.values.clone())).collect();
    assert_eq!(found, [("part", AttributeValues::U8(vec![7])), ("q", AttributeValues::F32(vec![0.5]))]);
    assert!(file.notes.is_empty());
    let file = load("a.ply", text.replace("0.5\n", "0.5 255 0\n"));
    assert_eq!(faces(&file.mesh), [[0, 1, 2]]);
    assert_eq!(file.notes.len(), 1);
    // A vertex with undeclared values is still an error: its columns could be mistaken.
    let error = refuse("a.ply", text.replace("\n1 0 0\n", "\n1 0 0 9\n"));
    assert!(matches!(error.problem, FileProblem::TooManyValues { .. }));
}

#[test]
fn off_elements_may_span_lines() {
    let expected = load("a.off", OFF).mesh;
    for text in ["OFF\n3 1 0\n0 0 0 1 0 0 0 1 0\n3 0 1 2\n", "OFF\n3 1 0\n0 0\n0 # first\n1 0 0\n\n0\n1 0 3 0\n1\n2\n"]
    {
        let file = load("a.off", text);
        assert_eq!(file.mesh, expected, "{text:?}");
        assert!(file.attributes.is_empty());
    }
    let file = load("a.off", "COFF 2 0 0\n1 2 3\n255 0 0 255\n4 5\n6 0 128 0 255");
    assert_eq!(values(&file, "green"), AttributeValues::U8(vec![0, 128]));
    // What makes no sense in any way is refused at its line.
    let error = refuse("a.off", "OFF\n3 1 0\n0 0\n0\n1 0 0\n0 1 0\n3 0 1 7\n");
    assert_eq!(error.location, Location::Line(3));
    assert!(matches!(error.problem, FileProblem::ValueCount { found: 2, .. }));
}

#[test]
fn matlab_files_are_refused_with_a_hint() {
    for (name, content) in [
        ("a.mat", &b"MATLAB 5.0 MAT-file, Platform: GLNXA64"[..]),
        ("labels.mat", b"\x89HDF\r\n\x1a\n"),
        ("old.mat", b"\0\0\0\0\x03\0\0\0"),
    ] {
        let error = parse(name, content).unwrap_err();
        assert!(matches!(error.problem, FileProblem::Matlab), "{error}");
        assert!(error.to_string().contains("stlwrite"));
    }
}
