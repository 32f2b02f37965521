//! What can be wrong with a mesh file, and where.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::FileFormat;
use crate::MeshError;

/// Why a mesh file cannot be read or written.
///
/// It prints as one line: the file, the place in it, what is wrong and what to do.
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
#[error("{}{location}: {problem}; {}", .path.display(), .problem.advice())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The place in the file.
    pub location: Location,
    /// What is wrong there.
    pub problem: FileProblem,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// The file as a whole.
    File,
    /// A line of text, from 1.
    Line(usize),
    /// An element of a binary file.
    Element {
        /// What it is: `vertex`, `face`, `triangle` or the name of a PLY element.
        kind: String,
        /// Its index, from 0.
        index: u64,
        /// Where reading stopped, in bytes from the start of the file.
        byte: usize,
    },
    /// A byte, from 0.
    Byte(usize),
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

/// What is wrong with a mesh file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileProblem {
    /// The operating system refuses to read it.
    #[error("cannot be read: {0}")]
    Read(io::Error),
    /// The operating system refuses to write it.
    #[error("cannot be written: {0}")]
    Write(io::Error),
    /// The path names something else than a regular file.
    #[error("this is {what}, not a file")]
    NotAFile {
        /// What it is.
        what: &'static str,
    },
    /// There is nothing in it, or only white space.
    #[error("the file is empty")]
    Empty,
    /// The content is a compressed archive.
    #[error("the file is compressed ({with})")]
    Compressed {
        /// With what.
        with: &'static str,
    },
    /// The text is UTF-16.
    #[error("the file is UTF-16 text")]
    Utf16,
    /// The content is none of the formats that are read.
    #[error("this is not an OBJ, PLY, OFF or STL file{}", .looks_like.map(|what| format!(", it looks like {what}")).unwrap_or_default())]
    UnknownFormat {
        /// What it looks like, if that is known.
        looks_like: Option<&'static str>,
    },
    /// Statements, but none that makes a vertex.
    #[error("the file has no vertices")]
    NoVertices,
    /// A variant of a format that is not read.
    #[error("{what} is not supported")]
    Unsupported {
        /// The variant.
        what: String,
    },
    /// The header contradicts itself or the format.
    #[error("bad header: {why}")]
    BadHeader {
        /// How.
        why: String,
    },
    /// More elements are declared than the bytes that follow can hold.
    #[error(
        "{declared} elements '{element}' are declared, but the file of {file_size} bytes has room for at most {room}"
    )]
    CountTooLarge {
        /// The element.
        element: String,
        /// How many are declared.
        declared: u64,
        /// How many the remaining bytes can hold.
        room: u64,
        /// Size of the file in bytes.
        file_size: usize,
    },
    /// The file ends early.
    #[error("the file ends after {read} of {declared} elements '{element}'")]
    Truncated {
        /// The element that was being read.
        element: String,
        /// How many were read whole.
        read: u64,
        /// How many are declared.
        declared: u64,
    },
    /// The text ends inside a statement.
    #[error("the file ends where {expected} should follow")]
    EndsEarly {
        /// What should follow.
        expected: &'static str,
    },
    /// A word that is not a number of the kind needed.
    #[error("'{found}' is not {expected}")]
    BadNumber {
        /// The word.
        found: String,
        /// The kind of number.
        expected: &'static str,
    },
    /// A coordinate is NaN or infinite.
    #[error("the coordinate '{found}' is not finite")]
    NotFinite {
        /// The coordinate.
        found: String,
    },
    /// A line has too few or too many values.
    #[error("{found} values where {expected} should be")]
    ValueCount {
        /// How many there are.
        found: usize,
        /// What should be there.
        expected: &'static str,
    },
    /// A line of an element ends early.
    #[error("the line has too few values for an element '{element}'")]
    TooFewValues {
        /// The element.
        element: String,
    },
    /// A line of an element goes on after its last property.
    #[error("'{found}' follows the last value of an element '{element}'")]
    TooManyValues {
        /// The first word that is too much.
        found: String,
        /// The element.
        element: String,
    },
    /// A word that the format does not allow here.
    #[error("'{found}' stands where {expected} should be")]
    Unexpected {
        /// The word.
        found: String,
        /// What should be there.
        expected: &'static str,
    },
    /// Index 0 in a format that counts from 1.
    #[error("vertex index 0: OBJ counts vertices from 1")]
    ZeroIndex,
    /// A face names a vertex that does not exist.
    #[error(
        "vertex index {index} is out of range, there are {vertices} vertices and they count from {first}"
    )]
    IndexOutOfRange {
        /// The index, as in the file.
        index: i64,
        /// How many vertices there are (for a negative index: before that line).
        vertices: usize,
        /// Index of the first vertex in that format.
        first: u8,
    },
    /// A face has fewer than three corners.
    #[error("the face has {corners} corner(s), it needs at least 3")]
    ShortFace {
        /// How many corners it has.
        corners: usize,
    },
    /// A list has a negative length.
    #[error("a list has the length {length}")]
    NegativeLength {
        /// The length.
        length: i64,
    },
    /// Vertices and faces make no mesh.
    #[error(transparent)]
    Mesh(MeshError),
    /// The file name does not tell a format that can be written.
    #[error("the name does not end in .ply, .obj or .off")]
    UnknownExtension,
    /// Vertex attributes given to a format that has no place for them.
    #[error("{format} files cannot hold vertex attributes")]
    AttributesNotHeld {
        /// The format.
        format: FileFormat,
    },
    /// The name of an attribute cannot be the name of a property.
    #[error("an attribute cannot be named '{name}': {why}")]
    AttributeName {
        /// The name.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// An attribute does not have one value for each vertex.
    #[error("attribute '{name}' has {values} values for {vertices} vertices")]
    AttributeLength {
        /// Its name.
        name: String,
        /// How many values it has.
        values: usize,
        /// How many vertices the mesh has.
        vertices: usize,
    },
}

