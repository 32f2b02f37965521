//! `gemcnn data make pde` and `gemcnn experiment pde` as a user runs them: small, cut off, killed and repeated.
#![cfg(unix)]

use crate::folder::{Folder, files};
use crate::train::wait_until;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

const SMALL: [&str; 6] = ["--vertices", "60", "--trajectories", "2", "--steps", "24"];

#[track_caller]
fn run(folder: &Folder, arguments: &[&[&str]], status: i32) -> [String; 2] {
    folder.run(&arguments.concat(), status)
}

/// Paths and content of all files.
fn content(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    files(folder).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn interrupted_pde_data_are_completed() {
    let place = Folder::new();
    let equations = ["--equations", "wave,vector-heat"];
    let make = |name: &str, status: i32| run(&place, &[&["data", "make", "pde", name], &equations, &SMALL], status);
    make("made", 0);
    let whole = content(&place.path("made"));
    // Nine meshes with two trajectories each, three lists and a description, for each equation.
    assert_eq!(whole.len(), 2 * (9 * 2 + 4));
    make("made", 1);
    for equation in ["wave", "vector-heat"] {
        let data = format!("made/{equation}");
        let [checked, _] = run(&place, &[&["data", "check", &data, "--json"]], 0);
        let checked: Value = serde_json::from_str(&checked).unwrap();
        let meshes: Vec<&Value> = (checked["parts"].as_array().unwrap().iter()).map(|part| &part["meshes"]).collect();
        assert_eq!(meshes, [6, 6, 6], "{checked}");
    }
    // Any training reads them: tangent vectors to tangent vectors.
    let train = ["train", "regression", "--data", "made/vector-heat", "--features"];
    let options = ["vector:u000", "--model", "gem", "--epochs", "1", "--device", "cpu"];
    run(&place, &[&train, &options, &["--run-dir", "run"]], 0);
    // As if it had been killed.
    let mark = "--equations wave,vector-heat --vertices 60 --trajectories 2 --steps 24 --seed 1\n";
    fs::write(place.path("made/.gemcnn-unfinished"), mark).unwrap();
    fs::remove_file(place.path("made/vector-heat/dataset.toml")).unwrap();
    fs::remove_file(place.path("made/vector-heat/meshes/torus-01.ply")).unwrap();
    fs::write(place.path("made/vector-heat/meshes/.gemcnn-9-9.tmp"), "half").unwrap();
    run(&place, &[&["data", "make", "pde", "made"], &SMALL], 1);
    make("made", 0);
    assert!(content(&place.path("made")) == whole);
    for (option, value) in [("--steps", "23"), ("--vertices", "10"), ("--equations", "cold")] {
        run(&place, &[&["data", "make", "pde", "other", option, value]], 2);
    }
    assert!(!place.path("other").exists());
}

#[test]
fn networks_of_equal_size_learn_a_step_and_are_trained_once() {
    let place = Folder::new();
    let experiment = ["experiment", "pde", "--device", "cpu", "--out", "out"];
    let short = ["--seeds", "1", "--epochs", "1", "--equations", "vector-heat"];
    let all = |rows: &str, status: i32| run(&place, &[&experiment, &short, &SMALL, &["--rows", rows]], status);
    all("surface", 0);
    let model = place.path("out/vector-heat-surface-seed1/model.safetensors");
    let time = || fs::metadata(&model).unwrap().modified().unwrap();
    let before = time();
    let [said, _] = all("surface,graph", 0);
    assert_eq!(time(), before, "a finished run was repeated");
    let table = place.text("out/table.md");
    assert!(said.starts_with(&table));
    let results = place.json("out/results.json");
    let runs = results["runs"].as_array().unwrap();
    let (still, runs) = runs.split_first().unwrap();
    assert_eq!((&still["row"], runs.len()), (&"no change".into(), 2));
    let parameters: Vec<f64> = (runs.iter()).map(|run| run["parameters"].as_f64().unwrap()).collect();
    assert!((parameters[0] / parameters[1] - 1.0).abs() < 0.1);
    for run in runs {
        for (part, steps) in [("time", 1), ("init", 20), ("mesh", 20)] {
            let error = |of: &Value| of["tests"][part]["one_step"].as_f64().unwrap();
            let (found, still) = (error(run), error(still));
            assert!(found > 0.0 && found < still, "{part}: {found}, {still}");
            let rolled_out = run["tests"][part]["rolled_out"].as_array().unwrap();
            assert_eq!(rolled_out.len(), steps);
            if part != "time" {
                let last = rolled_out[19].as_f64().unwrap();
                assert!(last > found && last < 1.0, "{run}");
            }
        }
        let name = run["row"].as_str().unwrap();
        let picture = place.path(&format!("out/vector-heat-{name}-seed1/rollout.png"));
        let bytes = fs::read(picture).unwrap();
        let at = bytes.windows(4).position(|chunk| chunk == b"acTL").unwrap();
        assert_eq!(bytes[at + 4..at + 8], [0, 0, 0, 25], "not 25 frames");
    }
    let figure = fs::read_to_string(place.path("out/errors.svg")).unwrap();
    assert!(figure.starts_with("<svg"));
    run(&place, &[&experiment, &SMALL, &["--rows", "surfaces"]], 2);
    run(&place, &[&experiment, &["--data", "nowhere", "--rows", "gem"]], 1);
}

#[test]
fn a_killed_experiment_continues_to_the_same_results() {
    let place = Folder::new();
    let experiment = ["--threads", "1", "experiment", "pde", "--device", "cpu"];
    let short = ["--seeds", "1", "--epochs", "4", "--equations", "heat", "--rows", "graph"];
    let arguments = |out| [&experiment[..], &short, &SMALL, &["--out", out]].concat();
    let metrics = place.path("out/heat-graph-seed1/metrics.jsonl");
    let epochs = || fs::read_to_string(&metrics).map_or(0, |text| text.lines().count());
    let mut child = place.gemcnn(&arguments("out")).spawn().unwrap();
    wait_until(|| epochs() > 0, "no epoch was trained");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!place.path("out/heat-graph-seed1/result.json").exists());
    for out in ["out", "whole"] {
        place.succeed(&arguments(out));
    }
    let errors = |out: &str| place.json(&format!("{out}/results.json"))["runs"][1]["tests"].clone();
    assert_eq!(errors("out"), errors("whole"));
    // An option is given twice.
    place.fail(&[&arguments("out")[..], &["--epochs", "5"]].concat(), 2);
    let longer = [&short[..2], &["--epochs", "5"], &short[4..]].concat();
    run(&place, &[&experiment, &longer, &SMALL, &["--out", "out"]], 1);
}
