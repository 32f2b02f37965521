//! The cache as a neighbour: limits, full disks and killed processes.
#![cfg(unix)]

use crate::train::{PATIENCE, Project, stderr, succeed};
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn gemcnn(project: &Project, arguments: &[&str]) -> Command {
    let mut command = project.command(env!("CARGO_BIN_EXE_gemcnn"));
    command.args(["--threads", "1"]).args(arguments);
    command
}

/// Prepares the meshes for a kind of features.
fn prepare(project: &Project, features: &str, limit: &str) -> Command {
    let options = ["--model", "gem", "--features", features, "--cache-limit", limit];
    gemcnn(project, &[&["data", "prepare", "spheres"], &options[..]].concat())
}

/// Entries and bytes of the cache.
fn usage(project: &Project) -> (u64, u64) {
    let output = succeed(gemcnn(project, &["data", "cache", "--json"]).output().unwrap());
    let usage: Value = serde_json::from_slice(&output.stdout).unwrap();
    (usage["entries"].as_u64().unwrap(), usage["bytes"].as_u64().unwrap())
}

#[test]
fn a_limited_cache_survives_kills_and_neighbours() {
    let project = Project::new("epochs = 2");
    let expected = project.model(&["run.toml", "--run-dir", "without", "--no-cache"], "without");
    succeed(prepare(&project, "shot", "1 GB").output().unwrap());
    let (all, bytes) = usage(&project);
    assert_eq!(all, 10);
    let entry = bytes / all;
    let limit = 6 * bytes / 10;
    let text = &limit.to_string();
    // Each kind of features needs other entries, for which earlier ones leave.
    for delay in 0..12 {
        let features = ["matrix", "shot", "reltan"][delay as usize % 3];
        let mut child = prepare(&project, features, text).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(7 * delay));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let children: Vec<Child> =
        ["shot", "matrix"].iter().map(|kind| prepare(&project, kind, text).spawn().unwrap()).collect();
    let outputs: Vec<Output> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    outputs.into_iter().for_each(|output| drop(succeed(output)));
    let (left, bytes) = usage(&project);
    // Two writers may each see room for one more entry at the same moment.
    assert!(bytes <= limit + 2 * entry && left > 0, "{left} entries, {bytes} of {limit} bytes");
    let options = ["run.toml", "--run-dir", "with", "--cache-limit", text];
    assert!(project.model(&options, "with") == expected, "cold");
    let options = ["run.toml", "--run-dir", "again", "--cache-limit", text];
    assert!(project.model(&options, "again") == expected, "warm");
    let refused = prepare(&project, "shot", "much").output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    let refused = prepare(&project, "shot", "1 GB").env("GEMCNN_CACHE_LIMIT", "much").output().unwrap();
    assert_eq!(refused.status.code(), Some(0), "the option takes precedence");
    let variable = gemcnn(&project, &["data", "prepare", "spheres"]).env("GEMCNN_CACHE_LIMIT", "much").output();
    assert_eq!(variable.unwrap().status.code(), Some(1));
}

#[test]
fn versions_give_the_same_bits_on_any_threads_and_cache() {
    let project = Project::new("");
    let config = "task = 'segmentation'\n[data]\nfolder = 'spheres'\n[augmentation]\nversions = 2\nresample = 0.7\n\
                  [model]\nkind = 'surface'\nblocks = 1\nchannels = [8, 4, 2]\neigenvectors = [12, 6, 6]\n\
                  [training]\nepochs = 3\n";
    fs::write(project.path("surface.toml"), config).unwrap();
    let train = |threads: &str, run: &str, cache: &[&str]| {
        let arguments = ["--threads", threads, "train", "--device", "cpu", "surface.toml", "--run-dir", run];
        let mut command = project.command(env!("CARGO_BIN_EXE_gemcnn"));
        succeed(command.args(arguments).args(cache).output().unwrap());
        fs::read(project.path(run).join("model.safetensors")).unwrap()
    };
    let expected = train("1", "none", &["--no-cache"]);
    assert!(train("2", "cold", &[]) == expected);
    assert!(train("1", "warm", &[]) == expected);
    // Versions that no epoch has visited were never prepared.
    let (entries, _) = usage(&project);
    assert!((10..24).contains(&entries), "{entries}");
}

