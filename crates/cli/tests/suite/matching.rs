//! `gemcnn match` as a user runs it.

use crate::folder::Folder;
use gemcnn_mesh::remesh::{Isotropic, MeshSize, remesh};
use gemcnn_mesh::shapes::{self, BodyFamily, BodyOptions};
use gemcnn_mesh::{AttributeValues, DVec3, VertexAttribute, WriteOptions, read_mesh, write_mesh};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A folder with the bodies `a.ply` and `b.ply` with labels, `folder/c.ply` with c the body a, and `folder/ball.off`.
fn bodies() -> Folder {
    let folder = Folder::on_cpu();
    let family = BodyFamily::new(&BodyOptions { vertices: 1000, poses: 0.3, ..Default::default() }).unwrap();
    let parts: Vec<u8> = family.segments().iter().map(|part| part.label()).collect();
    fs::create_dir(folder.path("folder")).unwrap();
    for (name, index, axis) in [("a.ply", 1, 0.0), ("b.ply", 2, 1.0), ("folder/c.ply", 1, 0.0)] {
        // Units differ.
        let mesh = family.body(index).map_vertices(|point| point * (1.0 + 99.0 * axis)).unwrap();
        let normals: Vec<DVec3> = gemcnn_mesh::vertex_normals(&mesh, Default::default()).unwrap();
        let column = |axis: usize| AttributeValues::F32(normals.iter().map(|normal| normal[axis] as f32).collect());
        let columns = [
            VertexAttribute::new("part", AttributeValues::U8(parts.clone())),
            VertexAttribute::new("flow_x", column(0)),
            VertexAttribute::new("flow_y", column(1)),
            VertexAttribute::new("flow_z", column(2)),
        ];
        write_mesh(folder.path(name), &mesh, &columns, &WriteOptions::default()).unwrap();
    }
    shapes::icosphere(3).unwrap().write(folder.path("folder/ball.off")).unwrap();
    folder
}

fn lines(text: &str) -> Vec<Vec<f64>> {
    let row = |line: &str| line.split([',', ' ']).map(|cell| cell.parse().unwrap()).collect();
    text.lines().map(row).collect()
}

#[test]
fn two_bodies_are_matched_and_fields_carried() {
    let folder = bodies();
    let outputs = ["-o", "map.txt", "--functional-map", "map.npy", "--mesh", "out.ply", "--picture", "both.png"];
    let arguments = [&["match", "a.ply", "b.ply", "--transfer", "part,flow", "--json"], &outputs[..]].concat();
    let said = folder.succeed(&arguments);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_ne!(said["verdict"], "meaningless", "{said}");
    assert_eq!(said["a"]["vertices"], 1000);
    let map = lines(&folder.text("map.txt"));
    // The bodies have the same vertices.
    let [a, b] = ["a.ply", "b.ply"].map(|name| read_mesh(folder.path(name)).unwrap());
    let size = b.mesh.bounds().map(|[low, high]| (high - low).max_element()).unwrap();
    let at = |vertex: usize| b.mesh.vertices()[vertex];
    let errors = map.iter().enumerate().map(|(vertex, row)| at(row[0] as usize).distance(at(vertex)) / size);
    let error = errors.sum::<f64>() / 1000.0;
    assert!(map.len() == 1000 && error < 0.04, "{error}");
    let out = read_mesh(folder.path("out.ply")).unwrap();
    assert_eq!(out.mesh, a.mesh);
    let names: Vec<&str> = out.attributes.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["part", "flow_x", "flow_y", "flow_z", "confidence"]);
    let agree = (0..1000).filter(|&v| out.attributes[0].values.to_f64(v) == a.attributes[0].values.to_f64(v)).count();
    assert!(agree > 850, "{agree}");
    assert_eq!(&fs::read(folder.path("both.png")).unwrap()[1..4], b"PNG");
    assert_eq!(&fs::read(folder.path("map.npy")).unwrap()[1..6], b"NUMPY");
    folder.succeed(&["match", "a.ply", "b.ply", "-o", "precise.csv", "--precise"]);
    for row in lines(&folder.text("precise.csv")) {
        assert!(row.len() == 6 && (row[3] + row[4] + row[5] - 1.0).abs() < 1e-5);
    }
}

