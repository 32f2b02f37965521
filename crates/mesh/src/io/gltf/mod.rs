//! glTF 2.0: JSON (`.gltf`) and binary (`.glb`).

mod accessor;
mod json;
mod scene;
mod write;

use super::cursor::Bytes;
use super::error::{FileProblem, Parsed};
use super::format::{FileFormat, Format, Source, Stores, Writer};
use super::{MeshFile, assemble};
use accessor::Data;

pub(super) const FORMAT: Format = Format {
    has_signature: |file| has_magic(file.content) || is_json(file.content),
    writer: Some(Writer {
        format: FileFormat::GLB,
        stores: Stores { vertex_attributes: true, face_attributes: false, double_precision: false },
        encode: |file| {
            super::check_single_precision(file.mesh, FileFormat::GLB)?;
            let glb = write::Glb::new(file.mesh, file.attributes)?;
            Ok(Box::new(move |out| glb.write(out)))
        },
    }),
    ..Format::new("glTF", &["glb", "gltf"], parse)
};

impl FileFormat {
    /// glTF as JSON.
    pub const GLTF: Self = Self::named("glTF (JSON)");
    /// glTF in binary.
    pub const GLB: Self = Self::named("glTF (binary)");
}

/// Signature of binary files.
const MAGIC: &[u8] = b"glTF";
const JSON_CHUNK: u32 = 0x4E4F_534A;
const BINARY_CHUNK: u32 = 0x004E_4942;

/// True if the file is binary glTF.
fn has_magic(content: &[u8]) -> bool {
    content.starts_with(MAGIC)
}

/// True if a JSON file is glTF: it has the required member `asset`.
fn is_json(content: &[u8]) -> bool {
    content.trim_ascii_start().starts_with(b"{") && content.windows(7).any(|window| window == b"\"asset\"")
}

/// Names of the other files with data of a file, relative to its folder.
pub(super) fn data_files(content: &[u8]) -> Vec<String> {
    let json = match has_magic(content) {
        true => chunks(content).map_or(&[][..], |(json, _)| json),
        false if is_json(content) => content,
        false => return Vec::new(),
    };
    let Ok(root) = json::Root::parse(json) else { return Vec::new() };
    let uri = |at| json::element::<json::Buffer>(&root.buffers, at, "buffer").ok()?.uri;
    let uris = (0..root.buffers.len()).filter_map(uri).filter(|uri| !uri.starts_with("data:"));
    uris.filter_map(|uri| accessor::file_name(&uri).ok()).collect()
}

fn parse(file: &Source) -> Parsed<MeshFile> {
    let content = file.content;
    let (json, binary, format) = match has_magic(content) {
        true => {
            let (json, binary) = chunks(content)?;
            (json, binary, FileFormat::GLB)
        }
        false => (content, None, FileFormat::GLTF),
    };
    let surface = json::Root::parse(json)
        .and_then(|root| scene::read(&root, Data::new(&root, binary, content.len(), file.read_other)))
        .map_err(FileProblem::of_file)?;
    Ok(MeshFile { notes: surface.notes, ..assemble(surface.vertices, surface.faces, surface.attributes, format)? })
}

/// The JSON and the optional binary chunk.
fn chunks(content: &[u8]) -> Parsed<(&[u8], Option<&[u8]>)> {
    let mut bytes = Bytes::new(content, true);
    bytes.take(4, 1, "byte")?;
    let version: u32 = bytes.value("the version")?;
    if version != 2 {
        return Err(bytes.fail(FileProblem::unsupported_gltf(&version)));
    }
    bytes.value::<u32>("the length")?;
    let (mut json, mut binary) = (None, None);
    while bytes.len() >= 8 {
        let length: u32 = bytes.value("the length of a chunk")?;
        let kind: u32 = bytes.value("the type of a chunk")?;
        let chunk = bytes.take(length.into(), 1, "byte")?;
        match kind {
            JSON_CHUNK => json = json.or(Some(chunk)),
            BINARY_CHUNK => binary = binary.or(Some(chunk)),
            _ => {}
        }
    }
    match json {
        Some(json) => Ok((json, binary)),
        None => Err(bytes.fail(FileProblem::EndsEarly { expected: "a JSON chunk" })),
    }
}