impl FileProblem {
    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Read(_) => "check that the path is right and that you may read it",
            Self::Write(_) => "check that the folder exists, is writable and has room",
            Self::NotAFile { .. } => "give the path of a mesh file",
            Self::Empty | Self::NoVertices => "export or download the mesh again",
            Self::Compressed { .. } => "unpack it first",
            Self::Utf16 => "save it as UTF-8 or ASCII",
            Self::UnknownFormat { .. } => "convert the mesh to PLY, OBJ, OFF or STL",
            Self::Unsupported { .. } => "convert the mesh to PLY or OBJ",
            Self::BadHeader { .. } => "correct the header, or export the mesh again",
            Self::CountTooLarge { .. } | Self::Truncated { .. } | Self::EndsEarly { .. } => {
                "the file is cut short or its header is wrong: copy or export it again"
            }
            Self::BadNumber { .. } => "correct it (numbers look like 12, -0.5 or 1.5e-3)",
            Self::NotFinite { .. } => {
                "give every vertex finite coordinates, or drop it where the mesh was made"
            }
            Self::ValueCount { .. } | Self::TooFewValues { .. } | Self::TooManyValues { .. } => {
                "correct the line, or export the mesh again"
            }
            Self::Unexpected { .. } => "correct it, or export the mesh again",
            Self::ZeroIndex => "add 1 to every index if the file counts from 0",
            Self::IndexOutOfRange { .. } => "correct the index, or export the mesh again",
            Self::ShortFace { .. } => "remove the face, or write points and lines elsewhere",
            Self::NegativeLength { .. } => "the file is damaged: copy or export it again",
            Self::Mesh(_) => "split the mesh, or export it again",
            Self::UnknownExtension => "choose one of these",
            Self::AttributesNotHeld { .. } => "write a .ply file, or leave the attributes out",
            Self::AttributeName { .. } => "rename it",
            Self::AttributeLength { .. } => "give one value for each vertex",
        }
    }

    /// The problem at a line of text.
    pub(super) fn at_line(self, line: usize) -> Box<Fault> {
        self.at(Location::Line(line))
    }

    /// The problem of the file as a whole.
    pub(super) fn of_file(self) -> Box<Fault> {
        self.at(Location::File)
    }

    /// The problem at some place.
    pub(super) fn at(self, location: Location) -> Box<Fault> {
        Box::new(Fault {
            location,
            problem: self,
        })
    }
}

/// A [`FileError`] before the path is known.
#[derive(Debug)]
pub(super) struct Fault {
    location: Location,
    problem: FileProblem,
}

impl Fault {
    pub(super) fn in_file(self, path: &Path) -> FileError {
        FileError {
            path: path.to_path_buf(),
            location: self.location,
            problem: self.problem,
        }
    }
}

/// Result of the parsers; the error is boxed to keep the good path small.
pub(super) type Parsed<T> = Result<T, Box<Fault>>;

/// A word of a file as it may stand in a one-line message: printable and not too long.
pub(super) fn quote(word: &[u8]) -> String {
    const LONGEST: usize = 40;
    let mut text: String = String::from_utf8_lossy(&word[..word.len().min(LONGEST)])
        .chars()
        .flat_map(char::escape_debug)
        .collect();
    if word.len() > LONGEST {
        text.push_str("...");
    }
    text
}
