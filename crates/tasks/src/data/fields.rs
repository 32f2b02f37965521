//! Mesh files as models read them: surfaces, with the fields that features need.

use super::npy;
use crate::features::{FieldName, Fields};
use crate::{FeatureConfig, Result, TaskError};
use gemcnn_mesh::{
    Mesh, MeshError, MeshFile, VertexAttribute, connect_points, parse_mesh_file, read_mesh, vector_name,
};
use std::path::Path;

/// A mesh file as models read it.
#[derive(Debug, Clone, PartialEq)]
pub struct SurfaceFile {
    /// The mesh. The points of a cloud are connected to a surface.
    pub mesh: Mesh,
    /// The fields that the features need.
    pub fields: Fields,
    /// What was skipped, corrected or added, one sentence each.
    pub notes: Vec<String>,
}

impl SurfaceFile {
    /// Reads a mesh file with the fields that features need.
    ///
    /// # Errors
    /// A file that cannot be read, or a field that is not there, has another size, or has a number that is not finite.
    pub fn read(path: &Path, features: &FeatureConfig) -> Result<Self> {
        Self::new(path, read_mesh(path)?, features)
    }

    /// The same from the bytes of a file. Fields and data that are not in it are read next to `path`.
    pub fn parse(path: &Path, bytes: &[u8], features: &FeatureConfig) -> Result<Self> {
        Self::new(path, parse_mesh_file(path, bytes)?, features)
    }

    fn new(path: &Path, file: MeshFile, features: &FeatureConfig) -> Result<Self> {
        let (vertices, names) = (file.mesh.vertex_count(), features.fields());
        let fields = read_fields(path, vertices, &file.attributes, &names)?;
        let mut notes = file.notes;
        let surface = connected(&file.mesh)?;
        if surface.is_some() {
            notes.push(format!("no faces: its {vertices} points are connected to a surface"));
        }
        let mesh = surface.unwrap_or(file.mesh);
        Ok(Self { mesh, fields, notes })
    }
}

/// The surface of a cloud of points; `None` for a mesh with faces.
pub(crate) fn connected(mesh: &Mesh) -> Result<Option<Mesh>> {
    let surface = (mesh.face_count() == 0).then(|| connect_points(mesh.vertices()));
    let refuse = |error: MeshError| TaskError::setting("cloud", error.to_string());
    surface.transpose().map_err(refuse)
}

/// The fields of a mesh: each from the vertex values of its file, or else from `STEM.NAME.npy` next to it.
///
/// # Errors
/// A field that is not there, has another size, or has a number that is not finite.
pub(crate) fn read_fields(
    path: &Path,
    vertices: usize,
    attributes: &[VertexAttribute],
    names: &[FieldName],
) -> Result<Fields> {
    let mut fields = Vec::with_capacity(names.len());
    for field in names {
        let refuse =
            |problem: String| TaskError::setting(format!("{}, field `{}`", path.display(), field.name), problem);
        if field.name.is_empty() {
            return Err(refuse("it has no name; write `field:NAME` or `vector:NAME`".into()));
        }
        let values = match of_attributes(attributes, field) {
            Some(values) => values,
            None => {
                of_array(path, field, vertices, &refuse)?.ok_or_else(|| refuse(missing(path, attributes, field)))?
            }
        };
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            let (vertex, value) = (at / field.width, values[at]);
            return Err(refuse(format!("vertex {vertex} has the value {value}")));
        }
        fields.push((field.clone(), values));
    }
    Ok(Fields::new(fields))
}

fn of_attributes(attributes: &[VertexAttribute], field: &FieldName) -> Option<Vec<f64>> {
    let columns = attributes.windows(field.width).find(|columns| match columns {
        [single] => single.name == field.name,
        [x, y, z] => vector_name([&x.name, &y.name, &z.name]).as_ref() == Some(&field.name),
        _ => false,
    })?;
    let rows = 0..columns.first()?.values.len();
    let row = |row| columns.iter().map(move |column| column.values.to_f64(row));
    Some(rows.flat_map(row).collect())
}

fn of_array(
    path: &Path,
    field: &FieldName,
    vertices: usize,
    refuse: &dyn Fn(String) -> TaskError,
) -> Result<Option<Vec<f64>>> {
    let array = array_path(path, field);
    if !array.is_file() {
        return Ok(None);
    }
    let bytes = std::fs::read(&array).map_err(TaskError::file(&array))?;
    let table = npy::parse(&array, &bytes)?;
    if (table.rows(), table.columns) != (vertices, field.width) {
        let (rows, columns, width) = (table.rows(), table.columns, field.width);
        return Err(refuse(format!(
            "{} has {rows} rows and {columns} columns; {vertices} rows and {width} columns are needed",
            array.display()
        )));
    }
    Ok(Some(table.values))
}

/// `STEM.NAME.npy`. Separators in a name do not lead to another folder.
fn array_path(path: &Path, field: &FieldName) -> std::path::PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = field.name.replace(['/', '\\'], "_");
    path.with_file_name(format!("{stem}.{name}.npy"))
}

fn missing(path: &Path, attributes: &[VertexAttribute], field: &FieldName) -> String {
    let known: Vec<&str> = attributes.iter().map(|column| column.name.as_str()).collect();
    let found = match known.is_empty() {
        true => "the file has no vertex values".to_string(),
        false => format!("the vertex values of the file are {}", known.join(", ")),
    };
    let array = array_path(path, field);
    format!("{found}, and there is no file {}", array.display())
}
