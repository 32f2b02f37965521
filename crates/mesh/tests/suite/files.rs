//! Mesh files through the public interface: what loads, what is refused and with which words.

use crate::common::fixture;
use std::path::Path;

use gemcnn_mesh::{
    AttributeValues, DVec3, FORMATS, Faces, FileError, FileFormat, FileProblem, Location, Mesh, MeshFile, PlyEncoding,
    VertexAttribute, WriteOptions, parse_mesh, read_mesh, write_atomically, write_mesh,
};
use proptest::prelude::*;

const ENCODINGS: [PlyEncoding; 3] = [PlyEncoding::Ascii, PlyEncoding::LittleEndian, PlyEncoding::BigEndian];

pub fn parse(name: &str, content: impl AsRef<[u8]>) -> Result<MeshFile, FileError> {
    parse_mesh(Path::new(name), content.as_ref())
}

pub fn load(name: &str, content: impl AsRef<[u8]>) -> MeshFile {
    parse(name, content).unwrap_or_else(|error| panic!("{error}"))
}

pub fn refuse(name: &str, content: impl AsRef<[u8]>) -> FileError {
    let error = parse(name, content).expect_err("this file should be refused");
    let message = error.to_string();
    assert!(!message.contains('\n') && message.starts_with(name), "{message}");
    error
}

/// Asserts that a file is refused at a line with a problem that matches.
macro_rules! assert_refused {
    ($name:expr, $content:expr, $line:expr, $($problem:tt)*) => {{
        let error = refuse($name, $content);
        assert_eq!(error.location, Location::Line($line), "{error}");
        assert!(matches!(error.problem, $($problem)*), "{error}");
    }};
}

pub fn faces(mesh: &Mesh) -> Vec<Vec<u32>> {
    mesh.faces().iter().map(<[u32]>::to_vec).collect()
}

pub fn values(file: &MeshFile, name: &str) -> AttributeValues {
    let found = file.attributes.iter().find(|a| a.name == name);
    found.unwrap_or_else(|| panic!("no attribute {name}")).values.clone()
}

/// Bits and not values, so that -0.0 and 0.0 differ.
pub fn bits(mesh: &Mesh) -> Vec<[u64; 3]> {
    let vertices = mesh.vertices().iter();
    vertices.map(|p| p.to_array().map(f64::to_bits)).collect()
}

/// A tetrahedron and a quad that share a vertex.
pub fn sample() -> Mesh {
    let vertices = [
        (0.0, -0.0, 1e-300),
        (0.1, 1.0 / 3.0, f64::MAX),
        (-7.25, f64::MIN_POSITIVE, 3.0),
        (5e-324, 1e16, 123_456_789.123_456_78),
        (1.0, 2.0, 3.0),
    ];
    let faces: Faces = [vec![0, 1, 2], vec![0, 2, 3], vec![4, 3, 2, 1]].iter().collect();
    Mesh::new(vertices.map(DVec3::from).to_vec(), faces).unwrap()
}

#[test]
fn the_page_lists_all_formats() {
    let page = include_str!("../../../../docs/files.md");
    for format in FORMATS {
        assert!(page.contains(format.name) && page.contains(&format!(".{}", format.extensions[0])), "{format:?}");
    }
}

// ---------------------------------------------------------------- fixtures

#[test]
fn fixtures_keep_order_polygons_and_welds() {
    let spot = Mesh::read(fixture("spot.obj")).unwrap();
    assert_eq!(spot.vertices()[0], DVec3::new(0.348799, -0.334989, -0.0832331));
    let dodecahedron = Mesh::read(fixture("trouble/dodecahedron_poly.obj")).unwrap();
    assert!(dodecahedron.faces().iter().all(|face| face.len() == 5));
    let [ascii, binary] =
        ["ascii", "binary"].map(|kind| Mesh::read(fixture(&format!("trouble/stl_box_{kind}.stl"))).unwrap());
    assert_eq!(ascii, binary);
    assert_eq!(ascii.vertices()[0], DVec3::new(10.0, 10.0, 0.0));
}

// ---------------------------------------------------------------- telling the format

const OBJ: &str = "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n";
pub const OFF: &str = "OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n";
pub const PLY: &str = "ply\nformat ascii 1.0\nelement vertex 3\nproperty float x\nproperty float y\n\
                   property float z\nelement face 1\nproperty list uchar int vertex_indices\n\
                   end_header\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n";
const STL: &str = "solid a name\nfacet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\n\
                   vertex 0 1 0\nendloop\nendfacet\nendsolid a name\n";

fn binary_stl(title: &str, triangles: &[[[f32; 3]; 3]]) -> Vec<u8> {
    let mut content = title.as_bytes().to_vec();
    content.resize(80, b' ');
    content.extend((triangles.len() as u32).to_le_bytes());
    for triangle in triangles {
        content.extend([0; 12]);
        for value in triangle.as_flattened() {
            content.extend(value.to_le_bytes());
        }
        content.extend([0; 2]);
    }
    content
}

const TRIANGLE: [[f32; 3]; 3] = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]];

#[test]
fn content_decides_the_format_not_the_extension() {
    let expected = load("a.obj", OBJ).mesh;
    assert_eq!(expected.vertex_count(), 3);
    assert_eq!(faces(&expected), [[0, 1, 2]]);
    for (text, format) in
        [(OBJ, FileFormat::OBJ), (OFF, FileFormat::OFF), (PLY, FileFormat::PLY_ASCII), (STL, FileFormat::STL_ASCII)]
    {
        for name in ["a", "a.obj", "a.ply", "a.off", "a.stl", "a.txt"] {
            for ending in ["\n", "\r\n", "\r"] {
                for mark in ["", "\u{feff}"] {
                    let text = format!("{mark}{}", text.replace('\n', ending));
                    let file = load(name, &text);
                    assert_eq!((file.format, file.mesh), (format, expected.clone()));
                    assert_eq!(load(name, text.trim_end()).mesh, expected);
                }
            }
        }
    }
    let file = load("a.obj", binary_stl("solid but binary", &[TRIANGLE]));
    assert_eq!((file.format, file.mesh), (FileFormat::STL_BINARY, expected));
}

