//! PLY: a header that declares elements and their properties, followed by the elements in text or
//! binary. One reader iterates over the elements; three [`Body`] encodings supply the values.

use std::collections::HashSet;
use std::io::{self, Write};

use glam::DVec3;

use super::error::{Fault, FileProblem, Location, Parsed, quote};
use super::room::Room;
use super::text::{Lines, Words, number};
use super::{FileFormat, MeshFile, assemble, vertex_index};
use crate::attribute::with_values;
use crate::{AttributeValues, Faces, Mesh, VertexAttribute};

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

/// A scalar type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scalar {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    F32,
    F64,
}

impl Scalar {
    fn parse(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"char" | b"int8" => Self::I8,
            b"uchar" | b"uint8" => Self::U8,
            b"short" | b"int16" => Self::I16,
            b"ushort" | b"uint16" => Self::U16,
            b"int" | b"int32" => Self::I32,
            b"uint" | b"uint32" => Self::U32,
            b"float" | b"float32" => Self::F32,
            b"double" | b"float64" => Self::F64,
            _ => return None,
        })
    }

    fn is_integer(self) -> bool {
        !matches!(self, Self::F32 | Self::F64)
    }

    fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// Creates an empty column of this type.
    fn column(self, capacity: usize) -> AttributeValues {
        match self {
            Self::I8 => AttributeValues::I8(Vec::with_capacity(capacity)),
            Self::U8 => AttributeValues::U8(Vec::with_capacity(capacity)),
            Self::I16 => AttributeValues::I16(Vec::with_capacity(capacity)),
            Self::U16 => AttributeValues::U16(Vec::with_capacity(capacity)),
            Self::I32 => AttributeValues::I32(Vec::with_capacity(capacity)),
            Self::U32 => AttributeValues::U32(Vec::with_capacity(capacity)),
            Self::F32 => AttributeValues::F32(Vec::with_capacity(capacity)),
            Self::F64 => AttributeValues::F64(Vec::with_capacity(capacity)),
        }
    }
}

/// Type of a property.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Scalar(Scalar),
    List { length: Scalar, item: Scalar },
}

struct Property<'a> {
    name: &'a [u8],
    kind: Kind,
}

struct Element<'a> {
    name: &'a [u8],
    count: u64,
    properties: Vec<Property<'a>>,
    /// Header line of the declaration.
    line: usize,
}

impl Element<'_> {
    /// Minimum size of one element in bytes.
    fn least_bytes(&self, encoding: PlyEncoding) -> u64 {
        let properties = self.properties.iter();
        let bytes = match encoding {
            // A digit and a space.
            PlyEncoding::Ascii => 2 * properties.len(),
            _ => properties
                .map(|property| match property.kind {
                    Kind::Scalar(scalar) => scalar.bytes(),
                    Kind::List { length, .. } => length.bytes(),
                })
                .sum(),
        };
        bytes as u64
    }

    fn truncated(&self, read: u64) -> FileProblem {
        FileProblem::Truncated {
            element: quote(self.name),
            read,
            declared: self.count,
        }
    }
}

struct Header<'a> {
    encoding: PlyEncoding,
    elements: Vec<Element<'a>>,
    /// Offset of the first byte after the header.
    end: usize,
}

impl<'a> Header<'a> {
    /// Reads the header and checks that the rest of the file can hold the declared elements.
    fn read(content: &'a [u8]) -> Parsed<(Self, Lines<'a>)> {
        let mut lines = Lines::new(content);
        let magic = lines.next().unwrap_or_default();
        let bare_returns = content[magic.len()..].starts_with(b"\r")
            && !content[magic.len()..].starts_with(b"\r\n");
        let mut parts = HeaderParts::default();
        while let Some(line) = lines.next() {
            if !parts
                .line(Words::new(line), lines.number())
                .map_err(|problem| problem.at_line(lines.number()))?
            {
                continue;
            }
            let mut end = content.len() - lines.rest().len();
            if bare_returns && content[..end].ends_with(b"\r\n") {
                // In a file with bare `\r` line ends, this `\n` is the first byte of data.
                end -= 1;
            }
            let encoding = parts
                .encoding
                .ok_or_else(|| missing("format").at_line(lines.number()))?;
            let header = Self {
                encoding,
                elements: parts.elements,
                end,
            };
            header.check_room(content)?;
            return Ok((header, lines));
        }
        Err(missing("end_header").at_line(lines.number()))
    }

