//! Formats of medicine and engineering: VTK, GIFTI, FreeSurfer, glTF and Gmsh.

use crate::files::{faces, load, parse, refuse, values};
use crate::samples::{self, Brain, FLOW, LABELS, POINTS, Place, Vtp};
use gemcnn_mesh::{AttributeValues, DVec3, FileFormat, FileProblem, MeshFile, data_files, parse_values, read_mesh};
use std::path::Path;

fn has_points(file: &MeshFile) {
    let points: Vec<DVec3> = POINTS.iter().map(|p| DVec3::from_array(p.map(f64::from))).collect();
    assert_eq!(file.mesh.vertices(), points);
}

fn face_values(file: &MeshFile, name: &str) -> AttributeValues {
    let found = file.face_attributes.iter().find(|a| a.name == name);
    found.unwrap_or_else(|| panic!("no face attribute {name}")).values.clone()
}

/// Checks the content that all VTK samples share.
fn has_vtk_content(file: &MeshFile) {
    has_points(file);
    let expected = [&[0, 1, 2][..], &[0, 1, 3, 2], &[0, 1, 2], &[2, 1, 3]];
    assert_eq!(faces(&file.mesh), expected);
    let labels = LABELS.map(|label| label as i32).to_vec();
    assert_eq!(values(file, "part_id"), AttributeValues::I32(labels));
    for (axis, name) in ["flow_x", "flow_y", "flow_z"].into_iter().enumerate() {
        let column: Vec<f64> = FLOW.iter().copied().skip(axis).step_by(3).collect();
        assert_eq!(values(file, name), AttributeValues::F64(column));
    }
    assert_eq!(file.attributes.len(), 4);
    // The first value is that of the vertex cell, the last that of the strip of two triangles.
    let q = AttributeValues::F32(vec![1.0, 2.0, 3.0, 3.0]);
    assert_eq!(face_values(file, "q"), q);
}

#[test]
fn vtp_files_of_every_storage_have_the_same_content() {
    for storage in Vtp::all() {
        let file = load("a.vtp", storage.file());
        assert_eq!(file.format, FileFormat::VTP);
        has_vtk_content(&file);
    }
}

#[test]
fn legacy_vtk_files_of_every_kind_have_the_same_content() {
    for (binary, format) in [(false, FileFormat::VTK_ASCII), (true, FileFormat::VTK_BINARY)] {
        for with_offsets in [false, true] {
            for grid in [false, true] {
                let file = load("a.vtk", samples::vtk(binary, with_offsets, grid));
                assert_eq!(file.format, format);
                has_vtk_content(&file);
                assert_eq!(file.notes.len(), usize::from(grid), "{:?}", file.notes);
            }
        }
    }
}

#[test]
fn pieces_of_a_vtp_file_are_joined() {
    let storage = Vtp { place: Place::Ascii, compressed: false, wide_sizes: false, big_endian: false };
    let text = String::from_utf8(storage.file()).unwrap();
    let start = text.find("<Piece").unwrap();
    let end = text.find("</PolyData>").unwrap();
    let piece = &text[start..end];
    let empty = "<Piece NumberOfPoints=\"0\" NumberOfPolys=\"0\"></Piece>\n";
    let other = piece.replace("Name=\"q\"", "Name=\"r\"");
    let joined = text.replace(piece, &format!("{empty}{piece}{other}"));
    let file = load("a.vtp", joined);
    assert_eq!(file.mesh.vertex_count(), 8);
    assert_eq!(faces(&file.mesh)[4..6], [vec![4, 5, 6], vec![4, 5, 7, 6]]);
    assert_eq!(values(&file, "flow_y").to_f64(7), 0.2);
    assert!(file.face_attributes.is_empty());
    assert_eq!(file.notes.len(), 1);
}

