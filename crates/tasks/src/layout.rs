//! Names of the files that mark run directories and prediction results, which data sets skip.

use std::path::Path;

/// Configuration of a run. A directory with this file and [`LOCK`] is a run directory.
pub(crate) const CONFIG: &str = "config.toml";
/// Locked by the training process.
pub(crate) const LOCK: &str = "lock";
/// Hidden file that marks a directory of prediction results.
pub(crate) const RESULTS_MARK: &str = ".gemcnn-results";

/// True if a directory is a run directory.
pub(crate) fn is_run(path: &Path) -> bool {
    path.join(CONFIG).is_file() && path.join(LOCK).is_file()
}

/// True if a directory holds prediction results or a run.
pub(crate) fn is_made(path: &Path) -> bool {
    path.join(RESULTS_MARK).exists() || is_run(path)
}
