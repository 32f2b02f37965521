//! `gemcnn data` as a user runs it.

use gemcnn_mesh::{AttributeValues, Mesh, VertexAttribute, WriteOptions, shapes, shapes::Cells, write_mesh};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::{TempDir, tempdir};

fn gemcnn(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gemcnn"));
    command.args(arguments).env_remove("GEMCNN_CACHE");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn fail(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    output
}

fn torus(number: usize, columns: usize) -> Mesh {
    shapes::torus(columns, 40, 2.0 + number as f64, 0.5, Cells::Triangles).unwrap()
}

fn write(path: &Path, mesh: &Mesh, label: Vec<u8>) {
    let attributes = [VertexAttribute::new("label", AttributeValues::U8(label))];
    write_mesh(path, mesh, &attributes, &WriteOptions::default()).unwrap();
}

/// Tori whose inside is labelled 1.
fn teeth(count: usize) -> TempDir {
    tori(count, 60)
}

fn tori(count: usize, columns: usize) -> TempDir {
    let folder = tempdir().unwrap();
    for number in 0..count {
        let mesh = torus(number, columns);
        let inside = |radius: f64| u8::from(radius < 2.0 + number as f64);
        let label = mesh.vertices().iter().map(|p| inside(p.x.hypot(p.y))).collect();
        write(&folder.path().join(format!("t{number:02}.ply")), &mesh, label);
    }
    folder
}

fn path(folder: &Path) -> &str {
    folder.to_str().unwrap()
}

#[test]
fn check_shows_what_was_found_and_counts() {
    let folder = teeth(5);
    let said = succeed(&mut gemcnn(&["data", "check", path(folder.path())]));
    for part in [
        "(segmentation)",
        "`label`",
        "train      4 meshes, 9,600 vertices",
        "validation no meshes",
        "test       1 mesh, 2,400 vertices",
        "ready to train on",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let row = said.lines().find(|line| line.starts_with("  1 ")).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(words[..2], ["1", "1"]);
    assert_eq!(words[3..5], ["on", "4"], "{row}");
    let json = succeed(&mut gemcnn(&["data", "check", "--json", path(folder.path())]));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["task"], "segmentation");
    assert_eq!(json["parts"][0]["meshes"], 4);
    assert_eq!(json["problems"], Value::Array(Vec::new()));
    // Five meshes with three versions of each that is trained on: at least their 128 eigenvectors.
    let estimate = &json["estimate"];
    assert!(estimate["disk"].as_u64().unwrap() > 13 * 2400 * 128 * 2, "{estimate}");
    assert!(estimate["memory"].as_u64() > estimate["disk"].as_u64(), "{estimate}");
    assert_eq!(estimate["epochs"], 100);
    assert!(estimate["preparation"].as_f64().unwrap() > 0.0 && estimate["training"].as_f64().unwrap() > 0.0);
}

#[test]
fn check_reports_every_problem_and_fails() {
    let folder = teeth(4);
    fs::write(folder.path().join("t01.ply"), "ply\n").unwrap();
    write(&folder.path().join("t02.ply"), &torus(2, 60), vec![7; 2400]);
    fs::write(
        folder.path().join("dataset.toml"),
        "task = 'segmentation'\nclasses = ['gum', 'tooth']\ntarget.property = 'label'",
    )
    .unwrap();
    let output = fail(&mut gemcnn(&["data", "check", path(folder.path())]));
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains("2 problems") && said.contains("tooth"), "{said}");
    assert_eq!(errors.lines().filter(|line| line.starts_with("error")).count(), 2, "{errors}");
    assert!(errors.contains("t01.ply"), "{errors}");
    assert!(errors.contains("t02.ply: vertex 0: ") && errors.contains('7'), "{errors}");
    let output = fail(&mut gemcnn(&["data", "check", "--json", path(folder.path())]));
    let json: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    assert_eq!(json["problems"].as_array().unwrap().len(), 2);
    let output = fail(&mut gemcnn(&["data", "check", "/no/such/folder"]));
    assert!(text(&output.stderr).contains("/no/such/folder"));
}

fn usage(cache: &Path) -> Value {
    let said = succeed(&mut gemcnn(&["data", "cache", "--json", "--cache", path(cache)]));
    serde_json::from_str(&said).unwrap()
}

