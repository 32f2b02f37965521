//! `gemcnn mesh` as a user runs it.

use crate::folder::Folder;
use gemcnn_mesh::{AttributeValues, VertexAttribute, WriteOptions, write_mesh};
use safetensors::SafeTensors;
use serde_json::Value;

const MESHES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/meshes");

#[track_caller]
fn info(folder: &Folder, file: &str) -> Value {
    serde_json::from_str(&folder.succeed(&["mesh", "info", "--json", file])).unwrap()
}

#[test]
fn info_tells_a_sound_mesh_in_text_and_json() {
    let folder = Folder::new();
    let spot = format!("{MESHES}/spot.obj");
    let text = folder.succeed(&["mesh", "info", &spot]);
    for part in ["2,930 vertices", "5,856 triangles", "8,784 edges", "genus 0", "Euler characteristic 2"] {
        assert!(text.contains(part), "{text}");
    }
    let json = info(&folder, &spot);
    for (key, value) in [
        ("vertices", 2930),
        ("faces", 5856),
        ("edges", 8784),
        ("components", 1),
        ("euler", 2),
        ("genus", 0),
        ("boundary_loops", 0),
        ("nonmanifold_edges", 0),
        ("nonmanifold_vertices", 0),
        ("isolated_vertices", 0),
        ("degenerate_faces", 0),
    ] {
        assert_eq!(json[key], value, "{key}");
    }
    for key in ["orientable", "closed", "geometry", "sound"] {
        assert_eq!(json[key], true, "{key}");
    }
    assert_eq!(json["file"], spot);
}

#[test]
fn info_goes_on_after_a_bad_file_and_says_so_in_its_status() {
    let folder = Folder::new();
    let header = "ply\nformat ascii 1.0\nelement vertex 353535235358\nproperty float x\n\
                  property float y\nproperty float z\nend_header\n0 0 0\n";
    std::fs::write(folder.path("bad.ply"), header).unwrap();
    let tet = format!("{MESHES}/trouble/tet.obj");
    let [text, said] = folder.run(&["mesh", "info", "--json", "bad.ply", &tet, "missing.obj"], 1);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3, "one object for each file");
    assert!(lines[0]["error"].as_str().unwrap().contains("353535235358"));
    assert_eq!(lines[1]["vertices"], 4);
    assert!(lines[2]["error"].as_str().unwrap().contains("missing.obj"));
    assert!(said.contains("bad.ply:3:"), "the line is named: {said}");
}

#[test]
fn info_names_trouble_and_the_command_it_suggests_repairs_it() {
    let folder = Folder::new();
    let vierbein = format!("{MESHES}/trouble/triple_vierbein.obj");
    let text = folder.succeed(&["mesh", "info", &vierbein]);
    // The number and the first examples of edges with more than two faces.
    let mut lines = text.lines();
    assert!(lines.any(|line| line.contains(" 20 ") && line.contains(": 0-1, ")));
    assert_eq!(info(&folder, &vierbein)["nonmanifold_edges"], 20);
    assert_eq!(info(&folder, &vierbein)["sound"], false);
    assert_eq!(info(&folder, &vierbein)["geometry"], true);
    let repair = text.lines().find(|line| line.contains("--repair")).unwrap();
    let arguments: Vec<&str> = repair.split_whitespace().skip(2).collect();
    let said = folder.succeed(&arguments);
    assert!(said.contains("10 of 108 faces"), "{said}");
    assert_eq!(info(&folder, &vierbein)["inconsistent_edges"], 3);
    assert_eq!(info(&folder, "OUT.ply")["inconsistent_edges"], 0);
}

