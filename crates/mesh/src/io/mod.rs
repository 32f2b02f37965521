//! Mesh files: reads all [`FORMATS`], and writes those with [`writable_extensions`].
//!
//! Every reader works on the bytes of the whole file and keeps the order of vertices and faces.
//! Memory and time are proportional to the size of the file, whatever its header declares.

mod atomic;
mod base64;
mod budget;
mod colour;
mod cursor;
mod error;
mod fields;
mod format;
mod inflate;
mod scalar;
mod text;
mod values;
mod xml;

/// Declares the formats, each in a module of its own with a constant `FORMAT`. Formats with a signature are tried first,
/// in this order.
macro_rules! formats {
    ($($module:ident)*) => {
        $(mod $module;)*

        /// All formats.
        pub const FORMATS: &[&Format] = &[$(&$module::FORMAT),*];
    };
}

formats! { ply obj off stl vtk gltf gmsh gifti freesurfer }

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

pub use atomic::{SharedFolder, is_leftover, read_file, read_text, remove_leftovers, write_atomically};
pub use error::{FileError, FileProblem, Location};
pub use fields::vector_name;
pub use format::{
    FileFormat, Format, Stores, has_mesh_name, has_value_name, one_of, readable_formats, stored_in, writable_extensions,
};
pub use ply::PlyEncoding;
pub use values::{ValueFile, parse_values, read_values};

use crate::{Mesh, VertexAttribute};
use error::Parsed;
use format::{Content, ReadOther, Source, writer_of};

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
    parse_mesh_file(path, &bytes)
}

/// Reads a mesh file whose bytes are known. The files with its data ([`data_files`]) are read.
///
/// # Errors
/// The content is not a valid mesh file, or a file with its data cannot be read.
pub fn parse_mesh_file(path: &Path, bytes: &[u8]) -> Result<MeshFile, FileError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    parse_with(path, bytes, &|name| {
        let refuse = |source| FileProblem::DataFile { file: error::quote_name(name), source };
        read_file(&folder.join(name)).map_err(refuse)
    })
}

/// The other files with data of a mesh file, given its content: those of glTF buffers, in the folder of the mesh file
/// or below it. They may not exist.
pub fn data_files(path: &Path, bytes: &[u8]) -> Vec<PathBuf> {
    let folder = path.parent().unwrap_or(Path::new(""));
    gltf::data_files(without_mark(bytes)).iter().map(|name| folder.join(name)).collect()
}

/// Reads a mesh file from memory. `name` appears in error messages; its extension decides the
/// format if the content is ambiguous. Other files that it refers to are not read;
/// [`parse_mesh_file`] reads the buffers of a `.gltf` file.
///
/// ```
/// use gemcnn_mesh::{FileFormat, parse_mesh};
/// let file = parse_mesh("pair".as_ref(), b"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n")?;
/// assert_eq!(file.format, FileFormat::OFF);
/// assert_eq!(file.mesh.face(0), [0, 1, 2]);
/// # Ok::<(), gemcnn_mesh::FileError>(())
/// ```
///
/// # Errors
/// The content is not a valid mesh file.
pub fn parse_mesh(name: &Path, bytes: &[u8]) -> Result<MeshFile, FileError> {
    parse_with(name, bytes, &|file| Err(FileProblem::external(file)))
}

fn parse_with(name: &Path, bytes: &[u8], read_other: ReadOther) -> Result<MeshFile, FileError> {
    let source = Source::new(name, without_mark(bytes), read_other);
    let format = source.format().map_err(|problem| problem.of_file().in_file(name))?;
    (format.read)(&source).map_err(|fault| fault.in_file(name))
}

/// The content without the byte order mark of UTF-8.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// Reads a regular file. A folder has no content, and a pipe or device may never end.
fn read_regular_file(path: &Path) -> Result<Vec<u8>, FileProblem> {
    let metadata = fs::metadata(path).map_err(FileProblem::Read)?;
    if metadata.is_dir() {
        return Err(FileProblem::NotAFile { what: "a folder" });
    }
    if !metadata.is_file() {
        return Err(FileProblem::NotAFile { what: "a device, pipe or socket" });
    }
    fs::read(path).map_err(FileProblem::Read)
}

