//! Wavefront OBJ: `v` and `f` statements. Texture coordinates, normals, groups, materials, lines
//! and points are skipped, so a texture seam does not split a vertex.

use std::borrow::Cow;
use std::io::{self, Write};

use glam::DVec3;

use super::error::{FileProblem, Location, Parsed, quote};
use super::format::{FileFormat, Format, Stores, Writer};
use super::text::{Lines, Words, coordinate, number};
use super::{MeshFile, Tally, assemble, colour};
use crate::{Faces, Mesh};

pub(super) const FORMAT: Format = Format {
    // A file with comments only is a mesh without vertices.
    starts_with: |word, is_named| KEYWORDS.contains(&word) || is_named,
    writer: Some(Writer {
        format: FileFormat::OBJ,
        stores: Stores::MESH,
        encode: |file| Ok(Box::new(move |out| write(file.mesh, out))),
    }),
    ..Format::new("OBJ", &["obj"], |file| parse(file.content))
};

impl FileFormat {
    /// Wavefront OBJ.
    pub const OBJ: Self = Self::named("OBJ");
}

/// Statements at the start of a file.
const KEYWORDS: [&[u8]; 16] = [
    b"v", b"vt", b"vn", b"vp", b"f", b"fo", b"l", b"p", b"g", b"o", b"s", b"mg", b"usemtl", b"mtllib", b"usemap",
    b"cstype",
];

/// State of the reader.
#[derive(Default)]
struct Reader {
    vertices: Vec<DVec3>,
    /// Three values per vertex, as long as all vertices so far have a colour.
    colours: Vec<f64>,
    faces: Faces,
    /// Corners of the current face.
    corners: Vec<u32>,
    /// Faces with fewer than three corners, which are skipped.
    short_faces: Tally,
    /// References to later vertices, with their lines: each that is higher than all previous ones.
    /// The first reference out of range, if any, is always among them.
    forward: Vec<(u32, usize)>,
    has_statements: bool,
    /// True if a statement is not a known OBJ statement.
    has_unknown_statements: bool,
}

fn parse(content: &[u8]) -> Parsed<MeshFile> {
    let mut reader = Reader::default();
    let mut lines = Lines::new(content);
    while let Some(line) = lines.next() {
        let first_line = lines.number();
        let statement = join_continued(line, &mut lines);
        reader.statement(Words::new(&statement), first_line).map_err(|problem| problem.at_line(first_line))?;
    }
    reader.finish()
}

/// Joins a line that ends with a backslash to the next one, except in comments.
fn join_continued<'a>(line: &'a [u8], lines: &mut Lines<'a>) -> Cow<'a, [u8]> {
    let Some(start) = before_backslash(line) else { return Cow::Borrowed(line) };
    if Words::new(line).peek().is_none() {
        return Cow::Borrowed(line);
    }
    let mut joined = start.to_vec();
    for next in lines.by_ref() {
        joined.push(b' ');
        let Some(part) = before_backslash(next) else {
            joined.extend_from_slice(next);
            break;
        };
        joined.extend_from_slice(part);
    }
    Cow::Owned(joined)
}

fn before_backslash(line: &[u8]) -> Option<&[u8]> {
    line.trim_ascii_end().strip_suffix(b"\\")
}

impl Reader {
    fn statement(&mut self, mut words: Words, line: usize) -> Result<(), FileProblem> {
        let Some(keyword) = words.next() else { return Ok(()) };
        self.has_statements = true;
        match keyword {
            b"v" => self.vertex(words),
            b"f" | b"fo" => self.face(words, line),
            b"vt" | b"vn" | b"vp" | b"g" | b"o" | b"s" | b"usemtl" | b"mtllib" | b"l" | b"p" => Ok(()),
            _ if is_statement(keyword) => {
                self.has_unknown_statements = true;
                Ok(())
            }
            _ => Err(FileProblem::Unexpected { found: quote(keyword), expected: "a statement such as 'v' or 'f'" }),
        }
    }

