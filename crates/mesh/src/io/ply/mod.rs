//! PLY: a header that declares elements and their properties, followed by the elements in text or
//! binary. One reader iterates over the elements; three [`Body`] encodings supply the values.

mod body;
mod header;
mod write;

pub(super) use write::{check_attributes, write};

use glam::DVec3;

use super::error::{FileProblem, Parsed, quote};
use super::scalar::Scalar;
use super::text::{Lines, Words};
use super::{FileFormat, MeshFile, assemble, vertex_index};
use crate::{Faces, VertexAttribute};
use body::{Ascii, Binary, Body, Row};
use header::{Element, Header, Kind, Property, bad_header, missing};

/// Encoding of the elements of a PLY file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PlyEncoding {
    /// Text, one element per line.
    Ascii,
    /// Binary, least significant byte first.
    #[default]
    LittleEndian,
    /// Binary, most significant byte first.
    BigEndian,
}

impl PlyEncoding {
    /// File format of this encoding.
    pub(super) fn format(self) -> FileFormat {
        match self {
            Self::Ascii => FileFormat::PlyAscii,
            Self::LittleEndian => FileFormat::PlyLittleEndian,
            Self::BigEndian => FileFormat::PlyBigEndian,
        }
    }

    /// Name of the encoding in headers.
    fn name(self) -> &'static str {
        match self {
            Self::Ascii => "ascii",
            Self::LittleEndian => "binary_little_endian",
            Self::BigEndian => "binary_big_endian",
        }
    }
}

/// True if the first line is `ply`.
pub(super) fn has_magic(content: &[u8]) -> bool {
    Lines::new(content)
        .next()
        .is_some_and(|line| line.trim_ascii_end() == b"ply")
}

pub(super) fn parse(content: &[u8]) -> Parsed<MeshFile> {
    let (header, lines) = Header::read(content)?;
    let rest = &content[header.end..];
    let file_size = content.len();
    match header.encoding {
        PlyEncoding::Ascii => {
            let words = Words::default();
            read_body(&header, Ascii { lines, words })
        }
        PlyEncoding::LittleEndian => read_body(&header, Binary::<true> { rest, file_size }),
        PlyEncoding::BigEndian => read_body(&header, Binary::<false> { rest, file_size }),
    }
}

fn read_body(header: &Header, mut body: impl Body) -> Parsed<MeshFile> {
    let vertex_count = header
        .elements
        .iter()
        .find(|element| element.name == b"vertex")
        .ok_or_else(|| missing("element vertex").of_file())?
        .count as usize;
    let mut vertices = Vec::new();
    let mut attributes = Vec::new();
    let mut faces = Faces::new();
    for element in &header.elements {
        match element.name {
            b"vertex" => (vertices, attributes) = read_vertices(element, &mut body)?,
            b"face" => read_index_lists(element, &mut body, vertex_count, false, |list| {
                push_face(list, &mut faces)
            })?,
            b"tristrips" | b"tristrip" => {
                read_index_lists(element, &mut body, vertex_count, true, |list| {
                    push_strips(list, &mut faces);
                    Ok(())
                })?;
            }
            _ => body.skip_element(element)?,
        }
    }
    assemble(vertices, faces, attributes, header.encoding.format())
}

/// Role of a vertex property.
enum Part {
    Coordinate(usize, Scalar),
    Attribute(usize),
    Skipped(Kind),
}

