//! Names of the files that mark runs and prediction results, so that data sets skip them.

use std::path::Path;

/// A directory is a run if it has this file and [`LOCK`].
pub(crate) const CONFIG: &str = "config.toml";
/// Locked by the process that trains.
pub(crate) const LOCK: &str = "lock";
/// The hidden file that marks a directory of prediction results.
pub(crate) const RESULTS_MARK: &str = ".gemcnn-results";

/// True if a run was begun in a directory.
pub(crate) fn is_run(path: &Path) -> bool {
    path.join(CONFIG).is_file() && path.join(LOCK).is_file()
}

/// True if a directory holds what this program made of meshes: prediction results, or a run.
pub(crate) fn is_made(path: &Path) -> bool {
    path.join(RESULTS_MARK).exists() || is_run(path)
}