#[test]
fn names_and_comments_may_be_in_any_encoding() {
    let expected = load("a.obj", OBJ).mesh;
    for text in [
        &b"# caf\xe9\no \xff\xfe\nv 0 0 0 # \xe9\nv 1 0 0\nv 0 1 0\nf 1 2 3 # \xe9\n"[..],
        b"OFF # caf\xe9\n# \xe9\n3 1 0 # \xe9\n0 0 0\n1 0 0 # \xe9\n\n0 1 0\n3 0 1 2 # \xe9\n",
        b"ply\ncomment caf\xe9\nformat ascii 1.0\nobj_info \xe9\nelement vertex 3\nproperty float x\n\
          comment between\nproperty float y\nproperty float z\nelement face 1\n\
          property list uchar int vertex_index\ncomment last\nend_header\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n",
        b"solid caf\xe9\nfacet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 1 0\n\
          endloop\nendfacet\nendsolid caf\xe9\n",
    ] {
        assert_eq!(load("a", text).mesh, expected);
    }
}

#[test]
fn files_that_are_no_meshes_say_what_they_look_like() {
    let problem = |name: &str, content: &[u8]| {
        let error = refuse(name, content);
        assert_eq!(error.location, Location::File, "{error}");
        error.problem
    };
    assert!(matches!(problem("a.obj", b""), FileProblem::Empty));
    assert!(matches!(problem("a.obj", b" \r\n\t\n"), FileProblem::Empty));
    assert!(matches!(problem("a.ply", b"\x1f\x8b\x08\0"), FileProblem::Compressed { with: "gzip" }));
    assert!(matches!(problem("a.zip", b"PK\x03\x04rest"), FileProblem::Compressed { with: "zip" }));
    let utf16 = |text: &str, to: fn(u16) -> [u8; 2]| -> Vec<u8> { text.encode_utf16().flat_map(to).collect() };
    for text in ["\u{feff}v 0 0 0\nv 1 0 0", "v 0 0 0\nv 1 0 0"] {
        for to in [u16::to_le_bytes, u16::to_be_bytes] {
            assert!(matches!(problem("a.obj", &utf16(text, to)), FileProblem::Utf16));
        }
    }
    for (content, expected) in [("<?xml version=\"1.0\"?>", "XML or HTML"), ("{\"nodes\": {}}", "JSON")] {
        assert!(matches!(
            problem("a.obj", content.as_bytes()),
            FileProblem::UnknownFormat { looks_like: Some(what) } if what == expected
        ));
    }
    for (name, content) in
        [("a.txt", "once upon a time"), ("a.obj", "once upon a time"), ("a", "1 2 3"), ("a.txt", "# only a comment")]
    {
        assert!(matches!(problem(name, content.as_bytes()), FileProblem::UnknownFormat { looks_like: None }));
    }
    assert!(matches!(problem("a.ply", b"plY\nformat"), FileProblem::BadHeader { .. }));
    assert!(matches!(problem("a.obj", b"o nothing\nmtllib a.mtl\n"), FileProblem::NoVertices));
    assert_eq!(load("a.obj", "# only a comment").mesh.vertex_count(), 0);
}

#[test]
fn only_regular_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let missing = read_mesh(folder.path().join("none.ply")).unwrap_err();
    assert!(matches!(missing.problem, FileProblem::Read(_)), "{missing}");
    let directory = read_mesh(folder.path()).unwrap_err();
    assert!(matches!(directory.problem, FileProblem::NotAFile { what: "a folder" }));
    #[cfg(unix)]
    assert!(matches!(read_mesh("/dev/zero").unwrap_err().problem, FileProblem::NotAFile { .. }));
}

// ---------------------------------------------------------------- OBJ

#[test]
fn obj_faces_take_every_form_of_index() {
    let vertices = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\n";
    for face in [
        "f 1 2 3 4",
        "f 1/7 2/8 3/9 4/1",
        "f 1//1 2//1 3//1 4//1",
        "f 1/1/1 2/2/1 3/3/1 4/4/1 # a quad",
        "f -4 -3 -2 -1",
        "f -4//-1 2 3 -1/-1/-1",
        "f 1 \\\n2 3 \\\n 4",
        "fo 1 2 3 4",
    ] {
        let text = format!(
            "mtllib a.mtl\no x\ng y z\ns off\n{vertices}vt 0 0\nvn 0 0 1\nusemtl m\n{face}\nl 1 2\np 1\ncsh -x\n"
        );
        assert_eq!(faces(&load("a.obj", text).mesh), [[0, 1, 2, 3]], "{face}");
        // Positive indices may come before their vertices.
        if !face.contains('-') {
            let text = format!("{face}\n{vertices}");
            assert_eq!(faces(&load("a.obj", text).mesh), [[0, 1, 2, 3]], "{face}");
        }
    }
}

#[test]
fn obj_seams_do_not_split_vertices() {
    let text = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 9 9 9\nv 0 1 0\nvt 0 0\nvt 1 1\n\
                f 1/1 2/1 3/1\nf 1/2 3/2 5/2\nf 5 5 1\n";
    let mesh = load("a.obj", text).mesh;
    assert_eq!(mesh.vertex_count(), 5);
    assert_eq!(faces(&mesh), [[0, 1, 2], [0, 2, 4], [4, 4, 0]]);
}

