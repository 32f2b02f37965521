//! The properties of a file format, and its detection by content. The extension decides only if the content is
//! ambiguous.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use super::error::{FileProblem, Parsed};
use super::text::{Lines, is_space};
use super::{FORMATS, MeshFile, ValueFile, WriteOptions};
use crate::{Mesh, VertexAttribute};

/// A family of mesh files, such as PLY or VTK. Each is a constant in the module of its reader, and a word in the list
/// [`FORMATS`].
pub struct Format {
    /// Name, for users.
    pub name: &'static str,
    /// Extensions of mesh files, in lower case. Files are written with the first.
    pub extensions: &'static [&'static str],
    /// Extensions of files that have values for the vertices of a mesh, but no mesh.
    pub value_extensions: &'static [&'static str],
    /// True if a file is certainly of the format.
    pub(super) has_signature: fn(&Source) -> bool,
    /// True if a text without signature is of the format, given its first word and whether the file has an extension of
    /// the format. The word is empty if there are only comments.
    pub(super) starts_with: fn(&[u8], bool) -> bool,
    pub(super) read: fn(&Source) -> Parsed<MeshFile>,
    /// Reads the values of a file without a mesh; `None` if it is not such a file.
    pub(super) read_values: fn(&Source) -> Option<Parsed<ValueFile>>,
    /// `None` for formats that are only read.
    pub(super) writer: Option<Writer>,
}

impl Format {
    /// A format with a reader alone.
    pub(super) const fn new(
        name: &'static str,
        extensions: &'static [&'static str],
        read: fn(&Source) -> Parsed<MeshFile>,
    ) -> Self {
        Self {
            name,
            extensions,
            value_extensions: &[],
            has_signature: |_| false,
            starts_with: |_, _| false,
            read,
            read_values: |_| None,
            writer: None,
        }
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

/// How files of a format are written.
pub(super) struct Writer {
    /// The format of the files, for messages.
    pub format: FileFormat,
    pub stores: Stores,
    /// Checks that the format can store the content; the result writes it.
    pub encode: for<'a> fn(Content<'a>) -> Result<Encoded<'a>, FileProblem>,
}

/// Writes the content of a file.
pub(super) type Encoded<'a> = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + 'a>;

/// A mesh to be written, with its attributes.
#[derive(Clone, Copy)]
pub(super) struct Content<'a> {
    pub mesh: &'a Mesh,
    pub attributes: &'a [VertexAttribute],
    pub face_attributes: &'a [VertexAttribute],
    pub options: &'a WriteOptions,
}

/// What a format stores besides polygons with positions in single precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stores {
    /// True if the format has a place for attributes of vertices.
    pub vertex_attributes: bool,
    /// True if the format has a place for attributes of faces.
    pub face_attributes: bool,
    /// True if coordinates are in double precision.
    pub double_precision: bool,
}

impl Stores {
    /// Positions in double precision and polygons, nothing else.
    pub(super) const MESH: Self = Self { vertex_attributes: false, face_attributes: false, double_precision: true };
}

/// A mesh file format, with its encoding. `Display` prints its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileFormat(&'static str);

impl FileFormat {
    pub(super) const fn named(name: &'static str) -> Self {
        Self(name)
    }
}

impl fmt::Display for FileFormat {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

/// True if the name is that of a mesh file in a format that [`read_mesh`](crate::read_mesh) reads.
/// It decides which files of a folder are meshes; reading goes by the content.
///
/// ```
/// use gemcnn_mesh::has_mesh_name;
/// assert!(has_mesh_name("scan.VTP".as_ref()) && has_mesh_name("sub-1/lh.pial".as_ref()));
/// assert!(!has_mesh_name("lh.label.gii".as_ref()) && !has_mesh_name("labels.csv".as_ref()));
/// ```
pub fn has_mesh_name(path: &Path) -> bool {
    let extension = extension(path);
    FORMATS.iter().any(|format| format.extensions.contains(&extension.as_str())) && !has_value_name(path)
}

/// True if the name is that of a file with values for the vertices of a mesh, but no mesh.
///
/// ```
/// use gemcnn_mesh::has_value_name;
/// assert!(has_value_name("lh.label.gii".as_ref()) && has_value_name("lh.thickness".as_ref()));
/// assert!(!has_value_name("lh.surf.gii".as_ref()) && !has_value_name("labels.csv".as_ref()));
/// ```
pub fn has_value_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let has = |extension: &&str| name.strip_suffix(extension).is_some_and(|stem| stem.ends_with('.'));
    FORMATS.iter().any(|format| format.value_extensions.iter().any(has))
}

/// The formats of meshes that are read, with their extensions, as text for a message.
pub fn readable_formats() -> String {
    let described = |format: &&Format| format!("{} ({})", format.name, dotted(format.extensions).join(", "));
    FORMATS.iter().map(described).collect::<Vec<_>>().join(", ")
}

