//! Errors of mesh files, with their location.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::format::{FileFormat, Stores, one_of, writable_extensions};
use crate::MeshError;

/// Error of reading or writing a mesh file.
///
/// `Display` prints one line: the file, the location, the problem and a remedy.
///
/// ```
/// use gemcnn_mesh::parse_mesh;
/// let text = b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 4\n";
/// let error = parse_mesh("hat.obj".as_ref(), text).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "hat.obj:4: vertex index 4 is out of range, there are 3 vertices and they count from 1; \
///      correct the index, or export the mesh again",
/// );
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{}{location}: {problem}", .path.display())]
pub struct FileError {
    /// Path of the file.
    pub path: PathBuf,
    /// Location in the file.
    pub location: Location,
    /// The problem at that location.
    pub problem: FileProblem,
}

/// A location in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// The whole file.
    File,
    /// A line of text, counted from 1.
    Line(usize),
    /// An element of a binary file.
    Element {
        /// Kind of element: `vertex`, `face`, `triangle` or the name of a PLY element.
        kind: String,
        /// Index of the element, from 0.
        index: u64,
        /// Byte offset at which reading stopped, from the start of the file.
        byte: usize,
    },
    /// A byte offset, from 0.
    Byte(usize),
}

impl Location {
    /// The location as words in a sentence.
    pub(super) fn in_words(&self) -> String {
        match self {
            Self::File => "the start".to_owned(),
            Self::Line(line) => format!("line {line}"),
            Self::Element { kind, index, .. } => format!("{kind} {index}"),
            Self::Byte(byte) => format!("byte {byte}"),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => Ok(()),
            Self::Line(line) => write!(out, ":{line}"),
            Self::Element { kind, index, byte } => write!(out, ": {kind} {index} (byte {byte})"),
            Self::Byte(byte) => write!(out, ": byte {byte}"),
        }
    }
}