#[test]
fn obj_colours_become_bytes_when_every_vertex_has_one() {
    let file = load("a.obj", "v 0 0 0 1 0.5 0\nv 1 0 0 0 0 0.999\nv 0 1 0 0.2 0 1\n");
    assert_eq!(values(&file, "red"), AttributeValues::U8(vec![255, 0, 51]));
    assert_eq!(values(&file, "green"), AttributeValues::U8(vec![128, 0, 0]));
    assert_eq!(values(&file, "blue"), AttributeValues::U8(vec![0, 255, 255]));
    let file = load("a.obj", "v 0 0 0 255 7 0\nv 1 0 0 0 0 1\n");
    assert_eq!(values(&file, "red"), AttributeValues::U8(vec![255, 0]));
    let file = load("a.obj", "v 0 0 0 255.5 7 0\nv 1 0 0 0 0 -1\n");
    assert_eq!(values(&file, "blue"), AttributeValues::F64(vec![0.0, -1.0]));
    assert_eq!(load("a.obj", "v 0 0 0 1 1 1\nv 1 0 0\n").attributes, []);
    assert_eq!(load("a.obj", "v 0 0 0\nv 0 0 0 1 1 1\n").attributes, []);
    assert_eq!(load("a.obj", "v 0 0 0 1.0\n").attributes, []);
}

#[test]
fn obj_errors_name_the_line() {
    let three = "v 0 0 0\nv 1 0 0\nv 0 1 0\n";
    let with = |line: &str| format!("{three}\n# comment\n{line}\nf 1 2 3\n");
    assert_refused!("a.obj", with("f 0 1 2"), 6, FileProblem::ZeroIndex);
    assert_refused!("a.obj", with("f 1 2 4"), 6, FileProblem::IndexOutOfRange { index: 4, vertices: 3, first: 1 });
    assert_refused!("a.obj", with("f -4 -1 -2"), 6, FileProblem::IndexOutOfRange { index: -4, .. });
    assert_refused!("a.obj", with("f 1 2 -9223372036854775808"), 6, FileProblem::IndexOutOfRange { .. });
    assert_refused!("a.obj", with("f 1 2 4294967297"), 6, FileProblem::IndexOutOfRange { .. });
    // The first of several, though a later one is higher.
    assert_refused!(
        "a.obj",
        format!("f 1 2 3\nf 1 2 8\nf 1 2 7\nf 1 2 9\n{three}"),
        2,
        FileProblem::IndexOutOfRange { index: 8, .. }
    );
    assert_refused!("a.obj", with("f 1 x 2"), 6, FileProblem::BadNumber { .. });
    assert_refused!("a.obj", with("f 1 /2 2"), 6, FileProblem::BadNumber { .. });
    assert_refused!("a.obj", with("f 1 2.0 3"), 6, FileProblem::BadNumber { .. });
    assert_refused!("a.obj", with("v 0 nan 0"), 6, FileProblem::NotFinite { .. });
    assert_refused!("a.obj", with("v 0 1e999 0"), 6, FileProblem::NotFinite { .. });
    assert_refused!("a.obj", with("v 0 -inf 0"), 6, FileProblem::NotFinite { .. });
    assert_refused!("a.obj", with("v 0 1,5 0"), 6, FileProblem::BadNumber { .. });
    assert_refused!("a.obj", with("v 0 0"), 6, FileProblem::ValueCount { found: 2, .. });
    assert_refused!("a.obj", with("v 0 0 0 1 1"), 6, FileProblem::ValueCount { found: 5, .. });
    assert_refused!("a.obj", with("v \\\n0 0"), 6, FileProblem::ValueCount { found: 2, .. });
    assert_refused!("a.obj", with("\x01\x02"), 6, FileProblem::Unexpected { .. });
    assert_refused!("a.obj", with("1 2 3"), 6, FileProblem::Unexpected { .. });
}

#[test]
fn a_backslash_that_ends_a_comment_joins_nothing() {
    let text = "# C:\\meshes\\\nv 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n";
    assert_eq!(load("a.obj", text).mesh.vertex_count(), 3);
}

// ---------------------------------------------------------------- PLY

/// A scalar type: its two names, and the bytes of a small number, most significant first.
type ScalarCase = (&'static str, &'static str, fn(u8) -> Vec<u8>);
const SCALARS: [ScalarCase; 8] = [
    ("char", "int8", |v| vec![v]),
    ("uchar", "uint8", |v| vec![v]),
    ("short", "int16", |v| i16::from(v).to_be_bytes().to_vec()),
    ("ushort", "uint16", |v| u16::from(v).to_be_bytes().to_vec()),
    ("int", "int32", |v| i32::from(v).to_be_bytes().to_vec()),
    ("uint", "uint32", |v| u32::from(v).to_be_bytes().to_vec()),
    ("float", "float32", |v| f32::from(v).to_be_bytes().to_vec()),
    ("double", "float64", |v| f64::from(v).to_be_bytes().to_vec()),
];

/// Builds a PLY body in any encoding from rows of (scalar, value).
struct Rows {
    encoding: PlyEncoding,
    bytes: Vec<u8>,
}

impl Rows {
    fn row(&mut self, row: &[(ScalarCase, u8)]) {
        for &((_, _, big_endian), value) in row {
            match self.encoding {
                PlyEncoding::Ascii => self.bytes.extend(format!("{value} ").bytes()),
                PlyEncoding::BigEndian => self.bytes.extend(big_endian(value)),
                PlyEncoding::LittleEndian => self.bytes.extend(big_endian(value).iter().rev()),
            }
        }
        if self.encoding == PlyEncoding::Ascii {
            self.bytes.push(b'\n');
        }
    }
}

fn format_name(encoding: PlyEncoding) -> &'static str {
    match encoding {
        PlyEncoding::Ascii => "ascii",
        PlyEncoding::LittleEndian => "binary_little_endian",
        PlyEncoding::BigEndian => "binary_big_endian",
    }
}

