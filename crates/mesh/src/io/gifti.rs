//! GIFTI: XML with arrays of points, triangles and values of vertices.

use glam::DVec3;

use super::error::{FileProblem, Parsed, quote};
use super::fields::{Columns, Field};
use super::inflate::Inflater;
use super::scalar::Scalar;
use super::text::Words;
use super::xml::{Document, Node, Tag};
use super::{FileFormat, MeshFile, ValueFile, assemble, base64, vertex_index};
use crate::{AttributeValues, Faces, VertexAttribute};

/// True if an XML file is GIFTI.
pub(super) fn is_gifti(content: &[u8]) -> bool {
    let start = &content[..content.len().min(1 << 12)];
    start.windows(6).any(|window| window == b"<GIFTI")
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

fn unsupported(what: String) -> FileProblem {
    FileProblem::Unsupported { what }
}

fn bad(why: &'static str) -> FileProblem {
    FileProblem::BadData { why }
}

impl Array {
    fn new(tag: &Tag) -> Result<Self, FileProblem> {
        let attribute = |name: &str| tag.attribute(name).unwrap_or_default();
        let kind = attribute("DataType");
        let kind = kind.strip_prefix("NIFTI_TYPE_").unwrap_or(&kind);
        let scalar = match kind {
            "UINT8" | "2" => Scalar::U8,
            "INT8" | "256" => Scalar::I8,
            "INT16" | "4" => Scalar::I16,
            "UINT16" | "512" => Scalar::U16,
            "INT32" | "8" => Scalar::I32,
            "UINT32" | "768" => Scalar::U32,
            "INT64" | "1024" => Scalar::I64,
            "UINT64" | "1280" => Scalar::U64,
            "FLOAT32" | "16" => Scalar::F32,
            "FLOAT64" | "64" => Scalar::F64,
            _ => {
                return Err(unsupported(format!("a GIFTI array of type '{}'", quote(kind.as_bytes()))));
            }
        };
        let mut dimensions = [1; 6];
        let number = usize::try_from(tag.number("Dimensionality", 1)?).unwrap_or(usize::MAX);
        for (place, dimension) in dimensions.iter_mut().enumerate().take(number) {
            *dimension = tag.number(&format!("Dim{place}"), 1)?;
        }
        let components = dimensions[1..].iter().try_fold(1_u64, |product, &dimension| product.checked_mul(dimension));
        let (Some(components), Ok(rows)) = (components, usize::try_from(dimensions[0])) else {
            return Err(bad("the dimensions of an array are too large"));
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
        let wrong_size = || bad("an array does not have the size of its dimensions");
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
                return Err(unsupported(format!("the GIFTI encoding '{}'", quote(other.as_bytes()))));
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
                "CoordinateSystemTransformMatrix" => {
                    skip_element(&mut document)?;
                }
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

/// Skips the element that was opened last.
fn skip_element(document: &mut Document) -> Parsed<()> {
    document.text_of_element().map(|_| ())
}

impl Content {
    fn add(&mut self, array: Array, values: AttributeValues) -> Result<(), FileProblem> {
        let place = match array.intent.as_str() {
            "NIFTI_INTENT_POINTSET" => Some(&mut self.points),
            "NIFTI_INTENT_TRIANGLE" => Some(&mut self.triangles),
            "NIFTI_INTENT_NODE_INDEX" => {
                return Err(unsupported("a GIFTI file with values of some vertices only".to_owned()));
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
            return Err(bad("points and triangles need three numbers each"));
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

    /// The fields as columns of `rows` rows.
    fn columns(fields: Vec<Field>, rows: usize, notes: &mut Vec<String>) -> Vec<VertexAttribute> {
        let mut columns = Columns::default();
        let mut left_out = 0;
        for field in fields {
            left_out += u64::from(!columns.push(field, rows));
        }
        if left_out > 0 {
            notes.push(format!("{left_out} array(s) without one row for each vertex are skipped"));
        }
        columns.into_vec()
    }
}

pub(super) fn parse(content: &[u8]) -> Parsed<MeshFile> {
    let mut found = read(content)?;
    let Some(points) = found.points else {
        let format = FileFormat::Gifti;
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
    let attributes = Content::columns(found.fields, positions.len(), &mut found.notes);
    Ok(MeshFile { notes: found.notes, ..assemble(positions, faces, attributes, FileFormat::Gifti)? })
}

/// Reads the values of a file, whether or not it has a surface.
pub(super) fn parse_values(content: &[u8]) -> Parsed<ValueFile> {
    let mut found = read(content)?;
    let rows = match &found.points {
        Some(points) => Some(points.len() / 3),
        None => found.fields.first().and_then(Field::rows),
    };
    let attributes = Content::columns(found.fields, rows.unwrap_or(0), &mut found.notes);
    Ok(ValueFile { attributes, label_names: found.label_names, notes: found.notes, format: FileFormat::Gifti })
}