/// A problem with a mesh file. `Display` prints it with a remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileProblem {
    /// The operating system cannot read the file.
    #[error("cannot be read: {0}; check the path and the read permission")]
    Read(io::Error),
    /// The operating system cannot write the file.
    #[error("cannot be written: {0}; check that the folder exists, is writable and has free space")]
    Write(io::Error),
    /// The path does not name a regular file.
    #[error("the path is {what}, not a file; give the path of a mesh file")]
    NotAFile {
        /// Description of the path's target.
        what: &'static str,
    },
    /// The file is empty or contains only white space.
    #[error("the file is empty; export or download the mesh again")]
    Empty,
    /// The file is compressed.
    #[error("the file is compressed ({with}); unpack it first")]
    Compressed {
        /// Name of the compression format.
        with: &'static str,
    },
    /// The text is UTF-16.
    #[error("the file is UTF-16 text; save it as UTF-8 or ASCII")]
    Utf16,
    /// The format is not supported.
    #[error(
        "this is not a mesh file of a known format{}; use {}",
        .looks_like.map(|what| format!(", it looks like {what}")).unwrap_or_default(),
        formats_that(|_| true)
    )]
    UnknownFormat {
        /// Description of the likely format, if known.
        looks_like: Option<&'static str>,
    },
    /// The file is a MATLAB or HDF5 file.
    #[error(
        "this is a MATLAB or HDF5 file; in MATLAB, write the mesh with stlwrite(triangulation(faces, vertices), 'mesh.stl') and labels with writematrix(labels, 'mesh.csv')"
    )]
    Matlab,
    /// The file has statements, but no vertices.
    #[error("the file has no vertices; export or download the mesh again")]
    NoVertices,
    /// A variant of a format is not supported.
    #[error("{what} is not supported; convert the mesh to PLY or OBJ")]
    Unsupported {
        /// Description of the variant.
        what: String,
    },
    /// The header is inconsistent or violates the format.
    #[error("bad header: {why}; correct the header, or export the mesh again")]
    BadHeader {
        /// Description of the problem.
        why: String,
    },
    /// The XML or JSON of the file violates its grammar or lacks a required part.
    #[error("{why}; the file is damaged: copy or export it again")]
    BadDocument {
        /// Description of the problem.
        why: String,
    },
    /// Encoded or compressed data are damaged or have the wrong size.
    #[error("{why}; the file is damaged: copy or export it again")]
    BadData {
        /// Description of the problem.
        why: &'static str,
    },
    /// Compressed data would expand to far more than the file.
    #[error(
        "the compressed data expand to more than 64 times the size of the file; write the file without compression"
    )]
    ExpandsTooMuch,
    /// The file has values for the vertices of a mesh, but no mesh.
    #[error(
        "{format} file without a surface: it has values for the vertices of a mesh in another file; give the file of the surface, and this one as its values (`--values` of `gemcnn mesh convert`)"
    )]
    ValuesOnly {
        /// The format.
        format: FileFormat,
    },
    /// The file has a surface, but no values for its vertices.
    #[error("the file has no values for vertices; give a file with labels or values, such as .annot or .label.gii")]
    NoValues,
    /// Other files that the file refers to are not read.
    #[error("the data are in another file, '{file}'; export the mesh as one file, for glTF as .glb")]
    ExternalData {
        /// Name of the other file.
        file: String,
    },
    /// Another file with data of the mesh cannot be read.
    #[error(
        "the data are in another file, '{file}', which cannot be read: {source}; copy it to its place next to the mesh file, or export the mesh as one file, for glTF as .glb"
    )]
    DataFile {
        /// Name of the other file, relative to the folder of the mesh file.
        file: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another file with data of the mesh is not in the folder of the mesh file.
    #[error(
        "the data are in '{file}', which is not in the folder of the mesh file; move it there and correct the name in the mesh file, or export the mesh as one file, for glTF as .glb"
    )]
    OutsideFolder {
        /// Name of the other file.
        file: String,
    },
    /// The scene repeats its meshes or values so often that it is far larger than the file.
    #[error(
        "the scene repeats meshes or values so often that it has {vertices} vertices, far more than there are data; export only the meshes that are needed"
    )]
    SceneTooLarge {
        /// Number of vertices of the scene.
        vertices: u64,
    },
    /// The header declares more elements than the remaining bytes can hold.
    #[error(
        "{declared} elements '{element}' are declared, but the file of {file_size} bytes can hold at most {capacity}; the file is truncated or its header is wrong: copy or export it again"
    )]
    CountTooLarge {
        /// Name of the element.
        element: String,
        /// Declared number of elements.
        declared: u64,
        /// Maximum number of elements in the remaining bytes.
        capacity: u64,
        /// Size of the file in bytes.
        file_size: usize,
    },
    /// The file ends before the last declared element.
    #[error(
        "the file ends after {read} of {declared} elements '{element}'; the file is truncated or its header is wrong: copy or export it again"
    )]
    Truncated {
        /// Name of the element.
        element: String,
        /// Number of complete elements.
        read: u64,
        /// Declared number of elements.
        declared: u64,
    },
    /// The text ends inside a statement.
    #[error(
        "unexpected end of file, expected {expected}; the file is truncated or its header is wrong: copy or export it again"
    )]
    EndsEarly {
        /// Description of the missing part.
        expected: &'static str,
    },
    /// A word is not a number of the required kind.
    #[error("'{found}' is not {expected}; correct it (examples: 12, -0.5, 1.5e-3)")]
    BadNumber {
        /// The word.
        found: String,
        /// Description of the required number.
        expected: &'static str,
    },
    /// A coordinate is NaN or infinite.
    #[error(
        "the coordinate '{found}' is not finite; use finite coordinates, or remove the vertex in the program that wrote the mesh"
    )]
    NotFinite {
        /// The coordinate as written in the file.
        found: String,
    },
    /// A line has too few or too many values.
    #[error("{found} values, expected {expected}; correct the line, or export the mesh again")]
    ValueCount {
        /// Number of values.
        found: usize,
        /// Description of the expected values.
        expected: &'static str,
    },
    /// A line has too few values for its element.
    #[error("the line has too few values for an element '{element}'; correct the line, or export the mesh again")]
    TooFewValues {
        /// Name of the element.
        element: String,
    },
    /// A line has values after the last property of its element.
    #[error("'{found}' follows the last value of an element '{element}'; correct the line, or export the mesh again")]
    TooManyValues {
        /// The first extra word.
        found: String,
        /// Name of the element.
        element: String,
    },
    /// A word is not allowed at this position.
    #[error("found '{found}', expected {expected}; correct it, or export the mesh again")]
    Unexpected {
        /// The word.
        found: String,
        /// Description of the expected word.
        expected: &'static str,
    },
    /// Index 0 in a format whose indices start at 1.
    #[error("vertex index 0: OBJ indices start at 1; add 1 to every index if the file counts from 0")]
    ZeroIndex,
    /// A face refers to a vertex that does not exist.
    #[error(
        "vertex index {index} is out of range, there are {vertices} vertices and they count from {first}; correct the index, or export the mesh again"
    )]
    IndexOutOfRange {
        /// The index as written in the file.
        index: i64,
        /// Number of vertices; for a negative index, the number before that line.
        vertices: usize,
        /// Index of the first vertex in this format.
        first: u8,
    },
    /// A face has fewer than three corners.
    #[error("the face has {corners} corner(s), it needs at least 3; remove the face; points and lines are not faces")]
    ShortFace {
        /// Number of corners.
        corners: usize,
    },
    /// A list has a negative length.
    #[error("a list has the length {length}; the file is damaged: copy or export it again")]
    NegativeLength {
        /// The invalid length.
        length: i64,
    },
    /// The vertices and faces are not a valid mesh.
    #[error("{0}; split the mesh, or export it again")]
    Mesh(MeshError),
    /// The file name does not have the extension of a format that can be written.
    #[error("the name does not have the extension of a format that can be written; use {}", formats_that(|_| true))]
    UnknownExtension,
    /// The format cannot store vertex attributes.
    #[error("{format} files cannot store vertex attributes; use {}", formats_that(|stores| stores.vertex_attributes))]
    AttributesNotHeld {
        /// The format.
        format: FileFormat,
    },
    /// An attribute has a name that a PLY property cannot have.
    #[error("an attribute cannot be named '{name}': {why}; rename it")]
    AttributeName {
        /// The name.
        name: String,
        /// Reason why the name is invalid.
        why: &'static str,
    },
    /// The number of values of an attribute differs from the number of vertices.
    #[error("attribute '{name}' has {values} values for {elements} elements; give one value per vertex or face")]
    AttributeLength {
        /// Name of the attribute.
        name: String,
        /// Number of values.
        values: usize,
        /// Number of vertices or faces.
        elements: usize,
    },
    /// The format cannot store face attributes.
    #[error("{format} files cannot store face attributes; use {}", formats_that(|stores| stores.face_attributes))]
    FaceAttributesNotHeld {
        /// The format.
        format: FileFormat,
    },
    /// A coordinate is too large for the single precision of a format.
    #[error(
        "vertex {vertex} has the coordinate {value:e}, which is too large for {format}; use {}",
        formats_that(|stores| stores.double_precision)
    )]
    CoordinateNotHeld {
        /// Index of the vertex, from 0.
        vertex: usize,
        /// The coordinate.
        value: f64,
        /// The format.
        format: FileFormat,
    },
    /// A value cannot be stored without a change.
    #[error(
        "attribute '{name}' has the integer {value}, which {format} files cannot store; use {}",
        formats_that(|stores| stores.vertex_attributes && stores.double_precision)
    )]
    ValueNotHeld {
        /// Name of the attribute.
        name: String,
        /// The value.
        value: f64,
        /// The format.
        format: FileFormat,
    },
}

