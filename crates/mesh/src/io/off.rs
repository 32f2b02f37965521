//! Geomview OFF: `OFF` and its variants with colours, normals and texture coordinates. One vertex
//! or face per line, or values across lines if there are no face colours.

use std::io::{self, Write};

use glam::DVec3;

use super::budget::ByteBudget;
use super::error::{FileProblem, Parsed};
use super::format::{FileFormat, Format, Stores, Writer};
use super::text::{Lines, Words, coordinate, number};
use super::{MeshFile, assemble, colour, vertex_index};
use crate::{Faces, Mesh, VertexAttribute};

pub(super) const FORMAT: Format = Format {
    // Without a keyword the file starts with the counts.
    starts_with: |word, is_named| is_keyword(word) || is_named && word.first().is_some_and(u8::is_ascii_digit),
    writer: Some(Writer {
        format: FileFormat::OFF,
        stores: Stores::MESH,
        encode: |file| Ok(Box::new(move |out| write(file.mesh, out))),
    }),
    ..Format::new("OFF", &["off"], |file| parse(file.content))
};

impl FileFormat {
    /// Geomview OFF.
    pub const OFF: Self = Self::named("OFF");
}

/// Vertex format given by the keyword `[ST][C][N][4][n]OFF`.
#[derive(Debug, Default, PartialEq)]
struct Keyword {
    texture: bool,
    colour: bool,
    normals: bool,
    other_dimension: bool,
}

/// Splits a header into its keyword and the rest; `OFF8 6 0` is a common mistake.
fn split_keyword(header: &[u8]) -> Option<(Keyword, &[u8])> {
    let mut rest = header;
    let mut take = |prefix: &[u8]| match rest.strip_prefix(prefix) {
        Some(after) => {
            rest = after;
            true
        }
        None => false,
    };
    let keyword = Keyword {
        texture: take(b"ST"),
        colour: take(b"C"),
        normals: take(b"N"),
        other_dimension: take(b"4") | take(b"n"),
    };
    (take(b"OFF") || take(b"off")).then_some((keyword, rest))
}

/// True if a file that starts with this word is OFF.
fn is_keyword(word: &[u8]) -> bool {
    split_keyword(word).is_some_and(|(_, glued)| glued.iter().all(u8::is_ascii_digit))
}

fn parse(content: &[u8]) -> Parsed<MeshFile> {
    let mut lines = Lines::new(content);
    let mut header = next_words(&mut lines)?;
    let mut keyword = Keyword::default();
    if let Some((found, rest)) = split_keyword(header.unread()) {
        keyword = found;
        header = Words::new(rest);
        check_variant(&keyword, &header).map_err(|problem| problem.at_line(lines.number()))?;
        if header.peek().is_none() {
            header = next_words(&mut lines)?;
        }
    }
    let line = lines.number();
    let fail = |problem: FileProblem| problem.at_line(line);
    let (vertices, faces) = counts(header).map_err(fail)?;
    // Minimum sizes: three digits, or a face without corners, each followed by a space except the
    // last.
    let mut budget = ByteBudget::new(lines.rest().len() + 1, content.len());
    let vertices = budget.claim(b"vertex", vertices, 6).map_err(fail)?;
    let faces = budget.claim(b"face", faces, 2).map_err(fail)?;

    let start = lines.clone();
    let (positions, attributes, faces) = read_lines(&mut lines, vertices, faces, &keyword)
        // Whatever is wrong with the lines is reported unless the values make sense without them.
        .or_else(|fault| read_across_lines(start, vertices, faces, &keyword).ok_or(fault))?;
    assemble(positions, faces, attributes, FileFormat::OFF)
}

type Elements = (Vec<DVec3>, Vec<VertexAttribute>, Faces);

fn read_lines(lines: &mut Lines, vertices: usize, faces: usize, keyword: &Keyword) -> Parsed<Elements> {
    let (positions, attributes) = read_vertices(lines, vertices, keyword)?;
    let faces = read_faces(lines, faces, vertices)?;
    Ok((positions, attributes, faces))
}

/// Reads the elements as a sequence of numbers, whatever the lines: a vertex has the values that
/// the keyword gives, a face has no colour, and nothing follows the last face.
fn read_across_lines(lines: Lines, vertices: usize, faces: usize, keyword: &Keyword) -> Option<Elements> {
    let mut words = lines.flat_map(Words::new);
    let mut next = || words.next();
    let before_colour = if keyword.normals { 3 } else { 0 };
    let channels = if keyword.colour { 4 } else { 0 };
    let after_colour = if keyword.texture { 2 } else { 0 };
    let mut positions = Vec::with_capacity(vertices);
    let mut colours = Vec::new();
    for _ in 0..vertices {
        let mut position = DVec3::ZERO;
        for axis in 0..3 {
            position[axis] = coordinate(next()?).ok()?;
        }
        positions.push(position);
        for place in 0..before_colour + channels + after_colour {
            let value = number(next()?, "a number").ok()?;
            if (before_colour..before_colour + channels).contains(&place) {
                colours.push(value);
            }
        }
    }
    let mut list = Faces::with_capacity(faces, 0);
    for _ in 0..faces {
        let corners: u32 = number(next()?, "a number of corners").ok()?;
        if corners < 3 {
            return None;
        }
        for _ in 0..corners {
            let vertex = number(next()?, "a vertex index").ok()?;
            list.push_corner(vertex_index(vertex, vertices).ok()?);
        }
        list.close_face();
    }
    let attributes = colour::columns(&colours, channels);
    next().is_none().then_some((positions, attributes, list))
}

