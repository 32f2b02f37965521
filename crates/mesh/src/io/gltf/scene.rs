//! The scene: nodes with transforms, meshes and their primitives, as one surface.

use std::collections::HashMap;

use glam::{DMat3, DMat4, DVec3};

use super::accessor::{Data, Values};
use super::json::{Mesh, Node, Primitive, Root, Scene, element, parse};
use crate::io::error::{FileProblem, Location};
use crate::io::fields::{Columns, Field, join_columns};
use crate::io::{Tally, push_strip, vertex_index};
use crate::{AttributeValues, Faces, VertexAttribute};

/// Bytes of the surface for each byte of the file and of those with its data. Without repeated meshes it is at most 6.
const MAX_BYTES_PER_BYTE: u64 = 12;
/// A surface of this many bytes, about ten million vertices, may repeat meshes of a file of any size.
const ALWAYS_ALLOWED: u64 = 256 << 20;

const POSITION: &str = "POSITION";

/// The surface of a scene.
pub(super) struct Surface {
    pub(super) vertices: Vec<DVec3>,
    pub(super) faces: Faces,
    /// `None` before the first primitive.
    columns: Option<Vec<VertexAttribute>>,
    pub(super) attributes: Vec<VertexAttribute>,
    pub(super) notes: Vec<String>,
}

struct Reader<'a> {
    root: &'a Root<'a>,
    data: Data<'a>,
    surface: Surface,
    /// Memory of the surface so far, in bytes.
    size: u64,
    /// Points and lines, which are skipped.
    skipped: Tally,
    dropped_columns: bool,
}

pub(super) fn read<'a>(root: &'a Root<'a>, data: Data<'a>) -> Result<Surface, FileProblem> {
    let mut reader = Reader {
        root,
        data,
        surface: Surface {
            vertices: Vec::new(),
            faces: Faces::new(),
            columns: None,
            attributes: Vec::new(),
            notes: Vec::new(),
        },
        size: 0,
        skipped: Tally::default(),
        dropped_columns: false,
    };
    if root.scenes.is_empty() {
        for mesh in 0..root.meshes.len() {
            reader.mesh(mesh, None)?;
        }
    } else {
        let number = root.scene.unwrap_or(0);
        let scene: Scene = element(&root.scenes, number, "scene")?;
        reader.nodes(scene.nodes)?;
        if root.scenes.len() > 1 {
            let note = format!("scene {number} of {} is read, counted from 0", root.scenes.len());
            reader.surface.notes.push(note);
        }
    }
    let Reader { mut surface, skipped, dropped_columns, .. } = reader;
    surface.attributes = surface.columns.take().unwrap_or_default();
    let skipped = skipped.note("primitive(s) of points or lines are skipped");
    surface.notes.extend(skipped);
    if dropped_columns {
        let note = "attributes that are not in every primitive are skipped";
        surface.notes.push(note.to_owned());
    }
    Ok(surface)
}

