//! PLY: a header that declares elements and their properties, followed by the elements in text or
//! binary. One reader iterates over the elements; three [`Body`] encodings supply the values.

mod body;
mod header;
mod write;

use glam::DVec3;

use super::error::{FileProblem, Parsed, quote};
use super::format::{FileFormat, Format, Stores, Writer};
use super::scalar::Scalar;
use super::text::{Lines, Words};
use super::{MeshFile, Tally, assemble, push_strip, vertex_index};
use crate::{Faces, VertexAttribute};
use body::{Ascii, Binary, Body, Row};
use header::{Element, Header, Kind, Property, bad_header, missing};

pub(super) const FORMAT: Format = Format {
    has_signature: |file| is_magic(Lines::new(file.content).next().unwrap_or_default()),
    // The reader says what is wrong with the first line.
    starts_with: |word, is_named| is_named && !word.is_empty(),
    writer: Some(Writer {
        format: FileFormat::PLY_LITTLE_ENDIAN,
        stores: Stores { vertex_attributes: true, face_attributes: true, double_precision: true },
        encode: |file| Ok(Box::new(move |out| write::write(&file, out))),
    }),
    ..Format::new("PLY", &["ply"], |file| parse(file.content))
};

impl FileFormat {
    /// PLY as text.
    pub const PLY_ASCII: Self = Self::named("PLY (ASCII)");
    /// PLY in binary, least significant byte first.
    pub const PLY_LITTLE_ENDIAN: Self = Self::named("PLY (binary, little endian)");
    /// PLY in binary, most significant byte first.
    pub const PLY_BIG_ENDIAN: Self = Self::named("PLY (binary, big endian)");
}

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
    fn format(self) -> FileFormat {
        match self {
            Self::Ascii => FileFormat::PLY_ASCII,
            Self::LittleEndian => FileFormat::PLY_LITTLE_ENDIAN,
            Self::BigEndian => FileFormat::PLY_BIG_ENDIAN,
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

fn is_magic(first_line: &[u8]) -> bool {
    first_line.trim_ascii_end() == b"ply"
}

fn parse(content: &[u8]) -> Parsed<MeshFile> {
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
    let mut face_attributes = Vec::new();
    let mut extra_values = Tally::default();
    for element in &header.elements {
        match element.name {
            b"vertex" => (vertices, attributes) = read_vertices(element, &mut body)?,
            b"face" => {
                let lists = IndexLists { element, vertices: vertex_count, with_separators: false };
                face_attributes = lists.read(&mut body, &mut extra_values, |list| push_face(list, &mut faces))?;
            }
            b"tristrips" | b"tristrip" => {
                let lists = IndexLists { element, vertices: vertex_count, with_separators: true };
                lists.read(&mut body, &mut extra_values, |list| {
                    for strip in list.split(|&corner| corner == SEPARATOR) {
                        push_strip(strip, &mut faces);
                    }
                    Ok(())
                })?;
            }
            _ => body.skip_element(element)?,
        }
    }
    // With strips, the faces are not those of the element `face`.
    face_attributes.retain(|attribute| attribute.values.len() == faces.len());
    let notes = [
        header.stray_lines.note("unknown header line(s) are skipped"),
        extra_values.note("face line(s) have more values than the header declares, which are skipped"),
    ];
    Ok(MeshFile {
        face_attributes,
        notes: notes.into_iter().flatten().collect(),
        ..assemble(vertices, faces, attributes, header.encoding.format())?
    })
}

/// Role of a vertex property.
enum Part {
    Coordinate(usize, Scalar),
    Attribute(usize),
    Skipped(Kind),
}

fn read_vertices(element: &Element, body: &mut impl Body) -> Parsed<(Vec<DVec3>, Vec<VertexAttribute>)> {
    let count = element.count as usize;
    let mut attributes = Vec::new();
    let mut coordinates = 0;
    let mut parts = Vec::with_capacity(element.properties.len());
    for property in &element.properties {
        let axis = [b"x", b"y", b"z"].iter().position(|name| *name == property.name);
        parts.push(match (property.kind, axis) {
            (Kind::Scalar(scalar), Some(axis)) => {
                coordinates += 1;
                Part::Coordinate(axis, scalar)
            }
            (Kind::Scalar(scalar), None) => {
                attributes.push(VertexAttribute::new(String::from_utf8_lossy(property.name), scalar.column(count)));
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
        if let Some(found) = body.end() {
            let element = quote(element.name);
            let problem = FileProblem::TooManyValues { found, element };
            return Err(problem.at(body.location(row)));
        }
        vertices.push(position);
    }
    Ok((vertices, attributes))
}

/// Replaces -1 between strips; no mesh has this many vertices.
const SEPARATOR: u32 = u32::MAX;

/// Elements with a list of vertex indices.
struct IndexLists<'a> {
    element: &'a Element<'a>,
    /// Number of vertices.
    vertices: usize,
    /// True if -1 separates strips.
    with_separators: bool,
}

impl IndexLists<'_> {
    /// Passes the list of vertex indices of every element to `take`, and returns the scalar
    /// properties.
    fn read(
        &self,
        body: &mut impl Body,
        extra_values: &mut Tally,
        mut take: impl FnMut(&[u32]) -> Result<(), FileProblem>,
    ) -> Parsed<Vec<VertexAttribute>> {
        let element = self.element;
        if element.count == 0 {
            return Ok(Vec::new());
        }
        let indices = self.indices()?;
        let mut attributes = Vec::new();
        for property in &element.properties {
            if let Kind::Scalar(scalar) = property.kind {
                let name = String::from_utf8_lossy(property.name);
                let values = scalar.column(element.count as usize);
                attributes.push(VertexAttribute::new(name, values));
            }
        }
        let mut list = Vec::new();
        for index in 0..element.count {
            let row = Row { element, index };
            body.begin(row)?;
            let mut columns = attributes.iter_mut();
            for (at, property) in element.properties.iter().enumerate() {
                match property.kind {
                    Kind::List { length, item } if at == indices => {
                        self.read_list(body, row, (length, item), &mut list)?;
                    }
                    Kind::Scalar(_) => {
                        if let Some(column) = columns.next() {
                            body.append(row, &mut column.values)?;
                        }
                    }
                    kind => body.skip_property(row, kind)?,
                }
            }
            if body.end().is_some() {
                extra_values.add(|| body.location(row));
            }
            take(&list).map_err(|problem| problem.at(body.location(row)))?;
        }
        Ok(attributes)
    }

    /// Place of the property with the vertex indices.
    fn indices(&self) -> Parsed<usize> {
        let is_indices = |property: &Property| {
            matches!(property.name, b"vertex_indices" | b"vertex_index")
                && matches!(property.kind, Kind::List { item, .. } if item.is_integer())
        };
        let properties = &self.element.properties;
        properties.iter().position(is_indices).ok_or_else(|| {
            let why = format!("'{}' needs a list of an integer type named vertex_indices", quote(self.element.name));
            bad_header(why).at_line(self.element.line)
        })
    }

    fn read_list(
        &self,
        body: &mut impl Body,
        row: Row,
        (length, item): (Scalar, Scalar),
        list: &mut Vec<u32>,
    ) -> Parsed<()> {
        list.clear();
        for _ in 0..body.length(row, length)? {
            list.push(match body.integer(row, item)? {
                -1 if self.with_separators => SEPARATOR,
                vertex => vertex_index(vertex, self.vertices).map_err(|problem| problem.at(body.location(row)))?,
            });
        }
        Ok(())
    }
}

fn push_face(corners: &[u32], faces: &mut Faces) -> Result<(), FileProblem> {
    if corners.len() < 3 {
        return Err(FileProblem::ShortFace { corners: corners.len() });
    }
    faces.push(corners);
    Ok(())
}
