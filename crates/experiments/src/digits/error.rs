//! What can go wrong with the digits.

use std::path::PathBuf;

/// Why the digits cannot be read or fetched.
#[derive(Debug, thiserror::Error)]
pub enum MnistError {
    /// Files that are not there.
    #[error(
        "{directory}: no {} (nor with .gz): fetch the digits with `gemcnn data fetch mnist {directory}`",
        .files.join(", ")
    )]
    Missing {
        /// Where they were looked for.
        directory: PathBuf,
        /// Their names.
        files: Vec<&'static str>,
    },
    /// A file that cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file that is not in the IDX format, or holds something else.
    #[error("{path}: {problem}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A file that is not the published one.
    #[error(
        "{path}: not the published file: {found}, expected {expected}: delete it and fetch it again with `gemcnn data fetch mnist`"
    )]
    Different {
        /// The file.
        path: PathBuf,
        /// Size or SHA-256 of the published one, uncompressed.
        expected: String,
        /// That of this one.
        found: String,
    },
    /// A download that failed; what has come is kept, and the next try goes on from there.
    #[error("{url}: {problem}")]
    Download {
        /// The address.
        url: String,
        /// What went wrong, and what may help.
        problem: String,
    },
}

impl MnistError {
    /// For `map_err` on what the system says of a file.
    pub(super) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        |source| Self::File { path, source }
    }
}
