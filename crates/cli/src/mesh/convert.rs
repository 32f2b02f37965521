//! `gemcnn mesh convert`: conversion between formats, and repairs.

use crate::failure::Failure;
use crate::output::{print, say};
use crate::progress;
use clap::{Args, ValueEnum};
use gemcnn_mesh::{
    AttributeValues, MeshFile, MeshReport, PlyEncoding, Repair, VertexAttribute, WriteOptions,
    repair,
};
use std::path::PathBuf;
use std::str::FromStr;

/// Convert a mesh to another format and optionally repair it.
#[derive(Args)]
pub struct Convert {
    /// Input mesh: OBJ, PLY, OFF or STL.
    #[arg(value_name = "IN")]
    input: PathBuf,

    /// Output mesh: .ply, .obj or .off. Only PLY keeps labels, colours and other vertex properties.
    #[arg(value_name = "OUT", value_parser = super::mesh_output)]
    output: PathBuf,

    /// Comma-separated list of repairs, applied in this order: weld, weld=DISTANCE, degenerate,
    /// duplicates, isolated, orient; or `all` for the repairs that `gemcnn mesh info` suggests.
    #[arg(long, value_name = "REPAIR", value_delimiter = ',')]
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
            _ => word
                .parse()
                .map(Self::Named)
                .map_err(|error: gemcnn_mesh::RepairError| error.to_string()),
        }
    }
}

impl Convert {
    pub fn run(self) -> Result<(), Failure> {
        let MeshFile {
            mut mesh,
            mut attributes,
            ..
        } = super::read(&self.input)?;
        let mut said = String::new();
        for wanted in &self.repair {
            let repaired = progress::during("repairing", || {
                let repairs = match wanted {
                    Wanted::Suggested => MeshReport::new(&mesh).suggested_repairs(),
                    Wanted::Named(repair) => vec![*repair],
                };
                repair(&mesh, &repairs)
            })
            .map_err(|error| Failure::input(format!("{}: {error}", self.input.display())))?;
            for step in &repaired.steps {
                said += &format!("{step}\n");
            }
            if repaired.steps.is_empty() {
                said += "nothing to repair\n";
            }
            attributes = carry_over(&attributes, &repaired.vertex_origin);
            mesh = repaired.mesh;
        }
        let is_ply = self
            .output
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("ply"));
        if !is_ply && !attributes.is_empty() {
            let names: Vec<&str> = attributes.iter().map(|a| a.name.as_str()).collect();
            say(format_args!(
                "warning: {} cannot store the vertex properties {}; write a .ply file to keep them",
                self.output.display(),
                names.join(", ")
            ));
            attributes.clear();
        }
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
        super::write(&self.output, &mesh, &attributes, &options)?;
        said += &super::make::written(&self.output, &mesh);
        print(&said)
    }
}

/// The properties of the remaining vertices.
fn carry_over(attributes: &[VertexAttribute], origin: &[u32]) -> Vec<VertexAttribute> {
    attributes
        .iter()
        .map(|attribute| VertexAttribute {
            name: attribute.name.clone(),
            values: AttributeValues::gather(&attribute.values, origin),
        })
        .collect()
}
