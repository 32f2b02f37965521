//! FreeSurfer files, all big-endian: surfaces of triangles (`lh.pial`, `lh.white`) and of quads,
//! values of vertices (`lh.curv`, `lh.thickness`), and annotations (`.annot`).

use glam::DVec3;

use super::cursor::Bytes;
use super::error::{FileProblem, Parsed, quote};
use super::fields::Columns;
use super::format::{FileFormat, Format, Source};
use super::scalar::Scalar;
use super::{MeshFile, ValueFile, assemble, vertex_index};
use crate::{AttributeValues, Faces, VertexAttribute};

pub(super) const FORMAT: Format = Format {
    value_extensions: &["annot", "curv", "sulc", "thickness", "area", "volume", "avg_curv"],
    has_signature: |file| has_magic(file.content) || file.extension == ANNOTATION,
    read_values,
    ..Format::new("FreeSurfer", &["pial", "white", "inflated", "sphere", "smoothwm", "midthickness"], |file| {
        parse(file.content)
    })
};

impl FileFormat {
    /// FreeSurfer surface, in triangles or quads.
    pub const FREESURFER_SURFACE: Self = Self::named("FreeSurfer surface");
    /// FreeSurfer values of vertices, such as curvature or thickness.
    pub const FREESURFER_CURV: Self = Self::named("FreeSurfer curv");
    /// FreeSurfer annotation: labels of vertices.
    pub const FREESURFER_ANNOT: Self = Self::named("FreeSurfer annotation");
}

/// Extension of annotations, which have no signature.
const ANNOTATION: &str = "annot";

const TRIANGLES: [u8; 3] = [0xff, 0xff, 0xfe];
const QUADS: [u8; 3] = [0xff, 0xff, 0xfd];
/// Quads with coordinates in hundredths of a millimetre, and also values of vertices.
const OLD_QUADS: [u8; 3] = [0xff, 0xff, 0xff];

/// True if the file starts like a surface or a newer file of values.
fn has_magic(content: &[u8]) -> bool {
    [TRIANGLES, QUADS, OLD_QUADS].iter().any(|magic| content.starts_with(magic))
}

/// True if the file is a newer file of values, which is as long as its header says.
fn is_curv(content: &[u8]) -> bool {
    let Some(rest) = content.strip_prefix(&OLD_QUADS) else { return false };
    let count = rest.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
    count.is_some_and(|count| rest.len() as u64 == 12 + 4 * u64::from(count))
}

/// True if the size is that of an older file of values.
fn is_old_curv(content: &[u8]) -> bool {
    let count = content.first_chunk().map(|bytes| u64::from(three_bytes(*bytes)));
    count.is_some_and(|count| content.len() as u64 == 6 + 2 * count && count > 0)
}

fn three_bytes([a, b, c]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, a, b, c])
}

fn parse(content: &[u8]) -> Parsed<MeshFile> {
    let values_only = |format| Err(FileProblem::ValuesOnly { format }.of_file());
    if is_curv(content) {
        return values_only(FileFormat::FREESURFER_CURV);
    }
    if !has_magic(content) {
        return values_only(FileFormat::FREESURFER_ANNOT);
    }
    let mut bytes = Bytes::new(content, false);
    let magic = bytes.take(3, 1, "byte")?;
    if magic == TRIANGLES { parse_triangles(bytes) } else { parse_quads(bytes, magic == OLD_QUADS) }
}

fn parse_triangles(mut bytes: Bytes) -> Parsed<MeshFile> {
    // A line that says who created the file, and an empty one.
    bytes.end_line();
    bytes.start_binary();
    let vertices: u32 = bytes.value("the number of vertices")?;
    let faces: u32 = bytes.value("the number of faces")?;
    let positions = positions(&mut bytes, vertices, false)?;
    let corners = bytes.take(faces.into(), 12, "face")?;
    let mut list = Faces::with_capacity(faces as usize, 3 * faces as usize);
    for face in corners.as_chunks::<12>().0 {
        for corner in face.as_chunks::<4>().0 {
            let vertex = i32::from_be_bytes(*corner).into();
            let vertex = vertex_index(vertex, positions.len());
            list.push_corner(vertex.map_err(|problem| bytes.fail(problem))?);
        }
        list.close_face();
    }
    assemble(positions, list, Vec::new(), FileFormat::FREESURFER_SURFACE)
}

fn parse_quads(mut bytes: Bytes, in_hundredths: bool) -> Parsed<MeshFile> {
    let mut count = || {
        let count = bytes.take(3, 1, "byte")?;
        Parsed::Ok(count.first_chunk().map_or(0, |bytes| three_bytes(*bytes)))
    };
    let (vertices, quads) = (count()?, count()?);
    let positions = positions(&mut bytes, vertices, in_hundredths)?;
    let corners = bytes.take(quads.into(), 12, "face")?;
    let mut list = Faces::with_capacity(quads as usize, 4 * quads as usize);
    for quad in corners.as_chunks::<12>().0 {
        for corner in quad.as_chunks::<3>().0 {
            let vertex = vertex_index(three_bytes(*corner).into(), positions.len());
            list.push_corner(vertex.map_err(|problem| bytes.fail(problem))?);
        }
        list.close_face();
    }
    assemble(positions, list, Vec::new(), FileFormat::FREESURFER_SURFACE)
}