    fn check_room(&self, content: &[u8]) -> Parsed<()> {
        // In text the last value needs no trailing space.
        let spare = usize::from(self.encoding == PlyEncoding::Ascii);
        let mut room = Room::new(content.len() - self.end + spare, content.len());
        for element in &self.elements {
            room.claim(
                element.name,
                element.count,
                element.least_bytes(self.encoding),
            )
            .map_err(|problem| problem.at_line(element.line))?;
        }
        Ok(())
    }
}

/// State of the header reader.
#[derive(Default)]
struct HeaderParts<'a> {
    encoding: Option<PlyEncoding>,
    elements: Vec<Element<'a>>,
    /// Names so far, to detect duplicates.
    element_names: HashSet<&'a [u8]>,
    property_names: HashSet<&'a [u8]>,
}

impl<'a> HeaderParts<'a> {
    /// Processes one line; true if it is the last line of the header.
    fn line(&mut self, mut words: Words<'a>, number: usize) -> Result<bool, FileProblem> {
        match words.next() {
            None | Some(b"comment" | b"obj_info") => {}
            Some(b"end_header") => return Ok(true),
            Some(b"format") => self.encoding = Some(read_format(words)?),
            Some(b"element") => {
                let element = read_element(words, number)?;
                check_new(&mut self.element_names, element.name)?;
                self.property_names = HashSet::new();
                self.elements.push(element);
            }
            Some(b"property") => {
                let property = read_property(words)?;
                check_new(&mut self.property_names, property.name)?;
                self.elements
                    .last_mut()
                    .ok_or_else(|| bad_header("a property precedes the first element"))?
                    .properties
                    .push(property);
            }
            Some(word) => {
                return Err(FileProblem::Unexpected {
                    found: quote(word),
                    expected: "a header line such as 'element', 'property' or 'end_header'",
                });
            }
        }
        Ok(false)
    }
}

fn bad_header(why: impl Into<String>) -> FileProblem {
    FileProblem::BadHeader { why: why.into() }
}

fn missing(line: &str) -> FileProblem {
    bad_header(format!("the line '{line}' is missing"))
}

fn check_new<'a>(names: &mut HashSet<&'a [u8]>, name: &'a [u8]) -> Result<(), FileProblem> {
    if names.insert(name) {
        return Ok(());
    }
    Err(bad_header(format!(
        "the name '{}' is used twice",
        quote(name)
    )))
}

fn read_format(mut words: Words) -> Result<PlyEncoding, FileProblem> {
    let name = words.next().unwrap_or_default();
    let version = words.next().unwrap_or_default();
    let encoding = [
        PlyEncoding::Ascii,
        PlyEncoding::LittleEndian,
        PlyEncoding::BigEndian,
    ]
    .into_iter()
    .find(|encoding| encoding.name().as_bytes() == name);
    match encoding {
        Some(encoding) if version == b"1.0" => Ok(encoding),
        _ => Err(FileProblem::Unsupported {
            what: format!("PLY format '{} {}'", quote(name), quote(version)),
        }),
    }
}

/// `element NAME COUNT`
fn read_element(mut words: Words, line: usize) -> Result<Element, FileProblem> {
    let (Some(name), Some(count)) = (words.next(), words.next()) else {
        return Err(bad_header("'element' needs a name and a count"));
    };
    Ok(Element {
        name,
        count: number(count, "a count")?,
        properties: Vec::new(),
        line,
    })
}

/// `property TYPE NAME` or `property list LENGTH_TYPE ITEM_TYPE NAME`
fn read_property(mut words: Words) -> Result<Property, FileProblem> {
    let scalar = |words: &mut Words| {
        let word = words.next().unwrap_or_default();
        Scalar::parse(word).ok_or_else(|| FileProblem::Unexpected {
            found: quote(word),
            expected: "a type such as 'float', 'int' or 'uchar'",
        })
    };
    let kind = if words.peek() == Some(b"list") {
        words.next();
        let length = scalar(&mut words)?;
        let item = scalar(&mut words)?;
        if !length.is_integer() {
            return Err(bad_header(
                "the length of a list must be of an integer type",
            ));
        }
        Kind::List { length, item }
    } else {
        Kind::Scalar(scalar(&mut words)?)
    };
    let name = words
        .next()
        .ok_or_else(|| bad_header("'property' needs a type and a name"))?;
    Ok(Property { name, kind })
}