#[test]
fn vtp_headers_that_lie_are_refused_without_an_allocation() {
    for storage in Vtp::all().into_iter().filter(|s| s.place == Place::Ascii) {
        let text = String::from_utf8(storage.file()).unwrap();
        let more = text.replace("NumberOfPoints=\"4\"", "NumberOfPoints=\"1000000000000\"");
        assert!(matches!(
            refuse("a.vtp", more).problem,
            FileProblem::Truncated { read: 4, declared: 1_000_000_000_000, .. }
        ));
        for (from, to) in
            [("\n3 7\n", "\n3 1000000000000\n"), ("\n3 7\n", "\n5 3\n"), ("0 1 2 0 1 3 2\n", "0 1 2 0 1 3\n")]
        {
            let problem = refuse("a.vtp", text.replace(from, to)).problem;
            assert!(matches!(problem, FileProblem::BadData { .. }), "{to}: {problem}");
        }
        let problem = refuse("a.vtp", text.replace("0 1 2 0 1 3 2\n", "0 1 2 0 1 4 2\n")).problem;
        assert!(matches!(problem, FileProblem::IndexOutOfRange { index: 4, vertices: 4, .. }));
        let nan = text.replace("1.5 0 0 ", "1.5 nan 0 ");
        assert!(matches!(refuse("a.vtp", nan).problem, FileProblem::Mesh(_)));
    }
    // A size of 2^63 bytes in the header of an array.
    let mut lying = 1_u64.rotate_right(1).to_le_bytes().to_vec();
    lying.extend([0; 96]);
    let text = format!(
        "<VTKFile type=\"PolyData\" header_type=\"UInt64\"><PolyData><Piece NumberOfPoints=\"4\"><Points>\
         <DataArray type=\"Float64\" format=\"binary\">{}</DataArray></Points></Piece></PolyData></VTKFile>",
        samples::base64(&lying)
    );
    assert!(matches!(refuse("a.vtp", &text).problem, FileProblem::BadData { .. }));
    // 100 MB of zeros in 100 kB.
    let zeros = samples::deflate(&vec![0; 100_000_000]);
    let header = [1_u64, 100_000_000, 0, zeros.len() as u64];
    let header: Vec<u8> = header.iter().flat_map(|size| size.to_le_bytes()).collect();
    let data = samples::base64(&header) + &samples::base64(&zeros);
    let bomb = text
        .replace(&samples::base64(&lying), &data)
        .replace("header_type", "compressor=\"vtkZLibDataCompressor\" header_type");
    assert!(matches!(refuse("a.vtp", bomb).problem, FileProblem::ExpandsTooMuch));
    for unsupported in [
        text.replace("PolyData", "ImageData"),
        text.replace("header_type", "compressor=\"vtkLZ4DataCompressor\" header_type"),
    ] {
        let problem = refuse("a.vtp", unsupported).problem;
        assert!(matches!(problem, FileProblem::Unsupported { .. }), "{problem}");
    }
}

#[test]
fn legacy_vtk_headers_that_lie_are_refused() {
    let text = String::from_utf8(samples::vtk(false, false, false)).unwrap();
    let binary = samples::vtk(true, false, false);
    for (from, to) in [
        ("POINTS 4 ", "POINTS 1000000000000 "),
        ("POINTS 4 ", "POINTS 18446744073709551615 "),
        ("POLYGONS 2 9", "POLYGONS 2 999999999999"),
    ] {
        let problem = refuse("a.vtk", text.replace(from, to)).problem;
        assert!(matches!(problem, FileProblem::CountTooLarge { .. }), "{problem}");
        let at = binary.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
        let lying = [&binary[..at], to.as_bytes(), &binary[at + from.len()..]].concat();
        let problem = refuse("a.vtk", lying).problem;
        assert!(matches!(problem, FileProblem::CountTooLarge { .. }), "{problem}");
    }
    let problem = refuse("a.vtk", text.replace("POLYGONS 2 9", "POLYGONS 999999999999 9")).problem;
    assert!(matches!(problem, FileProblem::BadData { .. }), "{problem}");
    let problem = refuse("a.vtk", text.replace("POLYDATA", "STRUCTURED_GRID")).problem;
    assert!(matches!(problem, FileProblem::Unsupported { .. }));
    let problem = refuse("a.vtk", text.replace("POINTS 4 float", "POINTS 4 bit")).problem;
    assert!(matches!(problem, FileProblem::Unsupported { .. }));
}

