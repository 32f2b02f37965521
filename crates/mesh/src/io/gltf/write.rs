//! Writing of GLB files.

use std::io::{self, Write};

use glam::DVec3;
use serde_json::{Map, Value as Json, json};

use super::{BINARY_CHUNK, JSON_CHUNK, MAGIC};
use crate::io::error::FileProblem;
use crate::io::fields::{Group, groups};
use crate::io::format::FileFormat;
use crate::io::scalar::Value;
use crate::triangulate::triangle_corners;
use crate::{AttributeValues, Mesh, VertexAttribute};

const F32: u32 = 5126;
const U32: u32 = 5125;

/// Content of a GLB file.
pub(super) struct Glb {
    json: Vec<u8>,
    binary: Vec<u8>,
}

/// The parts of the JSON that refer to the binary chunk.
#[derive(Default)]
struct Builder {
    binary: Vec<u8>,
    views: Vec<Json>,
    accessors: Vec<Json>,
}

impl Builder {
    /// Appends a view of rows of `row` bytes, each padded to `stride`, and returns its index.
    fn view(&mut self, rows: impl Iterator<Item = Vec<u8>>, stride: Option<usize>, target: u32) -> usize {
        let start = self.binary.len();
        for mut row in rows {
            row.resize(row.len().next_multiple_of(4), 0);
            self.binary.append(&mut row);
        }
        let length = self.binary.len() - start;
        let mut view = json!({"buffer": 0, "byteOffset": start, "byteLength": length, "target": target});
        if let Some(stride) = stride {
            view["byteStride"] = stride.into();
        }
        self.views.push(view);
        self.views.len() - 1
    }

    fn accessor(&mut self, accessor: Json) -> usize {
        self.accessors.push(accessor);
        self.accessors.len() - 1
    }
}

/// Target of vertex attributes.
const VERTICES: u32 = 34962;
/// Target of indices.
const INDICES: u32 = 34963;

impl Glb {
    /// Makes the content: triangles and values in single precision. Colours, normals and vectors
    /// are one attribute each.
    ///
    /// # Errors
    /// An integer has no exact representation in single precision.
    pub(super) fn new(mesh: &Mesh, attributes: &[VertexAttribute]) -> Result<Self, FileProblem> {
        let mut builder = Builder::default();
        if mesh.vertex_count() == 0 {
            let document = json!({"asset": asset(), "scene": 0, "scenes": [{"nodes": []}]});
            return Ok(Self::assemble(&document, Vec::new()));
        }
        let mut places = Map::new();
        let position = position(mesh, &mut builder);
        places.insert("POSITION".to_owned(), position.into());
        for group in groups(attributes) {
            let (name, accessor) = attribute(&group, &mut builder)?;
            places.insert(name, accessor.into());
        }
        let triangles = triangle_corners(mesh).into_flattened();
        let mut primitive = json!({"attributes": places, "mode": 4});
        if triangles.is_empty() {
            primitive["mode"] = 0.into();
        } else {
            let rows = triangles.iter().map(|index| index.to_le_bytes().to_vec());
            let view = builder.view(rows, None, INDICES);
            let count = triangles.len();
            let indices = json!({"bufferView": view, "componentType": U32, "count": count, "type": "SCALAR"});
            primitive["indices"] = builder.accessor(indices).into();
        }
        let document = json!({
            "asset": asset(),
            "scene": 0,
            "scenes": [{"nodes": [0]}],
            "nodes": [{"mesh": 0}],
            "meshes": [{"primitives": [primitive]}],
            "accessors": builder.accessors,
            "bufferViews": builder.views,
            "buffers": [{"byteLength": builder.binary.len()}],
        });
        Ok(Self::assemble(&document, builder.binary))
    }

    fn assemble(document: &Json, binary: Vec<u8>) -> Self {
        let mut json = document.to_string().into_bytes();
        json.resize(json.len().next_multiple_of(4), b' ');
        Self { json, binary }
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let length = |bytes: usize| u32::try_from(bytes).map_err(io::Error::other);
        let chunks: &[(u32, &[u8])] = match self.binary.is_empty() {
            true => &[(JSON_CHUNK, &self.json)],
            false => &[(JSON_CHUNK, &self.json), (BINARY_CHUNK, &self.binary)],
        };
        let total: usize = chunks.iter().map(|(_, chunk)| 8 + chunk.len()).sum();
        out.write_all(MAGIC)?;
        out.write_all(&2_u32.to_le_bytes())?;
        out.write_all(&length(12 + total)?.to_le_bytes())?;
        for (kind, chunk) in chunks {
            out.write_all(&length(chunk.len())?.to_le_bytes())?;
            out.write_all(&kind.to_le_bytes())?;
            out.write_all(chunk)?;
        }
        Ok(())
    }
}

fn asset() -> Json {
    json!({"version": "2.0", "generator": "gemcnn"})
}

