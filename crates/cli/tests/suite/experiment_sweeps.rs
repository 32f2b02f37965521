//! Sweeps as a user runs them: small, twice, interrupted, and from files of their own.
#![cfg(unix)]

use crate::folder::{Folder, files};
use crate::train::{modified, signal, wait_until};
use std::fs;

/// A sweep over small bodies.
fn small<'a>(name: &'a str, bodies: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    let fixed = ["experiment", name, "--device", "cpu", "--out", "out", "--bodies", bodies];
    [&fixed[..], &["--vertices", "500", "--seeds", "1"], arguments].concat()
}

#[test]
fn rows_are_trained_once_and_make_a_table() {
    let folder = Folder::new();
    let run = |arguments: &[&str], status: i32| folder.run(&small("bodies", "3", arguments), status);
    run(&["--rows", "gem", "--epochs", "1"], 0);
    let model = folder.path("out/gem-seed1/model.safetensors");
    let before = modified(&model);
    let [text, _] = run(&["--rows", "graph-xyz,gem", "--epochs", "1"], 0);
    assert_eq!(modified(&model), before, "a finished run was repeated");
    assert!(text.contains("| Graph CNN | XYZ |") && text.contains("99.73 ± 0.04 |"), "{text}");
    let table = folder.text("out/table.md");
    assert!(text.starts_with(&table), "{table}");
    let results = folder.json("out/results.json");
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert!(run["training_seconds"].as_f64().unwrap() > 0.0, "{run}");
        let accuracy = run["tests"]["test"]["scores"]["accuracy"].as_f64().unwrap();
        assert!(table.contains(&format!("| {:.2} |", 100.0 * accuracy)), "{run}");
        for test in ["test-rotated-1", "test-remeshed"] {
            assert!(run["tests"][test]["geodesic"]["mean"].as_f64().unwrap() > 0.0, "{run}");
        }
        assert!(run["parameters"].as_u64().unwrap() > 10_000, "{run}");
    }
    // Another seed alone, as beside a process with the first one.
    run(&["--rows", "gem", "--epochs", "1", "--first-seed", "2"], 0);
    let results = folder.json("out/results.json");
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0]["seed"], 2);
    assert!(folder.path("out/gem-seed2/finished").exists());
    assert_eq!(modified(&model), before, "a finished run was repeated");
    let [_, message] = run(&["--rows", "gem", "--epochs", "2"], 1);
    assert!(message.contains("gem-seed1"), "{message}");
    // As if it had been killed just after the model was written.
    let out = folder.path("out");
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
    let [_, message] = run(&["--rows", "gems"], 2);
    assert!(message.contains("graph-xyz"), "{message}");
    let [_, message] = run(&["--data", "nowhere"], 2);
    assert!(message.contains("--data"), "{message}");
}

#[test]
fn an_interrupted_experiment_continues() {
    let folder = Folder::new();
    let arguments = small("bodies", "3", &["--rows", "gem", "--epochs", "12"]);
    let child = folder.gemcnn(&arguments).spawn().unwrap();
    let metrics = folder.path("out/gem-seed1/metrics.jsonl");
    let epochs = || fs::read_to_string(&metrics).map_or(0, |text| text.lines().count());
    wait_until(|| epochs() > 0, "no epoch was trained");
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{message}");
    assert!(epochs() < 12 && !folder.path("out/table.md").exists());
    let [_, message] = folder.run(&arguments, 0);
    assert!(message.contains("checkpoint.safetensors"), "{message}");
    assert_eq!(epochs(), 12);
    assert!(folder.path("out/table.md").exists());
}

#[test]
fn networks_on_surfaces_are_tested_on_other_meshings() {
    let folder = Folder::new();
    folder.succeed(&small("remeshed", "2", &["--epochs", "1", "--rows", "gem,surface+"]));
    let results = folder.json("out/results.json");
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        let meshings = run["tests"].as_object().unwrap();
        assert_eq!(meshings.len(), 6, "{run}");
        for (meshing, evaluation) in meshings {
            let mean = evaluation["geodesic"]["mean"].as_f64().unwrap();
            assert!(mean > 0.0 && mean < 2.0, "{meshing}: {mean}");
        }
    }
    for file in ["table.md", "errors.svg", "surface+-seed1/meshings.png"] {
        assert!(folder.path("out").join(file).exists(), "{file}");
    }
    folder.fail(&small("remeshed", "2", &["--rows", "surfaces"]), 2);
}