/// Runs a script with a file system of some kilobytes in the folder `small`; `None` where this user may not mount one.
fn on_small_disk(project: &Project, kilobytes: usize, script: &str) -> Option<Child> {
    fs::create_dir_all(project.path("small")).unwrap();
    let mount = format!("mount -t tmpfs -o size={kilobytes}k tmpfs small");
    let namespace = ["--user", "--map-root-user", "--mount", "bash", "-c"];
    let mut probe = project.command("unshare");
    if !probe.args(namespace).arg(&mount).output().is_ok_and(|output| output.status.success()) {
        // There is no other way to skip a test.
        eprintln!("skipped: no small file system can be mounted here");
        return None;
    }
    let mut command = project.command("unshare");
    command.args(namespace).arg(format!("set -e; {mount}; {script}")).stdin(Stdio::null());
    Some(command.spawn().unwrap())
}

#[test]
fn runs_on_a_small_disk_finish_and_leave_a_tenth_free() {
    let project = Project::new("epochs = 2");
    let config = fs::read_to_string(project.path("run.toml")).unwrap();
    fs::write(project.path("shot.toml"), format!("features = 'shot'\n{config}")).unwrap();
    let expected = ["run", "shot"].map(|name| {
        let config = format!("{name}.toml");
        project.model(&[&config, "--run-dir", name, "--no-cache"], name)
    });
    let script = format!(
        "train() {{ {} --threads 1 train --device cpu $1.toml --run-dir small/$1 --cache small/cache; }}\n\
         train run & first=$!; train shot & second=$!; wait $first; wait $second\n\
         df --output=size,avail --block-size=1 small | tail -1 > space\n\
         cp small/run/model.safetensors run.model; cp small/shot/model.safetensors shot.model",
        env!("CARGO_BIN_EXE_gemcnn"),
    );
    let Some(child) = on_small_disk(&project, 2500, &script) else { return };
    let output = succeed(child.wait_with_output().unwrap());
    assert!(stderr(&output).contains("warning"), "the cache is full: {}", stderr(&output));
    for (name, expected) in ["run", "shot"].iter().zip(expected) {
        assert!(fs::read(project.path(&format!("{name}.model"))).unwrap() == expected, "{name}");
    }
    let space = fs::read_to_string(project.path("space")).unwrap();
    let space: Vec<u64> = space.split_whitespace().map(|number| number.parse().unwrap()).collect();
    assert!(space[1] > 0, "{space:?}");
}

#[test]
fn a_disk_that_others_fill_stops_no_run() {
    let project = Project::new("epochs = 100000\ncheckpoint = { epochs = 1 }");
    let script = format!(
        "timeout 100 {} --threads 1 train --device cpu run.toml --run-dir small/run --no-cache & run=$!\n\
         while [ ! -e small/run/.gemcnn-reserve.tmp ]; do kill -0 $run; sleep 0.05; done\n\
         dd if=/dev/zero of=small/full bs=4k 2> /dev/null || true\n\
         before=$(wc -l < small/run/metrics.jsonl)\n\
         while [ $(wc -l < small/run/metrics.jsonl) -lt $((before + 3)) ]; do kill -0 $run; sleep 0.05; done\n\
         kill -INT $run; wait $run || true; ls -A small/run > left; cp small/run/model.safetensors model",
        env!("CARGO_BIN_EXE_gemcnn"),
    );
    let Some(mut child) = on_small_disk(&project, 4000, &script) else { return };
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > PATIENCE {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    succeed(child.wait_with_output().unwrap());
    assert!(fs::metadata(project.path("model")).unwrap().len() > 0);
    let left = fs::read_to_string(project.path("left")).unwrap();
    assert!(left.contains("checkpoint.safetensors") && !left.contains("reserve"), "{left}");
}
