//! `gemcnn mesh geometry`: writes the gauge geometry of a mesh as a safetensors file.

use crate::failure::Failure;
use crate::output::{count, print, write_file};
use crate::progress;
use clap::{Args, ValueEnum};
use gemcnn_mesh::{GaugeGraph, GeometryOptions, Neighbourhood, NormalWeighting};
use std::path::PathBuf;

/// Compute the gauge geometry of a mesh: normals, frames, neighbour angles, parallel transport.
///
/// For V vertices and E directed edges, sorted by receiving vertex, the file contains the tensors
/// normals (V x 3), frames (V x 3 x 3, rows e1, e2, normal), offsets (V + 1, first edge of each vertex),
/// neighbours (E), reverse (E, index of the reverse edge), theta (E, angle of the neighbour in the
/// frame of the vertex), transport (E, angle of the transport from the frame of the neighbour) and radius (E,
/// distance of the neighbour). Angles are in radians.
#[derive(Args)]
pub struct Geometry {
    /// Mesh file in any format that `gemcnn mesh convert` reads.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Output file.
    #[arg(short, long, value_name = "OUT.safetensors", value_parser = |name: &str| super::output_path(name, &["safetensors"]))]
    output: PathBuf,

    /// Weights of the faces in vertex normals.
    #[arg(long, value_enum, default_value_t)]
    normals: Weights,

    /// Use all vertices within this distance as neighbours (default: vertices that share an edge).
    #[arg(long, value_name = "DISTANCE")]
    radius: Option<f64>,

    /// With --radius: largest number of neighbours of a vertex; the mutually nearest are kept.
    #[arg(long, value_name = "N", default_value_t = 64, requires = "radius", value_parser = clap::value_parser!(u32).range(1..))]
    max_neighbours: u32,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Weights {
    /// Area of the face, as in the paper.
    #[default]
    Area,
    /// Angle of the face at the vertex, as in the published implementation.
    Angle,
}

impl Geometry {
    pub fn run(self) -> Result<(), Failure> {
        let neighbourhood = match self.radius {
            None => Neighbourhood::OneRing,
            Some(radius) if radius.is_finite() && radius > 0.0 => {
                Neighbourhood::Radius { radius, limit: self.max_neighbours as usize }
            }
            Some(radius) => {
                return Err(Failure::usage(format!("--radius must be positive and finite, not {radius}")));
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
        let graph = progress::during("computing gauge geometry", || GaugeGraph::new(&mesh, &options))
            .map_err(Failure::at(&self.file))?;
        let bytes = graph.to_safetensors().map_err(Failure::at(&self.file))?;
        progress::during(&format!("writing {}", self.output.display()), || write_file(&self.output, &bytes))?;
        print(&format!(
            "{}: {}, {}\n",
            self.output.display(),
            count(graph.vertex_count(), "vertex", "vertices"),
            count(graph.edge_count(), "directed edge", "directed edges")
        ))
    }
}