fn positions(bytes: &mut Bytes, count: u32, in_hundredths: bool) -> Parsed<Vec<DVec3>> {
    let (scalar, scale) = if in_hundredths { (Scalar::I16, 100.0) } else { (Scalar::F32, 1.0) };
    let data = bytes.take(count.into(), 3 * scalar.bytes(), "vertex")?;
    let values = scalar.decode(data, false);
    let position = |vertex: usize| DVec3::from_array([0, 1, 2].map(|axis| values.to_f64(3 * vertex + axis) / scale));
    Ok((0..count as usize).map(position).collect())
}

/// Reads an annotation, or values of vertices as a column with the name of the extension.
fn read_values(file: &Source) -> Option<Parsed<ValueFile>> {
    let content = file.content;
    let is_values = match has_magic(content) {
        true => is_curv(content),
        false if file.extension == ANNOTATION => return Some(parse_annot(content)),
        false => is_old_curv(content),
    };
    let column = if file.extension.is_empty() { "value" } else { &file.extension };
    is_values.then(|| parse_curv(content, column))
}

/// Reads values of vertices as the column `name`.
fn parse_curv(content: &[u8], name: &str) -> Parsed<ValueFile> {
    let mut bytes = Bytes::new(content, false);
    let values = if is_curv(content) {
        bytes.take(3, 1, "byte")?;
        let count: u32 = bytes.value("the number of vertices")?;
        bytes.value::<u32>("the number of faces")?;
        let per_vertex: u32 = bytes.value("the number of values per vertex")?;
        if per_vertex != 1 {
            let problem = FileProblem::unsupported(format!("a FreeSurfer file with {per_vertex} values per vertex"));
            return Err(bytes.fail(problem));
        }
        Scalar::F32.decode(bytes.take(count.into(), 4, "value")?, false)
    } else {
        let count = bytes.take(3, 1, "byte")?.first_chunk().copied();
        bytes.take(3, 1, "byte")?;
        let count = three_bytes(count.unwrap_or_default());
        let hundredths = Scalar::I16.decode(bytes.take(count.into(), 2, "value")?, false);
        AttributeValues::F32(hundredths.iter_f64().map(|v| (v / 100.0) as f32).collect())
    };
    let mut columns = Columns::default();
    columns.push_column(name, values);
    Ok(ValueFile {
        attributes: columns.into_vec(),
        label_names: Vec::new(),
        notes: Vec::new(),
        format: FileFormat::FREESURFER_CURV,
    })
}

/// Reads an annotation. The column `label` has the place of each vertex in the colour table, or -1
/// if its colour is not in it.
fn parse_annot(content: &[u8]) -> Parsed<ValueFile> {
    let mut bytes = Bytes::new(content, false);
    let count: u32 = bytes.value("the number of vertices")?;
    let pairs = Scalar::I32.decode(bytes.take(count.into(), 8, "vertex")?, false);
    let table = colour_table(&mut bytes)?;
    let by_colour: std::collections::HashMap<i32, i32> =
        table.iter().map(|entry| (entry.colour, entry.place)).collect();
    let mut labels = vec![-1; count as usize];
    for row in 0..count as usize {
        let vertex = vertex_index(pairs.to_f64(2 * row) as i64, labels.len()).map_err(|problem| bytes.fail(problem))?;
        let colour = pairs.to_f64(2 * row + 1) as i32;
        labels[vertex as usize] = by_colour.get(&colour).copied().unwrap_or(-1);
    }
    Ok(ValueFile {
        attributes: vec![VertexAttribute::new("label", AttributeValues::I32(labels))],
        label_names: table.into_iter().map(|entry| (entry.place, entry.name)).collect(),
        notes: Vec::new(),
        format: FileFormat::FREESURFER_ANNOT,
    })
}

struct Entry {
    place: i32,
    name: String,
    /// Red, green and blue, from the lowest byte up, by which vertices refer to the entry.
    colour: i32,
}

fn colour_table(bytes: &mut Bytes) -> Parsed<Vec<Entry>> {
    let has_table = bytes.len() >= 4 && bytes.value::<i32>("the tag of the colour table")? == 1;
    if !has_table {
        let problem = FileProblem::unsupported("a FreeSurfer annotation without a colour table");
        return Err(bytes.fail(problem));
    }
    let version: i32 = bytes.value("the version of the colour table")?;
    let is_old = version > 0;
    if !is_old {
        if version != -2 {
            let problem = FileProblem::unsupported(format!("version {version} of a FreeSurfer colour table"));
            return Err(bytes.fail(problem));
        }
        bytes.value::<i32>("the size of the colour table")?;
    }
    text(bytes)?;
    let entries = if is_old { version } else { bytes.value("the number of entries")? };
    let mut table = Vec::new();
    for place in 0..entries {
        let place = if is_old { place } else { bytes.value("the place of an entry")? };
        let name = text(bytes)?;
        let mut colour = [0; 4];
        for channel in &mut colour {
            *channel = bytes.value::<i32>("a colour")? as u8;
        }
        // The fourth number is not part of the key.
        colour[3] = 0;
        table.push(Entry { place, name, colour: i32::from_le_bytes(colour) });
    }
    Ok(table)
}

/// A text after its length.
fn text(bytes: &mut Bytes) -> Parsed<String> {
    let length: i32 = bytes.value("the length of a name")?;
    let length =
        u64::try_from(length).map_err(|_| bytes.fail(FileProblem::NegativeLength { length: length.into() }))?;
    let text = bytes.take(length, 1, "byte")?;
    let end = text.iter().position(|&b| b == 0).unwrap_or(text.len());
    Ok(quote(&text[..end]))
}