impl FileProblem {
    /// A variant of a format that is not supported.
    pub(super) fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into() }
    }

    /// A version of glTF that is not read.
    pub(super) fn unsupported_gltf(version: &dyn fmt::Display) -> Self {
        Self::unsupported(format!("glTF version {version} (only 2.0 is)"))
    }

    /// Damaged data.
    pub(super) fn bad_data(why: &'static str) -> Self {
        Self::BadData { why }
    }

    /// Another file that is not read.
    pub(super) fn external(file: &str) -> Self {
        Self::ExternalData { file: quote_name(file) }
    }

    /// A position with a coordinate that is NaN or infinite.
    pub(super) fn not_finite(position: glam::DVec3) -> Self {
        let [x, y, z] = position.to_array();
        Self::NotFinite { found: format!("{x:?} {y:?} {z:?}") }
    }

    /// The problem with the location of a line of text.
    pub(super) fn at_line(self, line: usize) -> Box<Fault> {
        self.at(Location::Line(line))
    }

    /// The problem with the whole file as its location.
    pub(super) fn of_file(self) -> Box<Fault> {
        self.at(Location::File)
    }

    /// The problem with the given location.
    pub(super) fn at(self, location: Location) -> Box<Fault> {
        Box::new(Fault { location, problem: self })
    }
}

/// Extensions of the formats that store what is needed, as a choice.
fn formats_that(needed: impl Fn(Stores) -> bool) -> String {
    one_of(&writable_extensions(needed))
}

/// A [`FileError`] without its path.
#[derive(Debug)]
pub(super) struct Fault {
    location: Location,
    problem: FileProblem,
}

impl Fault {
    pub(super) fn in_file(self, path: &Path) -> FileError {
        FileError { path: path.to_path_buf(), location: self.location, problem: self.problem }
    }
}

/// Result of the parsers. The error is boxed to keep the result small.
pub(super) type Parsed<T> = Result<T, Box<Fault>>;

/// A word of a file for a one-line message: printable and of limited length.
pub(super) fn quote(word: &[u8]) -> String {
    shortened(word, 40)
}

/// The name of a file for a one-line message, like [`quote`].
pub(super) fn quote_name(name: &str) -> String {
    shortened(name.as_bytes(), 120)
}

fn shortened(word: &[u8], longest: usize) -> String {
    let mut text: String =
        String::from_utf8_lossy(&word[..word.len().min(longest)]).chars().flat_map(char::escape_debug).collect();
    if word.len() > longest {
        text.push_str("...");
    }
    text
}
