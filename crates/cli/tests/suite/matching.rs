//! `gemcnn match` as a user runs it.

use gemcnn_mesh::shapes::{self, BodyFamily, BodyOptions};
use gemcnn_mesh::{AttributeValues, DVec3, VertexAttribute, WriteOptions, read_mesh, write_mesh};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::{TempDir, tempdir};

/// A folder with the bodies `a.ply` and `b.ply` with labels, `folder/c.ply` with c the body a, and `folder/ball.off`.
fn bodies() -> TempDir {
    let folder = tempdir().unwrap();
    let family = BodyFamily::new(&BodyOptions { vertices: 1000, poses: 0.3, ..Default::default() }).unwrap();
    let parts: Vec<u8> = family.segments().iter().map(|part| part.label()).collect();
    fs::create_dir(folder.path().join("folder")).unwrap();
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
        write_mesh(folder.path().join(name), &mesh, &columns, &WriteOptions::default()).unwrap();
    }
    shapes::icosphere(3).unwrap().write(folder.path().join("folder/ball.off")).unwrap();
    folder
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gemcnn"))
        .current_dir(folder)
        .args(arguments)
        .args(["--device", "cpu"])
        .output()
        .unwrap()
}

#[track_caller]
fn succeed(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn lines(path: PathBuf) -> Vec<Vec<f64>> {
    let text = fs::read_to_string(path).unwrap();
    let row = |line: &str| line.split([',', ' ']).map(|cell| cell.parse().unwrap()).collect();
    text.lines().map(row).collect()
}

#[test]
fn two_bodies_are_matched_and_fields_carried() {
    let folder = bodies();
    let here = |name: &str| folder.path().join(name);
    let said = succeed(
        folder.path(),
        &[
            "match",
            "a.ply",
            "b.ply",
            "-o",
            "map.txt",
            "--functional-map",
            "map.npy",
            "--mesh",
            "out.ply",
            "--transfer",
            "part,flow",
            "--picture",
            "both.png",
            "--json",
        ],
    );
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_ne!(said["verdict"], "meaningless", "{said}");
    assert_eq!(said["a"]["vertices"], 1000);
    let map = lines(here("map.txt"));
    // The bodies have the same vertices.
    let [a, b] = ["a.ply", "b.ply"].map(|name| read_mesh(here(name)).unwrap());
    let size = b.mesh.bounds().map(|[low, high]| (high - low).max_element()).unwrap();
    let at = |vertex: usize| b.mesh.vertices()[vertex];
    let errors = map.iter().enumerate().map(|(vertex, row)| at(row[0] as usize).distance(at(vertex)) / size);
    let error = errors.sum::<f64>() / 1000.0;
    assert!(map.len() == 1000 && error < 0.04, "{error}");
    let out = read_mesh(here("out.ply")).unwrap();
    assert_eq!(out.mesh, a.mesh);
    let names: Vec<&str> = out.attributes.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["part", "flow_x", "flow_y", "flow_z", "confidence"]);
    let agree = (0..1000).filter(|&v| out.attributes[0].values.to_f64(v) == a.attributes[0].values.to_f64(v)).count();
    assert!(agree > 850, "{agree}");
    assert_eq!(&fs::read(here("both.png")).unwrap()[1..4], b"PNG");
    assert_eq!(&fs::read(here("map.npy")).unwrap()[1..6], b"NUMPY");
    succeed(folder.path(), &["match", "a.ply", "b.ply", "-o", "precise.csv", "--precise"]);
    for row in lines(here("precise.csv")) {
        assert!(row.len() == 6 && (row[3] + row[4] + row[5] - 1.0).abs() < 1e-5);
    }
}

#[test]
fn maps_that_mean_nothing_are_refused() {
    let folder = bodies();
    let pair = ["match", "a.ply", "folder/ball.off", "-o", "map.npy"];
    let refused = run(folder.path(), &pair);
    assert_eq!(refused.status.code(), Some(1));
    assert!(!folder.path().join("map.npy").exists());
    succeed(folder.path(), &[&pair[..], &["--force"]].concat());
    assert!(folder.path().join("map.npy").exists());
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
        assert_eq!(run(folder.path(), arguments).status.code(), Some(2), "{arguments:?}");
    }
    for arguments in [
        &["match", "a.ply", "b.ply", "--mesh", "out.ply", "--transfer", "none"][..],
        &["match", "a.ply", "none.ply", "-o", "map.npy"],
        &["match", "a.ply", "b.ply", "-o", "map.npy", "--model", "bodies-parts"],
    ] {
        assert_eq!(run(folder.path(), arguments).status.code(), Some(1), "{arguments:?}");
    }
}

#[test]
fn a_folder_is_matched_with_a_template() {
    let folder = bodies();
    let done = run(folder.path(), &["match", "folder", "b.ply", "-o", "out", "--transfer", "part"]);
    // The ball cannot be matched; the body is.
    assert_eq!(done.status.code(), Some(1));
    let out = |name: &str| folder.path().join("out").join(name);
    assert!(out("c.npy").exists() && !out("ball.npy").exists());
    assert_eq!(read_mesh(out("c.ply")).unwrap().attributes[0].name, "part");
    let table = fs::read_to_string(out("matches.csv")).unwrap();
    assert_eq!(table.lines().count(), 3);
    assert!(table.lines().any(|line| line.contains("ball.off,b.ply,meaningless")));
}

#[test]
fn matched_meshes_are_linked_in_a_page() {
    let folder = bodies();
    let view = |meshes: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gemcnn"));
        command.current_dir(folder.path()).args(["view", "--match"]).args(meshes).output().unwrap().status.code()
    };
    assert_eq!(view(&["a.ply"]), Some(2));
    assert_eq!(view(&["a.ply", "b.ply"]), Some(0));
    let page = fs::read_to_string(folder.path().join("view.html")).unwrap();
    assert_eq!(page.matches("\"role\":\"point\"").count(), 2);
}