    /// `x y z`, `x y z w` with a weight for curves, `x y z r g b` or `x y z r g b a`.
    fn vertex(&mut self, words: Words) -> Result<(), FileProblem> {
        let mut values = [0.0; 7];
        let mut found = 0;
        for word in words {
            if let Some(value) = values.get_mut(found) {
                *value = if found < 3 { coordinate(word)? } else { number(word, "a number")? };
            }
            found += 1;
        }
        if !matches!(found, 3 | 4 | 6 | 7) {
            return Err(FileProblem::ValueCount { found, expected: "3 coordinates and an optional colour" });
        }
        if found >= 6 && self.colours.len() == 3 * self.vertices.len() {
            self.colours.extend_from_slice(&values[3..6]);
        }
        self.vertices.push(DVec3::from_slice(&values));
        Ok(())
    }

    /// Corners `v`, `v/vt`, `v//vn` or `v/vt/vn`; only the first index is used.
    fn face(&mut self, words: Words, line: usize) -> Result<(), FileProblem> {
        self.corners.clear();
        for word in words {
            let index = word.split(|&b| b == b'/').next().unwrap_or_default();
            let vertex = self.resolve(number(index, "a vertex index")?)?;
            self.corners.push(vertex);
        }
        if self.corners.len() < 3 {
            self.short_faces.add(|| Location::Line(line));
            return Ok(());
        }
        for &vertex in &self.corners {
            let highest = self.forward.last().map(|&(highest, _)| highest);
            if vertex as usize >= self.vertices.len() && highest.is_none_or(|h| vertex > h) {
                self.forward.push((vertex, line));
            }
        }
        self.faces.push(&self.corners);
        Ok(())
    }

    /// Positive indices start at 1 and may refer to later vertices; negative indices count
    /// backwards.
    fn resolve(&self, index: i64) -> Result<u32, FileProblem> {
        let vertices = self.vertices.len();
        let vertex = match index {
            0 => return Err(FileProblem::ZeroIndex),
            1.. => Some(index - 1),
            _ => index.checked_add_unsigned(vertices as u64),
        };
        vertex.and_then(|vertex| u32::try_from(vertex).ok()).ok_or(FileProblem::IndexOutOfRange {
            index,
            vertices,
            first: 1,
        })
    }

    fn finish(self) -> Parsed<MeshFile> {
        let vertices = self.vertices.len();
        if vertices == 0 && self.has_unknown_statements {
            return Err(FileProblem::UnknownFormat { looks_like: None }.of_file());
        }
        if let Some(&(vertex, line)) = self.forward.iter().find(|(v, _)| *v as usize >= vertices) {
            let index = i64::from(vertex) + 1;
            return Err(FileProblem::IndexOutOfRange { index, vertices, first: 1 }.at_line(line));
        }
        if vertices == 0 && self.has_statements {
            return Err(FileProblem::NoVertices.of_file());
        }
        let attributes = if vertices > 0 && self.colours.len() == 3 * vertices {
            colour::columns(&self.colours, 3)
        } else {
            Vec::new()
        };
        let notes = self.short_faces.note("face(s) with fewer than 3 corners are skipped");
        Ok(MeshFile {
            notes: notes.into_iter().collect(),
            ..assemble(self.vertices, self.faces, attributes, FileFormat::OBJ)?
        })
    }
}

/// True if a word could be the keyword of a statement that is skipped.
fn is_statement(word: &[u8]) -> bool {
    word.first().is_some_and(u8::is_ascii_alphabetic)
        && word.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

fn write(mesh: &Mesh, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "# {} vertices, {} faces", mesh.vertex_count(), mesh.face_count())?;
    for position in mesh.vertices() {
        writeln!(out, "v {:?} {:?} {:?}", position.x, position.y, position.z)?;
    }
    for face in mesh.faces().iter() {
        out.write_all(b"f")?;
        for &vertex in face {
            write!(out, " {}", u64::from(vertex) + 1)?;
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}
