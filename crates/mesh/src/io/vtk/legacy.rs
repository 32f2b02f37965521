//! Legacy VTK files: text with keywords, and arrays in text or big-endian binary.

use crate::AttributeValues;
use crate::io::cursor::Bytes;
use crate::io::error::{FileProblem, Parsed, quote};
use crate::io::fields::{Field, columns};
use crate::io::format::FileFormat;
use crate::io::scalar::{Naming, Scalar};
use crate::io::text::{Lines, Words, percent_decoded};
use crate::io::{MeshFile, assemble};

use super::cells::{Cells, Kinds, POLYGON, STRIP};
use super::positions;

const MAGIC: &[u8] = b"# vtk DataFile";

/// True if the file starts like a legacy VTK file.
pub(super) fn has_magic(content: &[u8]) -> bool {
    content.starts_with(MAGIC)
}

pub(super) fn parse(content: &[u8]) -> Parsed<MeshFile> {
    let mut lines = Lines::new(content);
    // Signature with version, and title.
    lines.next();
    lines.next();
    let mut reader = Reader {
        bytes: Bytes::new(content, false),
        is_binary: false,
        points: AttributeValues::F32(Vec::new()),
        polygons: None,
        strips: None,
        cells: None,
        types: None,
        cells_before: 0,
        point_data: Vec::new(),
        cell_data: Vec::new(),
        section: None,
    };
    reader.bytes.go_on(lines.rest());
    reader.is_binary = match reader.bytes.word("'ASCII' or 'BINARY'")? {
        word if word.eq_ignore_ascii_case(b"ascii") => false,
        word if word.eq_ignore_ascii_case(b"binary") => true,
        word => return Err(reader.unexpected(word, "'ASCII' or 'BINARY'")),
    };
    while let Some(keyword) = reader.bytes.next_word() {
        reader.statement(keyword)?;
    }
    reader.finish()
}

/// A cell array.
enum CellArray {
    /// The points of each cell after their number.
    Counted(usize, AttributeValues),
    /// Start of each cell and end of the last one, and the points.
    Offsets(AttributeValues, AttributeValues),
}

struct Reader<'a> {
    bytes: Bytes<'a>,
    is_binary: bool,
    points: AttributeValues,
    polygons: Option<CellArray>,
    strips: Option<CellArray>,
    cells: Option<CellArray>,
    types: Option<AttributeValues>,
    /// Number of points and lines that are cells.
    cells_before: usize,
    point_data: Vec<Field>,
    cell_data: Vec<Field>,
    /// Number of rows of the current data section, and whether it is of the points.
    section: Option<(u64, bool)>,
}

