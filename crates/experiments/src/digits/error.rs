//! Errors of the digits.

use std::path::PathBuf;

/// An error while reading or downloading the digits.
#[derive(Debug, thiserror::Error)]
pub enum MnistError {
    /// Missing files.
    #[error(
        "{directory}: no {} (plain or .gz): download the digits with `gemcnn data fetch mnist {directory}`",
        .files.join(", ")
    )]
    Missing {
        /// The directory.
        directory: PathBuf,
        /// Names of the missing files.
        files: Vec<&'static str>,
    },
    /// A file that cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A file that is not in the IDX format, or has other contents.
    #[error("{path}: {problem}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A file that differs from the published one.
    #[error(
        "{path}: not the published file: {found}, expected {expected}; delete it and download it again with `gemcnn data fetch mnist`"
    )]
    Different {
        /// The file.
        path: PathBuf,
        /// Size or SHA-256 of the published file, uncompressed.
        expected: String,
        /// Size or SHA-256 of this file.
        found: String,
    },
    /// A failed download. The received part is kept, and the next attempt resumes from it.
    #[error("{url}: {problem}")]
    Download {
        /// The address.
        url: String,
        /// What went wrong, and what to try.
        problem: String,
    },
    /// The program `curl` is missing.
    #[error(
        "`curl` is not installed; download the files in another way, as with\n  curl --location --output {path} {url}"
    )]
    NoCurl {
        /// The address of the file.
        url: String,
        /// Where it belongs.
        path: PathBuf,
    },
}

impl MnistError {
    /// Wraps an I/O error of a file, for `map_err`.
    pub(super) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        |source| Self::File { path, source }
    }
}
