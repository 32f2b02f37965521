//! `gemcnn experiment mnist` and `gemcnn data fetch mnist` as a user runs them.

use std::path::Path;
use std::process::{Command, Output};

fn gemcnn(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gemcnn")).current_dir(folder).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn fail(folder: &Path, arguments: &[&str], status: i32) -> String {
    let output = gemcnn(folder, arguments);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{message}");
    message
}

#[test]
fn a_short_trial_writes_all_results_once() {
    let folder = tempfile::tempdir().unwrap();
    let command = [
        "experiment",
        "mnist",
        "--quick",
        "--device",
        "cpu",
        "--train",
        "1",
        "--test",
        "flat,isometric",
        "--epochs",
        "1",
        "--batch",
        "10",
        "--training-digits",
        "20",
        "--validation-digits",
        "10",
        "--test-digits",
        "10",
    ];
    let output = gemcnn(folder.path(), &command);
    let progress = text(&output.stderr);
    assert!(output.status.success(), "{progress}");
    for line in [
        "trained on 1, paper-types, seed 1: 1 epochs",
        "epoch   1  training: loss",
        "tested on isometric:",
        "flat and isometric: 0 of 10 ",
    ] {
        assert!(progress.contains(line), "{progress}");
    }
    let table = text(&output.stdout);
    assert!(table.contains("| trained on | seeds | flat | isometric |"), "{table}");
    let out = folder.path().join("runs/mnist-quick");
    for file in [
        "results.json",
        "table.md",
        "errors.png",
        "errors.svg",
        "grids/flat.png",
        "grids/2.5.png",
        "1-paper-types-1/checkpoint.safetensors",
        "1-paper-types-1/metrics.jsonl",
        "1-paper-types-1/model.safetensors",
        "1-paper-types-1/result.json",
    ] {
        assert!(out.join(file).is_file(), "{file}");
    }
    let again = gemcnn(folder.path(), &command);
    assert!(!text(&again.stderr).contains("epoch   1"));
    assert_eq!(text(&again.stdout), table);
}

#[test]
fn what_is_missing_or_wrong_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let message = fail(folder.path(), &["experiment", "mnist", "--data", "digits"], 1);
    for part in ["t10k-labels-idx1-ubyte", "gemcnn data fetch mnist digits"] {
        assert!(message.contains(part), "{message}");
    }
    for (option, value) in [("--train", "flat,bumpy"), ("--model", "large"), ("--schedule", "step")] {
        let message = fail(folder.path(), &["experiment", "mnist", option, value], 2);
        assert!(message.contains(option), "{message}");
    }
    let nobody = ["data", "fetch", "mnist", "digits", "--base-url", "http://127.0.0.1:1/mnist/"];
    let message = fail(folder.path(), &nobody, 1);
    assert!(message.contains("http://127.0.0.1:1/mnist/train-images-idx3-ubyte.gz"), "{message}");
}
