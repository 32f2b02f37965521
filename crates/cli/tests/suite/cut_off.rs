//! Work that was stopped, killed or never begun: it is useful as it is, goes on, and leaves nothing behind.
#![cfg(unix)]

use crate::train::{Project, signal, stderr, succeed, wait_until};
use gemcnn_tasks::data::DataConfig;
use gemcnn_tasks::train::TrainedModel;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Output;

/// Runs a command other than `train`.
fn run(project: &Project, arguments: &[&str]) -> Output {
    let mut command = project.command(env!("CARGO_BIN_EXE_gemcnn"));
    command.args(arguments).output().unwrap()
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
    let project = Project::new("epochs = 100000\ncheckpoint = { epochs = 1 }");
    let model = project.path("run/model.safetensors");
    let mut child = project.start("run");
    wait_until(|| model.exists(), "no model appeared");
    child.kill().unwrap();
    child.wait().unwrap();
    TrainedModel::read(&project.path("run")).unwrap();
    // Ctrl-C before the next evaluation.
    fs::remove_file(&model).unwrap();
    let child = project.start("run");
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let message = stderr(&output);
    assert!(message.contains("run/model.safetensors"), "{message}");
    let scores = succeed(run(&project, &["eval", "run", "--device", "cpu", "--json"]));
    let scores: Value = serde_json::from_slice(&scores.stdout).unwrap();
    assert_eq!(scores["meshes"], 2);
    let predict = ["predict", "run", "spheres/sphere1.ply", "-o", "out", "--device", "cpu"];
    succeed(run(&project, &predict));
    fs::write(project.path("out/.gemcnn-9-9.tmp"), "half").unwrap();
    succeed(run(&project, &predict));
    let mut names: Vec<_> = (fs::read_dir(project.path("out")).unwrap().flatten())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, [".gemcnn-results", "sphere1.npy", "sphere1.ply", "sphere1.png"]);
}

#[test]
fn a_resumed_run_may_end_later_or_earlier() {
    let project = Project::new("epochs = 3\ncheckpoint = { steps = 3 }");
    project.model(&["run.toml", "--run-dir", "run"], "run");
    project.model(&["run.toml", "--run-dir", "long", "--epochs", "6"], "long");
    let output = project.gemcnn(&["--resume", "run", "--epochs", "6"]).output();
    let message = stderr(&succeed(output.unwrap()));
    let told = |line: &str| line.contains("epoch 6 ") && line.contains("instead of 3");
    assert!(message.lines().any(told), "{message}");
    let (resumed, whole) = (rates(&project.path("run")), rates(&project.path("long")));
    assert_eq!(resumed.len(), 6);
    assert_eq!(resumed[3..], whole[3..], "not the schedule of 6 epochs");
    assert!(resumed[2] < whole[2]);
    let config = fs::read_to_string(project.path("run/config.toml")).unwrap();
    assert!(config.contains("epochs = 6"), "{config}");
    // It is the end of the run from now on.
    succeed(project.gemcnn(&["--resume", "run"]).output().unwrap());
    assert_eq!(rates(&project.path("run")).len(), 6);
    let shorter = project.gemcnn(&["--resume", "run", "--epochs", "5"]).output();
    refused(shorter.unwrap(), "training.epochs");
    // A long run that is to end early.
    let config = fs::read_to_string(project.path("run.toml")).unwrap();
    let long = config.replace("epochs = 3", "epochs = 1000");
    fs::write(project.path("run.toml"), long).unwrap();
    let mut child = project.start("killed");
    child.kill().unwrap();
    child.wait().unwrap();
    succeed(project.gemcnn(&["--resume", "killed", "--epochs", "3"]).output().unwrap());
    assert_eq!(rates(&project.path("killed")).len(), 3);
}

#[test]
fn data_that_have_moved_are_known_by_their_content() {
    let project = Project::new("epochs = 2\ncheckpoint = { steps = 3 }");
    project.model(&["run.toml", "--run-dir", "run"], "run");
    copy(&project.path("run"), &project.path("stayed"));
    project.model(&["--resume", "stayed", "--epochs", "4"], "stayed");
    fs::rename(project.path("spheres"), project.path("moved")).unwrap();
    let resumed = ["--resume", "run", "--epochs", "4"];
    refused(project.gemcnn(&resumed).output().unwrap(), "spheres");
    let moved = ["--resume", "run", "--epochs", "4", "--data", "moved"];
    // Other labels are other data, wherever they are.
    let labels: Vec<_> = (0..10).map(|index| project.path(&format!("moved/sphere{index}.txt"))).collect();
    let before: Vec<String> = labels.iter().map(|p| fs::read_to_string(p).unwrap()).collect();
    for (path, text) in labels.iter().zip(&before) {
        let flipped = if text.starts_with('0') { "1" } else { "0" };
        fs::write(path, flipped.to_owned() + &text[1..]).unwrap();
    }
    refused(project.gemcnn(&moved).output().unwrap(), "training split");
    for (path, text) in labels.iter().zip(&before) {
        fs::write(path, text).unwrap();
    }
    project.model(&moved, "run");
    assert_eq!(weights(&project.path("run")), weights(&project.path("stayed")));
    let model = TrainedModel::read(&project.path("run")).unwrap();
    let here = fs::canonicalize(project.path("moved")).unwrap();
    match model.config.data {
        DataConfig::Folder(folder) => assert_eq!(fs::canonicalize(folder).unwrap(), here),
        other => panic!("{other:?}"),
    }
    // Without --data again.
    project.model(&["--resume", "run"], "run");
}

