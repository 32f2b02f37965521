//! A folder to work in, and the command in it.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Paths of all files in a folder, sorted.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// A temporary folder with a cache of its own.
pub struct Folder {
    place: TempDir,
    /// Arguments that end every command which is run.
    last: &'static [&'static str],
}

impl Folder {
    pub fn new() -> Self {
        Self { place: tempfile::tempdir().unwrap(), last: &[] }
    }

    /// Commands are run on the CPU.
    pub fn on_cpu() -> Self {
        Self { last: &["--device", "cpu"], ..Self::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    #[track_caller]
    pub fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).unwrap()
    }

    /// The command in the folder.
    pub fn gemcnn(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gemcnn"));
        command.current_dir(&self.place).env("GEMCNN_CACHE", self.path("cache")).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// What the command prints, and its messages; it exits with a status.
    #[track_caller]
    pub fn run(&self, arguments: &[&str], status: i32) -> [String; 2] {
        let output = self.gemcnn(arguments).args(self.last).output().unwrap();
        let texts = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {texts:?}");
        texts
    }

    /// What the command prints.
    #[track_caller]
    pub fn succeed(&self, arguments: &[&str]) -> String {
        let [said, _] = self.run(arguments, 0);
        said
    }

    /// What the command complains about.
    #[track_caller]
    pub fn fail(&self, arguments: &[&str], status: i32) -> String {
        let [_, message] = self.run(arguments, status);
        message
    }
}
