//! GIFTI: XML with arrays of points, triangles and values of vertices.

use glam::DVec3;

use super::error::{FileProblem, Parsed, quote};
use super::fields::{Field, columns};
use super::format::{FileFormat, Format};
use super::inflate::Inflater;
use super::scalar::{Naming, Scalar};
use super::text::Words;
use super::xml::{Document, Node, Tag, starts_with_tag};
use super::{MeshFile, ValueFile, assemble, base64, vertex_index};
use crate::{AttributeValues, Faces};

pub(super) const FORMAT: Format = Format {
    value_extensions: &["label.gii", "shape.gii", "func.gii", "time.gii"],
    has_signature: |file| starts_with_tag(file.content, b"<GIFTI"),
    read_values: |file| starts_with_tag(file.content, b"<GIFTI").then(|| parse_values(file.content)),
    ..Format::new("GIFTI", &["gii"], |file| parse(file.content))
};

impl FileFormat {
    /// GIFTI: surfaces and values of brains.
    pub const GIFTI: Self = Self::named("GIFTI");
}

/// Everything in a file.
#[derive(Default)]
struct Content {
    points: Option<AttributeValues>,
    triangles: Option<AttributeValues>,
    fields: Vec<Field>,
    label_names: Vec<(i32, String)>,
    notes: Vec<String>,
}

/// Attributes of a `DataArray`.
struct Array {
    intent: String,
    scalar: Scalar,
    rows: usize,
    /// Product of the further dimensions.
    components: usize,
    encoding: String,
    external: String,
    little_endian: bool,
    by_columns: bool,
    name: String,
}

impl Array {
    fn new(tag: &Tag) -> Result<Self, FileProblem> {
        let attribute = |name: &str| tag.attribute(name).unwrap_or_default();
        let kind = attribute("DataType");
        let kind = kind.strip_prefix("NIFTI_TYPE_").unwrap_or(&kind);
        let scalar = Scalar::named(Naming::Gifti, kind.as_bytes())
            .ok_or_else(|| FileProblem::unsupported(format!("a GIFTI array of type '{}'", quote(kind.as_bytes()))))?;
        let mut dimensions = [1; 6];
        let number = usize::try_from(tag.number("Dimensionality", 1)?).unwrap_or(usize::MAX);
        for (place, dimension) in dimensions.iter_mut().enumerate().take(number) {
            *dimension = tag.number(&format!("Dim{place}"), 1)?;
        }
        let components = dimensions[1..].iter().try_fold(1_u64, |product, &dimension| product.checked_mul(dimension));
        let (Some(components), Ok(rows)) = (components, usize::try_from(dimensions[0])) else {
            return Err(FileProblem::bad_data("the dimensions of an array are too large"));
        };
        Ok(Self {
            intent: attribute("Intent"),
            scalar,
            rows,
            components: usize::try_from(components).unwrap_or(usize::MAX),
            encoding: attribute("Encoding"),
            external: attribute("ExternalFileName"),
            little_endian: attribute("Endian") != "BigEndian",
            by_columns: attribute("ArrayIndexingOrder") == "ColumnMajorOrder",
            name: String::new(),
        })
    }

    fn read(&self, text: &str, inflater: &mut Inflater) -> Result<AttributeValues, FileProblem> {
        let count = self.rows.checked_mul(self.components);
        let wrong_size = || FileProblem::bad_data("an array does not have the size of its dimensions");
        let count = count.ok_or_else(wrong_size)?;
        let values = match self.encoding.as_str() {
            "ASCII" | "1" => {
                let mut words = Words::new(text.as_bytes());
                if words.clone().count() != count {
                    return Err(wrong_size());
                }
                let values = self.scalar.parse_words(&mut words, count)?;
                values.ok_or_else(wrong_size)?
            }
            "Base64Binary" | "2" | "GZipBase64Binary" | "3" => {
                let mut bytes = base64::decode(&base64::compact(text.as_bytes()))?;
                if self.encoding.starts_with('G') || self.encoding == "3" {
                    let mut inflated = Vec::new();
                    inflater.inflate(&bytes, &mut inflated)?;
                    bytes = inflated;
                }
                if Some(bytes.len()) != count.checked_mul(self.scalar.bytes()) {
                    return Err(wrong_size());
                }
                self.scalar.decode(&bytes, self.little_endian)
            }
            "ExternalFileBinary" | "4" => {
                let file = quote(self.external.as_bytes());
                return Err(FileProblem::ExternalData { file });
            }
            other => {
                return Err(FileProblem::unsupported(format!("the GIFTI encoding '{}'", quote(other.as_bytes()))));
            }
        };
        if !self.by_columns || self.components <= 1 || count > u32::MAX as usize {
            return Ok(values);
        }
        let places: Vec<u32> = (0..self.rows)
            .flat_map(|row| (0..self.components).map(move |column| (row, column)))
            .map(|(row, column)| (row + column * self.rows) as u32)
            .collect();
        Ok(values.gather(&places))
    }

