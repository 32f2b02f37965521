//! VTK XML files: `PolyData` (`.vtp`) and `UnstructuredGrid` (`.vtu`).

use crate::io::error::{FileProblem, Parsed, quote};
use crate::io::fields::{Field, columns, join_columns};
use crate::io::format::FileFormat;
use crate::io::inflate::Inflater;
use crate::io::xml::{Document, Node, Tag};
use crate::io::{MeshFile, assemble};
use crate::{AttributeValues, Faces, VertexAttribute};

use super::arrays::{Source, Storage};
use super::cells::{Cells, Kinds, POLYGON, STRIP};
use super::positions;

pub(super) fn parse(content: &[u8]) -> Parsed<MeshFile> {
    // Appended data may be raw bytes, which are no XML.
    const APPENDED: &[u8] = b"<AppendedData";
    let end = content.windows(APPENDED.len()).position(|window| window == APPENDED).unwrap_or(content.len());
    let text = String::from_utf8_lossy(&content[..end]);
    let mut reader = Reader {
        storage: Storage {
            little_endian: true,
            wide_sizes: false,
            compressed: false,
            appended: appended(&content[end..]).map_err(FileProblem::of_file)?,
            inflater: Inflater::new(content.len()),
            bytes_left: 2 * content.len() as u64,
        },
        format: None,
        surface: Surface::default(),
    };
    let mut document = Document::new(&text);
    let mut section = Section::Other;
    let mut piece = None;
    loop {
        match document.next()? {
            Node::Open(tag) => match tag.name() {
                "VTKFile" => reader.start(&tag).map_err(|p| document.fail(p))?,
                "Piece" => {
                    reader.finish(piece.take()).map_err(|p| document.fail(p))?;
                    piece = Some(Piece::new(&tag).map_err(|p| document.fail(p))?);
                }
                "DataArray" => {
                    let text = document.text_of_element()?;
                    if let Some(piece) = &mut piece {
                        reader.array(&tag, &text, section, piece).map_err(|p| document.fail(p))?;
                    }
                }
                name => section = Section::of(name).unwrap_or(section),
            },
            Node::Close | Node::Text(_) => {}
            Node::End => break,
        }
    }
    // Appended data are in the element VTKFile.
    document.check_end(usize::from(end < content.len()))?;
    reader.finish(piece).map_err(|p| document.fail(p))?;
    let Some(format) = reader.format else { return Err(missing("a VTKFile element").of_file()) };
    let surface = reader.surface;
    Ok(MeshFile {
        face_attributes: surface.face_attributes,
        notes: surface.notes,
        ..assemble(surface.vertices, surface.faces, surface.attributes, format)?
    })
}

fn missing(what: &str) -> FileProblem {
    FileProblem::BadDocument { why: format!("the file lacks {what}") }
}

/// The data after `<AppendedData encoding="...">_`.
fn appended(content: &[u8]) -> Result<Option<Source<'_>>, FileProblem> {
    let Some(end) = content.iter().position(|&b| b == b'>') else { return Ok(None) };
    let tag = &content[..end];
    let has = |word: &[u8]| tag.windows(word.len()).any(|window| window == word);
    let is_base64 = has(b"base64");
    if !is_base64 && !has(b"raw") {
        return Err(FileProblem::unsupported("this encoding of VTK appended data"));
    }
    let rest = &content[end..];
    let start = rest.iter().position(|&b| b == b'_');
    let data = start.map_or(&[][..], |start| &rest[start + 1..]);
    Ok(Some(if is_base64 {
        let end = data.iter().position(|&b| b == b'<').unwrap_or(data.len());
        Source::Base64(data[..end].trim_ascii_end())
    } else {
        Source::Raw(data)
    }))
}

#[derive(Clone, Copy, PartialEq)]
enum Section {
    Points,
    Strips,
    Polys,
    Cells,
    PointData,
    CellData,
    Other,
}

impl Section {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "Points" => Self::Points,
            "Strips" => Self::Strips,
            "Polys" => Self::Polys,
            "Cells" => Self::Cells,
            "PointData" => Self::PointData,
            "CellData" => Self::CellData,
            "Verts" | "Lines" | "FieldData" => Self::Other,
            _ => return None,
        })
    }
}

/// Arrays of a piece.
#[derive(Default)]
struct Piece {
    points: u64,
    /// Cells of a `PolyData` before the polygons: points and lines.
    cells_before: u64,
    coordinates: Option<AttributeValues>,
    polygons: Topology,
    strips: Topology,
    cells: Topology,
    point_data: Vec<Field>,
    cell_data: Vec<Field>,
}

#[derive(Default)]
struct Topology {
    connectivity: Option<AttributeValues>,
    offsets: Option<AttributeValues>,
    types: Option<AttributeValues>,
}

impl Piece {
    fn new(tag: &Tag) -> Result<Self, FileProblem> {
        let before = tag.number("NumberOfVerts", 0)?.checked_add(tag.number("NumberOfLines", 0)?);
        Ok(Self {
            points: tag.number("NumberOfPoints", 0)?,
            cells_before: before.unwrap_or(u64::MAX),
            ..Self::default()
        })
    }
}

/// The surface of all pieces.
#[derive(Default)]
struct Surface {
    vertices: Vec<glam::DVec3>,
    faces: Faces,
    attributes: Vec<VertexAttribute>,
    face_attributes: Vec<VertexAttribute>,
    notes: Vec<String>,
    pieces: usize,
}