#[test]
fn geometry_writes_the_tensors_of_the_library() {
    let folder = Folder::new();
    let out = "geometry.safetensors";
    let file = format!("{MESHES}/trouble/bob_small.ply");
    for (flag, normals) in
        [("area", gemcnn_mesh::NormalWeighting::Area), ("angle", gemcnn_mesh::NormalWeighting::CornerAngle)]
    {
        let said = folder.succeed(&["mesh", "geometry", &file, "-o", out, "--normals", flag]);
        assert!(said.contains("250 vertices, 1,500 directed edges"), "{said}");
        let options = gemcnn_mesh::GeometryOptions { normals, ..Default::default() };
        let mesh = gemcnn_mesh::Mesh::read(&file).unwrap();
        let graph = gemcnn_mesh::GaugeGraph::new(&mesh, &options).unwrap();
        let bytes = std::fs::read(folder.path(out)).unwrap();
        assert_eq!(gemcnn_mesh::GaugeGraph::from_safetensors(&bytes).unwrap(), graph);
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        for (name, shape) in [
            ("normals", vec![250, 3]),
            ("frames", vec![250, 3, 3]),
            ("offsets", vec![251]),
            ("neighbours", vec![1500]),
            ("reverse", vec![1500]),
            ("theta", vec![1500]),
            ("transport", vec![1500]),
            ("radius", vec![1500]),
        ] {
            assert_eq!(tensors.tensor(name).unwrap().shape(), shape, "{name}");
        }
    }
    let said = folder.succeed(&["mesh", "geometry", &file, "-o", out, "--radius", "0.2", "--max-neighbours", "5"]);
    assert!(said.contains("250 vertices"), "{said}");
}

#[test]
fn geometry_names_vertices_without_tangent_plane() {
    let folder = Folder::new();
    std::fs::write(folder.path("flat.off"), "OFF\n3 1 0\n0 0 0\n1 0 0\n2 0 0\n3 0 1 2\n").unwrap();
    let said = folder.fail(&["mesh", "geometry", "flat.off", "-o", "geometry.safetensors"], 1);
    for part in ["flat.off", "3 vertices", "vertex 0"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!folder.path("geometry.safetensors").exists());
}

#[test]
fn every_shape_is_made_sound_in_every_format() {
    let folder = Folder::new();
    for (shape, options, euler, loops) in [
        ("icosahedron", vec![], 2, 0),
        ("icosphere", vec!["--subdivisions", "2"], 2, 0),
        ("grid", vec!["--rows", "5", "--columns", "4"], 1, 1),
        ("bent-grid", vec!["--profile", "spiral"], 1, 1),
        ("bent-grid", vec!["--profile", "wave", "--straight", "rows"], 1, 1),
        ("bent-grid", vec!["--turn", "-90", "--triangles"], 1, 1),
        ("bent-grid", vec!["--profile", "random", "--seed", "3"], 1, 1),
        ("rough-grid", vec!["--roughness", "2.5", "--seed", "9"], 1, 1),
        ("torus", vec!["--quads"], 0, 0),
        ("capsule", vec![], 2, 0),
        ("body", vec!["--vertices", "600"], 2, 0),
        ("body", vec!["--vertices", "600", "--seed", "2", "--index", "7"], 2, 0),
    ] {
        let mut seen = None;
        for extension in ["ply", "obj", "off"] {
            let out = format!("shape.{extension}");
            let mut arguments = vec!["mesh", "make", shape, "-o", &out];
            arguments.extend(&options);
            folder.succeed(&arguments);
            let verdict = info(&folder, &out);
            assert_eq!(verdict["sound"], true, "{shape}: {verdict}");
            assert_eq!(verdict["euler"], euler, "{shape}");
            assert_eq!(verdict["boundary_loops"], loops, "{shape}");
            let mesh = gemcnn_mesh::Mesh::read(folder.path(&out)).unwrap();
            assert_eq!(*seen.get_or_insert(mesh.clone()), mesh, "{shape}.{extension}");
        }
    }
}

#[test]
fn the_same_seed_makes_the_same_file_whatever_the_threads() {
    let folder = Folder::new();
    let make = |name: &str, seed: &str, threads: &str| {
        folder.succeed(&["mesh", "make", "rough-grid", "--seed", seed, "-o", name, "--threads", threads]);
        std::fs::read(folder.path(name)).unwrap()
    };
    let first = make("a.ply", "1", "1");
    assert_eq!(make("b.ply", "1", "2"), first);
    assert_ne!(make("c.ply", "2", "1"), first);
}

