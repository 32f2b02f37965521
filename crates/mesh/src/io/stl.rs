//! STL: triangles given by corner positions. Corners at exactly the same position become one
//! vertex, numbered in order of first occurrence.

use std::collections::HashMap;
use std::io::{self, Write};

use glam::DVec3;

use super::budget::ByteBudget;
use super::error::{FileProblem, Location, Parsed, quote};
use super::format::{FileFormat, Format, Stores, Writer};
use super::text::{Lines, Words, coordinate};
use super::{MeshFile, assemble, check_single_precision};
use crate::defects::position_key;
use crate::polygon::vector_area;
use crate::triangulate::triangle_corners;
use crate::{Faces, Mesh};

pub(super) const FORMAT: Format = Format {
    // Some programs start binary files with the word `solid`.
    has_signature: |file| has_binary_size(file.content),
    starts_with: |word, is_named| word.eq_ignore_ascii_case(b"solid") || is_named && !word.is_empty(),
    writer: Some(Writer {
        format: FileFormat::STL_BINARY,
        stores: Stores { double_precision: false, ..Stores::MESH },
        encode: |file| {
            check_single_precision(file.mesh, FileFormat::STL_BINARY)?;
            Ok(Box::new(move |out| write(file.mesh, out)))
        },
    }),
    ..Format::new("STL", &["stl"], |file| parse(file.content))
};

impl FileFormat {
    /// STL as text.
    pub const STL_ASCII: Self = Self::named("STL (ASCII)");
    /// STL in binary.
    pub const STL_BINARY: Self = Self::named("STL (binary)");
}

/// Number of bytes before the triangle count.
const TITLE: usize = 80;
/// Number of bytes before the triangles.
const HEADER: usize = TITLE + 4;
/// Bytes per triangle: a normal and three corners of three `f32` each, and two bytes that some
/// programs use for a colour.
const TRIANGLE: usize = 50;

/// True if the triangle count in the header matches the file size exactly.
fn has_binary_size(content: &[u8]) -> bool {
    declared_triangles(content).is_some_and(|count| content.len() as u64 == HEADER as u64 + TRIANGLE as u64 * count)
}

fn declared_triangles(content: &[u8]) -> Option<u64> {
    let count = content.get(TITLE..)?.first_chunk()?;
    Some(u64::from(u32::from_le_bytes(*count)))
}

/// Assigns the same index to equal positions.
#[derive(Default)]
struct Welder {
    vertices: Vec<DVec3>,
    numbers: HashMap<[u64; 3], u32>,
}

impl Welder {
    fn vertex(&mut self, position: DVec3) -> u32 {
        *self.numbers.entry(position_key(position)).or_insert_with(|| {
            self.vertices.push(position);
            // The index saturates above u32::MAX; `Mesh::new` then rejects the vertices.
            u32::try_from(self.vertices.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

/// Where the size does not say that a file is binary, a zero byte does: text has none.
fn parse(content: &[u8]) -> Parsed<MeshFile> {
    let is_binary = has_binary_size(content) || content.iter().take(1 << 10).any(|&byte| byte == 0);
    if is_binary { parse_binary(content) } else { parse_ascii(content) }
}

fn parse_binary(content: &[u8]) -> Parsed<MeshFile> {
    let Some(declared) = declared_triangles(content) else {
        let expected = "the 84 bytes of a binary STL header";
        return Err(FileProblem::EndsEarly { expected }.at(Location::Byte(content.len())));
    };
    let count = ByteBudget::new(content.len() - HEADER, content.len())
        .claim(b"triangle", declared, TRIANGLE as u64)
        .map_err(|problem| problem.at(Location::Byte(TITLE)))?;
    let mut welder = Welder::default();
    let mut faces = Faces::with_capacity(count, 3 * count);
    let triangles = content[HEADER..].chunks_exact(TRIANGLE).take(count);
    for (index, triangle) in triangles.enumerate() {
        let (values, _) = triangle.as_chunks::<4>();
        // The first three values are the normal.
        for (corner, xyz) in values[3..].chunks_exact(3).enumerate() {
            let value = |axis: usize| f64::from(f32::from_le_bytes(xyz[axis]));
            let position = DVec3::new(value(0), value(1), value(2));
            if !position.is_finite() {
                return Err(FileProblem::not_finite(position).at(Location::Element {
                    kind: "triangle".to_owned(),
                    index: index as u64,
                    byte: HEADER + TRIANGLE * index + 12 * (corner + 1),
                }));
            }
            faces.push_corner(welder.vertex(position));
        }
        faces.close_face();
    }
    assemble(welder.vertices, faces, Vec::new(), FileFormat::STL_BINARY)
}

/// `solid NAME`, then `facet normal X Y Z outer loop vertex X Y Z ... endloop endfacet`, then
/// `endsolid NAME`, any number of times. Line breaks matter only after names.
fn parse_ascii(content: &[u8]) -> Parsed<MeshFile> {
    let mut reader = AsciiReader { lines: Lines::new(content), words: Words::default() };
    let mut welder = Welder::default();
    let mut faces = Faces::new();
    while let Some(keyword) = reader.next() {
        reader.expect(keyword, b"solid", "'solid'")?;
        reader.skip_line();
        loop {
            let keyword = reader.need("'facet' or 'endsolid'")?;
            if keyword.eq_ignore_ascii_case(b"endsolid") {
                reader.skip_line();
                break;
            }
            reader.expect(keyword, b"facet", "'facet' or 'endsolid'")?;
            reader.facet(&mut welder, &mut faces)?;
        }
    }
    assemble(welder.vertices, faces, Vec::new(), FileFormat::STL_ASCII)
}

/// Reader of words across lines.
struct AsciiReader<'a> {
    lines: Lines<'a>,
    words: Words<'a>,
}

impl<'a> AsciiReader<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            if let Some(word) = self.words.next() {
                return Some(word);
            }
            self.words = Words::new(self.lines.next()?);
        }
    }

