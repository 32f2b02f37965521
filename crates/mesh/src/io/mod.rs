//! Mesh files: reads OBJ, PLY, OFF and STL, writes PLY, OBJ and OFF.
//!
//! Every reader works on the bytes of the whole file and keeps the order of vertices and faces.
//! Memory and time are proportional to the size of the file, whatever its header declares.

mod atomic;
mod colour;
mod error;
mod format;
mod obj;
mod off;
mod ply;
mod room;
mod scalar;
mod stl;
mod text;

use std::fs;
use std::path::Path;

pub use atomic::write_atomically;
pub use error::{FileError, FileProblem, Location};
pub use format::FileFormat;
pub use ply::PlyEncoding;

use crate::{Mesh, VertexAttribute};
use error::Parsed;
use format::Family;

/// Contents of a mesh file.
#[derive(Debug, Clone, PartialEq)]
pub struct MeshFile {
    /// Vertices and faces, in the order of the file.
    pub mesh: Mesh,
    /// Further scalars of the vertices, in the order of the file.
    pub attributes: Vec<VertexAttribute>,
    /// Further scalars of the faces, in the order of the file.
    pub face_attributes: Vec<VertexAttribute>,
    /// Content that was skipped or corrected, one sentence each, for the user.
    pub notes: Vec<String>,
    /// The detected format.
    pub format: FileFormat,
}

/// Options of [`write_mesh`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// Encoding of PLY files.
    pub ply: PlyEncoding,
}

/// Reads a mesh file. The format is detected from its content.
///
/// # Errors
/// The path does not name a readable regular file, or the content is not a valid mesh file.
pub fn read_mesh(path: impl AsRef<Path>) -> Result<MeshFile, FileError> {
    let path = path.as_ref();
    let bytes = read_regular_file(path).map_err(|problem| problem.of_file().in_file(path))?;
    parse_mesh(path, &bytes)
}

/// Reads a mesh file from memory. `name` appears in error messages; its extension decides the
/// format if the content is ambiguous.
///
/// ```
/// use gemcnn_mesh::{FileFormat, parse_mesh};
/// let file = parse_mesh("pair".as_ref(), b"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n")?;
/// assert_eq!(file.format, FileFormat::Off);
/// assert_eq!(file.mesh.face(0), [0, 1, 2]);
/// # Ok::<(), gemcnn_mesh::FileError>(())
/// ```
///
/// # Errors
/// The content is not a valid mesh file.
pub fn parse_mesh(name: &Path, bytes: &[u8]) -> Result<MeshFile, FileError> {
    let content = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    parse(name, content).map_err(|fault| fault.in_file(name))
}

fn parse(name: &Path, content: &[u8]) -> Parsed<MeshFile> {
    match format::tell(name, content).map_err(FileProblem::of_file)? {
        Family::Obj => obj::parse(content),
        Family::Ply => ply::parse(content),
        Family::Off => off::parse(content),
        Family::StlAscii => stl::parse_ascii(content),
        Family::StlBinary => stl::parse_binary(content),
    }
}

/// Reads a regular file. A folder has no content, and a pipe or device may never end.
fn read_regular_file(path: &Path) -> Result<Vec<u8>, FileProblem> {
    let metadata = fs::metadata(path).map_err(FileProblem::Read)?;
    if metadata.is_dir() {
        return Err(FileProblem::NotAFile { what: "a folder" });
    }
    if !metadata.is_file() {
        return Err(FileProblem::NotAFile {
            what: "a device, pipe or socket",
        });
    }
    fs::read(path).map_err(FileProblem::Read)
}

/// Writes a mesh in the format of the extension: `.ply`, `.obj` or `.off`. The write is atomic.
///
/// Reading the file returns bit-identical coordinates. Only PLY stores attributes.
///
/// # Errors
/// The extension is unknown, the format cannot store the attributes, the attributes do not fit the
/// mesh, or the file cannot be written.
pub fn write_mesh(
    path: impl AsRef<Path>,
    mesh: &Mesh,
    attributes: &[VertexAttribute],
    options: &WriteOptions,
) -> Result<(), FileError> {
    let path = path.as_ref();
    let fail = |problem: FileProblem| problem.of_file().in_file(path);
    let format = match format::extension(path).as_str() {
        "ply" => options.ply.format(),
        "obj" => FileFormat::Obj,
        "off" => FileFormat::Off,
        _ => return Err(fail(FileProblem::UnknownExtension)),
    };
    match format {
        FileFormat::Obj | FileFormat::Off if !attributes.is_empty() => {
            return Err(fail(FileProblem::AttributesNotHeld { format }));
        }
        _ => ply::check_attributes(mesh, attributes).map_err(fail)?,
    }
    write_atomically(path, |out| match format {
        FileFormat::Obj => obj::write(mesh, out),
        FileFormat::Off => off::write(mesh, out),
        _ => ply::write(mesh, attributes, options.ply, out),
    })
    .map_err(|error| fail(FileProblem::Write(error)))
}

impl Mesh {
    /// Reads the mesh of a file. [`read_mesh`] returns its attributes as well.
    ///
    /// # Errors
    /// As [`read_mesh`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self, FileError> {
        read_mesh(path).map(|file| file.mesh)
    }

    /// Writes the mesh without attributes. [`write_mesh`] has more options.
    ///
    /// # Errors
    /// As [`write_mesh`].
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        write_mesh(path, self, &[], &WriteOptions::default())
    }
}

/// Assembles the result of a reader, which has checked everything except the number of elements.
fn assemble(
    vertices: Vec<glam::DVec3>,
    faces: crate::Faces,
    attributes: Vec<VertexAttribute>,
    format: FileFormat,
) -> Parsed<MeshFile> {
    Ok(MeshFile {
        mesh: Mesh::new(vertices, faces).map_err(|e| FileProblem::Mesh(e).of_file())?,
        attributes,
        face_attributes: Vec::new(),
        notes: Vec::new(),
        format,
    })
}

/// Counts elements that a reader skips or corrects, for a note.
#[derive(Default)]
struct Tally {
    count: u64,
    first: Option<Location>,
}

impl Tally {
    fn add(&mut self, location: impl FnOnce() -> Location) {
        self.count += 1;
        self.first.get_or_insert_with(location);
    }

    /// The note `COUNT WHAT; the first is at PLACE`, if anything was counted.
    fn note(&self, what: &str) -> Option<String> {
        let first = self.first.as_ref()?;
        Some(format!(
            "{} {what}; the first is at {}",
            self.count,
            first.in_words()
        ))
    }
}

/// Checks an index that counts from 0.
fn vertex_index(index: i64, vertices: usize) -> Result<u32, FileProblem> {
    u32::try_from(index)
        .ok()
        .filter(|&vertex| (vertex as usize) < vertices)
        .ok_or(FileProblem::IndexOutOfRange {
            index,
            vertices,
            first: 0,
        })
}
