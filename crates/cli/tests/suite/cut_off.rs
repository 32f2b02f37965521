//! Work that was stopped, killed or never begun: it is useful as it is, goes on, and leaves nothing behind.
#![cfg(unix)]

use crate::train::{PATIENCE, Workshop, signal, stderr};
use gemcnn_tasks::data::DataConfig;
use gemcnn_tasks::train::TrainedModel;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

/// Runs a command other than `train`.
fn run(workshop: &Workshop, arguments: &[&str]) -> Output {
    let mut command = workshop.command(env!("CARGO_BIN_EXE_gemcnn"));
    command.args(arguments).output().unwrap()
}

#[track_caller]
fn succeed(output: Output) -> Output {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    output
}

#[track_caller]
fn refused(output: Output, part: &str) {
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains(part), "{message}");
}

fn weights(run: &Path) -> Vec<Vec<f32>> {
    let model = TrainedModel::read(run).unwrap();
    let values = model.parameters.iter().map(|entry| entry.value().to_vec());
    values.collect()
}

/// Learning rate of each epoch.
fn rates(run: &Path) -> Vec<f64> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    records.map(|r| r["rate"].as_f64().unwrap()).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

#[test]
fn a_stopped_run_has_a_model() {
    let workshop = Workshop::new("epochs = 100000\ncheckpoint = { epochs = 1 }");
    let model = workshop.path("run/model.safetensors");
    let mut child = workshop.start("run");
    let started = Instant::now();
    while !model.exists() {
        assert!(started.elapsed() < PATIENCE, "no model appeared");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    TrainedModel::read(&workshop.path("run")).unwrap();
    // Ctrl-C before the next evaluation.
    fs::remove_file(&model).unwrap();
    let child = workshop.start("run");
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let message = stderr(&output);
    assert!(message.contains("run/model.safetensors"), "{message}");
    let scores = succeed(run(&workshop, &["eval", "run", "--device", "cpu", "--json"]));
    let scores: Value = serde_json::from_slice(&scores.stdout).unwrap();
    assert_eq!(scores["meshes"], 2);
    let predict = ["predict", "run", "spheres/sphere1.ply", "-o", "out", "--device", "cpu"];
    succeed(run(&workshop, &predict));
    fs::write(workshop.path("out/.gemcnn-9-9.tmp"), "half").unwrap();
    succeed(run(&workshop, &predict));
    let mut names: Vec<_> = (fs::read_dir(workshop.path("out")).unwrap().flatten())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, [".gemcnn-results", "sphere1.npy", "sphere1.ply", "sphere1.png"]);
}

#[test]
fn a_resumed_run_may_end_later_or_earlier() {
    let workshop = Workshop::new("epochs = 3\ncheckpoint = { steps = 3 }");
    workshop.model(&["run.toml", "--run-dir", "run"], "run");
    workshop.model(&["run.toml", "--run-dir", "long", "--epochs", "6"], "long");
    let output = workshop.gemcnn(&["--resume", "run", "--epochs", "6"]).output();
    let message = stderr(&succeed(output.unwrap()));
    let told = |line: &str| line.contains("epoch 6 ") && line.contains("instead of 3");
    assert!(message.lines().any(told), "{message}");
    let (resumed, whole) = (rates(&workshop.path("run")), rates(&workshop.path("long")));
    assert_eq!(resumed.len(), 6);
    assert_eq!(resumed[3..], whole[3..], "not the schedule of 6 epochs");
    assert!(resumed[2] < whole[2]);
    let config = fs::read_to_string(workshop.path("run/config.toml")).unwrap();
    assert!(config.contains("epochs = 6"), "{config}");
    // It is the end of the run from now on.
    succeed(workshop.gemcnn(&["--resume", "run"]).output().unwrap());
    assert_eq!(rates(&workshop.path("run")).len(), 6);
    let shorter = workshop.gemcnn(&["--resume", "run", "--epochs", "5"]).output();
    refused(shorter.unwrap(), "training.epochs");
    // A long run that is to end early.
    let config = fs::read_to_string(workshop.path("run.toml")).unwrap();
    let long = config.replace("epochs = 3", "epochs = 1000");
    fs::write(workshop.path("run.toml"), long).unwrap();
    let mut child = workshop.start("killed");
    child.kill().unwrap();
    child.wait().unwrap();
    succeed(workshop.gemcnn(&["--resume", "killed", "--epochs", "3"]).output().unwrap());
    assert_eq!(rates(&workshop.path("killed")).len(), 3);
}

