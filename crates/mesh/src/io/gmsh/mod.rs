//! Gmsh MSH 2.2 and 4.1, in text and binary: nodes, surface elements, and their data.

mod data;
mod elements;
mod input;

use std::collections::HashMap;

use glam::DVec3;

use super::error::{FileProblem, Parsed, quote};
use super::fields::Columns;
use super::format::{FileFormat, Format};
use super::text::number;
use super::{MeshFile, assemble};
use crate::AttributeValues;
use elements::Elements;
use input::Input;

pub(super) const FORMAT: Format = Format {
    has_signature: |file| has_magic(file.content),
    ..Format::new("Gmsh", &["msh"], |file| parse(file.content))
};

impl FileFormat {
    /// Gmsh MSH as text.
    pub const GMSH_ASCII: Self = Self::named("Gmsh (ASCII)");
    /// Gmsh MSH in binary.
    pub const GMSH_BINARY: Self = Self::named("Gmsh (binary)");
}

const MAGIC: &[u8] = b"$MeshFormat";

/// True if the file starts like a Gmsh file, perhaps after comments.
fn has_magic(content: &[u8]) -> bool {
    content.starts_with(MAGIC) || content.starts_with(b"$Comments")
}

/// Version of the format.
#[derive(Clone, Copy, PartialEq)]
enum Version {
    V2,
    V4,
}

/// Everything that is read.
struct Reader<'a> {
    input: Input<'a>,
    version: Option<Version>,
    vertices: Vec<DVec3>,
    /// Index of each node by its tag.
    nodes: HashMap<u64, u32>,
    elements: Elements,
    /// Physical group of each surface.
    groups: HashMap<i64, i64>,
    node_data: Vec<data::Table>,
    element_data: Vec<data::Table>,
}

fn parse(content: &[u8]) -> Parsed<MeshFile> {
    let mut reader = Reader {
        input: Input::new(content),
        version: None,
        vertices: Vec::new(),
        nodes: HashMap::new(),
        elements: Elements::default(),
        groups: HashMap::new(),
        node_data: Vec::new(),
        element_data: Vec::new(),
    };
    while let Some(word) = reader.input.bytes.next_word() {
        let Some(section) = word.strip_prefix(b"$") else {
            let expected = "a section such as '$Nodes'";
            let found = quote(word);
            return Err(reader.input.fail(FileProblem::Unexpected { found, expected }));
        };
        reader.section(section)?;
        reader.input.skip_section(section)?;
    }
    reader.finish()
}