#[test]
fn convert_adds_values_of_other_files() {
    let folder = Folder::new();
    std::fs::write(folder.path("a.obj"), "v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\nf 1 2\n").unwrap();
    // Three values in hundredths, in FreeSurfer's older format.
    std::fs::write(folder.path("a.sulc"), b"\0\0\x03\0\0\x01\0\x64\0\xc8\xff\x9c").unwrap();
    let [_, said] = folder.run(&["mesh", "convert", "a.obj", "a.vtp", "--values", "a.sulc"], 0);
    // The note about the face with two corners.
    assert!(said.contains("line 5"));
    let file = gemcnn_mesh::read_mesh(folder.path("a.vtp")).unwrap();
    assert_eq!(file.attributes[0].name, "sulc");
    let expected = gemcnn_mesh::AttributeValues::F32(vec![1.0, 2.0, -1.0]);
    assert_eq!(file.attributes[0].values, expected);
    folder.succeed(&["mesh", "convert", "a.vtp", "a.glb"]);
    let file = gemcnn_mesh::read_mesh(folder.path("a.glb")).unwrap();
    assert_eq!(file.attributes[0].values, expected);
    // Values of another mesh.
    std::fs::write(folder.path("b.sulc"), b"\0\0\x01\0\0\x01\0\x64").unwrap();
    folder.fail(&["mesh", "convert", "a.obj", "b.vtp", "--values", "b.sulc"], 1);
    assert!(!folder.path("b.vtp").exists());
}

#[test]
fn convert_keeps_values_in_ply_and_warns_where_it_cannot() {
    let folder = Folder::new();
    let text = "ply\nformat ascii 1.0\nelement vertex 5\nproperty float x\nproperty float y\n\
                property float z\nproperty uchar label\nelement face 1\n\
                property list uchar int vertex_indices\nend_header\n\
                9 9 9 7\n0 0 0 1\n1 0 0 2\n0 1 0 3\n0 0 0 4\n3 4 2 3\n";
    std::fs::write(folder.path("labelled.ply"), text).unwrap();
    let said =
        folder.succeed(&["mesh", "convert", "labelled.ply", "out.ply", "--repair", "weld,isolated", "--ply", "ascii"]);
    let steps: Vec<&str> = said.lines().collect();
    assert!(steps[0].starts_with("weld:") && steps[0].contains('5') && steps[0].contains('4'));
    assert!(steps[1].starts_with("isolated:") && steps[1].contains("1 of 4"));
    let file = gemcnn_mesh::read_mesh(folder.path("out.ply")).unwrap();
    assert_eq!(file.attributes[0].name, "label");
    assert_eq!(file.attributes[0].values, gemcnn_mesh::AttributeValues::U8(vec![1, 2, 3]));
    assert_eq!(file.mesh.face(0), [0, 1, 2]);

    // Labels of the remaining faces are kept too, and vertices are not renumbered.
    std::fs::write(
        folder.path("faces.ply"),
        "ply\nformat ascii 1.0\nelement vertex 5\nproperty float x\nproperty float y\nproperty float z\n\
         element face 3\nproperty list uchar int vertex_indices\nproperty uchar label\nend_header\n\
         0 0 0\n1 0 0\n0 1 0\n9 9 9\n1 1 0\n3 0 1 2 7\n3 0 1 1 8\n3 1 4 2 9\n",
    )
    .unwrap();
    folder.succeed(&["mesh", "convert", "faces.ply", "out.ply", "--repair", "degenerate"]);
    let file = gemcnn_mesh::read_mesh(folder.path("out.ply")).unwrap();
    assert_eq!(file.mesh.vertex_count(), 5);
    let labels = gemcnn_mesh::AttributeValues::U8(vec![7, 9]);
    assert_eq!(file.face_attributes[0].values, labels);

    let [_, warning] = folder.run(&["mesh", "convert", "labelled.ply", "out.obj"], 0);
    assert!(warning.contains("out.obj") && warning.contains("label"), "{warning}");
    assert_eq!(gemcnn_mesh::Mesh::read(folder.path("out.obj")).unwrap().vertex_count(), 5);
    // No repair is needed, and no step is reported but the written file.
    folder.succeed(&["mesh", "convert", "labelled.ply", "whole.ply", "--repair", "weld", "--repair", "isolated"]);
    let said = folder.succeed(&["mesh", "convert", "whole.ply", "out.obj", "--repair", "all"]);
    assert!(!said.contains("weld:") && !said.contains("isolated:"), "{said}");
}