/// Writes a mesh in the format of the extension, which is one of [`writable_extensions`]. The write is atomic.
///
/// Reading PLY, VTP, OBJ and OFF files returns bit-identical coordinates and the same polygons. STL
/// and GLB store triangles in single precision; STL files have no unused vertices. PLY, VTP and GLB
/// store attributes.
///
/// # Errors
/// The extension is unknown, the format cannot store the attributes, the attributes do not fit the
/// mesh, a coordinate is too large for single precision, or the file cannot be written.
pub fn write_mesh(
    path: impl AsRef<Path>,
    mesh: &Mesh,
    attributes: &[VertexAttribute],
    options: &WriteOptions,
) -> Result<(), FileError> {
    write_mesh_with_faces(path, mesh, attributes, &[], options)
}

/// Writes a mesh with attributes of vertices and of faces, like [`write_mesh`]. PLY and VTP store
/// attributes of faces.
pub fn write_mesh_with_faces(
    path: impl AsRef<Path>,
    mesh: &Mesh,
    attributes: &[VertexAttribute],
    face_attributes: &[VertexAttribute],
    options: &WriteOptions,
) -> Result<(), FileError> {
    let path = path.as_ref();
    let fail = |problem: FileProblem| problem.of_file().in_file(path);
    let writer = writer_of(path).ok_or_else(|| fail(FileProblem::UnknownExtension))?;
    let format = writer.format;
    if !attributes.is_empty() && !writer.stores.vertex_attributes {
        return Err(fail(FileProblem::AttributesNotHeld { format }));
    }
    if !face_attributes.is_empty() && !writer.stores.face_attributes {
        return Err(fail(FileProblem::FaceAttributesNotHeld { format }));
    }
    check_attributes(attributes, &["x", "y", "z"], mesh.vertex_count()).map_err(fail)?;
    let reserved = ["vertex_indices", "vertex_index"];
    check_attributes(face_attributes, &reserved, mesh.face_count()).map_err(fail)?;
    let write = (writer.encode)(Content { mesh, attributes, face_attributes, options }).map_err(fail)?;
    write_atomically(path, write).map_err(|error| fail(FileProblem::Write(error)))
}

/// Checks that all coordinates are finite in single precision.
fn check_single_precision(mesh: &Mesh, format: FileFormat) -> Result<(), FileProblem> {
    for (vertex, position) in mesh.vertices().iter().enumerate() {
        if let Some(value) = position.to_array().into_iter().find(|&value| !(value as f32).is_finite()) {
            return Err(FileProblem::CoordinateNotHeld { vertex, value, format });
        }
    }
    Ok(())
}

/// Checks that attributes have names that can be PLY properties next to the reserved ones, and one
/// value for each of `elements` elements.
fn check_attributes(attributes: &[VertexAttribute], reserved: &[&str], elements: usize) -> Result<(), FileProblem> {
    let mut names: HashSet<&str> = reserved.iter().copied().collect();
    for VertexAttribute { name, values } in attributes {
        let why = if name.is_empty() {
            Some("it is empty")
        } else if name.starts_with('#') {
            Some("it starts a comment")
        } else if name.bytes().any(|b| b == b' ' || b.is_ascii_control()) {
            Some("it contains white space or control characters")
        } else if !names.insert(name) {
            Some("the name is already used")
        } else {
            None
        };
        if let Some(why) = why {
            return Err(FileProblem::AttributeName { name: error::quote(name.as_bytes()), why });
        }
        if values.len() != elements {
            return Err(FileProblem::AttributeLength { name: name.clone(), values: values.len(), elements });
        }
    }
    Ok(())
}

impl Mesh {
    /// Reads the mesh of a file. [`read_mesh`] returns its attributes as well.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, FileError> {
        read_mesh(path).map(|file| file.mesh)
    }

    /// Writes the mesh without attributes. [`write_mesh`] has more options.
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
        Some(format!("{} {what}; the first is at {}", self.count, first.in_words()))
    }
}

/// Checks an index that counts from 0.
fn vertex_index(index: i64, vertices: usize) -> Result<u32, FileProblem> {
    u32::try_from(index).ok().filter(|&vertex| (vertex as usize) < vertices).ok_or(FileProblem::IndexOutOfRange {
        index,
        vertices,
        first: 0,
    })
}

/// Converts a strip to triangles: every corner after the second forms a triangle with the two before
/// it; every other triangle is reversed. A corner repeated to join strips forms none.
fn push_strip(corners: &[u32], faces: &mut crate::Faces) {
    for (at, &[a, b, c]) in corners.array_windows().enumerate() {
        if a != b && b != c && c != a {
            faces.push(&if at % 2 == 0 { [a, b, c] } else { [b, a, c] });
        }
    }
}