#[test]
fn gifti_surfaces_and_labels_of_every_encoding() {
    for encoding in ["ASCII", "Base64Binary", "GZipBase64Binary"] {
        for big_endian in [false, true] {
            let file = load("lh.pial.surf.gii", samples::gifti(encoding, big_endian, true));
            assert_eq!(file.format, FileFormat::GIFTI);
            has_points(&file);
            assert_eq!(faces(&file.mesh), [[0, 1, 2], [1, 3, 2]]);
            let labels = AttributeValues::I32(LABELS.map(|label| label as i32).to_vec());
            assert_eq!(values(&file, "my_parts"), labels);

            let only_labels = samples::gifti(encoding, big_endian, false);
            let problem = refuse("lh.label.gii", &only_labels).problem;
            assert!(matches!(problem, FileProblem::ValuesOnly { .. }));
            let file = parse_values(Path::new("lh.label.gii"), &only_labels).unwrap();
            assert_eq!(file.attributes[0].values, labels);
            let names = [(3, "gyrus".to_owned()), (70_000, "a & b".to_owned())];
            assert_eq!(file.label_names, names);
        }
    }
    let text = String::from_utf8(samples::gifti("ASCII", false, true)).unwrap();
    for (from, to) in [("Dim0=\"4\"", "Dim0=\"1000000000000\""), ("Dim1=\"3\"", "Dim1=\"4\"")] {
        let problem = refuse("a.gii", text.replace(from, to)).problem;
        assert!(matches!(problem, FileProblem::BadData { .. }), "{problem}");
    }
    let problem = refuse("a.gii", text.replace("\"ASCII\"", "\"ExternalFileBinary\"")).problem;
    assert!(matches!(problem, FileProblem::ExternalData { .. }));
    // Column-major order: all x, then all y, then all z.
    let by_columns = text
        .replacen("RowMajorOrder", "ColumnMajorOrder", 1)
        .replace("0 0 0 1.5 0 0 0 2.5 0.25 1.5 2.5 -1", "0 1.5 0 1.5 0 0 2.5 2.5 0 0 0.25 -1");
    has_points(&load("a.gii", by_columns));
}

#[test]
fn freesurfer_surfaces_of_every_kind() {
    for (kind, expected) in [
        (Brain::Triangles, &[vec![0, 1, 2], vec![1, 3, 2]][..]),
        (Brain::Quads, &[vec![0, 1, 3, 2]]),
        (Brain::OldQuads, &[vec![0, 1, 3, 2]]),
    ] {
        let content = samples::freesurfer(kind);
        let file = load("lh.pial", &content);
        assert_eq!(file.format, FileFormat::FREESURFER_SURFACE);
        has_points(&file);
        assert_eq!(faces(&file.mesh), expected);
        for cut in 3..content.len() {
            assert!(parse("lh.pial", &content[..cut]).is_err());
        }
    }
    let mut lying = samples::freesurfer(Brain::Triangles);
    lying[20..24].copy_from_slice(&[0xff; 4]);
    assert!(matches!(
        refuse("lh.pial", &lying).problem,
        FileProblem::CountTooLarge { declared: 0xffff_ffff, capacity: 6, .. }
    ));
}

#[test]
fn freesurfer_values_and_annotations() {
    let values = |name: &str, content: &[u8]| parse_values(Path::new(name), content).unwrap();
    let file = values("lh.thickness", &samples::curv());
    assert_eq!(file.attributes[0].name, "thickness");
    let expected = AttributeValues::F32(vec![0.5, -1.0, 2.0, 0.25]);
    assert_eq!(file.attributes[0].values, expected);
    let problem = refuse("lh.thickness", samples::curv()).problem;
    assert!(matches!(problem, FileProblem::ValuesOnly { .. }));
    for old_table in [false, true] {
        let content = samples::annot(old_table);
        let file = values("lh.aparc.annot", &content);
        assert_eq!(file.attributes[0].name, "label");
        let expected = AttributeValues::I32(vec![1, 0, -1, 1]);
        assert_eq!(file.attributes[0].values, expected);
        let names = [(0, "unknown".to_owned()), (1, "gyrus".to_owned())];
        assert_eq!(file.label_names, names);
        for cut in 0..content.len() {
            assert!(parse_values(Path::new("a.annot"), &content[..cut]).is_err());
        }
    }
    // The attributes of a mesh file are values too, if it has any.
    let file = values("a.vtk", &samples::vtk(false, false, false));
    assert_eq!(file.attributes.len(), 4);
    let error = parse_values(Path::new("a.off"), crate::files::OFF.as_bytes()).unwrap_err();
    assert!(matches!(error.problem, FileProblem::NoValues));
}

