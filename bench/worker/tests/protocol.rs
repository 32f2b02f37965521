//! The worker as `bench/compare` talks to it.

use gemcnn_nn::Archive;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

struct Worker {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_gemcnn-compare-worker"))
            .args(["--threads", "2", "--device", "cpu"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            requests: process.stdin.take().unwrap(),
            answers: BufReader::new(process.stdout.take().unwrap()),
            process,
        }
    }

    fn ask(&mut self, request: &Value) -> Value {
        writeln!(self.requests, "{request}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn done(&mut self, request: Value) {
        let answer = self.ask(&request);
        assert_eq!(answer["ok"], true, "{request}: {answer}");
        assert!(answer["seconds"].as_f64().unwrap() >= 0.0);
    }

    /// Does some small work and reads its result.
    fn result(&mut self, folder: &Path, work: &str) -> Archive {
        let [case, result] = ["case", "result"].map(|name| folder.join(name));
        self.done(json!({"do": "make", "work": work, "vertices": 60, "meshes": 2, "path": case}));
        self.done(json!({"do": "load", "case": case, "matmul": "f32"}));
        self.done(json!({"do": "result", "path": result}));
        self.done(json!({"do": "run", "calls": 2}));
        Archive::read(&result).unwrap()
    }
}

#[test]
fn every_piece_of_work_is_done_and_has_a_result() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = Worker::start();
    for (work, wanted) in [
        ("geometry", &["theta", "g", "r"][..]),
        ("convolution_forward", &["y"]),
        ("convolution_backward", &["y", "dx", "gradient.conv1.weight"]),
        ("attention_forward", &["y"]),
        ("attention_backward", &["y", "dx", "gradient.conv1.head2.key.weight"]),
        ("messages_forward", &["y"]),
        ("messages_backward", &["y", "dx", "gradient.block1.edge2.weight"]),
        ("inference", &["y"]),
        ("correspondence_inference", &["y"]),
        ("blocks", &["loss", "gradient.block3.conv2.self_weight"]),
        ("correspondence", &["loss", "gradient.linear7.weight"]),
        ("mnist", &["loss", "gradient.conv1.weight"]),
        ("diffusion", &["loss", "gradient.block2.diffusion.log_time"]),
        ("segmentation", &["loss", "gradient.linear6.weight"]),
    ] {
        let result = worker.result(folder.path(), work);
        for name in wanted {
            let values: Vec<f64> = result.tensor(name).unwrap();
            let sum: f64 = values.iter().map(|value| value.abs()).sum();
            assert!(sum > 0.0 && sum.is_finite(), "{work}: {name}");
        }
    }
    let memory = worker.ask(&json!({"do": "memory"}));
    if cfg!(target_os = "linux") {
        assert!(memory["peak_bytes"].as_u64() > Some(1 << 20), "{memory}");
        assert!(memory["start_bytes"].as_u64() > Some(0), "{memory}");
    }
    drop(worker.requests);
    assert!(worker.process.wait().unwrap().success());
}

#[test]
fn two_results_of_a_step_are_of_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = Worker::start();
    let first = worker.result(folder.path(), "blocks");
    let again = folder.path().join("again");
    worker.done(json!({"do": "result", "path": again}));
    assert_eq!(first.to_bytes().unwrap(), Archive::read(again).unwrap().to_bytes().unwrap());
}

#[test]
fn what_cannot_be_done_is_answered_and_the_worker_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = Worker::start();
    let missing = folder.path().join("none");
    for (request, problem) in [
        (json!({"do": "run", "calls": 1}), "load"),
        (json!({"do": "load", "case": missing, "matmul": "f32"}), "none"),
        (json!({"do": "dance"}), "dance"),
        (json!(7), "request"),
    ] {
        let answer = worker.ask(&request);
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(error.contains(problem), "{request}: {answer}");
        assert_eq!(answer["memory"], false);
    }
    worker.result(folder.path(), "convolution_backward");
    let answer = worker.ask(&json!({"do": "result", "path": missing}));
    assert!(answer["error"].as_str().unwrap().contains("before any run"));
}