/// Extensions of the formats that can be written and that store what is needed.
///
/// ```
/// use gemcnn_mesh::{one_of, writable_extensions};
/// assert_eq!(writable_extensions(|stores| stores.face_attributes), ["ply", "vtp"]);
/// assert_eq!(one_of(&writable_extensions(|stores| stores.vertex_attributes)), ".ply, .vtp or .glb");
/// ```
pub fn writable_extensions(needed: impl Fn(Stores) -> bool) -> Vec<&'static str> {
    let stores = |format: &&&Format| format.writer.as_ref().is_some_and(|writer| needed(writer.stores));
    FORMATS.iter().filter(stores).map(|format| format.extensions[0]).collect()
}

/// Extensions as a choice, for a message: `.ply, .vtp or .glb`.
pub fn one_of(extensions: &[&str]) -> String {
    let mut extensions = dotted(extensions);
    match (extensions.pop(), extensions.is_empty()) {
        (Some(last), false) => format!("{} or {last}", extensions.join(", ")),
        (last, _) => last.unwrap_or_default(),
    }
}

fn dotted(extensions: &[&str]) -> Vec<String> {
    extensions.iter().map(|extension| format!(".{extension}")).collect()
}

/// What [`write_mesh`](crate::write_mesh) stores in a file with this extension; `None` if the format cannot be written.
///
/// ```
/// assert!(gemcnn_mesh::stored_in("a.vtp".as_ref()).unwrap().face_attributes);
/// assert!(!gemcnn_mesh::stored_in("a.stl".as_ref()).unwrap().vertex_attributes);
/// assert!(gemcnn_mesh::stored_in("a.msh".as_ref()).is_none());
/// ```
pub fn stored_in(path: &Path) -> Option<Stores> {
    writer_of(path).map(|writer| writer.stores)
}

/// The writer for the extension of a file.
pub(super) fn writer_of(path: &Path) -> Option<&'static Writer> {
    let extension = extension(path);
    FORMATS.iter().find(|format| format.extensions[0] == extension)?.writer.as_ref()
}

/// A file to be read.
pub(super) struct Source<'a> {
    pub content: &'a [u8],
    /// The extension in lower case, or an empty string.
    pub extension: String,
    pub read_other: ReadOther<'a>,
}

/// Reads another file, given by its name relative to the mesh file.
pub(super) type ReadOther<'a> = &'a dyn Fn(&str) -> Result<Vec<u8>, FileProblem>;

impl<'a> Source<'a> {
    pub(super) fn new(path: &Path, content: &'a [u8], read_other: ReadOther<'a>) -> Self {
        Self { content, extension: extension(path), read_other }
    }

    /// Detects the format.
    pub(super) fn format(&self) -> Result<&'static Format, FileProblem> {
        let Self { content, .. } = *self;
        if content.is_empty() {
            return Err(FileProblem::Empty);
        }
        if let Some(format) = FORMATS.iter().find(|format| (format.has_signature)(self)) {
            return Ok(format);
        }
        if let Some((_, with)) = ARCHIVES.iter().find(|(signature, _)| content.starts_with(signature)) {
            return Err(FileProblem::Compressed { with });
        }
        if content.starts_with(b"MATLAB ") || content.starts_with(b"\x89HDF") || self.extension == "mat" {
            return Err(FileProblem::Matlab);
        }
        if is_utf16(content) {
            return Err(FileProblem::Utf16);
        }
        if content.iter().all(|&b| is_space(b)) {
            return Err(FileProblem::Empty);
        }
        let first = Lines::new(content).next_words().and_then(|words| words.peek()).unwrap_or_default();
        if let Some(format) = FORMATS.iter().find(|format| (format.starts_with)(first, false)) {
            return Ok(format);
        }
        if let Some(&(_, what)) = UNSUPPORTED_SIGNATURES.iter().find(|(signature, _)| content.starts_with(signature)) {
            return Err(FileProblem::UnknownFormat { looks_like: Some(what) });
        }
        let mut named = FORMATS.iter().filter(|format| format.extensions.contains(&self.extension.as_str()));
        let format = named.find(|format| (format.starts_with)(first, true));
        format.copied().ok_or(FileProblem::UnknownFormat { looks_like: None })
    }
}

/// Signatures of compressed files and archives.
const ARCHIVES: [(&[u8], &str); 6] = [
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "zip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
];

/// Signatures of other file types that often contain meshes.
const UNSUPPORTED_SIGNATURES: [(&[u8], &str); 6] = [
    (b"{", "JSON"),
    (b"<", "XML or HTML"),
    (b"Kaydara FBX", "an FBX file"),
    (b"; FBX", "an FBX file"),
    (b"BLENDER", "a Blender file"),
    (b"\x89PNG", "a PNG picture"),
];

/// The extension in lower case, or an empty string.
pub(super) fn extension(path: &Path) -> String {
    path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

/// True for a UTF-16 byte order mark, or for text in which every second byte is zero.
fn is_utf16(content: &[u8]) -> bool {
    let start = &content[..content.len().min(32)];
    let is_text = |byte: u8| is_space(byte) || (b' '..=b'~').contains(&byte);
    let pairs =
        |low: usize| start.len() >= 8 && start.chunks_exact(2).all(|pair| is_text(pair[low]) && pair[1 - low] == 0);
    content.starts_with(b"\xff\xfe") || content.starts_with(b"\xfe\xff") || pairs(0) || pairs(1)
}
