//! `gemcnn train` as a user runs it: stopped, killed, resumed, out of room, out of bounds.
#![cfg(unix)]

use gemcnn_tasks::train::TrainedModel;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// Long enough for a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until something is so, which must not take long.
pub fn wait_until(mut is_so: impl FnMut() -> bool, otherwise: &str) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "{otherwise}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A folder with small spheres, labelled by halves, and a configuration to learn them.
pub struct Project {
    folder: tempfile::TempDir,
}

impl Project {
    pub fn new(training: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("spheres");
        fs::create_dir(&data).unwrap();
        for index in 0..10 {
            let mesh = gemcnn_mesh::shapes::icosphere(1 + index % 2).unwrap();
            let shift = 0.02 * f64::from(index);
            let mesh = mesh.map_vertices(|p| p + shift * p.z).unwrap();
            let half = |p: &gemcnn_mesh::DVec3| if p.z > 0.1 { "1\n" } else { "0\n" };
            let labels: String = mesh.vertices().iter().map(half).collect();
            mesh.write(data.join(format!("sphere{index}.ply"))).unwrap();
            fs::write(data.join(format!("sphere{index}.txt")), labels).unwrap();
        }
        let description = "task = 'segmentation'\n[target]\nfiles = '{stem}.txt'\n";
        fs::write(data.join("dataset.toml"), description).unwrap();
        let config = format!(
            "task = 'segmentation'\n[data]\nfolder = 'spheres'\n\
             [model]\nkind = 'gem'\nchannels = 2\nscalars = 8\nhead = 16\n[training]\nbatch = 2\n{training}\n"
        );
        fs::write(folder.path().join("run.toml"), config).unwrap();
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path())
            .env("GEMCNN_CACHE", self.path("cache"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn gemcnn(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_gemcnn"));
        command.args(["--threads", "1", "train", "--device", "cpu"]);
        command.args(arguments);
        command
    }

    /// Trains without disturbance, and gives the bytes of the model.
    pub fn model(&self, arguments: &[&str], run: &str) -> Vec<u8> {
        succeed(self.gemcnn(arguments).output().unwrap());
        fs::read(self.path(run).join("model.safetensors")).unwrap()
    }

    fn checkpoint(&self, run: &str) -> PathBuf {
        self.path(run).join("checkpoint.safetensors")
    }

    /// Starts a run, or goes on with it, and waits until it has written a checkpoint of its own.
    pub fn start(&self, run: &str) -> Child {
        let checkpoint = self.checkpoint(run);
        let before = modified(&checkpoint);
        let mut child = match before {
            None => self.gemcnn(&["run.toml", "--run-dir", run]),
            Some(_) => self.gemcnn(&["--resume", run]),
        }
        .spawn()
        .unwrap();
        let mut is_written = || {
            assert_eq!(child.try_wait().unwrap(), None, "it ended before its first checkpoint");
            modified(&checkpoint) != before
        };
        wait_until(&mut is_written, "no checkpoint appeared");
        child
    }
}

pub fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|data| data.modified()).ok()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
pub fn succeed(output: Output) -> Output {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    output
}

pub fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    let status = Command::new("kill").args(["-s", name, &id]).status().unwrap();
    assert!(status.success());
}

/// Lines of the metrics without times, and a check that every epoch is there once.
fn epochs(run: &Path) -> Vec<(u64, String, String)> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let epoch = |line: &str| {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        let scores = |part: &str| record[part].to_string();
        let number = record["epoch"].as_u64().unwrap();
        (number, scores("training"), scores("held_out"))
    };
    let epochs: Vec<_> = text.lines().map(epoch).collect();
    assert!(epochs.iter().map(|e| e.0).eq(1..=epochs.len() as u64));
    epochs
}

/// Seed of random moments: 1, or what `GEMCNN_TEST_SEED` says.
fn seed() -> u64 {
    let seed = std::env::var("GEMCNN_TEST_SEED").map_or(1, |text| text.parse().unwrap());
    println!("GEMCNN_TEST_SEED={seed}");
    seed
}

#[test]
fn ten_kills_leave_the_same_bits() {
    let project = Project::new("epochs = 100\ncheckpoint = { steps = 3 }");
    let whole = project.model(&["run.toml", "--run-dir", "whole"], "whole");
    let seed = seed();
    for kill in 0..10 {
        let mut hasher = DefaultHasher::new();
        (seed, kill).hash(&mut hasher);
        let mut child = project.start("killed");
        std::thread::sleep(Duration::from_micros(hasher.finish() % 40_000));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), None, "it was done before kill {kill}");
    }
    let killed = project.model(&["--resume", "killed"], "killed");
    assert!(killed == whole, "the weights differ");
    assert_eq!(epochs(&project.path("killed")), epochs(&project.path("whole")));
    let leftovers = fs::read_dir(project.path("killed")).unwrap().flatten();
    let leftovers = leftovers.filter(|e| e.file_name().to_string_lossy().ends_with(".tmp"));
    assert_eq!(leftovers.count(), 0);
}