#[test]
fn ply_reads_every_scalar_type_in_every_role_and_encoding() {
    for encoding in ENCODINGS {
        for (at, &scalar) in SCALARS.iter().enumerate() {
            for integer in &SCALARS[..6] {
                for names in [(scalar.0, integer.0), (scalar.1, integer.1)] {
                    let (any, whole) = names;
                    let header = format!(
                        "ply\nformat {} 1.0\nelement vertex 3\nproperty {any} x\nproperty {any} label\n\
                         property {any} z\nproperty {any} y\nelement face 1\n\
                         property {any} quality\nproperty list {whole} {whole} vertex_indices\nend_header\n",
                        format_name(encoding)
                    );
                    let mut rows = Rows { encoding, bytes: header.into_bytes() };
                    for v in 0..3 {
                        rows.row(&[10, 20, 30, 40].map(|value| (scalar, value + v)));
                    }
                    let list = [3, 2, 1, 0].map(|value| (*integer, value));
                    rows.row(&[&[(scalar, 9)], &list[..]].concat());
                    let file = load("a.ply", &rows.bytes);
                    let expected = [0.0, 1.0, 2.0].map(|v| DVec3::new(10.0, 40.0, 30.0) + v);
                    assert_eq!(file.mesh.vertices(), expected);
                    assert_eq!(faces(&file.mesh), [[2, 1, 0]]);
                    assert_eq!(file.attributes.len(), 1);
                    let label = &file.attributes[0];
                    assert_eq!((label.name.as_str(), label.values.ply_type()), ("label", SCALARS[at].0));
                    assert_eq!(label.values.iter_f64().collect::<Vec<_>>(), [20.0, 21.0, 22.0]);
                }
            }
        }
    }
}

#[test]
fn ply_elements_come_in_any_order_with_others_between() {
    let (byte, int, float) = (SCALARS[1], SCALARS[4], SCALARS[6]);
    for encoding in ENCODINGS {
        for ending in ["\n", "\r\n", "\r"] {
            let header = format!(
                "ply\nformat {} 1.0\nelement camera 1\nproperty float fov\nelement face 2\n\
                 property list uchar float texcoord\nproperty list uchar int vertex_index\n\
                 element nothing 3535352353\nelement tag 2\nproperty list int uchar text\nproperty int id\n\
                 element vertex 4\nproperty float x\nproperty list uchar int links\nproperty float y\n\
                 property float z\nelement tail 1\nproperty int t\nend_header\n",
                format_name(encoding)
            );
            let mut rows = Rows { encoding, bytes: header.replace('\n', ending).into_bytes() };
            // In binary its first byte is 10, a line feed: data, even after a bare `\r`.
            rows.row(&[(int_as_float(), 10)]);
            rows.row(&[(byte, 2), (float, 1), (float, 1), (byte, 3), (int, 0), (int, 1), (int, 2)]);
            rows.row(&[(byte, 0), (byte, 4), (int, 0), (int, 1), (int, 2), (int, 3)]);
            rows.row(&[(int, 2), (byte, 65), (byte, 66), (int, 5)]);
            rows.row(&[(int, 0), (int, 6)]);
            for v in 0..4 {
                rows.row(&[(float, v), (byte, 1), (int, 7), (float, 2), (float, 3)]);
            }
            rows.row(&[(int, 1)]);
            rows.bytes.extend(b"trailing bytes");
            let file = load("a.ply", &rows.bytes);
            assert_eq!(faces(&file.mesh), [vec![0, 1, 2], vec![0, 1, 2, 3]]);
            assert_eq!(file.mesh.vertices()[3], DVec3::new(3.0, 2.0, 3.0));
            assert_eq!(file.attributes, []);
        }
    }
}

/// Four bytes that begin with the value in either byte order.
fn int_as_float() -> ScalarCase {
    ("float", "float32", |v| vec![v, 0, 0, v])
}

#[test]
fn ply_strips_become_triangles_with_alternating_turns() {
    let header = "ply\nformat ascii 1.0\nelement vertex 5\nproperty float x\nproperty float y\nproperty float z\n\
                  element tristrips 2\nproperty list int int vertex_indices\nend_header\n\
                  0 0 0\n1 0 0\n0 1 0\n1 1 0\n0 2 0\n";
    let file = load("a.ply", format!("{header}8 0 1 2 3 -1 2 3 4\n5 0 1 1 2 3\n"));
    assert_eq!(faces(&file.mesh), [[0, 1, 2], [2, 1, 3], [2, 3, 4], [1, 2, 3]]);
    assert_refused!("a.ply", format!("{header}3 0 1 -2\n1 0\n"), 15, FileProblem::IndexOutOfRange { index: -2, .. });
}

#[test]
fn ply_without_faces_is_a_mesh_of_points() {
    let text = PLY.split("element face").next().unwrap().to_owned() + "end_header\n0 0 0\n1 0 0\n0 1 0\n";
    let mesh = load("a.ply", text).mesh;
    assert_eq!((mesh.vertex_count(), mesh.face_count()), (3, 0));
}

#[test]
fn ply_attributes_may_be_nan_but_coordinates_may_not() {
    let text = PLY.replace("property float z\n", "property float z\nproperty float quality\n");
    let text = |last: &str| text.replace("\n0 0 0\n1 0 0\n0 1 0\n", &format!("\n0 0 0 nan\n1 0 0 2\n{last}\n"));
    let AttributeValues::F32(quality) = values(&load("a.ply", text("0 1 0 -inf")), "quality") else {
        panic!("quality should be float")
    };
    assert!(quality[0].is_nan() && quality[2] == f32::NEG_INFINITY);
    assert_refused!("a.ply", text("0 NaN 0 0"), 13, FileProblem::NotFinite { .. });
}