fn read_vertices(
    element: &Element,
    body: &mut impl Body,
) -> Parsed<(Vec<DVec3>, Vec<VertexAttribute>)> {
    let count = element.count as usize;
    let mut attributes = Vec::new();
    let mut coordinates = 0;
    let mut parts = Vec::with_capacity(element.properties.len());
    for property in &element.properties {
        let axis = [b"x", b"y", b"z"]
            .iter()
            .position(|name| *name == property.name);
        parts.push(match (property.kind, axis) {
            (Kind::Scalar(scalar), Some(axis)) => {
                coordinates += 1;
                Part::Coordinate(axis, scalar)
            }
            (Kind::Scalar(scalar), None) => {
                attributes.push(VertexAttribute::new(
                    String::from_utf8_lossy(property.name),
                    scalar.column(count),
                ));
                Part::Attribute(attributes.len() - 1)
            }
            (kind @ Kind::List { .. }, _) => Part::Skipped(kind),
        });
    }
    // Names are unique, so three coordinates are x, y and z.
    if coordinates != 3 {
        let why = "a vertex needs the scalar properties x, y and z";
        return Err(bad_header(why).at_line(element.line));
    }
    let mut vertices = Vec::with_capacity(count);
    for index in 0..element.count {
        let row = Row { element, index };
        body.begin(row)?;
        let mut position = DVec3::ZERO;
        for part in &parts {
            match *part {
                Part::Coordinate(axis, scalar) => {
                    let value = body.float(row, scalar)?;
                    if !value.is_finite() {
                        let found = value.to_string();
                        return Err(FileProblem::NotFinite { found }.at(body.location(row)));
                    }
                    position[axis] = value;
                }
                Part::Attribute(column) => body.append(row, &mut attributes[column].values)?,
                Part::Skipped(kind) => body.skip_property(row, kind)?,
            }
        }
        body.end(row)?;
        vertices.push(position);
    }
    Ok((vertices, attributes))
}

/// Replaces -1 between strips; no mesh has this many vertices.
const SEPARATOR: u32 = u32::MAX;

/// Passes the list of vertex indices of every element to `take`.
fn read_index_lists(
    element: &Element,
    body: &mut impl Body,
    vertices: usize,
    with_separators: bool,
    mut take: impl FnMut(&[u32]) -> Result<(), FileProblem>,
) -> Parsed<()> {
    if element.count == 0 {
        return Ok(());
    }
    let is_indices = |property: &Property| {
        matches!(property.name, b"vertex_indices" | b"vertex_index")
            && matches!(property.kind, Kind::List { item, .. } if item.is_integer())
    };
    let Some(indices) = element.properties.iter().position(is_indices) else {
        let why = format!(
            "'{}' needs a list of an integer type named vertex_indices",
            quote(element.name)
        );
        return Err(bad_header(why).at_line(element.line));
    };
    let mut list = Vec::new();
    for index in 0..element.count {
        let row = Row { element, index };
        body.begin(row)?;
        for (at, property) in element.properties.iter().enumerate() {
            match property.kind {
                Kind::List { length, item } if at == indices => {
                    list.clear();
                    for _ in 0..body.length(row, length)? {
                        list.push(match body.integer(row, item)? {
                            -1 if with_separators => SEPARATOR,
                            vertex => vertex_index(vertex, vertices)
                                .map_err(|problem| problem.at(body.location(row)))?,
                        });
                    }
                }
                kind => body.skip_property(row, kind)?,
            }
        }
        body.end(row)?;
        take(&list).map_err(|problem| problem.at(body.location(row)))?;
    }
    Ok(())
}

fn push_face(corners: &[u32], faces: &mut Faces) -> Result<(), FileProblem> {
    if corners.len() < 3 {
        return Err(FileProblem::ShortFace {
            corners: corners.len(),
        });
    }
    faces.push(corners);
    Ok(())
}

/// Converts strips to triangles: every corner after the second forms a triangle with the two before
/// it; every other triangle is reversed. A corner repeated to join strips forms none.
fn push_strips(corners: &[u32], faces: &mut Faces) {
    for strip in corners.split(|&corner| corner == SEPARATOR) {
        for (at, &[a, b, c]) in strip.array_windows().enumerate() {
            if a != b && b != c && c != a {
                faces.push(&if at % 2 == 0 { [a, b, c] } else { [b, a, c] });
            }
        }
    }
}