#[test]
fn maps_that_mean_nothing_are_refused() {
    let folder = bodies();
    let pair = ["match", "a.ply", "folder/ball.off", "-o", "map.npy"];
    folder.fail(&pair, 1);
    assert!(!folder.path("map.npy").exists());
    folder.succeed(&[&pair[..], &["--force"]].concat());
    assert!(folder.path("map.npy").exists());
}

#[test]
fn wrong_usage_of_match_is_refused() {
    let folder = bodies();
    for arguments in [
        &["match", "a.ply", "b.ply", "-o", "map.png"][..],
        &["match", "a.ply", "b.ply", "--transfer", "part"],
        &["match", "a.ply", "b.ply", "--mesh", "out.obj"],
        &["match", "folder", "folder", "-o", "out"],
        &["match", "a.ply", "folder"],
        &["match", "a.ply", "folder", "-o", "folder"],
    ] {
        folder.fail(arguments, 2);
    }
    for arguments in [
        &["match", "a.ply", "b.ply", "--mesh", "out.ply", "--transfer", "none"][..],
        &["match", "a.ply", "none.ply", "-o", "map.npy"],
        &["match", "a.ply", "b.ply", "-o", "map.npy", "--model", "bodies-parts"],
    ] {
        folder.fail(arguments, 1);
    }
}

#[test]
fn a_folder_is_matched_with_a_template() {
    let folder = bodies();
    // The ball cannot be matched; the body is.
    folder.fail(&["match", "folder", "b.ply", "-o", "out", "--transfer", "part"], 1);
    let out = |name: &str| folder.path("out").join(name);
    assert!(out("c.npy").exists() && !out("ball.npy").exists());
    assert_eq!(read_mesh(out("c.ply")).unwrap().attributes[0].name, "part");
    let table = folder.text("out/matches.csv");
    assert_eq!(table.lines().count(), 3);
    assert!(table.lines().any(|line| line.contains("ball.off,b.ply,meaningless")));
}

#[test]
fn matched_meshes_are_linked_in_a_page() {
    let folder = bodies();
    let view = |meshes: &[&str]| folder.gemcnn(&["view", "--match"]).args(meshes).output().unwrap().status.code();
    assert_eq!(view(&["a.ply"]), Some(2));
    assert_eq!(view(&["a.ply", "b.ply"]), Some(0));
    let page = folder.text("view.html");
    assert_eq!(page.matches("\"role\":\"point\"").count(), 2);
}

/// Adds the folders `registered` with bodies in correspondence, and `scans` with remeshed ones that are not.
fn collections(folder: &Folder) {
    let family = BodyFamily::new(&BodyOptions { vertices: 700, poses: 0.5, ..Default::default() }).unwrap();
    for name in ["registered", "scans"] {
        fs::create_dir(folder.path(name)).unwrap();
    }
    for index in 0..8 {
        let body = family.body(index);
        body.write(folder.path(&format!("registered/body_{index}.ply"))).unwrap();
        if index >= 4 {
            continue;
        }
        let even = Isotropic { size: MeshSize::Vertices(500 + 10 * index as usize), ..Default::default() };
        let remeshed = remesh(&body, &even, index).unwrap();
        remeshed.mesh.write(folder.path(&format!("scans/scan_{index}.ply"))).unwrap();
    }
}

/// The trained model, after `gemcnn train matching` with these arguments in a run directory.
fn trained(folder: &Folder, run: &str, arguments: &[&str]) -> Vec<u8> {
    folder.succeed(&[&["train", "matching", "--epochs", "2", "--quiet", "--run-dir", run], arguments].concat());
    fs::read(folder.path(run).join("model.safetensors")).unwrap()
}