#[test]
fn ply_headers_that_lie_are_refused_at_their_line() {
    for format in ["ascii", "binary_little_endian", "binary_big_endian"] {
        let text = PLY.replace("ascii", format).replace("vertex 3", "vertex 353535235358");
        assert_refused!("a.ply", text, 3, FileProblem::CountTooLarge { declared: 353_535_235_358, .. });
        let text = PLY.replace("ascii", format).replace("face 1", "face 18446744073709551615") + &" ".repeat(40);
        assert_refused!("a.ply", text, 7, FileProblem::CountTooLarge { .. });
    }
    let error = refuse("a.ply", PLY.replace("vertex 3", "vertex 353535235358"));
    assert!(
        matches!(
            &error.problem,
            FileProblem::CountTooLarge { element, declared: 353_535_235_358, capacity: 4, file_size: 191 }
                if element == "vertex"
        ),
        "{error}"
    );
    type Check = fn(&FileProblem) -> bool;
    let bad: Check = |problem| matches!(problem, FileProblem::BadHeader { .. });
    let odd: Check = |problem| matches!(problem, FileProblem::Unexpected { .. });
    let number: Check = |problem| matches!(problem, FileProblem::BadNumber { .. });
    let unsupported: Check = |problem| matches!(problem, FileProblem::Unsupported { .. });
    for (from, to, line, check) in [
        ("ascii 1.0", "ascii 2.0", 2, unsupported),
        ("ascii 1.0", "ebcdic 1.0", 2, unsupported),
        ("format ascii 1.0\n", "", 8, bad),
        ("vertex 3", "vertex", 3, bad),
        ("vertex 3", "vertex -3", 3, number),
        ("vertex 3", "vertex 3.0", 3, number),
        ("vertex 3", "vertex 99999999999999999999", 3, number),
        ("float y", "real y", 5, odd),
        ("float y", "float", 5, bad),
        ("float y", "float x", 5, bad),
        ("float y", "float w", 3, bad),
        ("float y", "list uchar float y", 3, bad),
        ("list uchar", "list float", 8, bad),
        ("uchar int", "uchar float", 7, bad),
        ("vertex_indices", "indices", 7, bad),
        ("list uchar int", "int", 7, bad),
        ("element face 1\n", "element vertex 1\n", 7, bad),
        ("element vertex 3\n", "", 3, bad),
        ("end_header\n", "", 12, bad),
        ("property float x\n", "propertyfloat x\n", 3, bad),
    ] {
        let error = refuse("a.ply", PLY.replace(from, to));
        assert_eq!(error.location, Location::Line(line), "{to}: {error}");
        assert!(check(&error.problem), "{to}: {error}");
    }
    assert!(matches!(
        refuse("a.ply", PLY.replace("element vertex", "element point")).problem,
        FileProblem::BadHeader { .. }
    ));
    assert!(matches!(
        refuse("a.ply", "ply\nformat ascii 1.0\nelement vertex 0\n").problem,
        FileProblem::BadHeader { .. }
    ));
}

#[test]
fn ply_text_errors_name_the_line() {
    let with = |from: &str, to: &str| PLY.replace(from, to);
    let face = "3 0 1 2\n";
    assert_refused!("a.ply", with("\n0 0 0\n", "\n0 0\n"), 10, FileProblem::TooFewValues { .. });
    assert_refused!("a.ply", with("\n0 0 0\n", "\n0 0 0 0\n"), 10, FileProblem::TooManyValues { .. });
    assert_refused!("a.ply", with("\n0 0 0\n", "\n0 x 0\n"), 10, FileProblem::BadNumber { .. });
    assert_refused!("a.ply", with("\n0 0 0\n", "\n\n0 1e400 0\n"), 11, FileProblem::NotFinite { .. });
    assert_refused!("a.ply", with(face, "3 0 1\n"), 13, FileProblem::TooFewValues { .. });
    assert_refused!("a.ply", with(face, "99999999999 0 1 2\n"), 13, FileProblem::TooFewValues { .. });
    assert_refused!("a.ply", with(face, "-3 0 1 2\n"), 13, FileProblem::NegativeLength { length: -3 });
    assert_refused!("a.ply", with(face, "2 0 1\n"), 13, FileProblem::ShortFace { corners: 2 });
    assert_refused!("a.ply", with(face, "0\n"), 13, FileProblem::ShortFace { corners: 0 });
    assert_refused!(
        "a.ply",
        with(face, "3 0 1 3\n"),
        13,
        FileProblem::IndexOutOfRange { index: 3, vertices: 3, first: 0 }
    );
    assert_refused!("a.ply", with(face, "3 0 1 -1\n"), 13, FileProblem::IndexOutOfRange { index: -1, .. });
    let labelled = with("float z", "float z\nproperty uchar label");
    assert_refused!("a.ply", labelled.replace("\n0 0 0\n", "\n0 0 0 256\n"), 11, FileProblem::BadNumber { .. });
    // 6 bytes for each of the vertices and 2 for the face are there, but not in the right lines.
    let cut = with("\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n", "\n0.00000001 0 0\n1.00000001 0 0\n");
    assert_refused!("a.ply", cut, 11, FileProblem::Truncated { read: 2, declared: 3, .. });
}

