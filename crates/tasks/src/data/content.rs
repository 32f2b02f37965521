//! What a mesh of a data set is made from, read once and parsed when needed.

use crate::TaskError;
use gemcnn_mesh::{MeshFile, parse_mesh};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};

/// A mesh file in memory.
pub(crate) struct Content {
    path: PathBuf,
    bytes: Vec<u8>,
    parsed: OnceCell<MeshFile>,
}

impl Content {
    pub fn read(path: &Path) -> Result<Self, TaskError> {
        let metadata = std::fs::metadata(path).map_err(TaskError::file(path))?;
        if !metadata.is_file() {
            // The reader of mesh files says what it is instead.
            gemcnn_mesh::read_mesh(path)?;
        }
        Ok(Self {
            path: path.into(),
            bytes: std::fs::read(path).map_err(TaskError::file(path))?,
            parsed: OnceCell::new(),
        })
    }

    /// A hash that no other mesh has. The extension counts, as it may decide the format.
    pub fn hash(&self) -> blake3::Hash {
        let extension = self.path.extension().unwrap_or_default();
        let mut hasher = blake3::Hasher::new();
        hasher.update(extension.to_string_lossy().to_lowercase().as_bytes());
        hasher.update(&[0]);
        hasher.update(&self.bytes);
        hasher.finalize()
    }

    /// The mesh and its attributes.
    pub fn mesh(&self) -> Result<&MeshFile, TaskError> {
        if let Some(file) = self.parsed.get() {
            return Ok(file);
        }
        let file = parse_mesh(&self.path, &self.bytes)?;
        Ok(self.parsed.get_or_init(|| file))
    }
}