struct Reader<'a> {
    storage: Storage<'a>,
    format: Option<FileFormat>,
    surface: Surface,
}

impl Reader<'_> {
    fn start(&mut self, tag: &Tag) -> Result<(), FileProblem> {
        let unsupported = |what: String| Err(FileProblem::Unsupported { what });
        let kind = tag.attribute("type").unwrap_or_default();
        self.format = Some(match kind.as_str() {
            "PolyData" => FileFormat::VTP,
            "UnstructuredGrid" => FileFormat::VTU,
            _ => return unsupported(format!("a VTK file of type '{}'", quote(kind.as_bytes()))),
        });
        self.storage.little_endian = tag.attribute("byte_order").as_deref() != Some("BigEndian");
        self.storage.wide_sizes = tag.attribute("header_type").as_deref() == Some("UInt64");
        self.storage.compressed = match tag.attribute("compressor").as_deref() {
            None | Some("") => false,
            Some("vtkZLibDataCompressor") => true,
            Some(other) => {
                return unsupported(format!("the VTK compressor '{}'", quote(other.as_bytes())));
            }
        };
        Ok(())
    }

    fn array(&mut self, tag: &Tag, text: &str, section: Section, piece: &mut Piece) -> Result<(), FileProblem> {
        let name = tag.attribute("Name").unwrap_or_default();
        let is_field = matches!(section, Section::PointData | Section::CellData);
        if section == Section::Other || (is_field && name.starts_with("vtkGhost")) {
            return Ok(());
        }
        if is_field && matches!(tag.attribute("type").as_deref(), Some("String" | "Bit")) {
            self.surface.notes.push("an array of strings or bits is skipped".to_owned());
            self.surface.notes.dedup();
            return Ok(());
        }
        let values = self.storage.read(tag, text)?;
        if is_field {
            let components = tag.number("NumberOfComponents", 1)?;
            let components = usize::try_from(components).unwrap_or(usize::MAX);
            let mut component_names = Vec::new();
            while components <= 9 && component_names.len() < components {
                match tag.attribute(&format!("ComponentName{}", component_names.len())) {
                    Some(name) => component_names.push(name),
                    None => break,
                }
            }
            let field = Field { name, components, values, component_names };
            match section {
                Section::PointData => piece.point_data.push(field),
                _ => piece.cell_data.push(field),
            }
            return Ok(());
        }
        let topology = match section {
            Section::Points => {
                piece.coordinates = Some(values);
                return Ok(());
            }
            Section::Polys => &mut piece.polygons,
            Section::Strips => &mut piece.strips,
            _ => &mut piece.cells,
        };
        match name.as_str() {
            "connectivity" => topology.connectivity = Some(values),
            "offsets" => topology.offsets = Some(values),
            "types" => topology.types = Some(values),
            "faces" | "faceoffsets" => {}
            _ => {
                return Err(missing("the names connectivity and offsets of its cell arrays"));
            }
        }
        Ok(())
    }

    /// Appends a piece to the surface.
    fn finish(&mut self, piece: Option<Piece>) -> Result<(), FileProblem> {
        let Some(piece) = piece else { return Ok(()) };
        let vertices = match &piece.coordinates {
            Some(values) => positions(values)?,
            None => Vec::new(),
        };
        if vertices.len() as u64 != piece.points {
            return Err(FileProblem::Truncated {
                element: "point".to_owned(),
                read: vertices.len() as u64,
                declared: piece.points,
            });
        }
        if vertices.is_empty() {
            return Ok(());
        }
        let mut cells = Cells::new(vertices.len());
        cells.skip(usize::try_from(piece.cells_before).unwrap_or(usize::MAX));
        for (topology, kind) in [(&piece.polygons, POLYGON), (&piece.strips, STRIP)] {
            if let (Some(points), Some(ends)) = (&topology.connectivity, &topology.offsets) {
                cells.push_arrays(Kinds::All(kind), points, ends, false)?;
            }
        }
        let Topology { connectivity, offsets, types } = &piece.cells;
        if let (Some(points), Some(ends), Some(types)) = (connectivity, offsets, types) {
            cells.push_arrays(Kinds::Each(types), points, ends, false)?;
        }
        let surface = &mut self.surface;
        surface.notes.extend(cells.notes());
        let attributes = columns(piece.point_data, vertices.len(), &mut surface.notes);
        let face_attributes = cells.of_faces(columns(piece.cell_data, cells.count(), &mut surface.notes));
        surface.append(vertices, cells.faces, attributes, face_attributes);
        Ok(())
    }
}

impl Surface {
    fn append(
        &mut self,
        vertices: Vec<glam::DVec3>,
        faces: Faces,
        attributes: Vec<VertexAttribute>,
        face_attributes: Vec<VertexAttribute>,
    ) {
        self.pieces += 1;
        if self.pieces == 1 {
            self.vertices = vertices;
            self.faces = faces;
            self.attributes = attributes;
            self.face_attributes = face_attributes;
            return;
        }
        // `Mesh::new` refuses more vertices than an index can hold.
        let base = u32::try_from(self.vertices.len()).unwrap_or(u32::MAX);
        for face in faces.iter() {
            for &vertex in face {
                self.faces.push_corner(vertex.saturating_add(base));
            }
            self.faces.close_face();
        }
        self.vertices.extend(vertices);
        let dropped = join_columns(&mut self.attributes, attributes);
        if join_columns(&mut self.face_attributes, face_attributes) || dropped {
            self.notes.push("arrays that are not in every piece are skipped".to_owned());
            self.notes.dedup();
        }
    }
}
