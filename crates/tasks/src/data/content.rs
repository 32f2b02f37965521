//! Source data of a mesh, parsed on demand.

use super::fields::{connected, read_fields};
use crate::Result;
use crate::features::{FieldName, Fields};
use gemcnn_mesh::shapes::BodyFamily;
use gemcnn_mesh::{FileError, FileProblem, Location, Mesh, VertexAttribute, data_files, parse_mesh_file, read_file};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};

/// Source data of a mesh, parsed on first use.
pub(crate) struct Content<'a> {
    origin: Origin<'a>,
    made: OnceCell<Made>,
}

struct Made {
    mesh: Mesh,
    attributes: Vec<VertexAttribute>,
    face_attributes: Vec<VertexAttribute>,
    is_cloud: bool,
}

enum Origin<'a> {
    /// A file in memory.
    File { path: PathBuf, bytes: Vec<u8> },
    /// A synthetic body.
    Body { family: &'a BodyFamily, number: u64 },
}

impl<'a> Content<'a> {
    pub fn read(path: &Path) -> Result<Self> {
        if !path.is_file() {
            // Returns the error of the mesh reader.
            gemcnn_mesh::read_mesh(path)?;
        }
        let path: PathBuf = path.into();
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                let problem = FileProblem::Read(error);
                return Err(FileError { path, location: Location::File, problem }.into());
            }
        };
        Ok(Self::new(Origin::File { path, bytes }))
    }

    pub fn body(family: &'a BodyFamily, number: u64) -> Self {
        Self::new(Origin::Body { family, number })
    }

    fn new(origin: Origin<'a>) -> Self {
        Self { origin, made: OnceCell::new() }
    }

    /// Hash of the source data. It includes the extension of the file, which may determine the format.
    pub fn hash(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        match &self.origin {
            Origin::File { path, bytes } => {
                let extension = path.extension().unwrap_or_default();
                hasher.update(b"file ");
                hasher.update(extension.to_string_lossy().to_lowercase().as_bytes());
                hasher.update(&[0]);
                hasher.update(bytes);
                for file in data_files(path, bytes) {
                    // A file that cannot be read is an error of the mesh.
                    hasher.update(&read_file(&file).unwrap_or_default());
                }
            }
            Origin::Body { family, number } => {
                hasher.update(format!("body {number} of {:?}", family.options()).as_bytes());
            }
        }
        hasher.finalize()
    }

    /// The mesh. The points of a cloud are connected to a surface.
    pub fn mesh(&self) -> Result<&Mesh> {
        Ok(&self.made()?.mesh)
    }

    /// Vertex attributes of its file.
    pub fn attributes(&self) -> Result<&[VertexAttribute]> {
        Ok(&self.made()?.attributes)
    }

    /// Face attributes of its file.
    pub fn face_attributes(&self) -> Result<&[VertexAttribute]> {
        Ok(&self.made()?.face_attributes)
    }

    /// Fields that features need.
    pub fn fields(&self, names: &[FieldName]) -> Result<Fields> {
        if names.is_empty() {
            return Ok(Fields::default());
        }
        let path = match &self.origin {
            Origin::File { path, .. } => path.as_path(),
            Origin::Body { .. } => Path::new("synthetic body"),
        };
        let Made { mesh, attributes, .. } = self.made()?;
        read_fields(path, mesh.vertex_count(), attributes, names)
    }

    /// True if the file has points without faces.
    pub fn is_cloud(&self) -> Result<bool> {
        Ok(self.made()?.is_cloud)
    }

    fn made(&self) -> Result<&Made> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let made = match &self.origin {
            Origin::File { path, bytes } => {
                let file = parse_mesh_file(path, bytes)?;
                let surface = connected(&file.mesh)?;
                Made {
                    is_cloud: surface.is_some(),
                    mesh: surface.unwrap_or(file.mesh),
                    attributes: file.attributes,
                    face_attributes: file.face_attributes,
                }
            }
            Origin::Body { family, number } => Made {
                mesh: family.body(*number),
                attributes: Vec::new(),
                face_attributes: Vec::new(),
                is_cloud: false,
            },
        };
        Ok(self.made.get_or_init(|| made))
    }
}