#[test]
fn ply_binary_errors_name_element_and_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.ply");
    sample_for_floats().write(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let body = whole.len() - (5 * 24 + 2 * 13 + 17);
    let place = |error: &FileError| match &error.location {
        Location::Element { kind, index, byte } => (kind.clone(), *index, *byte),
        other => panic!("{other:?}"),
    };
    let mut nan = whole.clone();
    nan[body + 24 + 8..][..8].copy_from_slice(&f64::NAN.to_le_bytes());
    let error = refuse("a.ply", &nan);
    assert!(matches!(error.problem, FileProblem::NotFinite { .. }));
    assert_eq!(place(&error), ("vertex".to_owned(), 1, body + 24 + 16));
    assert!(error.to_string().starts_with("a.ply: vertex 1 (byte "), "{error}");

    let face_1 = body + 5 * 24 + 13;
    let mut index = whole.clone();
    index[face_1 + 5..][..4].copy_from_slice(&7i32.to_le_bytes());
    let error = refuse("a.ply", &index);
    assert!(matches!(error.problem, FileProblem::IndexOutOfRange { index: 7, vertices: 5, first: 0 }));
    assert_eq!(place(&error), ("face".to_owned(), 1, face_1 + 9));

    let mut short = whole.clone();
    short[face_1] = 2;
    let error = refuse("a.ply", &short);
    assert!(matches!(error.problem, FileProblem::ShortFace { corners: 2 }));
    assert_eq!(place(&error).1, 1);

    let error = refuse("a.ply", &whole[..whole.len() - 1]);
    assert!(matches!(error.problem, FileProblem::Truncated { read: 2, declared: 3, .. }), "{error}");
    let error = refuse("a.ply", &whole[..body + 50]);
    assert_eq!(error.location, Location::Line(3));
    assert!(matches!(error.problem, FileProblem::CountTooLarge { capacity: 2, .. }), "{error}");
    // Wherever it is cut, it is refused.
    for length in 0..whole.len() {
        refuse("a.ply", &whole[..length]);
    }
}

fn sample_for_floats() -> Mesh {
    sample().map_vertices(|p| p.clamp(DVec3::splat(-9.0), DVec3::splat(9.0))).unwrap()
}

#[test]
fn ply_negative_list_lengths_in_binary_are_refused() {
    let mut content = b"ply\nformat binary_big_endian 1.0\nelement vertex 1\nproperty uchar x\n\
        property uchar y\nproperty uchar z\nproperty list short double weights\nend_header\n"
        .to_vec();
    content.extend([1, 2, 3, 0xff, 0xfe]);
    let error = refuse("a.ply", &content);
    assert!(matches!(error.problem, FileProblem::NegativeLength { length: -2 }), "{error}");
    let end = content.len();
    content[end - 2..].copy_from_slice(&[0x7f, 0xff]);
    assert!(matches!(refuse("a.ply", &content).problem, FileProblem::Truncated { .. }));
}

// ---------------------------------------------------------------- OFF

#[test]
fn off_headers_take_every_usual_form() {
    let expected = load("a.off", OFF).mesh;
    let body = "0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n";
    for header in [
        "OFF\n3 1 0\n",
        "OFF 3 1 0\n",
        "OFF3 1 0\n",
        "off\n3 1\n",
        "# comment\n\nOFF # comment\n# comment\n\n3 1 3 # comment\n\n",
        "3 1 0\n",
    ] {
        assert_eq!(load("a.off", format!("{header}{body}")).mesh, expected, "{header:?}");
    }
    let error = refuse("a.txt", format!("3 1 0\n{body}"));
    assert!(matches!(error.problem, FileProblem::UnknownFormat { .. }));
}

#[test]
fn off_colours_normals_and_texture_coordinates() {
    let file = load("a.off", "COFF\n3 1 0\n0 0 0 255 0 0 255\n1 0 0 0 128 0 255\n0 1 0 1 2 3 0\n3 0 1 2 255 0 0\n");
    assert_eq!(values(&file, "green"), AttributeValues::U8(vec![0, 128, 2]));
    assert_eq!(values(&file, "alpha"), AttributeValues::U8(vec![255, 255, 0]));
    let file = load(
        "a.off",
        "STCNOFF 3 1 0\n0 0 0 9 9 9 1 0 0 7 7\n1 0 0 9 9 9 0 0.5 0 7 7\n0 1 0 nan 9 9 0 0 1 7 7\n3 0 1 2 0.5 red\n",
    );
    assert_eq!(file.mesh.vertices()[2], DVec3::Y);
    assert_eq!(values(&file, "green"), AttributeValues::U8(vec![0, 128, 0]));
    assert_eq!(file.attributes.len(), 3);
    assert_eq!(load("a.off", "NOFF 1 0 0\n1 2 3 0 0 1\n").attributes, []);
    // Colours that the keyword does not announce.
    assert_eq!(load("a.off", "OFF 1 0 0\n1 2 3 0 0 1\n").attributes.len(), 3);
}

#[test]
fn off_errors_name_the_line() {
    let with = |from: &str, to: &str| OFF.replace(from, to);
    let unsupported = |content: &str| {
        assert_refused!("a.off", content, 1, FileProblem::Unsupported { .. });
    };
    unsupported("4OFF\n1 0 0\n0 0 0 1\n");
    unsupported("nOFF\n5\n1 0 0\n0 0 0 0 0\n");
    unsupported("OFF BINARY\n\0\0\0\x01\0\0\0\0");
    assert_refused!("a.off", "OFF\n", 1, FileProblem::EndsEarly { .. });
    assert_refused!("a.off", "OFF\n3\n", 2, FileProblem::ValueCount { .. });
    assert_refused!("a.off", with("3 1 0", "x 1 0"), 2, FileProblem::BadNumber { .. });
    assert_refused!("a.off", with("3 1 0", "-3 1 0"), 2, FileProblem::BadNumber { .. });
    assert_refused!(
        "a.off",
        with("3 1 0", "353535235358 1 0"),
        2,
        FileProblem::CountTooLarge { declared: 353_535_235_358, .. }
    );
    assert_refused!("a.off", with("3 1 0", "3 99999999 0"), 2, FileProblem::CountTooLarge { .. });
    assert_refused!("a.off", with("\n1 0 0", "\n1 0"), 4, FileProblem::ValueCount { found: 2, .. });
    assert_refused!("a.off", with("\n1 0 0", "\n1 0 0 9 9 9"), 4, FileProblem::ValueCount { found: 6, .. });
    assert_refused!("a.off", with("\n1 0 0", "\n1 0 inf"), 4, FileProblem::NotFinite { .. });
    assert_refused!("a.off", with("OFF", "COFF"), 3, FileProblem::ValueCount { .. });
    assert_refused!("a.off", with("3 0 1 2", "3 0 1"), 6, FileProblem::TooFewValues { .. });
    assert_refused!("a.off", with("3 0 1 2", "2 0 1"), 6, FileProblem::ShortFace { corners: 2 });
    assert_refused!("a.off", with("3 0 1 2", "-2 0 1"), 6, FileProblem::NegativeLength { length: -2 });
    assert_refused!("a.off", with("3 0 1 2", "3 0 1 3"), 6, FileProblem::IndexOutOfRange { index: 3, .. });
    assert_refused!("a.off", with("3 0 1 2", "3 0 1 -1"), 6, FileProblem::IndexOutOfRange { index: -1, .. });
    let cut = "OFF\n3 1 0\n0.0001 0 0\n1.0001 0.0 0\n";
    assert_refused!("a.off", cut, 4, FileProblem::Truncated { read: 2, declared: 3, .. });
    let cut = "OFF\n3 1 0\n0 0 0\n1 0 0\n1 1.00 0\n";
    assert_refused!("a.off", cut, 5, FileProblem::Truncated { read: 0, declared: 1, .. });
}

