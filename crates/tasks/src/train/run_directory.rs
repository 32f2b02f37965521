//! The directory of a run: its lock and its files.

use crate::layout::{CONFIG, LOCK};
use crate::{Result, TaskError};
use gemcnn_mesh::{is_leftover, remove_leftovers};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A run directory, locked by this process. No other process can open it until this value is dropped. The
/// system releases the lock when the process ends, even when it is killed.
///
/// ```
/// use gemcnn_tasks::train::RunDirectory;
/// # let folder = tempfile::tempdir()?;
/// # let runs = folder.path().join("runs");
/// let run = RunDirectory::create_next(&runs, "teeth")?;
/// assert_eq!(run.path(), runs.join("teeth-1"));
/// assert!(RunDirectory::open(run.path()).is_err()); // already held
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    /// Bytes that are set aside on the disk for checkpoints and models.
    reserved: AtomicUsize,
    /// Locked while it is open.
    _lock: File,
}

impl RunDirectory {
    /// Creates `NAME-N` in `runs` with the next free number.
    ///
    /// # Errors
    /// A directory that cannot be created.
    pub fn create_next(runs: &Path, name: &str) -> Result<Self> {
        fs::create_dir_all(runs).map_err(TaskError::file(runs))?;
        let entries = fs::read_dir(runs).map_err(TaskError::file(runs))?;
        let prefix = format!("{name}-");
        let taken = entries.flatten().filter_map(|entry| {
            let name = entry.file_name();
            name.to_str()?.strip_prefix(&prefix)?.parse::<u64>().ok()
        });
        let mut number = taken.max().unwrap_or(0).saturating_add(1);
        loop {
            let path = runs.join(format!("{prefix}{number}"));
            match fs::create_dir(&path) {
                Ok(()) => return Self::hold(path),
                // Another process has taken the number.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(TaskError::file(path)(error)),
            }
        }
    }

    /// Creates a directory for a new run. An existing one must be empty, or hold a run that was killed before it
    /// started.
    ///
    /// # Errors
    /// A directory that cannot be created or has other files, or in which another process trains.
    pub fn create(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(TaskError::file(path))?;
        let is_begun = path.join(LOCK).exists();
        for entry in fs::read_dir(path).map_err(TaskError::file(path))? {
            let name = entry.map_err(TaskError::file(path))?.file_name();
            let name = name.to_string_lossy();
            if is_begun && (BEFORE_A_RUN.contains(&&*name) || is_leftover(&name)) {
                continue;
            }
            let problem = "the directory is not empty; choose a new directory for a new run, or resume the \
                 run in it with `gemcnn train --resume`";
            return Err(TaskError::at(path, problem));
        }
        Self::open_or_create(path)
    }