#[test]
fn signals_save_and_stop() {
    let project = Project::new("epochs = 100\ncheckpoint = { steps = 10 }");
    let whole = project.model(&["run.toml", "--run-dir", "whole"], "whole");
    for name in ["INT", "TERM"] {
        let child = project.start("stopped");
        let before = modified(&project.checkpoint("stopped"));
        // Twice, as `timeout` does: to the process and to its group.
        signal(&child, name);
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(130), "{message}");
        assert!(message.contains("gemcnn train --resume stopped"), "{message}");
        assert!(modified(&project.checkpoint("stopped")) >= before);
    }
    assert!(project.model(&["--resume", "stopped"], "stopped") == whole);
    assert_eq!(epochs(&project.path("stopped")), epochs(&project.path("whole")));
}

#[test]
fn only_one_process_trains_in_a_run() {
    let project = Project::new("epochs = 1000");
    let mut child = project.start("run");
    let output = project.gemcnn(&["--resume", "run"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.contains("error: run: "), "{message}");
    child.kill().unwrap();
    child.wait().unwrap();
    let changed = ["--resume", "run", "--batch", "7", "--rate", "0.5"];
    let output = project.gemcnn(&changed).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    for parts in [["training.batch", "2", "7"], ["training.rate", "0.01", "0.5"]] {
        let told = |line: &str| parts.iter().all(|part| line.contains(part));
        assert!(message.lines().any(told), "{message}");
    }
}

#[test]
fn changed_data_are_noticed() {
    let project = Project::new("epochs = 1000\ncheckpoint = { steps = 3 }");
    let mut child = project.start("run");
    child.kill().unwrap();
    child.wait().unwrap();
    // Which meshes are for training is left to chance.
    let labels = |index| project.path(&format!("spheres/sphere{index}.txt"));
    let before: Vec<String> = (0..10).map(|index| fs::read_to_string(labels(index)).unwrap()).collect();
    for (index, text) in before.iter().enumerate() {
        let flipped = if text.starts_with('0') { "1" } else { "0" };
        fs::write(labels(index), flipped.to_owned() + &text[1..]).unwrap();
    }
    let output = project.gemcnn(&["--resume", "run"]).output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    for part in ["training", "held-out"] {
        assert!(message.contains(&format!("{part} split")), "{message}");
    }
    for (index, text) in before.iter().enumerate() {
        fs::write(labels(index), text).unwrap();
    }
    project.start("run").kill().unwrap();
}

#[test]
fn a_run_that_ended_early_is_finished() {
    // Nothing is learned, so that the first evaluation stays the best.
    let project = Project::new("rate = 1e-30\npatience = 2\nkeep_best = true\nvalidation = 0.25");
    let arguments = ["run.toml", "--run-dir", "run"];
    let output = project.gemcnn(&arguments).output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(message.contains("2 of 8 training meshes"), "{message}");
    let metrics = fs::read_to_string(project.path("run/metrics.jsonl")).unwrap();
    let epochs = metrics.lines().count();
    assert!((3..100).contains(&epochs), "{epochs}");
    let ended = format!("ended after epoch {epochs} of 100");
    assert!(message.contains(&ended), "{message}");
    let model = fs::read(project.path("run/model.safetensors")).unwrap();
    assert!(model == fs::read(project.path("run/best.safetensors")).unwrap());
    let output = project.gemcnn(&["--resume", "run"]).output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(message.contains(&ended), "{message}");
    assert!(model == fs::read(project.path("run/model.safetensors")).unwrap());
    // The parts of an evaluation are those of training.
    let mut eval = project.command(env!("CARGO_BIN_EXE_gemcnn"));
    eval.args(["eval", "run", "--split", "validation", "--device", "cpu", "--json"]);
    let output = eval.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let scores: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(scores["meshes"], 2);
}

#[test]
fn a_run_without_a_checkpoint_begins_anew_with_its_own_settings() {
    let project = Project::new("epochs = 3");
    let whole = project.model(&["run.toml", "--run-dir", "run"], "run");
    fs::remove_file(project.checkpoint("run")).unwrap();
    let other = ["--resume", "run", "--rate", "0.5"];
    let output = project.gemcnn(&other).output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("config.toml: ") && message.contains("training.rate"), "{message}");
    assert!(project.path("run/model.safetensors").exists());
    assert!(project.model(&["--resume", "run"], "run") == whole);
}

