//! `gemcnn mesh geometry`: the gauge geometry of a mesh as a safetensors file.

use crate::failure::Failure;
use crate::output::{count, print, write_file};
use crate::progress;
use clap::{Args, ValueEnum};
use gemcnn_mesh::{GaugeGraph, GeometryOptions, Neighbourhood, NormalWeighting};
use std::path::PathBuf;

/// Compute the gauge geometry of a mesh: normals, frames, neighbour angles, parallel transport.
///
/// For V vertices and E directed edges, sorted by the vertex that receives, it writes the tensors
/// normals (V x 3), frames (V x 3 x 3, rows e1, e2, normal), offsets (V + 1, start of each row),
/// neighbours (E), reverse (E, position of the reverse edge), theta (E, angle of the neighbour in the
/// frame), transport (E, angle from the neighbour's frame) and radius (E). Angles are in radians.
#[derive(Args)]
pub struct Geometry {
    /// Mesh file: OBJ, PLY, OFF or STL.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Where to write.
    #[arg(short, long, value_name = "OUT.safetensors", value_parser = safetensors_output)]
    output: PathBuf,

    /// Weights of the faces around a vertex in its normal.
    #[arg(long, value_enum, default_value_t)]
    normals: Weights,

    /// Take all vertices within this distance as neighbours, instead of those that share an edge.
    #[arg(long, value_name = "DISTANCE", allow_negative_numbers = true)]
    radius: Option<f64>,

    /// With --radius: at most this many neighbours for each vertex, the mutually nearest.
    #[arg(long, value_name = "N", default_value_t = 64, requires = "radius", value_parser = clap::value_parser!(u32).range(1..))]
    max_neighbours: u32,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Weights {
    /// By the area of the face, as in the paper.
    #[default]
    Area,
    /// By the angle of its corner, as in the paper's published code.
    Angle,
}

fn safetensors_output(text: &str) -> Result<PathBuf, String> {
    super::output_path(text, &["safetensors"])
}

impl Geometry {
    pub fn run(self) -> Result<(), Failure> {
        let neighbourhood = match self.radius {
            None => Neighbourhood::OneRing,
            Some(radius) if radius.is_finite() && radius > 0.0 => Neighbourhood::Radius {
                radius,
                limit: self.max_neighbours as usize,
            },
            Some(radius) => {
                return Err(Failure::usage(format!(
                    "--radius must be over 0, not {radius}"
                )));
            }
        };
        let options = GeometryOptions {
            normals: match self.normals {
                Weights::Area => NormalWeighting::Area,
                Weights::Angle => NormalWeighting::CornerAngle,
            },
            neighbourhood,
            ..Default::default()
        };
        let mesh = super::read(&self.file)?.mesh;
        let in_file = |error: &dyn std::fmt::Display| {
            Failure::input(format!("{}: {error}", self.file.display()))
        };
        let graph = progress::during("computing gauge geometry", || {
            GaugeGraph::new(&mesh, &options)
        })
        .map_err(|error| in_file(&error))?;
        let bytes = graph.to_safetensors().map_err(|error| in_file(&error))?;
        progress::during(&format!("writing {}", self.output.display()), || {
            write_file(&self.output, &bytes)
        })?;
        print(&format!(
            "{}: {}, {}\n",
            self.output.display(),
            count(graph.vertex_count(), "vertex", "vertices"),
            count(graph.edge_count(), "directed edge", "directed edges")
        ))
    }
}