    /// Opens the directory of an existing run.
    ///
    /// # Errors
    /// A directory without a run, or in which another process trains.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.join(CONFIG).is_file() {
            let problem = format!("not a run directory: there is no file {CONFIG}");
            return Err(TaskError::at(path, problem));
        }
        Self::open_or_create(path)
    }

    /// Opens a directory with or without a run, and creates it if necessary.
    ///
    /// # Errors
    /// A directory that cannot be created, or in which another process trains.
    pub fn open_or_create(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(TaskError::file(path))?;
        let run = Self::hold(path.into())?;
        remove_leftovers(path).map_err(TaskError::file(path))?;
        Ok(run)
    }

    fn hold(path: PathBuf) -> Result<Self> {
        let file = path.join(LOCK);
        let lock = (OpenOptions::new().write(true).create(true).truncate(false))
            .open(&file)
            .map_err(TaskError::file(&file))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, reserved: AtomicUsize::new(0), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(TaskError::at(
                &path,
                "another process is training in this directory; wait until it ends, or stop it",
            )),
            Err(TryLockError::Error(error)) => Err(TaskError::file(file)(error)),
        }
    }

    /// Removes models, predictions, evaluations and learning curve of a run.
    pub(crate) fn remove_results(&self) -> Result<()> {
        self.remove(&[MODEL, BEST, PREDICTIONS, FINISHED, EVALUATION, "curve."])
    }

    /// Removes the checkpoint, so that the run begins again.
    pub(crate) fn forget(&self) -> Result<()> {
        let file = self.checkpoint();
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(TaskError::file(file)(error)),
            _ => Ok(()),
        }
    }

    /// Marks a run as finished once all its results are there. Evaluations of earlier models are removed.
    pub(crate) fn finish(&self) -> Result<()> {
        if self.is_finished() {
            return Ok(());
        }
        self.remove(&[EVALUATION])?;
        self.write_durably(&self.path.join(FINISHED), b"")
    }

    /// Marks a run as not finished.
    pub(crate) fn reopen(&self) -> Result<()> {
        self.remove(&[FINISHED])
    }

    /// True if the run is finished and all its results are there.
    pub fn is_finished(&self) -> bool {
        self.path.join(FINISHED).exists()
    }

    /// Removes all files and folders whose names begin like this.
    fn remove(&self, beginnings: &[&str]) -> Result<()> {
        for entry in fs::read_dir(&self.path).map_err(TaskError::file(&self.path))? {
            let path = entry.map_err(TaskError::file(&self.path))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !beginnings.iter().any(|beginning| name.starts_with(beginning)) {
                continue;
            }
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(TaskError::file(&path))?;
        }
        Ok(())
    }

    /// Removes the directory of a run that never started, unless it has other files.
    pub fn discard(self) {
        // Errors are ignored: a directory that stays can be started in again, because the lock goes last.
        let _ = remove_leftovers(&self.path);
        for name in BEFORE_A_RUN {
            let _ = fs::remove_file(self.path.join(name));
        }
        let _ = fs::remove_dir(&self.path);
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The configuration, with all defaults filled in.
    pub fn config(&self) -> PathBuf {
        self.path.join(CONFIG)
    }

    /// Program version, device and system at the start of the run.
    pub fn versions(&self) -> PathBuf {
        self.path.join(VERSIONS)
    }

    /// Metrics, one line for each epoch.
    pub fn metrics(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// The latest checkpoint.
    pub fn checkpoint(&self) -> PathBuf {
        self.path.join("checkpoint.safetensors")
    }

    /// The model of the best evaluation, with `keep_best`.
    pub fn best(&self) -> PathBuf {
        self.path.join(BEST)
    }

    /// The trained model.
    pub fn model(&self) -> PathBuf {
        self.path.join(MODEL)
    }

    /// Correspondence: the mesh whose vertices are the classes.
    pub fn template(&self) -> PathBuf {
        self.path.join(TEMPLATE)
    }

    /// Predictions of the trained model for a few held-out meshes.
    pub fn predictions(&self) -> PathBuf {
        self.path.join(PREDICTIONS)
    }

    /// The learning curve, without file extension.
    pub fn curve(&self) -> PathBuf {
        self.path.join("curve")
    }

    /// Writes a file completely or not at all, and flushes both the file and the directory to disk, so that
    /// it survives a power cut.
    pub(crate) fn write_durably(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        self.with_reserve(|| gemcnn_mesh::write_atomically(path, |file| file.write_all(bytes)))
            .and_then(|()| self.sync())
            .map_err(TaskError::file(path))
    }

    /// Writes, and if the disk is full, once more in the space that was set aside.
    pub(crate) fn with_reserve<T>(&self, mut write: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        match write() {
            Err(error) if error.kind() == ErrorKind::StorageFull && self.release() => {
                let written = write();
                // There may be room for a part of the reserve, which is better than nothing.
                let _ = self.fill(self.reserved.load(Ordering::Relaxed));
                written
            }
            other => other,
        }
    }

    /// Sets space aside on the disk for the time when it is full. A run that is killed leaves it to the next one, which
    /// removes it.
    ///
    /// # Errors
    /// The disk does not have the space.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<()> {
        self.reserved.store(bytes, Ordering::Relaxed);
        self.fill(bytes).map_err(TaskError::file(&self.path))
    }

    /// Fills the reserve: a file without blocks on the disk would reserve nothing.
    fn fill(&self, bytes: usize) -> io::Result<()> {
        let mut file = File::create(self.path.join(RESERVE))?;
        let block = [0xa5; 1 << 16];
        for start in (0..bytes).step_by(block.len()) {
            file.write_all(&block[..block.len().min(bytes - start)])?;
        }
        Ok(())
    }

    /// Gives the reserve back to the disk. False if there is none.
    fn release(&self) -> bool {
        fs::remove_file(self.path.join(RESERVE)).is_ok()
    }

    #[cfg(unix)]
    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// Directories cannot be opened on other systems.
    #[cfg(not(unix))]
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        self.release();
    }
}