#[test]
fn pictures_are_png_files_and_colours_come_from_the_values() {
    let folder = Folder::new();
    let spot = format!("{MESHES}/spot.obj");
    folder.succeed(&["mesh", "picture", &spot, "-o", "spot.png", "--width", "64", "--height", "48", "--frames"]);
    assert!(std::fs::read(folder.path("spot.png")).unwrap().starts_with(b"\x89PNG\r\n\x1a\n"));
    let said = folder.fail(&["mesh", "picture", &spot, "-o", "spot.png", "--colour", "label"], 1);
    assert!(said.contains("spot.obj") && said.contains("`label`"), "{said}");
}

#[test]
fn wrong_usage_has_status_2_and_bad_output_status_1() {
    let folder = Folder::new();
    let spot = format!("{MESHES}/spot.obj");
    for arguments in [
        vec!["mesh"],
        vec!["mesh", "info"],
        vec!["mesh", "info", "--yaml", &spot],
        vec!["mesh", "convert", &spot, "out.xyz"],
        vec!["mesh", "convert", &spot, "out.ply", "--repair", "polish"],
        vec!["mesh", "convert", &spot, "out.ply", "--repair", "weld=-1"],
        vec!["mesh", "geometry", &spot],
        vec!["mesh", "geometry", &spot, "-o", "out.npz"],
        vec!["mesh", "geometry", &spot, "-o", "out.safetensors", "--radius", "nan"],
        vec!["mesh", "make", "teapot", "-o", "out.ply"],
        vec!["mesh", "make", "grid", "--rows", "1", "-o", "out.ply"],
        vec!["mesh", "make", "body", "--vertices", "12", "-o", "out.ply"],
        vec!["mesh", "make", "icosphere", "--subdivisions", "40", "-o", "out.ply"],
        vec!["mesh", "picture", &spot, "-o", "out.png", "--width", "0"],
        vec!["--threads", "0", "mesh", "info", &spot],
        vec!["train", "segmentation", "--epochs", "five"],
        vec!["train", "segmentation", "elsewhere"],
    ] {
        let [said, message] = folder.run(&arguments, 2);
        assert!(said.is_empty() && !message.is_empty(), "{arguments:?}");
    }
    // A negative number is a value of its option.
    let said = folder.fail(&["train", "segmentation", "--epochs", "-3"], 2);
    assert!(said.contains("--epochs <N>") && !said.contains("-- -3"), "{said}");
    let said = folder.fail(&["mesh", "convert", &spot, "no/such/directory/out.ply"], 1);
    assert!(said.contains("out.ply"));
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let spot = format!("{MESHES}/spot.obj");
    let mut files = vec!["mesh", "info", "--json"];
    files.resize(200, &spot);
    let folder = Folder::new();
    let mut child = folder.gemcnn(&files).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stderr, b"");
}