fn position(mesh: &Mesh, builder: &mut Builder) -> usize {
    let (mut low, mut high) = (DVec3::INFINITY, DVec3::NEG_INFINITY);
    for &position in mesh.vertices() {
        low = low.min(position);
        high = high.max(position);
    }
    let to_f32 = |v: DVec3| v.to_array().map(|value| value as f32);
    let rows = mesh.vertices().iter();
    let rows = rows.map(|&position| bytemuck::cast_slice(&to_f32(position).map(f32::to_le_bytes)).to_vec());
    let view = builder.view(rows, Some(12), VERTICES);
    builder.accessor(json!({
        "bufferView": view,
        "componentType": F32,
        "count": mesh.vertex_count(),
        "type": "VEC3",
        "min": to_f32(low),
        "max": to_f32(high),
    }))
}

/// Writes a group of columns as one attribute and returns its name and accessor.
fn attribute(group: &Group, builder: &mut Builder) -> Result<(String, usize), FileProblem> {
    let columns = group.columns.iter().map(storable).collect::<Result<Vec<_>, _>>()?;
    let count = columns.first().map_or(0, AttributeValues::len);
    // Columns of a group have one type, but may be stored in different ones.
    let kinds: Vec<u32> = columns.iter().map(component_type).collect();
    let kind = match kinds.windows(2).all(|pair| pair[0] == pair[1]) {
        true => kinds.first().copied().unwrap_or(F32),
        false => F32,
    };
    let is_colour = group.columns.len() > 1 && matches!(&group.name[..], "RGB" | "RGBA");
    let row = |vertex: usize| {
        let mut row = Vec::with_capacity(16);
        for column in &columns {
            if kind == F32 {
                (column.to_f64(vertex) as f32).append_to(&mut row, true);
            } else {
                append(column, vertex, &mut row);
            }
        }
        row
    };
    let stride = (0..count).next().map_or(4, |_| row(0).len().next_multiple_of(4));
    let view = builder.view((0..count).map(row), Some(stride), VERTICES);
    let shape = ["SCALAR", "VEC2", "VEC3", "VEC4"][columns.len().clamp(1, 4) - 1];
    let mut accessor = json!({"bufferView": view, "componentType": kind, "count": count, "type": shape});
    if is_colour {
        accessor["normalized"] = true.into();
    }
    let is_normal = group.columns.len() > 1 && group.name == "Normals";
    let name = if is_colour {
        "COLOR_0".to_owned()
    } else if is_normal && kind == F32 {
        "NORMAL".to_owned()
    } else {
        if columns.len() > 1 {
            let names: Vec<&str> = group.columns.iter().map(|c| c.name.as_str()).collect();
            accessor["name"] = names.join(" ").into();
        }
        format!("_{}", group.name)
    };
    Ok((name, builder.accessor(accessor)))
}

fn component_type(values: &AttributeValues) -> u32 {
    match values {
        AttributeValues::I8(_) => 5120,
        AttributeValues::U8(_) => 5121,
        AttributeValues::I16(_) => 5122,
        AttributeValues::U16(_) => 5123,
        _ => F32,
    }
}

fn append(values: &AttributeValues, vertex: usize, row: &mut Vec<u8>) {
    crate::attribute::with_values!(values, values => values[vertex].append_to(row, true));
}

/// The values in a type that vertex attributes may have: integers of up to 16 bits, or `f32`.
fn storable(column: &VertexAttribute) -> Result<AttributeValues, FileProblem> {
    /// Largest integer up to which all are exact in single precision.
    const LARGEST: f64 = 16_777_216.0;
    let values = &column.values;
    let fits = |low: f64, high: f64| values.iter_f64().all(|value| (low..=high).contains(&value));
    let integers = values.iter_f64();
    Ok(match values {
        AttributeValues::I32(_) | AttributeValues::U32(_) if fits(0.0, 255.0) => {
            AttributeValues::U8(integers.map(|value| value as u8).collect())
        }
        AttributeValues::I32(_) | AttributeValues::U32(_) if fits(0.0, 65535.0) => {
            AttributeValues::U16(integers.map(|value| value as u16).collect())
        }
        AttributeValues::I32(_) if fits(-32768.0, 32767.0) => {
            AttributeValues::I16(integers.map(|value| value as i16).collect())
        }
        AttributeValues::I32(_) | AttributeValues::U32(_) => {
            let mut too_large = values.iter_f64().filter(|value| value.abs() > LARGEST);
            if let Some(value) = too_large.next() {
                return Err(FileProblem::ValueNotHeld { name: column.name.clone(), value, format: FileFormat::GLB });
            }
            AttributeValues::F32(integers.map(|value| value as f32).collect())
        }
        AttributeValues::F64(_) => AttributeValues::F32(integers.map(|value| value as f32).collect()),
        _ => values.clone(),
    })
}
