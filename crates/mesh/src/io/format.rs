//! Detection of file formats by content. The extension decides only if the content is ambiguous.

use std::fmt;
use std::path::Path;

use super::error::FileProblem;
use super::text::{Lines, is_space};
use super::{freesurfer, gifti, gltf, gmsh, off, ply, stl, vtk};

/// A mesh file format, with its encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileFormat {
    /// Wavefront OBJ.
    Obj,
    /// PLY as text.
    PlyAscii,
    /// PLY in binary, least significant byte first.
    PlyLittleEndian,
    /// PLY in binary, most significant byte first.
    PlyBigEndian,
    /// Geomview OFF.
    Off,
    /// STL as text.
    StlAscii,
    /// STL in binary.
    StlBinary,
    /// VTK XML with polygonal data.
    Vtp,
    /// VTK XML with an unstructured grid.
    Vtu,
    /// Legacy VTK as text.
    VtkAscii,
    /// Legacy VTK in binary.
    VtkBinary,
    /// glTF as JSON.
    Gltf,
    /// glTF in binary.
    Glb,
    /// GIFTI: surfaces and values of brains.
    Gifti,
    /// FreeSurfer surface, in triangles or quads.
    FreeSurferSurface,
    /// FreeSurfer values of vertices, such as curvature or thickness.
    FreeSurferCurv,
    /// FreeSurfer annotation: labels of vertices.
    FreeSurferAnnot,
    /// Gmsh MSH as text.
    GmshAscii,
    /// Gmsh MSH in binary.
    GmshBinary,
}

impl fmt::Display for FileFormat {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Obj => "OBJ",
            Self::PlyAscii => "PLY (ASCII)",
            Self::PlyLittleEndian => "PLY (binary, little endian)",
            Self::PlyBigEndian => "PLY (binary, big endian)",
            Self::Off => "OFF",
            Self::StlAscii => "STL (ASCII)",
            Self::StlBinary => "STL (binary)",
            Self::Vtp => "VTK XML (PolyData)",
            Self::Vtu => "VTK XML (UnstructuredGrid)",
            Self::VtkAscii => "VTK legacy (ASCII)",
            Self::VtkBinary => "VTK legacy (binary)",
            Self::Gltf => "glTF (JSON)",
            Self::Glb => "glTF (binary)",
            Self::Gifti => "GIFTI",
            Self::FreeSurferSurface => "FreeSurfer surface",
            Self::FreeSurferCurv => "FreeSurfer curv",
            Self::FreeSurferAnnot => "FreeSurfer annotation",
            Self::GmshAscii => "Gmsh (ASCII)",
            Self::GmshBinary => "Gmsh (binary)",
        })
    }
}

/// Extensions of mesh files. FreeSurfer names the surface by the extension.
const READ_EXTENSIONS: [&str; 17] = [
    "ply",
    "obj",
    "off",
    "stl",
    "vtp",
    "vtu",
    "vtk",
    "glb",
    "gltf",
    "msh",
    "gii",
    "pial",
    "white",
    "inflated",
    "sphere",
    "smoothwm",
    "midthickness",
];

/// GIFTI files with values only.
const VALUES_ONLY: [&str; 4] = [".label.gii", ".shape.gii", ".func.gii", ".time.gii"];

/// True if the name is that of a mesh file in a format that [`read_mesh`](crate::read_mesh) reads.
/// It decides which files of a folder are meshes; reading goes by the content.
///
/// ```
/// use gemcnn_mesh::has_mesh_name;
/// assert!(has_mesh_name("scan.VTP".as_ref()) && has_mesh_name("sub-1/lh.pial".as_ref()));
/// assert!(!has_mesh_name("lh.label.gii".as_ref()) && !has_mesh_name("labels.csv".as_ref()));
/// ```
pub fn has_mesh_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.to_ascii_lowercase();
    READ_EXTENSIONS.contains(&extension(path).as_str()) && !VALUES_ONLY.iter().any(|ending| name.ends_with(ending))
}

