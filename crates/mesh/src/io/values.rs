//! Files with values for the vertices of a mesh: labels, curvature, thickness.

use std::path::Path;

use super::error::{FileError, FileProblem};
use super::format::{FileFormat, Source};
use super::{FORMATS, parse_mesh, read_regular_file};
use crate::VertexAttribute;

/// Values for the vertices of a mesh, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueFile {
    /// Columns with one value per vertex.
    pub attributes: Vec<VertexAttribute>,
    /// Names of labels, if the file has them.
    pub label_names: Vec<(i32, String)>,
    /// Content that was skipped, one sentence each, for the user.
    pub notes: Vec<String>,
    /// The detected format.
    pub format: FileFormat,
}

/// Reads values for the vertices of a mesh: GIFTI (`.label.gii`, `.shape.gii`, `.func.gii`),
/// FreeSurfer annotations (`.annot`) and values (`lh.curv`, `lh.thickness`, ...), or the vertex
/// attributes of a mesh file.
///
/// # Errors
/// The path does not name a readable regular file, or the file has no values for vertices.
pub fn read_values(path: impl AsRef<Path>) -> Result<ValueFile, FileError> {
    let path = path.as_ref();
    let bytes = read_regular_file(path).map_err(|problem| problem.of_file().in_file(path))?;
    parse_values(path, &bytes)
}

/// Reads values from memory, like [`read_values`]. The name decides the format of annotations and
/// of older FreeSurfer values, and names the column of FreeSurfer values.
///
/// ```
/// use gemcnn_mesh::{AttributeValues, parse_values};
/// // Two values in hundredths, in the older format.
/// let file = parse_values("lh.sulc".as_ref(), b"\0\0\x02\0\0\0\0\x64\xff\x9c")?;
/// assert_eq!(file.attributes[0].name, "sulc");
/// assert_eq!(file.attributes[0].values, AttributeValues::F32(vec![1.0, -1.0]));
/// # Ok::<(), gemcnn_mesh::FileError>(())
/// ```
///
/// # Errors
/// The file has no values for vertices.
pub fn parse_values(name: &Path, bytes: &[u8]) -> Result<ValueFile, FileError> {
    let source = Source::new(name, bytes, &|file| Err(FileProblem::external(file)));
    let parsed = match source.format() {
        Ok(format) => (format.read_values)(&source),
        // Older FreeSurfer values have no signature.
        Err(FileProblem::UnknownFormat { .. } | FileProblem::Utf16) => {
            FORMATS.iter().find_map(|format| (format.read_values)(&source))
        }
        Err(_) => None,
    };
    let file = match parsed {
        Some(parsed) => parsed.map_err(|fault| fault.in_file(name))?,
        None => {
            let file = parse_mesh(name, bytes)?;
            ValueFile { attributes: file.attributes, label_names: Vec::new(), notes: file.notes, format: file.format }
        }
    };
    if file.attributes.is_empty() { Err(FileProblem::NoValues.of_file().in_file(name)) } else { Ok(file) }
}