#[test]
fn remeshed_files_keep_values_and_diff_measures_distance() {
    let folder = Folder::new();
    let differences = |file: &str| -> Value {
        let [told, _] = folder.run(&["mesh", "diff", "--json", "sphere.ply", file], 1);
        serde_json::from_str(&told).unwrap()
    };
    folder.succeed(&["mesh", "make", "icosphere", "--subdivisions", "4", "-o", "sphere.ply"]);
    // A label and a height for each vertex, from the positions.
    let file = gemcnn_mesh::read_mesh(folder.path("sphere.ply")).unwrap();
    let heights = file.mesh.vertices().iter().map(|p| p.z);
    let attributes = [
        VertexAttribute::new("height", AttributeValues::F32(heights.clone().map(|z| z as f32).collect())),
        VertexAttribute::new("half", AttributeValues::U8(heights.map(|z| u8::from(z > 0.0)).collect())),
    ];
    write_mesh(folder.path("sphere.ply"), &file.mesh, &attributes, &WriteOptions::default()).unwrap();
    for (command, options, vertices, distance) in [
        ("simplify", &["--vertices", "600"][..], Some(600), 0.02),
        ("simplify", &["--ratio", "0.5"], Some(1281), 0.02),
        ("remesh", &["--edge-length", "0.8"], None, 0.01),
        ("remesh", &["--vertices", "900", "--seed", "3"], Some(900), 0.02),
        ("subdivide", &[], Some(10_242), 1e-6),
        ("subdivide", &["--smooth"], Some(10_242), 0.02),
    ] {
        let files = ["mesh", command, "sphere.ply", "out.vtp"];
        folder.succeed(&[&files[..], options].concat());
        let made = gemcnn_mesh::read_mesh(folder.path("out.vtp")).unwrap();
        if let Some(vertices) = vertices {
            assert_eq!(made.mesh.vertex_count(), vertices, "{command} {options:?}");
        }
        let [height, half] = &made.attributes[..] else { panic!("{:?}", made.attributes) };
        assert_eq!((&*height.name, &*half.name), ("height", "half"));
        for (vertex, p) in made.mesh.vertices().iter().enumerate() {
            assert!((height.values.to_f64(vertex) - p.z).abs() < 0.03);
            if p.z.abs() > 0.1 {
                assert_eq!(half.values.to_f64(vertex), f64::from(u8::from(p.z > 0.0)));
            }
        }
        let told = differences("out.vtp");
        for side in 0..2 {
            let largest = told["distance"][side]["largest"].as_f64().unwrap();
            assert!(largest < distance, "{command} {options:?}: {largest}");
        }
        assert_eq!(told["same"], false);
    }
    // Points by area, and the same mesh.
    folder.succeed(&["mesh", "sample", "sphere.ply", "cloud.ply", "--points", "5000"]);
    let made = gemcnn_mesh::read_mesh(folder.path("cloud.ply")).unwrap();
    assert_eq!((made.mesh.vertex_count(), made.mesh.face_count()), (5000, 0));
    let upper = made.mesh.vertices().iter().filter(|p| p.z > 0.5).count();
    assert!((upper as f64 / 5000.0 - 0.25).abs() < 0.01, "{upper}");
    assert_eq!(made.attributes.len(), 2);
    folder.succeed(&["mesh", "connect", "cloud.ply", "surface.ply"]);
    let again = gemcnn_mesh::read_mesh(folder.path("surface.ply")).unwrap();
    assert_eq!(again.mesh.vertices(), made.mesh.vertices());
    assert_eq!(again.attributes, made.attributes);
    let told = differences("surface.ply");
    assert!(told["distance"][0]["largest"].as_f64().unwrap() < 0.05, "{told}");
    assert!(folder.succeed(&["mesh", "diff", "sphere.ply", "sphere.ply"]).contains("0.000e0"));
    // Moved by a known length: the distance of two spheres, and of corresponding vertices.
    let far = file.mesh.map_vertices(|p| 1.5 * p).unwrap();
    write_mesh(folder.path("moved.obj"), &far, &[], &WriteOptions::default()).unwrap();
    let told = differences("moved.obj");
    for value in [&told["distance"][1]["mean"], &told["moved"]["largest"]] {
        assert!((value.as_f64().unwrap() - 0.5).abs() < 0.01, "{told}");
    }
    assert_eq!(told["same_faces"], true);
    assert_eq!(told["properties"]["first_only"], serde_json::json!(["height", "half"]));
    // Wrong sizes.
    for options in [&["--vertices", "0"][..], &["--ratio", "-1"], &["--edge-length", "nan"]] {
        folder.fail(&[&["mesh", "simplify", "sphere.ply", "none.ply"], options].concat(), 1);
        assert!(!folder.path("none.ply").exists());
    }
    folder.fail(&["mesh", "remesh", "sphere.ply", "cloud.ply", "--ratio", "1", "--vertices", "9"], 2);
    folder.fail(&["mesh", "sample", "cloud.ply", "x.ply", "--points", "9"], 1);
    // The points of a cloud are in no face, but must not be dropped.
    let told = folder.succeed(&["mesh", "info", "cloud.ply"]);
    let repair: Vec<&str> = told.lines().find(|line| line.contains("OUT.ply")).unwrap().split_whitespace().collect();
    folder.succeed(&repair[2..]);
    assert!(info(&folder, "OUT.ply")["faces"].as_u64() > Some(0));
}