/// The points of the glTF sample after its nodes.
fn has_scene(file: &MeshFile) {
    let points: Vec<DVec3> =
        POINTS.iter().map(|&[x, y, z]| DVec3::new(f64::from(x) + 10.0, y.into(), -2.0 * f64::from(z))).collect();
    assert_eq!(file.mesh.vertices(), points);
    // The nodes mirror the mesh, so the triangles are reversed. The strip 0 1 2 1 3 2 has the
    // triangles 0 1 2, (1 1 2), 2 1 3 and 1 2 3 before that.
    let expected = [[0, 2, 1], [1, 2, 3], [1, 0, 2], [1, 2, 3], [1, 3, 2]];
    assert_eq!(faces(&file.mesh), expected);
    assert_eq!(values(file, "label"), AttributeValues::U8(vec![5, 6, 7, 8]));
    assert_eq!(values(file, "green"), AttributeValues::U8(vec![0, 1, 2, 3]));
    assert_eq!(values(file, "blue"), AttributeValues::U8(vec![0, 10, 20, 30]));
    assert_eq!(file.notes.len(), 1);
}

#[test]
fn gltf_scenes_with_every_kind_of_buffer() {
    let file = load("a.glb", samples::glb());
    assert_eq!(file.format, FileFormat::GLB);
    has_scene(&file);
    let data = samples::base64(&samples::gltf_buffer());
    let embedded = format!(r#"{{"uri":"data:application/octet-stream;base64,{data}","byteLength":76}}"#);
    let file = load("a.gltf", samples::gltf(&embedded));
    assert_eq!(file.format, FileFormat::GLTF);
    has_scene(&file);

    let folder = tempfile::tempdir().unwrap();
    let external = samples::gltf(r#"{"uri":"my%20data.bin","byteLength":76}"#);
    let path = folder.path().join("a.gltf");
    std::fs::write(&path, &external).unwrap();
    std::fs::write(folder.path().join("my data.bin"), samples::gltf_buffer()).unwrap();
    has_scene(&read_mesh(&path).unwrap());
    // Other files are read only for a file, and only from its folder.
    let problem = refuse("a.gltf", &external).problem;
    assert!(matches!(problem, FileProblem::ExternalData { .. }));
    for uri in ["../my data.bin", "/etc/hostname", "file:///x", "a/..\\\\..\\\\b"] {
        let text = external.replace("my%20data.bin", uri);
        std::fs::write(&path, text).unwrap();
        let problem = read_mesh(&path).unwrap_err().problem;
        assert!(matches!(problem, FileProblem::OutsideFolder { .. }), "{uri}: {problem}");
    }
    // The file that is not there is named, not the mesh.
    std::fs::write(&path, &external).unwrap();
    std::fs::remove_file(folder.path().join("my data.bin")).unwrap();
    let problem = read_mesh(&path).unwrap_err().problem;
    assert!(matches!(&problem, FileProblem::DataFile { file, .. } if file == "my data.bin"), "{problem}");
    // A shorter one is named too.
    std::fs::write(folder.path().join("my data.bin"), [0; 40]).unwrap();
    let problem = read_mesh(&path).unwrap_err().problem;
    let FileProblem::BadDocument { why } = problem else { panic!("{problem}") };
    assert!(why.contains("my%20data.bin") && why.contains("40"), "{why}");
}

#[test]
fn gltf_data_in_a_folder_may_be_larger_than_the_document() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    let vertices = 20_000_u32;
    let points = (0..vertices).flat_map(|vertex| [vertex as f32, 0.0, 1.0]);
    let data: Vec<u8> = points.flat_map(f32::to_le_bytes).collect();
    std::fs::write(folder.path().join("data/points.bin"), &data).unwrap();
    let length = data.len();
    let text = format!(
        r#"{{"asset":{{"version":"2.0"}},"buffers":[{{"uri":"data/points.bin","byteLength":{length}}}],
"bufferViews":[{{"buffer":0,"byteLength":{length}}}],
"accessors":[{{"bufferView":0,"componentType":5126,"count":{vertices},"type":"VEC3"}}],
"meshes":[{{"primitives":[{{"attributes":{{"POSITION":0}}}}]}}]}}"#
    );
    let path = folder.path().join("a.gltf");
    std::fs::write(&path, &text).unwrap();
    assert_eq!(read_mesh(&path).unwrap().mesh.vertex_count(), vertices as usize);
    assert_eq!(data_files(&path, text.as_bytes()), [folder.path().join("data/points.bin")]);
    assert!(data_files(&path, &samples::glb()).is_empty());
}