impl Reader<'_> {
    /// Reads trees of nodes, each node once.
    fn nodes(&mut self, roots: Vec<u32>) -> Result<(), FileProblem> {
        let mut visited = vec![false; self.root.nodes.len()];
        // Nodes that are still to be read at each depth, and the transform of their parent.
        let mut open: Vec<(std::vec::IntoIter<u32>, Option<DMat4>)> = vec![(roots.into_iter(), None)];
        while let Some((siblings, parent)) = open.last_mut() {
            let Some(index) = siblings.next() else {
                open.pop();
                continue;
            };
            let parent = *parent;
            let node: Node = element(&self.root.nodes, index as usize, "node")?;
            if std::mem::replace(&mut visited[index as usize], true) {
                continue;
            }
            let transform = match (parent, node.transform()) {
                (Some(parent), Some(own)) => Some(parent * own),
                (parent, own) => parent.or(own),
            };
            if let Some(mesh) = node.mesh {
                self.mesh(mesh, transform)?;
            }
            if !node.children.is_empty() {
                open.push((node.children.into_iter(), transform));
            }
        }
        Ok(())
    }

    fn mesh(&mut self, index: usize, transform: Option<DMat4>) -> Result<(), FileProblem> {
        let mesh: Mesh = element(&self.root.meshes, index, "mesh")?;
        // Primitives with the same attributes share their vertices.
        let mut bases = HashMap::new();
        for (number, raw) in mesh.primitives.iter().enumerate() {
            let primitive: Primitive = parse(raw)?;
            if !(4..=6).contains(&primitive.mode) {
                self.skipped.add(|| Location::Element { kind: "primitive".to_owned(), index: number as u64, byte: 0 });
                continue;
            }
            let wanted: Vec<(&str, usize)> = primitive
                .attributes
                .iter()
                .map(|(name, &accessor)| (name.as_ref(), accessor))
                .filter(|(name, _)| name.starts_with('_') || matches!(*name, POSITION | "NORMAL" | "COLOR_0"))
                .collect();
            let Some(&(_, position)) = wanted.iter().find(|(name, _)| *name == POSITION) else { continue };
            let key: Vec<usize> = wanted.iter().map(|&(_, accessor)| accessor).collect();
            let (base, count) = match bases.get(&(position, key.clone())) {
                Some(&found) => found,
                None => {
                    let base = self.surface.vertices.len();
                    let count = self.vertices(&wanted, position, transform)?;
                    bases.insert((position, key), (base, count));
                    (base, count)
                }
            };
            self.triangles(&primitive, base, count, transform)?;
        }
        Ok(())
    }

    /// Claims memory for a part of the surface before it is read.
    fn claim(&mut self, count: usize, bytes: u64) -> Result<(), FileProblem> {
        let size = (count as u64).checked_mul(bytes);
        let size = size.and_then(|size| self.size.checked_add(size));
        let limit = (self.data.file_size as u64).saturating_mul(MAX_BYTES_PER_BYTE).max(ALWAYS_ALLOWED);
        self.size = size.filter(|&size| size <= limit).ok_or(FileProblem::SceneTooLarge {
            vertices: (self.surface.vertices.len() as u64).saturating_add(count as u64),
        })?;
        Ok(())
    }

    /// Appends the vertices of a primitive. Returns their number.
    fn vertices(
        &mut self,
        wanted: &[(&str, usize)],
        position: usize,
        transform: Option<DMat4>,
    ) -> Result<usize, FileProblem> {
        let (count, _) = self.data.shape(position)?;
        self.claim(count, 24)?;
        let mut columns = Columns::default();
        for &(name, accessor) in wanted {
            let (rows, components) = self.data.shape(accessor)?;
            if name != POSITION {
                self.claim(rows, 8 * components as u64)?;
            }
            if rows != count {
                return Err(FileProblem::BadDocument {
                    why: format!("accessor {accessor} has {rows} elements for {count} vertices"),
                });
            }
            let values = self.data.read(accessor)?;
            if name == POSITION {
                self.positions(&values, transform)?;
            } else {
                columns.push(field(name, values, transform), count);
            }
        }
        let columns = columns.into_vec();
        match &mut self.surface.columns {
            None => self.surface.columns = Some(columns),
            Some(all) => self.dropped_columns |= join_columns(all, columns),
        }
        Ok(count)
    }

    fn positions(&mut self, values: &Values, transform: Option<DMat4>) -> Result<(), FileProblem> {
        if values.components != 3 {
            return Err(FileProblem::BadDocument {
                why: "the positions of a primitive are not 3 numbers each".to_owned(),
            });
        }
        let numbers = as_fractions(values);
        for at in (0..numbers.len()).step_by(3) {
            let [x, y, z] = [at, at + 1, at + 2].map(|at| numbers.to_f64(at));
            let point = DVec3::new(x, y, z);
            let place = transform.map_or(point, |matrix| matrix.transform_point3(point));
            if !place.is_finite() {
                return Err(FileProblem::not_finite(place));
            }
            self.surface.vertices.push(place);
        }
        Ok(())
    }

    fn triangles(
        &mut self,
        primitive: &Primitive,
        base: usize,
        count: usize,
        transform: Option<DMat4>,
    ) -> Result<(), FileProblem> {
        let mut corners: Vec<u32> = Vec::new();
        // `Mesh::new` refuses more vertices than an index can hold.
        let shifted = |vertex: u32| vertex.saturating_add(u32::try_from(base).unwrap_or(u32::MAX));
        match primitive.indices {
            Some(accessor) => {
                let (number, _) = self.data.shape(accessor)?;
                self.claim(number, if primitive.mode == 4 { 6 } else { 16 })?;
                let indices = self.data.read(accessor)?.values;
                corners.reserve_exact(indices.len());
                for index in indices.iter_f64() {
                    corners.push(shifted(vertex_index(index as i64, count)?));
                }
            }
            None => {
                self.claim(count, if primitive.mode == 4 { 6 } else { 16 })?;
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                corners.extend((0..count).map(shifted));
            }
        }
        let is_mirrored = transform.is_some_and(|matrix| matrix.determinant() < 0.0);
        if is_mirrored && primitive.mode == 4 {
            corners.chunks_exact_mut(3).for_each(|corners| corners.swap(1, 2));
        }
        let faces = &mut self.surface.faces;
        match (primitive.mode, &corners[..]) {
            (5, strip) if !is_mirrored => push_strip(strip, faces),
            // A repeated first corner reverses the triangles of a strip.
            (5, [first, ..]) => push_strip(&[&[*first], &corners[..]].concat(), faces),
            (6, [centre, ring @ ..]) => {
                for &[a, b] in ring.array_windows() {
                    let [a, b] = if is_mirrored { [b, a] } else { [a, b] };
                    faces.push(&[*centre, a, b]);
                }
            }
            (_, triangles) => {
                for triangle in triangles.chunks_exact(3) {
                    faces.push(triangle);
                }
            }
        }
        Ok(())
    }
}