#[test]
fn training_goes_on_when_nobody_listens() {
    let project = Project::new("epochs = 3");
    let mut child = (project.gemcnn(&["run.toml", "--run-dir", "run"])).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(project.path("run/model.safetensors").exists());
}

#[test]
fn a_loss_without_bounds_names_its_meshes() {
    // Weights grow a hundredfold in each step.
    let project = Project::new(
        "rate = 10.0\nweight_decay = 10.0\nevaluate_every = 100\noptimiser = { kind = 'sgd' }\nschedule = { kind = 'constant' }",
    );
    let output = project.gemcnn(&["run.toml"]).output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    for part in ["epoch ", ", step ", "sphere", "runs/spheres-1/checkpoint"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(project.checkpoint("runs/spheres-1").exists());
    assert!(!project.path("runs/spheres-1/model.safetensors").exists());
}

#[test]
fn a_full_disk_leaves_the_last_checkpoint() {
    let project = Project::new("epochs = 30\ncheckpoint = { epochs = 1 }");
    let whole = project.model(&["run.toml", "--run-dir", "whole"], "whole");
    let mut child = project.start("full");
    child.kill().unwrap();
    child.wait().unwrap();
    let checkpoint = fs::read(project.checkpoint("full")).unwrap();
    // Files may not grow beyond half a checkpoint, as if the disk were full.
    let script = format!(
        "ulimit -f {}; trap '' XFSZ; exec {} --threads 1 train --device cpu --resume full",
        checkpoint.len() / 2 / 1024,
        env!("CARGO_BIN_EXE_gemcnn"),
    );
    let output = project.command("bash").args(["-c", &script]).output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    for part in ["full", "File too large", "--resume full"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(fs::read(project.checkpoint("full")).unwrap() == checkpoint);
    assert!(project.model(&["--resume", "full"], "full") == whole);
}

#[test]
fn bad_commands_leave_no_run_behind() {
    let project = Project::new("");
    for (arguments, status, part) in [
        (&["segmentation"][..], 2, "--data"),
        (&["sorting"], 2, "sorting"),
        (&["--resume", "nowhere"], 1, "nowhere"),
        (&["segmentation", "--resume", "nowhere"], 2, "segmentation"),
        (&["segmentation", "--data", "nowhere"], 1, "nowhere"),
        (&["segmentation", "--data", "spheres", "--epochs", "0"], 2, "training.epochs"),
        (&["segmentation", "--data", "spheres", "--features", "smell"], 2, "reltan, shot"),
        (&["segmentation", "--data", "spheres", "--model", "big"], 2, "angular, attention, diffusion"),
        (&["regression", "--data", "spheres"], 1, "segmentation"),
        (&[], 2, "required"),
    ] {
        let output = project.gemcnn(arguments).output().unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {message}");
        assert!(message.contains(part), "{arguments:?}: {message}");
    }
    let runs = fs::read_dir(project.path("runs"));
    assert_eq!(runs.map_or(0, Iterator::count), 0);
}

#[test]
fn a_finished_run_tells_where_everything_is() {
    let project = Project::new("");
    let arguments = ["segmentation", "--data", "spheres", "--epochs", "2", "--quiet"];
    let output = project.gemcnn(&arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    for file in ["model.safetensors", "metrics.jsonl", "curve.png", "curve.svg"] {
        assert!(text.contains(&format!("runs/spheres-1/{file}")), "{text}");
        assert!(project.path("runs/spheres-1").join(file).exists(), "{file}");
    }
    assert!(text.contains("gemcnn eval runs/spheres-1"), "{text}");
    let config = fs::read_to_string(project.path("runs/spheres-1/config.toml")).unwrap();
    for setting in ["epochs = 2", "weight_decay = 0.0001", "kind = \"cosine\""] {
        assert!(config.contains(setting), "{config}");
    }
    let model = TrainedModel::read(&project.path("runs/spheres-1")).unwrap();
    assert_eq!(model.config.to_toml().unwrap(), config);
    assert_eq!(model.classes.map(|classes| classes.count()), Some(2));
    assert_eq!(model.scaling.dimension(), model.config.features.kind().dimension());
    let versions = fs::read_to_string(project.path("runs/spheres-1/versions.toml")).unwrap();
    assert!(versions.contains("device = \"CPU\""), "{versions}");
}
