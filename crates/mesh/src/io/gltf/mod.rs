//! glTF 2.0: JSON (`.gltf`) and binary (`.glb`).

mod accessor;
mod json;
mod scene;
mod write;

pub(super) use write::Glb;

use super::cursor::Bytes;
use super::error::{FileProblem, Parsed};
use super::{FileFormat, MeshFile, assemble};
use accessor::Data;

/// Signature of binary files.
const MAGIC: &[u8] = b"glTF";
const JSON_CHUNK: u32 = 0x4E4F_534A;
const BINARY_CHUNK: u32 = 0x004E_4942;

/// Reads the content of another file, given by its name relative to the mesh file.
pub(super) type External<'a> = &'a mut dyn FnMut(&str) -> Result<Vec<u8>, FileProblem>;

/// True if the file is binary glTF.
pub(super) fn has_magic(content: &[u8]) -> bool {
    content.starts_with(MAGIC)
}

/// True if a JSON file is glTF: it has the required member `asset`.
pub(super) fn is_json(content: &[u8]) -> bool {
    content.trim_ascii_start().starts_with(b"{") && content.windows(7).any(|window| window == b"\"asset\"")
}

pub(super) fn parse(content: &[u8], external: External) -> Parsed<MeshFile> {
    let (json, binary, format) = match has_magic(content) {
        true => {
            let (json, binary) = chunks(content)?;
            (json, binary, FileFormat::Glb)
        }
        false => (content, None, FileFormat::Gltf),
    };
    let surface = json::Root::parse(json)
        .and_then(|root| scene::read(&root, Data::new(&root, binary, content.len(), external)))
        .map_err(FileProblem::of_file)?;
    Ok(MeshFile { notes: surface.notes, ..assemble(surface.vertices, surface.faces, surface.attributes, format)? })
}

/// The JSON and the optional binary chunk.
fn chunks(content: &[u8]) -> Parsed<(&[u8], Option<&[u8]>)> {
    let mut bytes = Bytes::new(content, true);
    bytes.take(4, 1, "byte")?;
    let version: u32 = bytes.value("the version")?;
    if version != 2 {
        let what = format!("glTF version {version}");
        return Err(bytes.fail(FileProblem::Unsupported { what }));
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
