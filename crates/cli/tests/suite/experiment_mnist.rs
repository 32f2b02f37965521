//! `gemcnn experiment mnist` and `gemcnn data fetch mnist` as a user runs them.

use crate::folder::Folder;

#[test]
fn a_short_trial_writes_all_results_once() {
    let folder = Folder::new();
    let command = "experiment mnist --quick --device cpu --train 1 --test flat,isometric --epochs 1 --batch 10 \
                   --training-digits 20 --validation-digits 10 --test-digits 10";
    let command: Vec<&str> = command.split(' ').collect();
    let [table, progress] = folder.run(&command, 0);
    for line in [
        "trained on 1, paper-types, seed 1: 1 epochs",
        "epoch   1  training: loss",
        "tested on isometric:",
        "flat and isometric: 0 of 10 ",
    ] {
        assert!(progress.contains(line), "{progress}");
    }
    assert!(table.contains("| trained on | seeds | flat | isometric |"), "{table}");
    let out = folder.path("runs/mnist-quick");
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
    let [again, progress] = folder.run(&command, 0);
    assert!(!progress.contains("epoch   1"));
    assert_eq!(again, table);
}

#[test]
fn what_is_missing_or_wrong_is_said() {
    let folder = Folder::new();
    let message = folder.fail(&["experiment", "mnist", "--data", "digits"], 1);
    for part in ["t10k-labels-idx1-ubyte", "gemcnn data fetch mnist digits"] {
        assert!(message.contains(part), "{message}");
    }
    for (option, value) in [("--train", "flat,bumpy"), ("--model", "large"), ("--schedule", "step")] {
        let message = folder.fail(&["experiment", "mnist", option, value], 2);
        assert!(message.contains(option), "{message}");
    }
    let nobody = ["data", "fetch", "mnist", "digits", "--base-url", "http://127.0.0.1:1/mnist/"];
    let message = folder.fail(&nobody, 1);
    assert!(message.contains("http://127.0.0.1:1/mnist/train-images-idx3-ubyte.gz"), "{message}");
}