    fn skip_line(&mut self) {
        self.words = Words::default();
    }

    fn need(&mut self, expected: &'static str) -> Parsed<&'a [u8]> {
        self.next().ok_or_else(|| self.fail(FileProblem::EndsEarly { expected }))
    }

    fn fail(&self, problem: FileProblem) -> Box<super::error::Fault> {
        problem.at_line(self.lines.number())
    }

    fn expect(&self, word: &[u8], keyword: &[u8], expected: &'static str) -> Parsed<()> {
        if word.eq_ignore_ascii_case(keyword) {
            return Ok(());
        }
        let found = quote(word);
        Err(self.fail(FileProblem::Unexpected { found, expected }))
    }

    /// Reads a facet after the word `facet`. The normal is skipped without parsing: many files have
    /// none or NaN.
    fn facet(&mut self, welder: &mut Welder, faces: &mut Faces) -> Parsed<()> {
        let mut word = self.need("'normal' or 'outer'")?;
        if word.eq_ignore_ascii_case(b"normal") {
            for _ in 0..3 {
                self.need("a normal")?;
            }
            word = self.need("'outer'")?;
        }
        self.expect(word, b"outer", "'outer'")?;
        let word = self.need("'loop'")?;
        self.expect(word, b"loop", "'loop'")?;
        let mut corners = 0;
        loop {
            let word = self.need("'vertex' or 'endloop'")?;
            if word.eq_ignore_ascii_case(b"endloop") {
                break;
            }
            self.expect(word, b"vertex", "'vertex' or 'endloop'")?;
            let mut position = DVec3::ZERO;
            for axis in 0..3 {
                let word = self.need("a coordinate")?;
                position[axis] = coordinate(word).map_err(|problem| self.fail(problem))?;
            }
            faces.push_corner(welder.vertex(position));
            corners += 1;
        }
        if corners < 3 {
            return Err(self.fail(FileProblem::ShortFace { corners }));
        }
        faces.close_face();
        let word = self.need("'endfacet'")?;
        self.expect(word, b"endfacet", "'endfacet'")
    }
}

/// Writes triangles in single precision. Polygons are triangulated.
fn write(mesh: &Mesh, out: &mut dyn Write) -> io::Result<()> {
    let triangles = triangle_corners(mesh);
    // Without the word `solid`, with which text files start.
    let mut title = [b' '; TITLE];
    title[..16].copy_from_slice(b"binary STL, mesh");
    out.write_all(&title)?;
    let count = u32::try_from(triangles.len()).map_err(io::Error::other)?;
    out.write_all(&count.to_le_bytes())?;
    for triangle in triangles {
        let corners = triangle.map(|vertex| mesh.vertices()[vertex as usize]);
        let normal = vector_area(corners).normalize_or_zero();
        for point in [normal, corners[0], corners[1], corners[2]] {
            for value in point.to_array() {
                out.write_all(&(value as f32).to_le_bytes())?;
            }
        }
        out.write_all(&[0; 2])?;
    }
    Ok(())
}