// ---------------------------------------------------------------- STL

#[test]
fn stl_welds_equal_positions_and_takes_minus_zero_as_zero() {
    let second = [[-0.0, 0.0, -0.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]];
    let binary = load("a.stl", binary_stl("", &[TRIANGLE, second]));
    assert_eq!(faces(&binary.mesh), [[0, 1, 2], [0, 2, 3]]);
    let upper = "FACET NORMAL nan nan nan OUTER LOOP VERTEX -0 0 -0.0 VERTEX 0 1 0\nVERTEX -1e0 0 0 ENDLOOP ENDFACET";
    let text = STL.to_owned() + "solid another solid\n" + upper + "\nendsolid\n";
    assert_eq!(load("a.stl", text).mesh, binary.mesh);
    let quad = STL.replace("vertex 0 1 0", "vertex 1 1 0\nvertex 0 1 0");
    assert_eq!(faces(&load("a.stl", quad).mesh), [[0, 1, 2, 3]]);
    assert_eq!(load("a.stl", "solid nothing\nendsolid").mesh.vertex_count(), 0);
}

#[test]
fn stl_errors_name_line_or_triangle() {
    let with = |from: &str, to: &str| STL.replace(from, to);
    assert_refused!("a.stl", with("1 0 0", "1 x 0"), 5, FileProblem::BadNumber { .. });
    assert_refused!("a.stl", with("1 0 0", "1 inf 0"), 5, FileProblem::NotFinite { .. });
    assert_refused!("a.stl", with("vertex 0 1 0\n", ""), 6, FileProblem::ShortFace { corners: 2 });
    assert_refused!("a.stl", with("outer", "inner"), 3, FileProblem::Unexpected { .. });
    assert_refused!("a.stl", with("endsolid", "solid"), 9, FileProblem::Unexpected { .. });
    assert_refused!("a.stl", "facet normal 0 0 1", 1, FileProblem::Unexpected { .. });
    for (at, _) in STL.match_indices('\n').rev().skip(1) {
        let error = refuse("a.stl", &STL[..at]);
        assert!(matches!(error.problem, FileProblem::EndsEarly { .. }), "{error}");
    }

    let mut lying = binary_stl("", &[TRIANGLE, TRIANGLE]);
    lying[80..84].copy_from_slice(&[0xff; 4]);
    let error = refuse("a.stl", &lying);
    assert_eq!(error.location, Location::Byte(80));
    assert!(matches!(error.problem, FileProblem::CountTooLarge { declared: 0xffff_ffff, capacity: 2, .. }));
    let whole = binary_stl("solid \0", &[TRIANGLE, TRIANGLE]);
    let error = refuse("a.stl", &whole[..whole.len() - 1]);
    assert!(matches!(error.problem, FileProblem::CountTooLarge { declared: 2, capacity: 1, .. }), "{error}");
    let error = refuse("a.stl", &whole[..50]);
    assert!(matches!(error.problem, FileProblem::EndsEarly { .. }), "{error}");
    // With the extension, bytes after the triangles are allowed.
    let longer = [&whole[..], b"more"].concat();
    assert_eq!(load("a.stl", longer).mesh.face_count(), 2);

    let mut nan = TRIANGLE;
    nan[2][1] = f32::NAN;
    let error = refuse("a.stl", binary_stl("", &[TRIANGLE, nan]));
    let expected = Location::Element { kind: "triangle".to_owned(), index: 1, byte: 84 + 50 + 36 };
    assert_eq!(error.location, expected);
    assert!(matches!(error.problem, FileProblem::NotFinite { .. }));
}

// ---------------------------------------------------------------- writing

fn all_attributes(count: usize) -> Vec<VertexAttribute> {
    let at = |v: usize| v as f64;
    vec![
        VertexAttribute::new("label", AttributeValues::I32((0..count).map(|v| i32::MIN + v as i32).collect())),
        VertexAttribute::new("red", AttributeValues::U8((0..count).map(|v| 255 - v as u8).collect())),
        VertexAttribute::new("a", AttributeValues::I8((0..count).map(|v| -128 + v as i8).collect())),
        VertexAttribute::new("b", AttributeValues::I16((0..count).map(|v| i16::MIN + v as i16).collect())),
        VertexAttribute::new("c", AttributeValues::U16((0..count).map(|v| u16::MAX - v as u16).collect())),
        VertexAttribute::new("d", AttributeValues::U32((0..count).map(|v| u32::MAX - v as u32).collect())),
        VertexAttribute::new("e", AttributeValues::F32((0..count).map(|v| 0.1 / at(v) as f32).collect())),
        VertexAttribute::new("f", AttributeValues::F64((0..count).map(|v| -1e-310 / at(v)).collect())),
    ]
}