/// Position of the element being read.
#[derive(Clone, Copy)]
struct Row<'a> {
    element: &'a Element<'a>,
    index: u64,
}

/// Sequential access to the values after the header.
trait Body {
    /// Starts an element: all values until [`end`](Self::end) belong to it.
    fn begin(&mut self, row: Row) -> Parsed<()>;
    /// Ends an element.
    fn end(&mut self, row: Row) -> Parsed<()>;
    /// The next value, of a scalar type, as f64.
    fn float(&mut self, row: Row, scalar: Scalar) -> Parsed<f64>;
    /// The next value, of an integer type.
    fn integer(&mut self, row: Row, scalar: Scalar) -> Parsed<i64>;
    /// Appends the next value to a column of its type.
    fn append(&mut self, row: Row, column: &mut AttributeValues) -> Parsed<()>;
    /// Skips values of one type.
    fn skip(&mut self, row: Row, scalar: Scalar, values: u64) -> Parsed<()>;
    /// Skips all elements of one name.
    fn skip_element(&mut self, element: &Element) -> Parsed<()>;
    /// Location of an element.
    fn location(&self, row: Row) -> Location;

    /// Reads the length of a list.
    fn length(&mut self, row: Row, scalar: Scalar) -> Parsed<u64> {
        let length = self.integer(row, scalar)?;
        u64::try_from(length)
            .map_err(|_| FileProblem::NegativeLength { length }.at(self.location(row)))
    }

    /// Skips a property.
    fn skip_property(&mut self, row: Row, kind: Kind) -> Parsed<()> {
        match kind {
            Kind::Scalar(scalar) => self.skip(row, scalar, 1),
            Kind::List { length, item } => {
                let length = self.length(row, length)?;
                self.skip(row, item, length)
            }
        }
    }
}

/// A scalar value of a file.
trait Value: std::str::FromStr + std::fmt::Debug + Copy {
    /// Description of a valid word, for error messages.
    const EXPECTED: &'static str;
    fn split_from(bytes: &[u8], little_endian: bool) -> Option<(Self, &[u8])>;
    fn append_to(self, row: &mut Vec<u8>, encoding: PlyEncoding) -> io::Result<()>;
}

macro_rules! impl_value {
    ($($type:ty, $expected:literal;)*) => {$(
        impl Value for $type {
            const EXPECTED: &'static str = $expected;

            fn split_from(bytes: &[u8], little_endian: bool) -> Option<(Self, &[u8])> {
                let (&bytes, rest) = bytes.split_first_chunk()?;
                let value = if little_endian {
                    Self::from_le_bytes(bytes)
                } else {
                    Self::from_be_bytes(bytes)
                };
                Some((value, rest))
            }

            fn append_to(self, row: &mut Vec<u8>, encoding: PlyEncoding) -> io::Result<()> {
                match encoding {
                    PlyEncoding::LittleEndian => row.write_all(&self.to_le_bytes()),
                    PlyEncoding::BigEndian => row.write_all(&self.to_be_bytes()),
                    // The shortest representation that parses to the same number.
                    PlyEncoding::Ascii => write!(row, "{self:?} "),
                }
            }
        }
    )*};
}
impl_value! {
    i8, "an integer from -128 to 127 (char)";
    u8, "an integer from 0 to 255 (uchar)";
    i16, "a signed 16-bit integer (short)";
    u16, "an unsigned 16-bit integer (ushort)";
    i32, "a signed 32-bit integer (int)";
    u32, "an unsigned 32-bit integer (uint)";
    f32, "a number";
    f64, "a number";
}

/// Elements in text, one per line.
struct Ascii<'a> {
    lines: Lines<'a>,
    words: Words<'a>,
}