fn next_words<'a>(lines: &mut Lines<'a>) -> Parsed<Words<'a>> {
    let expected = "the number of vertices";
    lines.next_words().ok_or_else(|| FileProblem::EndsEarly { expected }.at_line(lines.number()))
}

fn check_variant(keyword: &Keyword, after: &Words) -> Result<(), FileProblem> {
    let what = if keyword.other_dimension {
        "OFF with a dimension other than 3"
    } else if after.peek() == Some(b"BINARY") {
        "binary OFF"
    } else {
        return Ok(());
    };
    Err(FileProblem::Unsupported { what: what.to_owned() })
}

/// Numbers of vertices and faces. A number of edges may follow and is ignored.
fn counts(mut words: Words) -> Result<(u64, u64), FileProblem> {
    let mut next = || {
        let word = words
            .next()
            .ok_or(FileProblem::ValueCount { found: 1, expected: "the numbers of vertices, faces and edges" })?;
        number(word, "a count")
    };
    Ok((next()?, next()?))
}

/// Number of values of a normal, a colour with alpha and texture coordinates.
const MAX_FURTHER: usize = 3 + 4 + 2;

/// A vertex is `x y z [nx ny nz] [r g b [a]] [s t]`. Colours are also accepted without `C` in the
/// keyword, because many files omit it. The first vertex defines the number of values.
fn read_vertices(lines: &mut Lines, count: usize, keyword: &Keyword) -> Parsed<(Vec<DVec3>, Vec<VertexAttribute>)> {
    let before_colour = if keyword.normals { 3 } else { 0 };
    let after_colour = if keyword.texture { 2 } else { 0 };
    let mut positions = Vec::with_capacity(count);
    let mut colours = Vec::new();
    let mut channels = None;
    for read in 0..count {
        let words = lines.next_words().ok_or_else(|| truncated("vertex", read, count).at_line(lines.number()))?;
        let fail = |problem: FileProblem| problem.at_line(lines.number());
        let mut position = DVec3::ZERO;
        let mut further: [&[u8]; MAX_FURTHER] = Default::default();
        let mut found = 0;
        for word in words {
            if found < 3 {
                position[found] = coordinate(word).map_err(fail)?;
            } else if let Some(place) = further.get_mut(found - 3) {
                *place = word;
            }
            found += 1;
        }
        let here = found.checked_sub(3 + before_colour + after_colour);
        let allowed = match (channels, keyword.colour) {
            (Some(channels), _) => here == Some(channels),
            (None, false) => matches!(here, Some(0 | 3 | 4)),
            (None, true) => matches!(here, Some(3 | 4)),
        };
        let (true, Some(here)) = (allowed, here) else {
            let expected = "the number given by the header and the first vertex";
            return Err(fail(FileProblem::ValueCount { found, expected }));
        };
        channels = Some(here);
        for word in &further[before_colour..before_colour + here] {
            colours.push(number(word, "a number").map_err(fail)?);
        }
        positions.push(position);
    }
    Ok((positions, colour::columns(&colours, channels.unwrap_or_default())))
}

/// A face is `n v1 ... vn`; the rest of the line is its colour.
fn read_faces(lines: &mut Lines, count: usize, vertices: usize) -> Parsed<Faces> {
    let mut faces = Faces::with_capacity(count, 0);
    for read in 0..count {
        let words = lines.next_words().ok_or_else(|| truncated("face", read, count).at_line(lines.number()))?;
        read_face(words, vertices, &mut faces).map_err(|p| p.at_line(lines.number()))?;
    }
    Ok(faces)
}

fn read_face(mut words: Words, vertices: usize, faces: &mut Faces) -> Result<(), FileProblem> {
    let mut next = |expected| match words.next() {
        Some(word) => number::<i64>(word, expected),
        None => Err(FileProblem::TooFewValues { element: "face".to_owned() }),
    };
    let corners = next("a number of corners")?;
    if corners < 3 {
        return Err(match usize::try_from(corners) {
            Ok(corners) => FileProblem::ShortFace { corners },
            Err(_) => FileProblem::NegativeLength { length: corners },
        });
    }
    for _ in 0..corners {
        faces.push_corner(vertex_index(next("a vertex index")?, vertices)?);
    }
    faces.close_face();
    Ok(())
}

fn truncated(element: &str, read: usize, declared: usize) -> FileProblem {
    FileProblem::Truncated { element: element.to_owned(), read: read as u64, declared: declared as u64 }
}

fn write(mesh: &Mesh, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "OFF")?;
    writeln!(out, "{} {} 0", mesh.vertex_count(), mesh.face_count())?;
    for position in mesh.vertices() {
        writeln!(out, "{:?} {:?} {:?}", position.x, position.y, position.z)?;
    }
    for face in mesh.faces().iter() {
        write!(out, "{}", face.len())?;
        for vertex in face {
            write!(out, " {vertex}")?;
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}