#[test]
fn a_start_on_a_full_disk_can_be_repeated() {
    let project = Project::new("epochs = 1");
    // Room for 512 bytes, which is too little for the configuration.
    let script = format!(
        "ulimit -f 1; trap '' XFSZ; exec {} --threads 1 train --device cpu run.toml --run-dir run",
        env!("CARGO_BIN_EXE_gemcnn"),
    );
    let full = project.command("bash").args(["--posix", "-c", &script]).output();
    refused(full.unwrap(), "config.toml");
    assert!(!project.path("run").exists());
    project.model(&["run.toml", "--run-dir", "run"], "run");
}

#[test]
fn pipes_are_refused_instead_of_waited_for() {
    let project = Project::new("epochs = 1");
    let pipe = |name: &str| {
        let _ = fs::remove_file(project.path(name));
        let made = project.command("mkfifo").arg(project.path(name)).output();
        succeed(made.unwrap());
    };
    pipe("model.safetensors");
    for command in ["eval", "predict"] {
        let mut arguments = vec![command, "model.safetensors", "--device", "cpu"];
        if command == "predict" {
            arguments.extend(["spheres", "-o", "out"]);
        }
        refused(run(&project, &arguments), "model.safetensors");
    }
    pipe("spheres/sphere3.txt");
    let train = || project.gemcnn(&["run.toml", "--strict"]).output().unwrap();
    refused(train(), "sphere3.txt");
    pipe("spheres/dataset.toml");
    refused(train(), "dataset.toml");
}

#[test]
fn a_mesh_that_cannot_be_used_is_skipped_unless_that_is_refused() {
    for described in ["", "classes = ['lower', 'upper']\n"] {
        let project = Project::new("epochs = 1");
        // With classes no mesh is read before it is prepared.
        let description = project.path("spheres/dataset.toml");
        let text = fs::read_to_string(&description).unwrap();
        let split = "[split.patterns]\nvalidation = 'sphere[67]'\ntest = 'sphere[89]'\n";
        fs::write(&description, format!("{described}{text}{split}")).unwrap();
        for index in [2, 6, 9] {
            let path = project.path(&format!("spheres/sphere{index}.ply"));
            fs::write(path, "ply\nformat ascii 1.0\nelement vertex 9\n").unwrap();
        }
        let strict = ["run.toml", "--run-dir", "run", "--strict"];
        let output = project.gemcnn(&strict).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        fs::remove_dir_all(project.path("run")).ok();
        let output = project.gemcnn(&["run.toml", "--run-dir", "run"]).output();
        let message = stderr(&succeed(output.unwrap()));
        for index in [2, 6] {
            let name = format!("sphere{index}.ply");
            let lines = message.lines().filter(|line| line.contains(&name));
            assert_eq!(lines.count(), 2, "{message}");
        }
        let scored = |arguments: &[&str]| {
            let eval = ["eval", "run", "--device", "cpu", "--json"];
            let output = succeed(run(&project, &[&eval, arguments].concat()));
            let scores: Value = serde_json::from_slice(&output.stdout).unwrap();
            let skipped = scores["skipped"].as_array().map_or(0, Vec::len);
            (scores["meshes"].as_u64().unwrap(), skipped)
        };
        assert_eq!(scored(&["--split", "train"]).0, 5);
        assert_eq!(scored(&["--split", "validation"]).0, 1);
        assert_eq!(scored(&["--split", "test"]).0, 1);
        // Without parts, all that can be used are scored.
        fs::rename(project.path("spheres"), project.path("other")).unwrap();
        let undivided = format!("{described}{text}");
        fs::write(project.path("other/dataset.toml"), undivided).unwrap();
        assert_eq!(scored(&["--data", "other"]), (7, 3));
        let prepare = ["data", "prepare", "other", "--model", "gem", "--no-cache"];
        let message = stderr(&succeed(run(&project, &prepare)));
        // The three have the same problem.
        let lines: Vec<&str> = message.lines().filter(|line| line.starts_with("skipped: ")).collect();
        assert!(lines.len() == 1 && lines[0].contains("2 more"), "{message}");
        refused(run(&project, &[&prepare[..], &["--strict"]].concat()), "sphere");
    }
}