const VERSIONS: &str = "versions.toml";
pub(super) const MODEL: &str = "model.safetensors";
const BEST: &str = "best.safetensors";
const PREDICTIONS: &str = "predictions";
/// Space for checkpoints. The name is that of an unfinished file, which the next process removes.
const RESERVE: &str = ".gemcnn-reserve.tmp";
/// Empty file of a run that is finished.
const FINISHED: &str = "finished";
/// Beginning of the names of evaluations.
const EVALUATION: &str = "eval-";
/// File of the template of a correspondence, next to the model.
pub const TEMPLATE: &str = "template.ply";
/// Files of a run that was killed before its configuration was written, besides incomplete ones.
const BEFORE_A_RUN: [&str; 3] = [VERSIONS, TEMPLATE, LOCK];

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails unless a directory is refused, and named.
    #[track_caller]
    fn assert_refused(result: Result<RunDirectory>, path: &Path) {
        match result.unwrap_err() {
            TaskError::Setting { what, .. } => assert_eq!(what, path.display().to_string()),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn every_run_gets_a_directory_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("deep/runs");
        fs::create_dir_all(runs.join("a-7")).unwrap();
        fs::create_dir_all(runs.join("a-b-9")).unwrap();
        let paths: Vec<PathBuf> = std::thread::scope(|scope| {
            let make = || RunDirectory::create_next(&runs, "a").unwrap().path.clone();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let mut sorted = paths.clone();
        sorted.sort_by_key(|path| path.as_os_str().len());
        sorted.dedup();
        assert_eq!(sorted.len(), 8, "{paths:?}");
        assert!(paths.contains(&runs.join("a-8")) && paths.contains(&runs.join("a-15")));
    }

    #[test]
    fn a_run_killed_early_leaves_its_directory_free() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let run = RunDirectory::create(&path).unwrap();
        fs::write(run.versions(), "").unwrap();
        assert_refused(RunDirectory::create(&path), &path);
        drop(run);
        fs::write(path.join(".gemcnn-1-0.tmp"), "half a template").unwrap();
        RunDirectory::create(&path).unwrap();
        let run = RunDirectory::create(&path).unwrap();
        fs::write(run.template(), "").unwrap();
        run.discard();
        assert!(!path.exists(), "a start that failed leaves nothing");
        RunDirectory::create(&path).unwrap();
        let other = folder.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join(TEMPLATE), "mine").unwrap();
        assert_refused(RunDirectory::create(&other), &other);
        fs::write(path.join("notes.txt"), "mine").unwrap();
        assert_refused(RunDirectory::create(&path), &path);
    }

    #[test]
    fn two_holders_are_refused_until_the_first_lets_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let run = RunDirectory::create(&path).unwrap();
        fs::write(run.config(), "").unwrap();
        assert_refused(RunDirectory::open(&path), &path);
        fs::write(path.join(".gemcnn-1-0.tmp"), "half a checkpoint").unwrap();
        drop(run);
        assert_refused(RunDirectory::create(&path), &path);
        let run = RunDirectory::open(&path).unwrap();
        assert!(!path.join(".gemcnn-1-0.tmp").exists());
        drop(run);
        assert_refused(RunDirectory::open(folder.path()), folder.path());
    }
}