/// Losses of a run.
fn losses(run: &Path) -> Vec<f64> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let loss = |line: &str| serde_json::from_str::<Value>(line).unwrap()["training"]["loss"].as_f64().unwrap();
    text.lines().map(loss).collect()
}

#[test]
fn a_matcher_is_trained_on_registered_meshes_and_used() {
    let folder = bodies();
    collections(&folder);
    let data = ["--data", "registered", "--start", "bodies-match"];
    let model = trained(&folder, "run", &data);
    assert!(model == trained(&folder, "again", &data));
    let losses = losses(&folder.path("run"));
    assert!(losses[1] < losses[0], "{losses:?}");
    let scores = folder.json("run/matching.json");
    // The start and the model, both ways between the two held-out bodies.
    assert_eq!((scores.as_array().unwrap().len(), scores[1]["pairs"].as_u64()), (2, Some(2)));
    for row in scores.as_array().unwrap() {
        let mean = row["geodesic"]["mean"].as_f64().unwrap();
        assert!(mean > 0.0 && mean < 0.06, "{mean}");
    }
    let said = folder.succeed(&["match", "a.ply", "b.ply", "-o", "map.txt", "--model", "run", "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_ne!(said["verdict"], "meaningless", "{said}");
    let own = folder.text("map.txt");
    folder.succeed(&["match", "a.ply", "b.ply", "-o", "bundled.txt"]);
    assert_ne!(own, folder.text("bundled.txt"));
}

#[test]
fn a_matcher_finds_its_correspondences_and_goes_on() {
    let folder = bodies();
    collections(&folder);
    let rounds = |count: &str| trained(&folder, "run", &["--data", "scans", "--rounds", count]);
    let whole = rounds("2");
    // A model knows where its data were.
    fs::remove_dir_all(folder.path("run")).unwrap();
    let first = rounds("1");
    assert!(first != whole && rounds("2") == whole);
    let config = folder.text("run/round-1/config.toml");
    assert!(config.contains("start = \"bodies-match\""), "{config}");
    for round in ["round-1", "round-2"] {
        let losses = losses(&folder.path("run").join(round));
        assert!(losses[1] < losses[0], "{losses:?}");
    }
    let found = folder.path("run/correspondences");
    assert_eq!(fs::read_dir(found.join("targets")).unwrap().count(), 4);
    let scores = folder.json("run/matching.json");
    assert!(scores[1]["geodesic"].is_null() && scores[0]["good"].as_u64() > Some(8), "{scores}");
    folder.succeed(&["match", "a.ply", "b.ply", "-o", "map.npy", "--model", "run"]);
}

#[test]
fn folders_without_a_matcher_are_refused() {
    let folder = bodies();
    fs::create_dir(folder.path("empty")).unwrap();
    fs::create_dir(folder.path("one")).unwrap();
    fs::copy(folder.path("a.ply"), folder.path("one/a.ply")).unwrap();
    // The folder `folder` has a body and a ball.
    for (arguments, status, part) in [
        (&["--data", "empty"][..], 1, "empty"),
        (&["--data", "one"], 1, "1 of 1"),
        (&["--data", "one", "--unsupervised"], 1, "1 of 1"),
        (&["--data", "folder"], 1, "none of"),
        (&["--data", "folder", "--start", "a.ply"], 1, "a.ply"),
        (&["--data", "folder", "--tune"], 2, "--tune"),
        (&[], 2, "--data"),
    ] {
        let said = folder.fail(&[&["train", "matching", "--run-dir", "run"], arguments].concat(), status);
        assert!(said.contains(part), "{part}: {said}");
        assert!(!folder.path("run").exists());
    }
    folder.fail(&["train", "segmentation", "--data", "folder", "--unsupervised"], 2);
}