#[test]
fn scores_come_with_what_limits_the_trust_in_them() {
    let project = Project::new("epochs = 1\nvalidation = 0.0\n[augmentation]\nversions = 3");
    // Words as labels, a class that only training meshes have, and a training mesh under another name.
    fs::remove_file(project.path("spheres/dataset.toml")).unwrap();
    for index in 0..10 {
        let labels = project.path(&format!("spheres/sphere{index}.txt"));
        let text = fs::read_to_string(&labels).unwrap().replace('0', "lower").replace('1', "upper");
        let text = if index < 8 { text.replacen("upper", "pole", 1) } else { text };
        fs::write(&labels, text).unwrap();
    }
    fs::copy(project.path("spheres/sphere1.ply"), project.path("spheres/sphere9.ply")).unwrap();
    fs::write(project.path("spheres/test.txt"), "sphere8\nsphere9\n").unwrap();
    let output = succeed(project.gemcnn(&["run.toml", "--run-dir", "run"]).output().unwrap());
    let message = stderr(&output);
    assert!(message.contains("8 meshes for training, 2 held out"), "{message}");
    let eval = ["eval", "run", "--device", "cpu"];
    let output = succeed(run(&project, &[&eval[..], &["--json"]].concat()));
    let scores: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(scores["absent_classes"], serde_json::json!(["pole"]));
    assert_eq!(scores["in_training"], serde_json::json!(["sphere9.ply"]));
    let output = succeed(run(&project, &eval));
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().filter(|line| line.trim_start().starts_with("note ")).count(), 2, "{text}");
    // In another folder, the names are compared.
    fs::create_dir(project.path("other")).unwrap();
    for name in ["sphere3.ply", "sphere3.txt"] {
        fs::copy(project.path("spheres").join(name), project.path("other").join(name)).unwrap();
    }
    let output = succeed(run(&project, &[&eval[..], &["--json", "--data", "other"]].concat()));
    let scores: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(scores["in_training"], serde_json::json!(["sphere3.ply"]));
    assert!(scores.get("absent_classes").is_none());
}

#[test]
fn a_problem_of_all_files_is_told_once() {
    let project = Project::new("epochs = 1");
    for index in 0..10 {
        fs::write(project.path(&format!("spheres/sphere{index}.txt")), "0\n1\n0\n").unwrap();
    }
    let description = "task = 'segmentation'\n[target]\nfiles = '{stem}.txt'\nper = 'vertex'\n";
    fs::write(project.path("spheres/dataset.toml"), description).unwrap();
    for arguments in [&["data", "check", "spheres"][..], &["train", "run.toml", "--run-dir", "run"]] {
        let output = run(&project, arguments);
        assert_eq!(output.status.code(), Some(1));
        let message = stderr(&output);
        assert_eq!(message.matches("sphere0.txt").count(), 1, "{message}");
        let lines = message.lines().filter(|line| line.contains(".txt")).count();
        assert!(lines <= 2, "{message}");
    }
    let output = run(&project, &["data", "check", "spheres", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["problems"].as_array().unwrap().len(), 10);
}

#[test]
fn a_data_set_that_was_cut_off_is_completed() {
    let project = Project::new("");
    let make = |folder: &str, vertices: &str| {
        let bodies = ["data", "make", "bodies", folder, "--count", "3", "--vertices", vertices];
        run(&project, &bodies)
    };
    succeed(make("whole", "500"));
    copy(&project.path("whole"), &project.path("cut"));
    let mark = "--count 3 --vertices 500 --seed 1\n";
    fs::write(project.path("cut/.gemcnn-unfinished"), mark).unwrap();
    fs::remove_file(project.path("cut/dataset.toml")).unwrap();
    fs::remove_file(project.path("cut/meshes/body_001.ply")).unwrap();
    fs::write(project.path("cut/meshes/.gemcnn-9-9.tmp"), "half").unwrap();
    refused(make("cut", "600"), "cut");
    succeed(make("cut", "500"));
    refused(make("cut", "500"), "not empty");
    for place in ["", "meshes"] {
        let read = |folder: &str| {
            let entries = fs::read_dir(project.path(folder).join(place)).unwrap();
            let mut found: Vec<_> =
                (entries.flatten()).map(|entry| (entry.file_name(), fs::read(entry.path()).ok())).collect();
            found.sort();
            found
        };
        assert!(read("cut") == read("whole"));
    }
}