impl<'a> Reader<'a> {
    /// The next word, without consuming it.
    fn peek(&self) -> &'a [u8] {
        Words::new(self.bytes.rest()).next().unwrap_or_default()
    }

    fn unexpected(&self, word: &[u8], expected: &'static str) -> Box<crate::io::error::Fault> {
        let found = quote(word);
        self.bytes.fail(FileProblem::Unexpected { found, expected })
    }

    fn count(&mut self) -> Parsed<u64> {
        self.bytes.number("a count")
    }

    fn scalar(&mut self) -> Parsed<Scalar> {
        let word = self.bytes.word("a type")?;
        Scalar::named(Naming::VtkLegacy, &word.to_ascii_lowercase()).ok_or_else(|| {
            let problem = FileProblem::unsupported(format!("a VTK array of type '{}'", quote(word)));
            self.bytes.fail(problem)
        })
    }

    /// Reads an array of `rows` rows. In binary it starts after the line end.
    fn array(&mut self, rows: u64, components: u64, scalar: Scalar) -> Parsed<AttributeValues> {
        let count = rows.saturating_mul(components);
        if self.is_binary {
            self.bytes.end_line();
            let bytes = self.bytes.take(count, scalar.bytes(), "value")?;
            return Ok(scalar.decode(bytes, false));
        }
        // Each value has a digit and, except for the last, a space.
        let capacity = (self.bytes.len() as u64).div_ceil(2);
        if count > capacity {
            return Err(self.bytes.fail(FileProblem::CountTooLarge {
                element: "value".to_owned(),
                declared: count,
                capacity,
                file_size: self.bytes.len(),
            }));
        }
        let values = {
            let mut words = std::iter::from_fn(|| self.bytes.next_word());
            scalar.parse_words(&mut words, count as usize)
        };
        values.map_err(|problem| self.bytes.fail(problem))?.ok_or_else(|| {
            let expected = "more values of an array";
            self.bytes.fail(FileProblem::EndsEarly { expected })
        })
    }

    fn statement(&mut self, keyword: &'a [u8]) -> Parsed<()> {
        match keyword.to_ascii_uppercase().as_slice() {
            b"DATASET" => {
                let word = self.bytes.word("the type of the data set")?;
                if !word.eq_ignore_ascii_case(b"POLYDATA") && !word.eq_ignore_ascii_case(b"UNSTRUCTURED_GRID") {
                    let problem = FileProblem::unsupported(format!("a VTK data set of type '{}'", quote(word)));
                    return Err(self.bytes.fail(problem));
                }
            }
            b"POINTS" => {
                let (count, scalar) = (self.count()?, self.scalar()?);
                self.points = self.array(count, 3, scalar)?;
            }
            b"VERTICES" | b"LINES" => {
                let cells = match self.cell_array()? {
                    CellArray::Counted(cells, _) => cells,
                    CellArray::Offsets(offsets, _) => offsets.len().saturating_sub(1),
                };
                self.cells_before = self.cells_before.saturating_add(cells);
            }
            b"POLYGONS" => self.polygons = Some(self.cell_array()?),
            b"TRIANGLE_STRIPS" => self.strips = Some(self.cell_array()?),
            b"CELLS" => self.cells = Some(self.cell_array()?),
            b"CELL_TYPES" => {
                let count = self.count()?;
                self.types = Some(self.array(count, 1, Scalar::I32)?);
            }
            b"POINT_DATA" => self.section = Some((self.count()?, true)),
            b"CELL_DATA" => self.section = Some((self.count()?, false)),
            b"METADATA" => self.skip_metadata(),
            keyword => return self.attribute(keyword),
        }
        Ok(())
    }

    fn cell_array(&mut self) -> Parsed<CellArray> {
        let (cells, size) = (self.count()?, self.count()?);
        if !self.peek().eq_ignore_ascii_case(b"OFFSETS") {
            let values = self.array(size, 1, Scalar::I32)?;
            let cells = usize::try_from(cells).unwrap_or(usize::MAX);
            return Ok(CellArray::Counted(cells, values));
        }
        self.bytes.word("'OFFSETS'")?;
        let scalar = self.scalar()?;
        let offsets = self.array(cells, 1, scalar)?;
        let word = self.bytes.word("'CONNECTIVITY'")?;
        if !word.eq_ignore_ascii_case(b"CONNECTIVITY") {
            return Err(self.unexpected(word, "'CONNECTIVITY'"));
        }
        let scalar = self.scalar()?;
        let points = self.array(size, 1, scalar)?;
        Ok(CellArray::Offsets(offsets, points))
    }

    /// Statements of data sections.
    fn attribute(&mut self, keyword: &[u8]) -> Parsed<()> {
        let rows = self.section.map_or(0, |(rows, _)| rows);
        match keyword {
            b"SCALARS" => {
                let name = self.bytes.word("a name")?;
                let scalar = self.scalar()?;
                let components = match self.rest_of_line().next() {
                    Some(_) => self.count()?,
                    None => 1,
                };
                if self.peek().eq_ignore_ascii_case(b"LOOKUP_TABLE") {
                    self.bytes.word("'LOOKUP_TABLE'")?;
                    self.bytes.word("a name")?;
                }
                let values = self.array(rows, components, scalar)?;
                self.field(name, components, values);
            }
            b"COLOR_SCALARS" => {
                let name = self.bytes.word("a name")?;
                let components = self.count()?;
                let values = if self.is_binary {
                    self.array(rows, components, Scalar::U8)?
                } else {
                    let values = self.array(rows, components, Scalar::F32)?;
                    let byte = |value: f64| (value * 255.0).round() as u8;
                    AttributeValues::U8(values.iter_f64().map(byte).collect())
                };
                let name = match components {
                    3 | 4 => b"RGB",
                    _ => name,
                };
                self.field(name, components, values);
            }
            b"LOOKUP_TABLE" => {
                self.bytes.word("a name")?;
                let size = self.count()?;
                let scalar = if self.is_binary { Scalar::U8 } else { Scalar::F32 };
                self.array(size, 4, scalar)?;
            }
            b"VECTORS" | b"NORMALS" | b"TENSORS" | b"TENSORS6" | b"GLOBAL_IDS" | b"PEDIGREE_IDS" | b"EDGE_FLAGS" => {
                let name = self.bytes.word("a name")?;
                let scalar = self.scalar()?;
                let components = match keyword {
                    b"VECTORS" | b"NORMALS" => 3,
                    b"TENSORS" => 9,
                    b"TENSORS6" => 6,
                    _ => 1,
                };
                let values = self.array(rows, components, scalar)?;
                let name = if keyword == b"NORMALS" { b"Normals" } else { name };
                self.field(name, components, values);
            }
            b"TEXTURE_COORDINATES" => {
                self.bytes.word("a name")?;
                let components = self.count()?;
                let scalar = self.scalar()?;
                self.array(rows, components, scalar)?;
            }
            b"FIELD" => {
                self.bytes.word("a name")?;
                for _ in 0..self.count()? {
                    let mut name = self.bytes.word("the name of an array")?;
                    if name.eq_ignore_ascii_case(b"METADATA") {
                        self.skip_metadata();
                        name = self.bytes.word("the name of an array")?;
                    }
                    let (components, tuples) = (self.count()?, self.count()?);
                    let scalar = self.scalar()?;
                    let values = self.array(tuples, components, scalar)?;
                    self.field(name, components, values);
                }
            }
            _ => {
                return Err(self.unexpected(keyword, "a keyword such as 'POINTS', 'POLYGONS' or 'POINT_DATA'"));
            }
        }
        Ok(())
    }

    fn rest_of_line(&self) -> Words<'a> {
        Words::new(Lines::new(self.bytes.rest()).next().unwrap_or_default())
    }

    /// Skips lines up to a blank one.
    fn skip_metadata(&mut self) {
        self.bytes.end_line();
        while !self.bytes.rest().is_empty() && self.rest_of_line().peek().is_some() {
            self.bytes.end_line();
        }
    }

    fn field(&mut self, name: &[u8], components: u64, values: AttributeValues) {
        let fields = match self.section {
            Some((_, true)) => &mut self.point_data,
            Some((_, false)) => &mut self.cell_data,
            // Data of the whole file, such as the time.
            None => return,
        };
        fields.push(Field {
            name: percent_decoded(name),
            components: usize::try_from(components).unwrap_or(usize::MAX),
            values,
            component_names: Vec::new(),
        });
    }

    fn finish(self) -> Parsed<MeshFile> {
        let fail = FileProblem::of_file;
        let vertices = positions(&self.points).map_err(fail)?;
        let mut cells = Cells::new(vertices.len());
        cells.skip(self.cells_before);
        let types = &self.types;
        for (array, kinds) in [
            (&self.polygons, Some(Kinds::All(POLYGON))),
            (&self.strips, Some(Kinds::All(STRIP))),
            (&self.cells, types.as_ref().map(Kinds::Each)),
        ] {
            match (array, kinds) {
                (Some(CellArray::Counted(count, values)), Some(kinds)) => {
                    cells.push_counted(kinds, *count, values).map_err(fail)?;
                }
                (Some(CellArray::Offsets(offsets, points)), Some(kinds)) => {
                    cells.push_arrays(kinds, points, offsets, true).map_err(fail)?;
                }
                _ => {}
            }
        }
        let mut notes = cells.notes();
        let attributes = columns(self.point_data, vertices.len(), &mut notes);
        let face_attributes = cells.of_faces(columns(self.cell_data, cells.count(), &mut notes));
        let format = if self.is_binary { FileFormat::VTK_BINARY } else { FileFormat::VTK_ASCII };
        Ok(MeshFile { face_attributes, notes, ..assemble(vertices, cells.faces, attributes, format)? })
    }
}