impl Ascii<'_> {
    fn word(&mut self, row: Row) -> Parsed<&[u8]> {
        self.words.next().ok_or_else(|| {
            let element = quote(row.element.name);
            FileProblem::TooFewValues { element }.at_line(self.lines.number())
        })
    }

    fn value<T: Value>(&mut self, row: Row) -> Parsed<T> {
        let line = self.lines.number();
        number(self.word(row)?, T::EXPECTED).map_err(|problem| problem.at_line(line))
    }
}

impl Body for Ascii<'_> {
    fn begin(&mut self, row: Row) -> Parsed<()> {
        self.words = self.lines.next_words().ok_or_else(|| {
            row.element
                .truncated(row.index)
                .at_line(self.lines.number())
        })?;
        Ok(())
    }

    fn end(&mut self, row: Row) -> Parsed<()> {
        match self.words.next() {
            None => Ok(()),
            Some(word) => Err(FileProblem::TooManyValues {
                found: quote(word),
                element: quote(row.element.name),
            }
            .at_line(self.lines.number())),
        }
    }

    /// All digits are kept, even if the header declares `float`.
    fn float(&mut self, row: Row, _: Scalar) -> Parsed<f64> {
        self.value(row)
    }

    fn integer(&mut self, row: Row, _: Scalar) -> Parsed<i64> {
        let line = self.lines.number();
        number(self.word(row)?, "an integer").map_err(|problem| problem.at_line(line))
    }

    fn append(&mut self, row: Row, column: &mut AttributeValues) -> Parsed<()> {
        with_values!(column, values => values.push(self.value(row)?));
        Ok(())
    }

    fn skip(&mut self, row: Row, _: Scalar, values: u64) -> Parsed<()> {
        for _ in 0..values {
            self.word(row)?;
        }
        Ok(())
    }

    fn skip_element(&mut self, element: &Element) -> Parsed<()> {
        if element.properties.is_empty() {
            return Ok(());
        }
        (0..element.count).try_for_each(|index| self.begin(Row { element, index }))
    }

    fn location(&self, _: Row) -> Location {
        Location::Line(self.lines.number())
    }
}

/// Elements in binary.
struct Binary<'a, const LITTLE_ENDIAN: bool> {
    rest: &'a [u8],
    file_size: usize,
}

impl<'a, const LITTLE_ENDIAN: bool> Binary<'a, LITTLE_ENDIAN> {
    fn value<T: Value>(&mut self, row: Row) -> Parsed<T> {
        let Some((value, rest)) = T::split_from(self.rest, LITTLE_ENDIAN) else {
            return Err(self.truncated(row));
        };
        self.rest = rest;
        Ok(value)
    }

    fn truncated(&self, row: Row) -> Box<Fault> {
        row.element.truncated(row.index).at(self.location(row))
    }
}