#[test]
fn writing_and_reading_gives_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let mesh = sample();
    for name in ["a.obj", "a.off", "A.OFF", "a.ply"] {
        let path = folder.path().join(name);
        mesh.write(&path).unwrap();
        let back = Mesh::read(&path).unwrap();
        assert_eq!(bits(&back), bits(&mesh), "{name}");
        assert_eq!(back.faces(), mesh.faces());
    }
    let attributes = all_attributes(5);
    for (ply, format) in
        ENCODINGS.into_iter().zip([FileFormat::PLY_ASCII, FileFormat::PLY_LITTLE_ENDIAN, FileFormat::PLY_BIG_ENDIAN])
    {
        let path = folder.path().join("b.ply");
        write_mesh(&path, &mesh, &attributes, &WriteOptions { ply }).unwrap();
        let back = read_mesh(&path).unwrap();
        assert_eq!(bits(&back.mesh), bits(&mesh));
        assert_eq!((&back.mesh, back.format), (&mesh, format));
        assert_eq!(back.attributes, attributes);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 5);
}

#[test]
fn large_polygons_and_empty_meshes_are_written_too() {
    let folder = tempfile::tempdir().unwrap();
    let ring: Vec<DVec3> = (0..300).map(|v| DVec3::splat(f64::from(v))).collect();
    let disc = Mesh::new(ring, [(0..300).collect::<Vec<u32>>()].iter().collect()).unwrap();
    let empty = Mesh::new(Vec::new(), Faces::new()).unwrap();
    for mesh in [disc, empty] {
        for name in ["a.ply", "a.obj", "a.off"] {
            let path = folder.path().join(name);
            mesh.write(&path).unwrap();
            assert_eq!(Mesh::read(&path).unwrap(), mesh, "{name}");
        }
    }
}

#[test]
fn what_cannot_be_written_is_refused_before_the_file_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let mesh = sample();
    let write = |name: &str, attributes: &[VertexAttribute]| {
        let path = folder.path().join(name);
        let error = write_mesh(path, &mesh, attributes, &WriteOptions::default()).unwrap_err();
        assert!(!error.to_string().contains('\n'));
        error.problem
    };
    let label = |name: &str, count: usize| [VertexAttribute::new(name, AttributeValues::U8(vec![0; count]))];
    for name in ["a.msh", "a", "a.ply.txt"] {
        assert!(matches!(write(name, &[]), FileProblem::UnknownExtension));
    }
    for name in ["a.obj", "a.off", "a.stl"] {
        assert!(matches!(write(name, &label("l", 5)), FileProblem::AttributesNotHeld { .. }));
    }
    for name in ["", "a b", "x", "z", "a\n", "\t", "#a"] {
        assert!(matches!(write("a.ply", &label(name, 5)), FileProblem::AttributeName { .. }), "{name:?}");
    }
    let twice = [label("l", 5), label("l", 5)].concat();
    assert!(matches!(write("a.ply", &twice), FileProblem::AttributeName { .. }));
    assert!(matches!(write("a.ply", &label("l", 4)), FileProblem::AttributeLength { values: 4, elements: 5, .. }));
    assert!(matches!(write("none/a.ply", &[]), FileProblem::Write(_)));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_failed_write_leaves_the_old_file_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    write_atomically(&path, |out| out.write_all(b"old")).unwrap();
    let failed = write_atomically(&path, |out| {
        out.write_all(b"new")?;
        Err(std::io::Error::other("no more"))
    });
    assert_eq!(failed.unwrap_err().to_string(), "no more");
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    write_atomically(&path, |out| out.write_all(b"new")).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    assert!(write_atomically(folder.path(), |_| Ok(())).is_err());
    assert!(write_atomically(Path::new(""), |_| Ok(())).is_err());
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_devices_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("a"), folder.path().join("link"));
    write_atomically(&path, |out| out.write_all(b"old")).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    write_atomically(&link, |out| out.write_all(b"new")).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(write_atomically(Path::new("/dev/null"), |_| Ok(())).is_err());
}

fn meshes() -> impl Strategy<Value = Mesh> {
    let coordinate = prop_oneof![any::<f64>().prop_filter("finite", |value| value.is_finite()), -10.0..10.0f64];
    let vertices = prop::collection::vec([coordinate.clone(), coordinate.clone(), coordinate], 1..20);
    vertices.prop_flat_map(|vertices| {
        let face = prop::collection::vec(0..vertices.len() as u32, 3..7);
        prop::collection::vec(face, 0..20).prop_map(move |faces| {
            let vertices = vertices.iter().copied().map(DVec3::from).collect();
            Mesh::new(vertices, faces.iter().collect()).unwrap()
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_mesh_survives_every_format(mesh in meshes(), numbers in prop::collection::vec(any::<f32>(), 20)) {
        let folder = tempfile::tempdir().unwrap();
        let quality: Vec<f32> = numbers[..mesh.vertex_count()].to_vec();
        let attributes = [VertexAttribute::new("quality", AttributeValues::F32(quality.clone()))];
        for ply in ENCODINGS {
            let path = folder.path().join("a.ply");
            write_mesh(&path, &mesh, &attributes, &WriteOptions { ply }).unwrap();
            let back = read_mesh(&path).unwrap();
            prop_assert_eq!(bits(&back.mesh), bits(&mesh));
            prop_assert_eq!(&back.mesh, &mesh);
            for (v, &value) in quality.iter().enumerate() {
                let read = back.attributes[0].values.to_f64(v);
                prop_assert!(read == f64::from(value) || (read.is_nan() && value.is_nan()));
            }
        }
        for name in ["a.obj", "a.off"] {
            let path = folder.path().join(name);
            mesh.write(&path).unwrap();
            let back = Mesh::read(&path).unwrap();
            prop_assert_eq!(bits(&back), bits(&mesh));
            prop_assert_eq!(back, mesh.clone());
        }
    }
}
