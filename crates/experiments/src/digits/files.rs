//! The four files of the data set and their verification.

use super::MnistError;
use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};

/// One file of the published data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataFile {
    /// Name of the uncompressed file.
    pub name: &'static str,
    /// Size of the uncompressed file in bytes.
    pub size: usize,
    /// SHA-256 of the uncompressed file, in hexadecimal.
    pub sha256: &'static str,
}

/// Training images and labels, test images and labels.
pub const FILES: [DataFile; 4] = [
    DataFile {
        name: "train-images-idx3-ubyte",
        size: 47_040_016,
        sha256: "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    },
    DataFile {
        name: "train-labels-idx1-ubyte",
        size: 60_008,
        sha256: "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    },
    DataFile {
        name: "t10k-images-idx3-ubyte",
        size: 7_840_016,
        sha256: "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    },
    DataFile {
        name: "t10k-labels-idx1-ubyte",
        size: 10_008,
        sha256: "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
];

impl DataFile {
    /// Name of the gzipped file, as it is published.
    pub fn gzipped_name(&self) -> String {
        format!("{}.gz", self.name)
    }

    /// Path of the copy in a directory, uncompressed or gzipped.
    pub fn find(&self, directory: &Path) -> Option<PathBuf> {
        let names = [self.name.to_owned(), self.gzipped_name()];
        let paths = names.iter().map(|name| directory.join(name));
        paths.into_iter().find(|path| path.is_file())
    }

    /// Reads the copy in a directory and verifies it.
    pub(super) fn read(&self, directory: &Path) -> Result<Content, MnistError> {
        let path = self
            .find(directory)
            .ok_or_else(|| MnistError::Missing { directory: directory.into(), files: vec![self.name] })?;
        let bytes = gemcnn_mesh::read_file(&path).map_err(MnistError::file(&path))?;
        let content = match path.extension().is_some_and(|ending| ending == "gz") {
            true => Content::inflated(path, &bytes)?,
            false => Content { path, bytes },
        };
        self.verify(&content)?;
        Ok(content)
    }

    /// Checks that the content is that of the published file.
    pub(super) fn verify(&self, Content { path, bytes }: &Content) -> Result<(), MnistError> {
        let different =
            |expected: String, found: String| Err(MnistError::Different { path: path.clone(), expected, found });
        if bytes.len() != self.size {
            return different(format!("{} bytes", self.size), format!("{} bytes", bytes.len()));
        }
        let found = hexadecimal(&Sha256::digest(bytes));
        if found != self.sha256 {
            return different(format!("SHA-256 {}", self.sha256), format!("SHA-256 {found}"));
        }
        Ok(())
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Checks that all four files are in the directory; the error names the missing ones.
pub(super) fn check_present(directory: &Path) -> Result<(), MnistError> {
    let missing = FILES.iter().filter(|file| file.find(directory).is_none());
    let files: Vec<&'static str> = missing.map(|file| file.name).collect();
    if files.is_empty() { Ok(()) } else { Err(MnistError::Missing { directory: directory.into(), files }) }
}

/// The uncompressed bytes of a file.
#[derive(Debug)]
pub(super) struct Content {
    /// Path, for messages.
    pub path: PathBuf,
    pub bytes: Vec<u8>,
}

impl Content {
    /// Decompresses a gzipped file. The first file of the data set is the largest; longer content is cut off
    /// and fails the checksum.
    pub fn inflated(path: impl Into<PathBuf>, gzipped: &[u8]) -> Result<Self, MnistError> {
        let path = path.into();
        let largest = FILES.iter().map(|file| file.size).max().unwrap_or(0) as u64;
        let mut bytes = Vec::new();
        let inflated = GzDecoder::new(gzipped).take(largest + 1).read_to_end(&mut bytes);
        match inflated {
            Ok(_) => Ok(Self { path, bytes }),
            Err(error) => Err(MnistError::Format { path, problem: format!("not a complete gzip file: {error}") }),
        }
    }
}