    /// Name of the field: that of the file, or one by its meaning.
    fn field_name(&self) -> String {
        let intent = self.intent.strip_prefix("NIFTI_INTENT_").unwrap_or(&self.intent);
        match intent {
            "RGB_VECTOR" | "RGBA_VECTOR" => "RGB".to_owned(),
            _ if !self.name.trim().is_empty() => self.name.clone(),
            "LABEL" => "label".to_owned(),
            "NONE" | "" => "value".to_owned(),
            other => other.to_ascii_lowercase(),
        }
    }
}

fn read(content: &[u8]) -> Parsed<Content> {
    let text = String::from_utf8_lossy(content);
    let mut document = Document::new(&text);
    let mut inflater = Inflater::new(content.len());
    let mut found = Content::default();
    let mut array: Option<Array> = None;
    // Name of the last entry of the metadata.
    let mut entry = String::new();
    loop {
        match document.next()? {
            Node::Open(tag) => match tag.name() {
                "DataArray" => array = Some(Array::new(&tag).map_err(|p| document.fail(p))?),
                "Name" => entry = document.text_of_element()?.trim().to_owned(),
                "Value" => {
                    let value = document.text_of_element()?;
                    if let Some(array) = array.as_mut().filter(|_| entry == "Name") {
                        array.name = value.trim().to_owned();
                    }
                }
                "Label" => {
                    let key = tag.attribute("Key").or_else(|| tag.attribute("Index"));
                    let name = document.text_of_element()?.trim().to_owned();
                    if let Some(Ok(key)) = key.map(|key| key.trim().parse()) {
                        found.label_names.push((key, name));
                    }
                }
                // Surfaces are in the space of the file; the matrix leads to another one.
                "CoordinateSystemTransformMatrix" => drop(document.text_of_element()?),
                "Data" => {
                    let text = document.text_of_element()?;
                    if let Some(array) = array.take() {
                        let values = array.read(&text, &mut inflater);
                        let values = values.map_err(|p| document.fail(p))?;
                        found.add(array, values).map_err(|p| document.fail(p))?;
                    }
                }
                _ => {}
            },
            Node::Close | Node::Text(_) => {}
            Node::End => {
                document.check_end(0)?;
                return Ok(found);
            }
        }
    }
}

impl Content {
    fn add(&mut self, array: Array, values: AttributeValues) -> Result<(), FileProblem> {
        let place = match array.intent.as_str() {
            "NIFTI_INTENT_POINTSET" => Some(&mut self.points),
            "NIFTI_INTENT_TRIANGLE" => Some(&mut self.triangles),
            "NIFTI_INTENT_NODE_INDEX" => {
                return Err(FileProblem::unsupported("a GIFTI file with values of some vertices only"));
            }
            _ => None,
        };
        let Some(place) = place else {
            self.fields.push(Field {
                name: array.field_name(),
                components: array.components,
                values,
                component_names: Vec::new(),
            });
            return Ok(());
        };
        if array.components != 3 {
            return Err(FileProblem::bad_data("points and triangles need three numbers each"));
        }
        if place.is_some() {
            let note = "only the first surface of the file is read";
            if !self.notes.iter().any(|other| other == note) {
                self.notes.push(note.to_owned());
            }
            return Ok(());
        }
        *place = Some(values);
        Ok(())
    }
}

fn parse(content: &[u8]) -> Parsed<MeshFile> {
    let mut found = read(content)?;
    let Some(points) = found.points else {
        let format = FileFormat::GIFTI;
        return Err(FileProblem::ValuesOnly { format }.of_file());
    };
    let positions: Vec<DVec3> = (0..points.len() / 3)
        .map(|vertex| DVec3::from_array([0, 1, 2].map(|axis| points.to_f64(3 * vertex + axis))))
        .collect();
    let mut faces = Faces::new();
    if let Some(triangles) = &found.triangles {
        for (at, corner) in triangles.iter_f64().enumerate() {
            let vertex = vertex_index(corner as i64, positions.len());
            faces.push_corner(vertex.map_err(FileProblem::of_file)?);
            if at % 3 == 2 {
                faces.close_face();
            }
        }
    }
    let attributes = columns(found.fields, positions.len(), &mut found.notes);
    Ok(MeshFile { notes: found.notes, ..assemble(positions, faces, attributes, FileFormat::GIFTI)? })
}

/// Reads the values of a file, whether or not it has a surface.
fn parse_values(content: &[u8]) -> Parsed<ValueFile> {
    let mut found = read(content)?;
    let rows = match &found.points {
        Some(points) => Some(points.len() / 3),
        None => found.fields.first().and_then(Field::rows),
    };
    let attributes = columns(found.fields, rows.unwrap_or(0), &mut found.notes);
    Ok(ValueFile { attributes, label_names: found.label_names, notes: found.notes, format: FileFormat::GIFTI })
}