/// The values as numbers: normalised integers become fractions.
fn as_fractions(values: &Values) -> AttributeValues {
    let largest = match values.values {
        AttributeValues::I8(_) => 127.0,
        AttributeValues::U8(_) => 255.0,
        AttributeValues::I16(_) => 32767.0,
        AttributeValues::U16(_) => 65535.0,
        _ => 1.0,
    };
    if !values.normalized || largest == 1.0 {
        return values.values.clone();
    }
    let fraction = |value: f64| (value / largest).max(-1.0) as f32;
    AttributeValues::F32(values.values.iter_f64().map(fraction).collect())
}

/// The field of an attribute other than the position.
fn field(name: &str, values: Values, transform: Option<DMat4>) -> Field {
    let components = values.components;
    let numbers = match name {
        "COLOR_0" => match &values.values {
            AttributeValues::U8(_) => values.values,
            _ => {
                let fractions = as_fractions(&values);
                let byte = |value: f64| (value * 255.0).round() as u8;
                AttributeValues::U8(fractions.iter_f64().map(byte).collect())
            }
        },
        "NORMAL" if components == 3 && transform.is_some() => {
            let matrix = DMat3::from_mat4(transform.unwrap_or_default());
            let numbers = as_fractions(&values);
            let matrix = matrix.inverse().transpose();
            let mut turned = Vec::with_capacity(numbers.len());
            for at in (0..numbers.len()).step_by(3) {
                let normal = DVec3::from_array([0, 1, 2].map(|axis| numbers.to_f64(at + axis)));
                let normal = (matrix * normal).normalize_or_zero();
                turned.extend(normal.to_array().map(|value| value as f32));
            }
            AttributeValues::F32(turned)
        }
        _ => as_fractions(&values),
    };
    let component_names = values.name.split_whitespace().take(9).map(str::to_owned);
    Field {
        name: name.strip_prefix('_').unwrap_or(name).to_owned(),
        components,
        values: numbers,
        component_names: component_names.collect(),
    }
}