/// Runs `gemcnn experiment` in a folder; returns its output and messages.
#[track_caller]
fn experiment(folder: &Folder, arguments: &[&str], status: i32) -> [String; 2] {
    folder.run(&[&["experiment"], arguments].concat(), status)
}

#[test]
fn experiments_are_listed_and_wrong_names_are_refused() {
    let folder = Folder::new();
    let [list, _] = experiment(&folder, &[], 0);
    for name in ["bodies ", "remeshed ", "segmentation ", "equivariance ", "mnist ", "pde "] {
        assert!(list.lines().any(|line| line.starts_with(name) && line.len() > 40), "{list}");
    }
    let [help, _] = experiment(&folder, &["--help"], 0);
    assert!(help.contains("graph-xyz") && help.contains("diffusion-all+resampled"), "{help}");
    let [_, message] = experiment(&folder, &["body"], 2);
    assert!(message.contains("neither a file nor an experiment") && message.contains("bodies"), "{message}");
    for (arguments, part) in [
        (&["segmentation", "--quick"][..], "short trial"),
        (&["bodies", "--unregistered"], "--unregistered"),
        (&["segmentation", "--worlds", "earth"], "earth"),
        (&["transfer", "--data", "here"], "NAME=DIR"),
        (&["transfer", "--data", "moon=here", "--data", "rna=there"], "moon"),
        (&["segmentation", "--data", "here", "--remeshed", "there"], "benchmark"),
    ] {
        let [_, message] = experiment(&folder, arguments, 2);
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_file_of_a_user_makes_a_table_of_worlds() {
    let folder = Folder::new();
    let text = include_str!("../../../../examples/sweeps/worlds.toml");
    fs::create_dir(folder.path("sweeps")).unwrap();
    fs::write(folder.path("sweeps/worlds.toml"), text).unwrap();
    let command = ["sweeps/worlds.toml", "-o", "out", "--device", "cpu"];
    let [table, progress] = experiment(&folder, &command, 0);
    assert!(table.contains("| row | same, plain | same, remeshed | other | training (s) | worst rank |"), "{table}");
    assert_eq!(table.lines().filter(|line| line.starts_with("| narrow |") || line.starts_with("| wide |")).count(), 2);
    assert!(progress.contains("run 8 of 8: other, wide, seed 2"), "{progress}");
    assert!(folder.path("out/other-wide-seed2/eval-plain.json").exists());
    // Finished runs are not repeated, and a name that is not there is noted.
    let wrong = text.replace("scores/accuracy", "scores/acuracy");
    fs::write(folder.path("sweeps/worlds.toml"), wrong).unwrap();
    let [table, progress] = experiment(&folder, &command, 0);
    assert!(!progress.contains("epoch"), "{progress}");
    assert!(
        progress.contains("no number `scores/acuracy`; there are") && progress.contains("scores/loss"),
        "{progress}"
    );
    assert!(table.contains("| wide | - | - | - |"), "{table}");
    for (right, wrong, line, part) in [
        ("epochs = 2", "epoch = 2", 11, "unknown field `epoch`"),
        ("channels = 8", "chanels = 8", 15, "chanels"),
        ("like = \"narrow\"", "like = \"thin\"", 16, "`thin` is not a row above `wide`"),
        ("remeshed = {", "remeshed = { turned = 1,", 0, "turned"),
        ("rate = 0.003", "rate = 300", 12, "training.rate"),
    ] {
        assert!(text.contains(right), "{right}");
        fs::write(folder.path("wrong.toml"), text.replace(right, wrong)).unwrap();
        let [_, message] = experiment(&folder, &["wrong.toml"], 1);
        let place =
            if line > 0 { format!("wrong.toml:{line}: ") } else { "wrong.toml: TOML parse error at line".into() };
        assert!(message.contains(&place) && message.contains(part), "{message}");
    }
}