impl Reader<'_> {
    fn section(&mut self, section: &[u8]) -> Parsed<()> {
        match (section, self.version) {
            (b"MeshFormat", _) => self.format(),
            (b"Nodes", Some(Version::V2)) => self.nodes_v2(),
            (b"Nodes", Some(Version::V4)) => self.nodes_v4(),
            (b"Elements", Some(Version::V2)) => self.elements.read_v2(&mut self.input, &self.nodes),
            (b"Elements", Some(Version::V4)) => self.elements.read_v4(&mut self.input, &self.nodes, &self.groups),
            (b"Entities", Some(Version::V4)) => self.entities(),
            (b"NodeData", Some(_)) => {
                self.node_data.extend(data::Table::read(&mut self.input)?);
                Ok(())
            }
            (b"ElementData", Some(_)) => {
                self.element_data.extend(data::Table::read(&mut self.input)?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// `VERSION IS_BINARY SIZE`, and the number 1 in binary.
    fn format(&mut self) -> Parsed<()> {
        let version = self.input.bytes.word("a version")?;
        let value: f64 = number(version, "a version").map_err(|p| self.input.fail(p))?;
        self.version = Some(match value {
            2.0..3.0 => Version::V2,
            4.1..5.0 => Version::V4,
            _ => {
                let problem = FileProblem::unsupported(format!("version {} of the Gmsh format", quote(version)));
                return Err(self.input.fail(problem));
            }
        });
        self.input.is_binary = self.input.bytes.word("the file type")? == b"1";
        let size: u64 = self.input.bytes.number("the size of numbers")?;
        if size != 8 {
            let problem = FileProblem::unsupported(format!("a Gmsh file with numbers of {size} bytes"));
            return Err(self.input.fail(problem));
        }
        if self.input.is_binary {
            self.input.bytes.end_line();
            let one = self.input.bytes.clone().value::<u32>("the number 1")?;
            self.input.bytes.little_endian = one == 1;
            if one != 1 && one.swap_bytes() != 1 {
                let why = "the byte order is unknown";
                return Err(self.input.fail(FileProblem::BadData { why }));
            }
        }
        Ok(())
    }

    fn add_node(&mut self, tag: u64, position: DVec3) -> Parsed<()> {
        if !position.is_finite() {
            return Err(self.input.fail(FileProblem::not_finite(position)));
        }
        // `Mesh::new` refuses more vertices than an index can hold.
        let index = u32::try_from(self.vertices.len()).unwrap_or(u32::MAX);
        self.vertices.push(position);
        self.nodes.insert(tag, index);
        Ok(())
    }

    fn nodes_v2(&mut self) -> Parsed<()> {
        for _ in 0..self.input.counted()? {
            let tag = self.input.tag()?;
            let position = self.input.point()?;
            self.add_node(tag, position)?;
        }
        Ok(())
    }

    fn nodes_v4(&mut self) -> Parsed<()> {
        self.input.start();
        let blocks = self.input.size()?;
        for _ in 0..3 {
            self.input.size()?;
        }
        for _ in 0..blocks {
            let dimension = self.input.int()?;
            self.input.int()?;
            let is_parametric = self.input.int()? != 0;
            let count = self.input.size()?;
            // The tags of a block precede its coordinates.
            let mut tags = Vec::new();
            for _ in 0..count {
                tags.push(self.input.size()?);
            }
            for tag in tags {
                let position = self.input.point()?;
                if is_parametric {
                    for _ in 0..dimension.clamp(0, 3) {
                        self.input.double()?;
                    }
                }
                self.add_node(tag, position)?;
            }
        }
        Ok(())
    }

    /// Reads the physical groups of surfaces.
    fn entities(&mut self) -> Parsed<()> {
        self.input.start();
        let mut counts = [0; 4];
        for count in &mut counts {
            *count = self.input.size()?;
        }
        for (dimension, count) in counts.into_iter().enumerate().take(3) {
            for _ in 0..count {
                let tag = self.input.int()?;
                for _ in 0..if dimension == 0 { 3 } else { 6 } {
                    self.input.double()?;
                }
                for place in 0..self.input.size()? {
                    let group = self.input.int()?;
                    if dimension == 2 && place == 0 {
                        self.groups.insert(tag, group);
                    }
                }
                if dimension > 0 {
                    for _ in 0..self.input.size()? {
                        self.input.int()?;
                    }
                }
            }
        }
        Ok(())
    }

    fn finish(self) -> Parsed<MeshFile> {
        let format = if self.input.is_binary { FileFormat::GMSH_BINARY } else { FileFormat::GMSH_ASCII };
        let mut notes = Vec::new();
        notes.extend(self.elements.note());
        let rows = self.vertices.len();
        let mut columns = Columns::default();
        let mut left_out = 0;
        for table in self.node_data {
            let field = table.into_field(rows, |tag| self.nodes.get(&tag).map(|&node| node as usize));
            left_out += u64::from(!field.is_some_and(|field| columns.push(field, rows)));
        }
        let elements = self.elements;
        let faces = elements.faces.len();
        let mut face_columns = Columns::default();
        for (name, values) in [("physical", elements.groups), ("entity", elements.entities)] {
            if values.iter().any(|&value| value != 0) {
                face_columns.push_column(name, AttributeValues::I32(values));
            }
        }
        let places: HashMap<u64, usize> = match self.element_data.is_empty() {
            true => HashMap::new(),
            false => elements.tags.iter().copied().zip(0..).collect(),
        };
        for table in self.element_data {
            let field = table.into_field(faces, |tag| places.get(&tag).copied());
            left_out += u64::from(!field.is_some_and(|field| face_columns.push(field, faces)));
        }
        if left_out > 0 {
            notes.push(format!(
                "{left_out} data section(s) without values for all nodes or surface elements are skipped"
            ));
        }
        Ok(MeshFile {
            face_attributes: face_columns.into_vec(),
            notes,
            ..assemble(self.vertices, elements.faces, columns.into_vec(), format)?
        })
    }
}