impl<const LITTLE_ENDIAN: bool> Body for Binary<'_, LITTLE_ENDIAN> {
    fn begin(&mut self, _: Row) -> Parsed<()> {
        Ok(())
    }

    fn end(&mut self, _: Row) -> Parsed<()> {
        Ok(())
    }

    fn float(&mut self, row: Row, scalar: Scalar) -> Parsed<f64> {
        Ok(match scalar {
            Scalar::F32 => self.value::<f32>(row)?.into(),
            Scalar::F64 => self.value(row)?,
            _ => self.integer(row, scalar)? as f64,
        })
    }

    fn integer(&mut self, row: Row, scalar: Scalar) -> Parsed<i64> {
        Ok(match scalar {
            Scalar::I8 => self.value::<i8>(row)?.into(),
            Scalar::U8 => self.value::<u8>(row)?.into(),
            Scalar::I16 => self.value::<i16>(row)?.into(),
            Scalar::U16 => self.value::<u16>(row)?.into(),
            Scalar::I32 => self.value::<i32>(row)?.into(),
            Scalar::U32 => self.value::<u32>(row)?.into(),
            Scalar::F32 | Scalar::F64 => self.float(row, scalar)? as i64,
        })
    }

    fn append(&mut self, row: Row, column: &mut AttributeValues) -> Parsed<()> {
        with_values!(column, values => values.push(self.value(row)?));
        Ok(())
    }

    fn skip(&mut self, row: Row, scalar: Scalar, values: u64) -> Parsed<()> {
        let bytes = values.saturating_mul(scalar.bytes() as u64);
        self.rest = usize::try_from(bytes)
            .ok()
            .and_then(|bytes| self.rest.get(bytes..))
            .ok_or_else(|| self.truncated(row))?;
        Ok(())
    }

    fn skip_element(&mut self, element: &Element) -> Parsed<()> {
        if element.properties.is_empty() {
            return Ok(());
        }
        for index in 0..element.count {
            for property in &element.properties {
                self.skip_property(Row { element, index }, property.kind)?;
            }
        }
        Ok(())
    }

    fn location(&self, row: Row) -> Location {
        Location::Element {
            kind: quote(row.element.name),
            index: row.index,
            byte: self.file_size - self.rest.len(),
        }
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

/// Checks that attributes can be written as PLY properties next to the coordinates.
pub(super) fn check_attributes(
    mesh: &Mesh,
    attributes: &[VertexAttribute],
) -> Result<(), FileProblem> {
    let mut names = HashSet::from(["x", "y", "z"]);
    for VertexAttribute { name, values } in attributes {
        let why = if name.is_empty() {
            Some("it is empty")
        } else if name.starts_with('#') {
            Some("it starts a comment")
        } else if name.bytes().any(|b| b == b' ' || b.is_ascii_control()) {
            Some("it contains white space or control characters")
        } else if !names.insert(name) {
            Some("the name is already used")
        } else {
            None
        };
        if let Some(why) = why {
            return Err(FileProblem::AttributeName {
                name: quote(name.as_bytes()),
                why,
            });
        }
        if values.len() != mesh.vertex_count() {
            return Err(FileProblem::AttributeLength {
                name: name.clone(),
                values: values.len(),
                vertices: mesh.vertex_count(),
            });
        }
    }
    Ok(())
}

/// Writes coordinates as `double` and attributes, which must be checked, in their own types.
pub(super) fn write(
    mesh: &Mesh,
    attributes: &[VertexAttribute],
    encoding: PlyEncoding,
    out: &mut dyn Write,
) -> io::Result<()> {
    let longest = mesh.faces().iter().map(<[u32]>::len).max().unwrap_or(0);
    // Most programs expect `uchar` and `int`; larger types are used only if necessary.
    let short_lists = longest <= usize::from(u8::MAX);
    let length_type = if short_lists { "uchar" } else { "uint" };
    let small_indices = mesh.vertex_count() <= i32::MAX as usize;
    let index_type = if small_indices { "int" } else { "uint" };
    writeln!(out, "ply\nformat {} 1.0", encoding.name())?;
    writeln!(out, "element vertex {}", mesh.vertex_count())?;
    for axis in ["x", "y", "z"] {
        writeln!(out, "property double {axis}")?;
    }
    for VertexAttribute { name, values } in attributes {
        writeln!(out, "property {} {name}", values.ply_type())?;
    }
    writeln!(out, "element face {}", mesh.face_count())?;
    writeln!(
        out,
        "property list {length_type} {index_type} vertex_indices\nend_header"
    )?;

    let mut row = Vec::new();
    let mut finish = |row: &mut Vec<u8>| {
        if encoding == PlyEncoding::Ascii {
            row.pop();
            row.push(b'\n');
        }
        out.write_all(row)?;
        row.clear();
        io::Result::Ok(())
    };
    for (vertex, position) in mesh.vertices().iter().enumerate() {
        for coordinate in position.to_array() {
            coordinate.append_to(&mut row, encoding)?;
        }
        for attribute in attributes {
            with_values!(&attribute.values, values => values[vertex].append_to(&mut row, encoding)?);
        }
        finish(&mut row)?;
    }
    for face in mesh.faces().iter() {
        if short_lists {
            (face.len() as u8).append_to(&mut row, encoding)?;
        } else {
            (face.len() as u32).append_to(&mut row, encoding)?;
        }
        for vertex in face {
            // `int` and `uint` have the same bits here.
            vertex.append_to(&mut row, encoding)?;
        }
        finish(&mut row)?;
    }
    Ok(())
}