/// Format family, as detected from the content.
pub(super) enum Family {
    Obj,
    Ply,
    Off,
    StlAscii,
    StlBinary,
    VtkLegacy,
    VtkXml,
    Gltf,
    Gifti,
    FreeSurfer,
    FreeSurferAnnot,
    Gmsh,
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
const STRANGERS: [(&[u8], &str); 6] = [
    (b"{", "JSON"),
    (b"<", "XML or HTML"),
    (b"Kaydara FBX", "an FBX file"),
    (b"; FBX", "an FBX file"),
    (b"BLENDER", "a Blender file"),
    (b"\x89PNG", "a PNG picture"),
];

/// Statements at the start of an OBJ file.
const OBJ_KEYWORDS: [&[u8]; 16] = [
    b"v", b"vt", b"vn", b"vp", b"f", b"fo", b"l", b"p", b"g", b"o", b"s", b"mg", b"usemtl", b"mtllib", b"usemap",
    b"cstype",
];

/// Detects the format. `content` is the file without a byte order mark.
pub(super) fn tell(path: &Path, content: &[u8]) -> Result<Family, FileProblem> {
    if content.is_empty() {
        return Err(FileProblem::Empty);
    }
    if ply::has_magic(content) {
        return Ok(Family::Ply);
    }
    // Before the text formats: some programs start binary STL with the word `solid`.
    if stl::has_binary_size(content) {
        return Ok(Family::StlBinary);
    }
    if vtk::has_magic(content) {
        return Ok(Family::VtkLegacy);
    }
    if content.trim_ascii_start().starts_with(b"<") && vtk::is_vtk(content) {
        return Ok(Family::VtkXml);
    }
    if gltf::has_magic(content) || gltf::is_json(content) {
        return Ok(Family::Gltf);
    }
    if content.trim_ascii_start().starts_with(b"<") && gifti::is_gifti(content) {
        return Ok(Family::Gifti);
    }
    if freesurfer::has_magic(content) {
        return Ok(Family::FreeSurfer);
    }
    if gmsh::has_magic(content) {
        return Ok(Family::Gmsh);
    }
    if extension(path) == "annot" {
        return Ok(Family::FreeSurferAnnot);
    }
    if let Some((_, with)) = ARCHIVES.iter().find(|(magic, _)| content.starts_with(magic)) {
        return Err(FileProblem::Compressed { with });
    }
    let is_matlab = content.starts_with(b"MATLAB ") || content.starts_with(b"\x89HDF");
    if is_matlab || extension(path) == "mat" {
        return Err(FileProblem::Matlab);
    }
    if is_utf16(content) {
        return Err(FileProblem::Utf16);
    }
    let looks_like = STRANGERS.iter().find(|(magic, _)| content.starts_with(magic)).map(|&(_, what)| what);
    let extension = extension(path);
    let unknown = Err(FileProblem::UnknownFormat { looks_like });
    let Some(words) = Lines::new(content).next_words() else {
        return match extension.as_str() {
            _ if content.iter().all(|&b| is_space(b)) => Err(FileProblem::Empty),
            // Only comments: a mesh without vertices.
            "obj" => Ok(Family::Obj),
            _ => unknown,
        };
    };
    let first = words.peek().unwrap_or_default();
    if off::is_keyword(first) {
        return Ok(Family::Off);
    }
    if first.eq_ignore_ascii_case(b"solid") {
        return Ok(stl_by_content(content));
    }
    if OBJ_KEYWORDS.contains(&first) {
        return Ok(Family::Obj);
    }
    match extension.as_str() {
        "ply" => Err(FileProblem::BadHeader { why: "the first line is not 'ply'".to_owned() }),
        _ if looks_like.is_some() => unknown,
        "obj" => Ok(Family::Obj),
        // Without a keyword the file starts with the counts.
        "off" if first.first().is_some_and(u8::is_ascii_digit) => Ok(Family::Off),
        "stl" => Ok(stl_by_content(content)),
        _ => unknown,
    }
}

/// Encoding of an STL file whose size is inconclusive: text has no zero bytes.
fn stl_by_content(content: &[u8]) -> Family {
    if content.iter().take(1 << 10).any(|&byte| byte == 0) { Family::StlBinary } else { Family::StlAscii }
}

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