#[test]
fn data_that_have_moved_are_known_by_their_content() {
    let workshop = Workshop::new("epochs = 2\ncheckpoint = { steps = 3 }");
    workshop.model(&["run.toml", "--run-dir", "run"], "run");
    copy(&workshop.path("run"), &workshop.path("stayed"));
    workshop.model(&["--resume", "stayed", "--epochs", "4"], "stayed");
    fs::rename(workshop.path("spheres"), workshop.path("moved")).unwrap();
    let resumed = ["--resume", "run", "--epochs", "4"];
    refused(workshop.gemcnn(&resumed).output().unwrap(), "spheres");
    let moved = ["--resume", "run", "--epochs", "4", "--data", "moved"];
    // Other labels are other data, wherever they are.
    let labels: Vec<_> = (0..10).map(|index| workshop.path(&format!("moved/sphere{index}.txt"))).collect();
    let before: Vec<String> = labels.iter().map(|p| fs::read_to_string(p).unwrap()).collect();
    for (path, text) in labels.iter().zip(&before) {
        let flipped = if text.starts_with('0') { "1" } else { "0" };
        fs::write(path, flipped.to_owned() + &text[1..]).unwrap();
    }
    refused(workshop.gemcnn(&moved).output().unwrap(), "training part");
    for (path, text) in labels.iter().zip(&before) {
        fs::write(path, text).unwrap();
    }
    workshop.model(&moved, "run");
    assert_eq!(weights(&workshop.path("run")), weights(&workshop.path("stayed")));
    let model = TrainedModel::read(&workshop.path("run")).unwrap();
    let here = fs::canonicalize(workshop.path("moved")).unwrap();
    match model.config.data {
        DataConfig::Folder(folder) => assert_eq!(fs::canonicalize(folder).unwrap(), here),
        other => panic!("{other:?}"),
    }
    // Without --data again.
    workshop.model(&["--resume", "run"], "run");
}

#[test]
fn a_start_on_a_full_disk_can_be_repeated() {
    let workshop = Workshop::new("epochs = 1");
    // Room for 512 bytes, which is too little for the configuration.
    let script = format!(
        "ulimit -f 1; trap '' XFSZ; exec {} --threads 1 train --device cpu run.toml --run-dir run",
        env!("CARGO_BIN_EXE_gemcnn"),
    );
    let full = workshop.command("bash").args(["--posix", "-c", &script]).output();
    refused(full.unwrap(), "config.toml");
    assert!(!workshop.path("run").exists());
    workshop.model(&["run.toml", "--run-dir", "run"], "run");
}

#[test]
fn pipes_are_refused_instead_of_waited_for() {
    let workshop = Workshop::new("epochs = 1");
    let pipe = |name: &str| {
        let _ = fs::remove_file(workshop.path(name));
        let made = workshop.command("mkfifo").arg(workshop.path(name)).output();
        succeed(made.unwrap());
    };
    pipe("model.safetensors");
    for command in ["eval", "predict"] {
        let mut arguments = vec![command, "model.safetensors", "--device", "cpu"];
        if command == "predict" {
            arguments.extend(["spheres", "-o", "out"]);
        }
        refused(run(&workshop, &arguments), "model.safetensors");
    }
    pipe("spheres/sphere3.txt");
    let train = || workshop.gemcnn(&["run.toml"]).output().unwrap();
    refused(train(), "sphere3.txt");
    pipe("spheres/dataset.toml");
    refused(train(), "dataset.toml");
}