#[test]
fn processes_share_a_cache_and_may_be_killed() {
    const MESHES: usize = 24;
    let (folder, place) = (teeth(MESHES), tempdir().unwrap());
    let cache = place.path().join("cache");
    let arguments =
        ["data", "prepare", path(folder.path()), "--model", "gem", "--features", "shot", "--cache", path(&cache)];
    // Killed at some moment while it writes.
    for entries in [1, 5] {
        let mut killed = gemcnn(&arguments).stdout(Stdio::null()).spawn().unwrap();
        while fs::read_dir(&cache).map_or(0, Iterator::count) < entries {
            assert!(killed.try_wait().unwrap().is_none_or(|s| s.success()));
            std::thread::yield_now();
        }
        killed.kill().unwrap();
        killed.wait().unwrap();
    }
    let together: Vec<_> =
        (0..2).map(|_| gemcnn(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()).collect();
    for process in together {
        let output = process.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("24 meshes"));
        assert!(!text(&output.stderr).contains("warning"));
    }
    assert_eq!(usage(&cache)["entries"], MESHES);
    let contents = |file: fs::DirEntry| fs::read(file.path()).unwrap();
    let prepared = |file: &fs::DirEntry| file.path().extension().is_some_and(|e| e == "prepared");
    let files = |cache: &Path| -> Vec<Vec<u8>> {
        let entries = fs::read_dir(cache).unwrap().map(Result::unwrap);
        let mut files: Vec<_> = entries.filter(prepared).collect();
        files.sort_by_key(fs::DirEntry::file_name);
        files.into_iter().map(contents).collect()
    };
    // What the disturbed processes made is what an undisturbed one makes.
    let fresh = place.path().join("fresh");
    let mut undisturbed = arguments;
    undisturbed[arguments.len() - 1] = path(&fresh);
    succeed(&mut gemcnn(&undisturbed));
    assert_eq!(files(&cache), files(&fresh));
    let said = succeed(&mut gemcnn(&["data", "cache", "--clear", "--cache", path(&cache)]));
    assert!(said.contains("24"), "{said}");
    assert_eq!(usage(&cache)["entries"], 0);
}

#[test]
fn training_finds_everything_in_the_cache() {
    let (folder, place) = (tori(4, 8), tempdir().unwrap());
    let (cache, run) = (place.path().join("cache"), place.path().join("run"));
    let common = ["--cache", path(&cache)];
    let prepare = [&["data", "prepare", path(folder.path())], &common[..]].concat();
    succeed(&mut gemcnn(&prepare));
    let entries = usage(&cache)["entries"].clone();
    assert!(entries.as_u64().unwrap() > 4, "versions of the meshes");
    let train = ["train", "segmentation", "--data", path(folder.path())];
    let end = ["--epochs", "1", "--device", "cpu", "--run-dir", path(&run)];
    succeed(&mut gemcnn(&[&train, &end[..], &common[..]].concat()));
    // Training adds five changed copies of the mesh that it holds out.
    assert_eq!(usage(&cache)["entries"].as_u64(), entries.as_u64().map(|entries| entries + 5));
}

#[test]
fn made_bodies_are_a_data_set() {
    let folder = tempdir().unwrap();
    let place = folder.path().join("bodies");
    let small = ["--count", "5", "--vertices", "600"];
    let make = [&["data", "make", "bodies", path(&place)], &small[..]].concat();
    let said = succeed(&mut gemcnn(&make));
    assert!(said.contains("5 bodies of 600 vertices"), "{said}");
    let said = succeed(&mut gemcnn(&["data", "check", path(&place)]));
    for part in ["(correspondence)", "train      4 meshes, 2,400 vertices", "test       1 mesh,"] {
        assert!(said.contains(part), "{said}");
    }
    // A folder that holds anything is left as it is.
    let output = fail(&mut gemcnn(&make));
    assert!(text(&output.stderr).contains(path(&place)));
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("scan.ply"), "mine").unwrap();
    let make = [&["data", "make", "bodies", path(&other)], &small[..]].concat();
    let said = text(&fail(&mut gemcnn(&make)).stderr);
    assert!(said.contains(path(&other)), "{said}");
    assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
}

#[test]
fn a_cache_in_the_way_warns_once_and_does_not_stop() {
    let (folder, place) = (teeth(3), tempdir().unwrap());
    let file = place.path().join("file");
    fs::write(&file, "").unwrap();
    let prepare = ["data", "prepare", path(folder.path()), "--model", "gem"];
    let mut command = gemcnn(&prepare);
    let output = command.env("GEMCNN_CACHE", file.join("cache")).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let errors = text(&output.stderr);
    assert_eq!(errors.matches("warning").count(), 1, "{errors}");
    assert!(errors.contains("GEMCNN_CACHE"), "{errors}");
    let home = place.path().join("home");
    let mut command = gemcnn(&prepare);
    let said = succeed(command.env("XDG_CACHE_HOME", &home));
    assert!(said.contains(path(&home.join("gemcnn/meshes"))), "{said}");
}