#[test]
fn gltf_scenes_sparse_values_and_versions() {
    let data = samples::base64(&[&samples::gltf_buffer()[..], &[1, 3, 0, 0], &[40, 50]].concat());
    let text = samples::gltf(&format!(r#"{{"uri":"data:;base64,{data}"}}"#));
    // Labels 6 and 8 are replaced.
    let view = r#"{"buffer":0,"byteOffset":60,"byteLength":16,"byteStride":4}"#;
    let further = r#"{"buffer":0,"byteOffset":76,"byteLength":2},{"buffer":0,"byteOffset":80,"byteLength":2}"#;
    let sparse = r#""sparse":{"count":2,"indices":{"bufferView":3,"componentType":5121},"values":{"bufferView":4}},"#;
    let label = r#"{"bufferView":2,"componentType":5121,"count":4,"type":"SCALAR"}"#;
    let at = text.replace(view, &format!("{view},{further}"));
    let file = load("a.gltf", at.replace(label, &label.replace(r#""count""#, &format!(r#"{sparse}"count""#))));
    assert_eq!(values(&file, "label"), AttributeValues::U8(vec![5, 40, 7, 50]));
    // Without a view the other values are zero.
    let zero = label.replace(r#""bufferView":2,"#, sparse);
    let file = load("a.gltf", at.replace(label, &zero));
    assert_eq!(values(&file, "label"), AttributeValues::U8(vec![0, 40, 0, 50]));
    for (from, to) in [(r#""count":2"#, r#""count":3"#), (r#""count":4"#, r#""count":3"#)] {
        let problem = refuse("a.gltf", at.replace(label, &zero.replace(from, to))).problem;
        assert!(matches!(problem, FileProblem::BadDocument { .. }), "{problem}");
    }
    // Of two scenes the chosen one is read.
    let empty = r#""scenes":[{"nodes":[]},{"nodes":[0]}],"#;
    let two = text.replace(r#""scene":0,"scenes":[{"nodes":[0]}],"#, &format!(r#""scene":1,{empty}"#));
    let file = load("a.gltf", &two);
    assert_eq!((file.mesh.vertex_count(), file.notes.len()), (4, 2));
    // Version 1 has named objects in place of lists, and another header.
    let old = r#"{"accessors":{"a":{"bufferView":"b"}},"asset":{"version":"1.0"},"buffers":{}}"#;
    let mut binary = samples::glb();
    binary[4] = 1;
    for content in [old.as_bytes(), &binary] {
        let problem = refuse("a.gltf", content).problem;
        let FileProblem::Unsupported { what } = problem else { panic!("{problem}") };
        assert!(what.contains("version 1"), "{what}");
    }
}

#[test]
fn gltf_that_lies_or_is_compressed_is_refused() {
    let data = samples::base64(&samples::gltf_buffer());
    let text = samples::gltf(&format!(r#"{{"uri":"data:;base64,{data}"}}"#));
    for (from, to) in [
        (r#""count":4,"type":"VEC3""#, r#""count":1000000000000,"type":"VEC3""#),
        (r#""byteLength":48"#, r#""byteLength":47"#),
        (r#""byteOffset":48"#, r#""byteOffset":18446744073709551615"#),
        (r#""byteStride":4"#, r#""byteStride":2"#),
        (r#""mesh":0"#, r#""mesh":7"#),
        (r#""nodes":[0]"#, r#""nodes":[4294967295]"#),
    ] {
        let problem = refuse("a.gltf", text.replacen(from, to, 1)).problem;
        assert!(matches!(problem, FileProblem::BadDocument { .. }), "{to}: {problem}");
    }
    for (from, to) in [
        (r#""asset":"#, r#""extensionsRequired":["KHR_draco_mesh_compression"],"asset":"#),
        (r#"{"bufferView":0,"#, "{"),
    ] {
        let problem = refuse("a.gltf", text.replacen(from, to, 1)).problem;
        assert!(matches!(problem, FileProblem::Unsupported { .. }), "{to}: {problem}");
    }
    // A cycle of nodes is read once, and a mesh may be in many nodes.
    let cycle = text.replace(r#"{"mesh":0,"#, r#"{"mesh":0,"children":[0,1],"#);
    assert_eq!(load("a.gltf", cycle).mesh.vertex_count(), 4);
    let many = format!("{{\"children\":[1]}},{}", vec!["{\"mesh\":0}"; 500].join(","));
    let roots: Vec<String> = (0..500).map(|node| node.to_string()).collect();
    let many = text
        .replace(r#"{"children":[1],"translation":[10,0,0]},"#, &(many + ","))
        .replace(r#""nodes":[0]"#, &format!("\"nodes\":[{}]", roots.join(",")));
    assert_eq!(load("a.gltf", many).mesh.vertex_count(), 4 * 499);
    // But a scene of far more data than the file is refused before memory is taken.
    let sparse = r#""sparse":{"count":0,"indices":{"bufferView":1,"componentType":5121},"values":{"bufferView":1}},"#;
    let many = text.replace(
        r#"{"bufferView":0,"componentType":5126,"count":4"#,
        &format!("{{{sparse}\"componentType\":5126,\"count\":100000000"),
    );
    let problem = refuse("a.gltf", many).problem;
    assert!(matches!(problem, FileProblem::SceneTooLarge { .. }), "{problem}");
}

#[test]
fn gmsh_files_of_both_versions_and_encodings() {
    for version in ["2.2", "4.1"] {
        for binary in [false, true] {
            let content = samples::gmsh(version, binary);
            let file = load("a.msh", &content);
            let format = if binary { FileFormat::GMSH_BINARY } else { FileFormat::GMSH_ASCII };
            assert_eq!(file.format, format);
            has_points(&file);
            assert_eq!(faces(&file.mesh), [vec![0, 1, 2], vec![0, 1, 3, 2]]);
            let heat = AttributeValues::F64(vec![1.0, 2.0, 3.0, 4.0]);
            assert_eq!(values(&file, "heat"), heat);
            assert_eq!(face_values(&file, "physical"), AttributeValues::I32(vec![77; 2]));
            assert_eq!(face_values(&file, "entity"), AttributeValues::I32(vec![5; 2]));
            assert_eq!(face_values(&file, "q"), AttributeValues::F64(vec![0.5, 0.75]));
            assert_eq!(file.notes.len(), 1, "{:?}", file.notes);
        }
        let text = String::from_utf8(samples::gmsh(version, false)).unwrap();
        let problem = refuse("a.msh", text.replace("10 20 40 30", "10 20 41 30")).problem;
        assert!(matches!(problem, FileProblem::IndexOutOfRange { index: 41, .. }));
        let problem = refuse("a.msh", text.replace(version, "4.0")).problem;
        assert!(matches!(problem, FileProblem::Unsupported { .. }));
        for counts in ["$Nodes\n4\n", "$Nodes\n1 4 10 40 \n2 5 0 4 \n"] {
            let lying =
                text.replace(counts, &counts.replace("4 \n", "999999999999 \n").replace("\n4\n", "\n999999999999\n"));
            if lying != text {
                assert!(parse("a.msh", lying).is_err());
            }
        }
    }
}

#[test]
fn files_that_end_early_are_no_smaller_meshes() {
    let ascii = Vtp { place: Place::Ascii, compressed: false, wide_sizes: false, big_endian: false };
    let raw = Vtp { place: Place::AppendedRaw, ..ascii };
    for (name, content, slack) in [
        ("a.vtp", ascii.file(), 2),
        // The closing tags after the data.
        ("a.vtp", raw.file(), b"\n</AppendedData>\n</VTKFile>\n".len() + 1),
        ("a.gii", samples::gifti("ASCII", false, true), 2),
        ("a.glb", samples::glb(), 1),
    ] {
        let whole = load(name, &content);
        for cut in 1..content.len() {
            if let Ok(file) = parse(name, &content[..cut]) {
                assert!(cut + slack > content.len(), "{name}: {cut} of {}", content.len());
                assert_eq!(file.mesh, whole.mesh);
            }
        }
    }
    let content = samples::gmsh("4.1", false);
    for cut in 1..content.len() {
        if let Ok(file) = parse("a.msh", &content[..cut]) {
            // Whole sections may be missing.
            assert!(content[..cut].trim_ascii_end().rsplit(|&b| b == b'\n').next().unwrap().starts_with(b"$End"));
            assert!(file.mesh.vertex_count() == 4 || file.mesh.face_count() == 0);
        }
    }
}
