//! `gemcnn mesh convert`: conversion between formats, and repairs.

use crate::failure::Failure;
use crate::kinds;
use crate::output::{print, say};
use crate::progress;
use clap::{Args, ValueEnum};
use gemcnn_mesh::{
    AttributeValues, MeshFile, MeshReport, PlyEncoding, Repair, VertexAttribute, WriteOptions, one_of, read_values,
    readable_formats, repair, stored_in, writable_extensions,
};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Convert a mesh to another format and optionally repair it.
#[derive(Args)]
pub struct Convert {
    #[arg(value_name = "IN", help = format!("Input mesh: {}", readable_formats()))]
    input: PathBuf,

    #[arg(
        value_name = "OUT",
        value_parser = super::mesh_output,
        help = kinds::mesh_output(&format!(
            "; labels, colours and other properties of vertices need {}, those of faces {}",
            one_of(&vertex_formats()),
            one_of(&face_formats()),
        )),
    )]
    output: PathBuf,

    /// Files with further values of the vertices: GIFTI (.label.gii, .shape.gii, .func.gii), FreeSurfer (.annot,
    /// lh.curv), or a mesh file with vertex properties.
    #[arg(long, value_name = "FILE")]
    values: Vec<PathBuf>,

    #[arg(
        long,
        value_name = "REPAIR",
        value_delimiter = ',',
        help = format!(
            "Comma-separated list of repairs, applied in the given order: {}; or `all` for the repairs that `gemcnn mesh \
             info` suggests",
            Repair::words()
        ),
    )]
    repair: Vec<Wanted>,

    /// Encoding of PLY output.
    #[arg(long, value_enum, default_value_t)]
    ply: Encoding,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Encoding {
    /// Binary, little-endian.
    #[default]
    Binary,
    /// Binary, big-endian.
    BigEndian,
    /// ASCII text.
    Ascii,
}

#[derive(Clone)]
enum Wanted {
    Suggested,
    Named(Repair),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "all" => Ok(Self::Suggested),
            _ => word.parse().map(Self::Named).map_err(|error: gemcnn_mesh::RepairError| error.to_string()),
        }
    }
}

impl Convert {
    pub fn run(self) -> Result<(), Failure> {
        let MeshFile { mut mesh, mut attributes, mut face_attributes, .. } = super::read(&self.input)?;
        for path in &self.values {
            let further = values(path, mesh.vertex_count())?;
            attributes.retain(|attribute| !further.iter().any(|f| f.name == attribute.name));
            attributes.extend(further);
        }
        let mut said = String::new();
        for wanted in &self.repair {
            let repaired = progress::during("repairing", || {
                let repairs = match wanted {
                    Wanted::Suggested => MeshReport::new(&mesh).suggested_repairs(),
                    Wanted::Named(repair) => vec![*repair],
                };
                repair(&mesh, &repairs)
            })
            .map_err(Failure::at(&self.input))?;
            for step in &repaired.steps {
                said += &format!("{step}\n");
            }
            if repaired.steps.is_empty() {
                said += "nothing to repair\n";
            }
            attributes = carry_over(&attributes, &repaired.vertex_origin);
            face_attributes = carry_over(&face_attributes, &repaired.face_origin);
            mesh = repaired.mesh;
        }
        keep_storable(&self.output, &mut attributes, &mut face_attributes);
        let options = WriteOptions {
            ply: match self.ply {
                Encoding::Binary => PlyEncoding::LittleEndian,
                Encoding::BigEndian => PlyEncoding::BigEndian,
                Encoding::Ascii => PlyEncoding::Ascii,
            },
        };
        if mesh.face_count() == 0 {
            say("warning: the written mesh has no faces");
        }
        super::write(&self.output, &mesh, &attributes, &face_attributes, &options)?;
        said += &super::make::written(&self.output, &mesh);
        print(&said)
    }
}

/// Extensions of the formats that store properties of vertices.
fn vertex_formats() -> Vec<&'static str> {
    writable_extensions(|stores| stores.vertex_attributes)
}

/// Extensions of the formats that store properties of faces.
fn face_formats() -> Vec<&'static str> {
    writable_extensions(|stores| stores.face_attributes)
}

/// Leaves out the properties that the format of a file cannot store, and says so.
pub(super) fn keep_storable(
    output: &Path,
    attributes: &mut Vec<VertexAttribute>,
    face_attributes: &mut Vec<VertexAttribute>,
) {
    // The argument parser has checked the extension.
    let stored = stored_in(output);
    for (list, is_stored, what, formats) in [
        (attributes, stored.is_some_and(|s| s.vertex_attributes), "vertex", vertex_formats()),
        (face_attributes, stored.is_some_and(|s| s.face_attributes), "face", face_formats()),
    ] {
        if !is_stored && !list.is_empty() {
            say(format_args!(
                "warning: {} cannot store the {what} properties {}; write a {} file to keep them",
                output.display(),
                names(list),
                one_of(&formats)
            ));
            list.clear();
        }
    }
}

/// Reads further values of the vertices.
fn values(path: &Path, vertices: usize) -> Result<Vec<VertexAttribute>, Failure> {
    let file = read_values(path).map_err(Failure::input)?;
    for note in &file.notes {
        say(format_args!("note: {}: {note}", path.display()));
    }
    let rows = file.attributes.first().map_or(0, |a| a.values.len());
    if rows != vertices {
        return Err(Failure::input(format!(
            "{}: values of {rows} vertices, but the mesh has {vertices}; give the file of this mesh",
            path.display()
        )));
    }
    if !file.label_names.is_empty() {
        let named = |(label, name): &(i32, String)| format!("{label} {name}");
        let names: Vec<String> = file.label_names.iter().map(named).collect();
        say(format_args!("note: {}: labels {}", path.display(), names.join(", ")));
    }
    Ok(file.attributes)
}

pub(super) fn names(attributes: &[VertexAttribute]) -> String {
    let names: Vec<&str> = attributes.iter().map(|a| a.name.as_str()).collect();
    names.join(", ")
}

/// The properties of the remaining vertices or faces.
fn carry_over(attributes: &[VertexAttribute], origin: &[u32]) -> Vec<VertexAttribute> {
    attributes
        .iter()
        .map(|attribute| VertexAttribute {
            name: attribute.name.clone(),
            values: AttributeValues::gather(&attribute.values, origin),
        })
        .collect()
}
