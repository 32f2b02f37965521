//! The package as Python runs it: its tests that need nothing but NumPy and pytest, on the library that Cargo just
//! built.
//!
//! `GEMCNN_PYTHON` chooses the interpreter, which must then have both. Without it this is `python3`, and the test is
//! skipped, and says so, where it lacks one of them.
#![cfg(unix)]

use std::env;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Those that need no other library.
const TESTS: [&str; 4] = ["test_matching.py", "test_mesh.py", "test_pages.py", "test_runs.py"];
/// These take longest, and tests of other crates cover most of what they run.
const SELECTION: &str = "not bodies and not browser";

#[test]
fn tests_in_numpy() {
    let chosen = env::var_os("GEMCNN_PYTHON");
    let python = chosen.clone().unwrap_or_else(|| "python3".into());
    let found = Command::new(&python).args(["-c", "import numpy, pytest"]).output();
    if chosen.is_none() && !found.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: python3 has no NumPy or no pytest; set GEMCNN_PYTHON");
        return;
    }

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let site = tempfile::tempdir().unwrap();
    let package = site.path().join("gemcnn");
    std::fs::create_dir(&package).unwrap();
    let sources = root.join("gemcnn").canonicalize().unwrap();
    for entry in sources.read_dir().unwrap() {
        let path = entry.unwrap().path();
        // Not one that was put there for development.
        if path.extension().is_none_or(|extension| extension != "so") {
            symlink(&path, package.join(path.file_name().unwrap())).unwrap();
        }
    }
    let (prefix, suffix) = (env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let library = format!("{prefix}_gemcnn{suffix}");
    let library = env::current_exe().unwrap().with_file_name(library);
    // Every interpreter takes this name, also one without the stable ABI.
    symlink(library, package.join("_gemcnn.so")).unwrap();

    let status = Command::new(&python)
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", SELECTION])
        .args(TESTS.map(|name| root.join("tests").join(name)))
        .env("PYTHONPATH", site.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(site.path())
        .status();
    assert!(status.unwrap().success());
}
