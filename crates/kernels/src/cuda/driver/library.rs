//! Finding the shared libraries of CUDA.
//!
//! The dynamic loader is tried first, then the usual folders of a toolkit and of Python packages. A library
//! opened by its path is afterwards found by its name.

use super::{CudaError, Result};
use std::path::{Path, PathBuf};

/// The searched places, for messages.
type Searched = String;

pub(super) fn driver() -> Result<()> {
    // SAFETY: opening the driver's library runs its initialisers only.
    if unsafe { cudarc::driver::sys::is_culib_present() } { Ok(()) } else { Err(CudaError::NoDriver) }
}

pub(super) fn nvrtc() -> Result<()> {
    // SAFETY: as above.
    let present = || unsafe { cudarc::nvrtc::sys::is_culib_present() };
    ensure(present, &["libnvrtc-builtins.so", "libnvrtc.so"]).map_err(|searched| CudaError::NoNvrtc { searched })
}

pub(super) fn cublas() -> Result<()> {
    // SAFETY: as above.
    let present = || unsafe { cudarc::cublas::sys::is_culib_present() };
    ensure(present, &["libcublasLt.so", "libcublas.so"]).map_err(|searched| CudaError::NoCublas { searched })
}

/// Opens the named libraries, in order, from the first folder that has all of them, until `present` is true.
fn ensure(present: impl Fn() -> bool, names: &[&str]) -> Result<(), Searched> {
    if present() {
        return Ok(());
    }
    let folders = folders();
    for folder in &folders {
        let paths: Vec<PathBuf> = names.iter().filter_map(|name| find(folder, name)).collect();
        if paths.len() == names.len() && paths.iter().all(|path| open(path)) && present() {
            return Ok(());
        }
    }
    let mut searched = String::from("the dynamic loader's path");
    for folder in &folders {
        searched.push_str(&format!(", {}", folder.display()));
    }
    Err(searched)
}

/// The file of a library in a folder: with that name, or with a version appended.
fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let plain = folder.join(name);
    if plain.is_file() {
        return Some(plain);
    }
    let entries = std::fs::read_dir(folder).ok()?;
    let mut versions: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let file = path.file_name().and_then(|file| file.to_str());
            file.is_some_and(|file| file.starts_with(name) && !file.contains(".alt."))
        })
        .collect();
    versions.sort();
    versions.pop()
}

/// Opens a library and never closes it.
fn open(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
        // SAFETY: the file is one of CUDA's libraries by its name; it is never closed.
        unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map(std::mem::forget).is_ok()
    }
    #[cfg(not(unix))]
    {
        // SAFETY: as above.
        unsafe { libloading::Library::new(path) }.map(std::mem::forget).is_ok()
    }
}

/// Existing folders that may hold the libraries of CUDA.
fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for variable in ["CUDA_HOME", "CUDA_PATH"] {
        if let Some(root) = std::env::var_os(variable) {
            folders.push(Path::new(&root).join("lib64"));
            folders.push(Path::new(&root).join("lib"));
        }
    }
    folders.extend(["/usr/local/cuda/lib64", "/opt/cuda/lib64"].map(PathBuf::from));
    let mut roots: Vec<PathBuf> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(std::env::var_os).map(PathBuf::from).collect();
    roots.extend(std::env::home_dir().map(|home| home.join(".local")));
    for root in roots {
        folders.push(root.join("lib"));
        for python in children(&root.join("lib"), "python") {
            for package in children(&python.join("site-packages/nvidia"), "") {
                folders.push(package.join("lib"));
            }
        }
    }
    folders.retain(|folder| folder.is_dir());
    folders
}

/// Entries of a folder whose names begin with `prefix`, sorted.
fn children(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
}
