//! `gemcnn experiment bodies` as a user runs it: small, twice, and interrupted.
#![cfg(unix)]

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};
use tempfile::tempdir;

fn bodies(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gemcnn"));
    command
        .current_dir(folder)
        .env("GEMCNN_CACHE", folder.join("cache"))
        .args(["experiment", "bodies", "--device", "cpu", "--out", "out"])
        .args(["--bodies", "3", "--vertices", "500", "--seeds", "1"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|data| data.modified()).ok()
}

/// Paths of all files in a folder, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

#[test]
fn rows_are_trained_once_and_make_a_table() {
    let folder = tempdir().unwrap();
    let run = |arguments: &[&str], status: i32| {
        let output = bodies(folder.path(), arguments).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{message}");
        (String::from_utf8(output.stdout).unwrap(), message)
    };
    run(&["--rows", "gem", "--epochs", "1"], 0);
    let model = folder.path().join("out/gem-seed1/model.safetensors");
    let before = modified(&model);
    let (text, _) = run(&["--rows", "graph-xyz,gem", "--epochs", "1"], 0);
    assert_eq!(modified(&model), before, "a finished run was repeated");
    assert!(text.contains("| Graph CNN | XYZ |") && text.contains("99.73 ± 0.04 |"), "{text}");
    let table = fs::read_to_string(folder.path().join("out/table.md")).unwrap();
    assert!(text.starts_with(&table), "{table}");
    let results = fs::read_to_string(folder.path().join("out/results.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    let rows = results["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        let run = &row["runs"][0];
        assert!(run["training_seconds"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["accuracy"]["mean"], run["accuracy"], "{row}");
        for condition in ["rotated", "remeshed"] {
            let error = run[format!("geodesic_error_{condition}")].as_f64();
            assert!(error.unwrap() > 0.0, "{row}");
        }
        assert!(run["parameters"].as_u64().unwrap() > 10_000, "{row}");
    }
    // Another seed alone, as beside a process with the first one.
    run(&["--rows", "gem", "--epochs", "1", "--first-seed", "2"], 0);
    let results = fs::read_to_string(folder.path().join("out/results.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    let runs = results["rows"][0]["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0]["seed"], 2);
    assert!(folder.path().join("out/gem-seed2/finished").exists());
    assert_eq!(modified(&model), before, "a finished run was repeated");
    let (_, message) = run(&["--rows", "gem", "--epochs", "2"], 1);
    assert!(message.contains("gem-seed1"), "{message}");
    // As if it had been killed just after the model was written.
    let out = folder.path().join("out");
    let whole = files(&out);
    for name in ["curve.png", "finished", "eval-test.json", "eval-test.png"] {
        fs::remove_file(out.join("gem-seed1").join(name)).unwrap();
    }
    fs::remove_file(out.join("gem-seed1/predictions/body_002.png")).unwrap();
    for place in [".", "gem-seed1", "gem-seed1/predictions"] {
        fs::write(out.join(place).join(".gemcnn-9-9.tmp"), "half").unwrap();
    }
    run(&["--rows", "gem", "--epochs", "1"], 0);
    assert_eq!(files(&out), whole);
    let (_, message) = run(&["--rows", "gems"], 2);
    assert!(message.contains("graph-xyz"), "{message}");
    let (_, message) = run(&["--data", "nowhere"], 2);
    assert!(message.contains("--data"), "{message}");
}

#[test]
fn an_interrupted_experiment_continues() {
    let folder = tempdir().unwrap();
    let arguments = ["--rows", "gem", "--epochs", "12"];
    let child = bodies(folder.path(), &arguments).spawn().unwrap();
    let metrics = folder.path().join("out/gem-seed1/metrics.jsonl");
    let epochs = || fs::read_to_string(&metrics).map_or(0, |text| text.lines().count());
    let started = Instant::now();
    while epochs() == 0 {
        assert!(started.elapsed() < Duration::from_secs(120), "no epoch was trained");
        std::thread::sleep(Duration::from_millis(2));
    }
    let id = child.id().to_string();
    let status = Command::new("kill").args(["-s", "INT", &id]).status().unwrap();
    assert!(status.success());
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{message}");
    assert!(epochs() < 12 && !folder.path().join("out/table.md").exists());
    let output = bodies(folder.path(), &arguments).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(message.contains("checkpoint.safetensors"), "{message}");
    assert_eq!(epochs(), 12);
    assert!(folder.path().join("out/table.md").exists());
}

#[test]
fn networks_on_surfaces_are_tested_on_other_meshings() {
    let folder = tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gemcnn"));
        command
            .current_dir(folder.path())
            .env("GEMCNN_CACHE", folder.path().join("cache"))
            .args(["experiment", "remeshed", "--device", "cpu", "--out", "out"])
            .args(["--bodies", "2", "--vertices", "500", "--seeds", "1"])
            .args(["--epochs", "1"])
            .args(arguments);
        let output = command.output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), message)
    };
    let (status, message) = run(&["--rows", "gem,surface+"]);
    assert_eq!(status, Some(0), "{message}");
    let results = fs::read_to_string(folder.path().join("out/results.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    let rows = results["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        let meshings = row["meshings"].as_object().unwrap();
        assert_eq!(meshings.len(), 6, "{row}");
        for (meshing, runs) in meshings {
            let mean = runs[0]["mean"].as_f64().unwrap();
            assert!(mean > 0.0 && mean < 2.0, "{meshing}: {mean}");
        }
    }
    for file in ["table.md", "errors.svg", "surface+-seed1/meshings.png"] {
        assert!(folder.path().join("out").join(file).exists(), "{file}");
    }
    let (status, _) = run(&["--rows", "surfaces"]);
    assert_eq!(status, Some(2));
}