#[test]
fn a_mesh_that_cannot_be_used_is_skipped_unless_that_is_refused() {
    for described in ["", "classes = ['lower', 'upper']\n"] {
        let workshop = Workshop::new("epochs = 1");
        // With classes no mesh is read before it is prepared.
        let description = workshop.path("spheres/dataset.toml");
        let text = fs::read_to_string(&description).unwrap();
        let split = "[split.patterns]\nvalidation = 'sphere[67]'\ntest = 'sphere[89]'\n";
        fs::write(&description, format!("{described}{text}{split}")).unwrap();
        for index in [2, 6, 9] {
            let path = workshop.path(&format!("spheres/sphere{index}.ply"));
            fs::write(path, "ply\nformat ascii 1.0\nelement vertex 9\n").unwrap();
        }
        let strict = ["run.toml", "--run-dir", "run", "--strict"];
        let output = workshop.gemcnn(&strict).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        fs::remove_dir_all(workshop.path("run")).ok();
        let output = workshop.gemcnn(&["run.toml", "--run-dir", "run"]).output();
        let message = stderr(&succeed(output.unwrap()));
        for index in [2, 6] {
            let name = format!("sphere{index}.ply");
            let lines = message.lines().filter(|line| line.contains(&name));
            assert_eq!(lines.count(), 2, "{message}");
        }
        let scored = |arguments: &[&str]| {
            let eval = ["eval", "run", "--device", "cpu", "--json"];
            let output = succeed(run(&workshop, &[&eval, arguments].concat()));
            let scores: Value = serde_json::from_slice(&output.stdout).unwrap();
            let skipped = scores["skipped"].as_array().map_or(0, Vec::len);
            (scores["meshes"].as_u64().unwrap(), skipped)
        };
        assert_eq!(scored(&["--part", "train"]).0, 5);
        assert_eq!(scored(&["--part", "validation"]).0, 1);
        assert_eq!(scored(&["--part", "test"]).0, 1);
        // Without parts, all that can be used are scored.
        fs::rename(workshop.path("spheres"), workshop.path("other")).unwrap();
        let undivided = format!("{described}{text}");
        fs::write(workshop.path("other/dataset.toml"), undivided).unwrap();
        assert_eq!(scored(&["--data", "other"]), (7, 3));
        let prepare = ["data", "prepare", "other", "--model", "gem", "--no-cache"];
        let message = stderr(&succeed(run(&workshop, &prepare)));
        assert_eq!(message.matches("skipped: ").count(), 3, "{message}");
        refused(run(&workshop, &[&prepare[..], &["--strict"]].concat()), "sphere");
    }
}

#[test]
fn a_data_set_that_was_cut_off_is_completed() {
    let workshop = Workshop::new("");
    let make = |folder: &str, vertices: &str| {
        let bodies = ["data", "make", "bodies", folder, "--count", "3", "--vertices", vertices];
        run(&workshop, &bodies)
    };
    succeed(make("whole", "500"));
    copy(&workshop.path("whole"), &workshop.path("cut"));
    let mark = "--count 3 --vertices 500 --seed 1\n";
    fs::write(workshop.path("cut/.gemcnn-unfinished"), mark).unwrap();
    fs::remove_file(workshop.path("cut/dataset.toml")).unwrap();
    fs::remove_file(workshop.path("cut/meshes/body_001.ply")).unwrap();
    fs::write(workshop.path("cut/meshes/.gemcnn-9-9.tmp"), "half").unwrap();
    refused(make("cut", "600"), "cut");
    succeed(make("cut", "500"));
    refused(make("cut", "500"), "not empty");
    for place in ["", "meshes"] {
        let read = |folder: &str| {
            let entries = fs::read_dir(workshop.path(folder).join(place)).unwrap();
            let mut found: Vec<_> =
                (entries.flatten()).map(|entry| (entry.file_name(), fs::read(entry.path()).ok())).collect();
            found.sort();
            found
        };
        assert!(read("cut") == read("whole"));
    }
}
