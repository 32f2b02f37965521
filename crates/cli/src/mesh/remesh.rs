//! `gemcnn mesh simplify`, `remesh`, `subdivide`, `sample` and `connect`: other meshes of the same surface.

use super::convert::{keep_storable, names};
use crate::failure::Failure;
use crate::kinds;
use crate::output::{print, say};
use crate::progress;
use clap::Args;
use gemcnn_mesh::remesh::{
    self, Isotropic, MeshSize, RemeshError, Remeshed, SubdivisionRule, SurfacePoint, carry_attribute, sample,
};
use gemcnn_mesh::{Mesh, MeshFile, VertexAttribute, WriteOptions, connect_points};
use std::path::PathBuf;

/// Input and output of a remesher.
#[derive(Args)]
struct Files {
    /// Input mesh, in any format that `gemcnn mesh convert` reads.
    #[arg(value_name = "IN")]
    input: PathBuf,

    #[arg(
        value_name = "OUT",
        value_parser = super::mesh_output,
        help = kinds::mesh_output(". Labels and other vertex properties are carried along"),
    )]
    output: PathBuf,
}

/// Size of the output.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Size {
    /// Number of vertices of the output.
    #[arg(long, value_name = "N")]
    vertices: Option<usize>,

    /// Number of vertices of the output, relative to the input.
    #[arg(long, value_name = "R")]
    ratio: Option<f64>,

    /// Edge length of the output, relative to the mean edge length of the input.
    #[arg(long, value_name = "L")]
    edge_length: Option<f64>,
}

impl Size {
    fn wanted(&self) -> MeshSize {
        let vertices = self.vertices.map(MeshSize::Vertices);
        let ratio = || self.ratio.map(MeshSize::Ratio);
        // The argument parser makes sure that one is there.
        let length = MeshSize::EdgeLength(self.edge_length.unwrap_or(1.0));
        vertices.or_else(ratio).unwrap_or(length)
    }
}

/// Reduce the number of vertices while changing the surface as little as possible (quadric errors).
#[derive(Args)]
pub struct Simplify {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    size: Size,
}

/// Remesh a surface with even triangles, finer or coarser.
#[derive(Args)]
pub struct Remesh {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    size: Size,
    /// Seed of the random choices.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

/// Split every triangle into four.
#[derive(Args)]
pub struct Subdivide {
    #[command(flatten)]
    files: Files,
    /// Number of subdivisions.
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: usize,
    /// Smooth the surface with the weights of Loop (default: keep its shape).
    #[arg(long)]
    smooth: bool,
}

/// Draw random points of a surface, uniformly by area, as a point cloud.
#[derive(Args)]
pub struct Sample {
    #[command(flatten)]
    files: Files,
    /// Number of points.
    #[arg(long, value_name = "N")]
    points: usize,
    /// Seed of the points.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

/// Connect the points of a cloud to a surface. Vertices and their properties do not change.
#[derive(Args)]
pub struct Connect {
    #[command(flatten)]
    files: Files,
}

impl Connect {
    pub fn run(self) -> Result<(), Failure> {
        self.files.write(|cloud| {
            let points = 0..cloud.vertex_count() as u32;
            Ok(Remeshed {
                mesh: connect_points(cloud.vertices())?,
                sources: points.map(SurfacePoint::vertex).collect(),
            })
        })
    }
}

impl Simplify {
    pub fn run(self) -> Result<(), Failure> {
        let remesher = remesh::Simplify { size: self.size.wanted() };
        self.files.write(|mesh| remesh::remesh(mesh, &remesher, 0))
    }
}

impl Remesh {
    pub fn run(self) -> Result<(), Failure> {
        let remesher = Isotropic { size: self.size.wanted(), ..Default::default() };
        self.files.write(|mesh| remesh::remesh(mesh, &remesher, self.seed))
    }
}

impl Subdivide {
    pub fn run(self) -> Result<(), Failure> {
        let rule = if self.smooth { SubdivisionRule::Loop } else { SubdivisionRule::Midpoint };
        let remesher = remesh::Subdivide { rounds: self.rounds, rule };
        self.files.write(|mesh| remesh::remesh(mesh, &remesher, 0))
    }
}

impl Sample {
    pub fn run(self) -> Result<(), Failure> {
        self.files.write(|mesh| sample(mesh, self.points, self.seed))
    }
}

impl Files {
    /// Remeshes the input and writes the output with all vertex properties.
    fn write(&self, remesher: impl FnOnce(&Mesh) -> Result<Remeshed, RemeshError>) -> Result<(), Failure> {
        let MeshFile { mesh, attributes, face_attributes, .. } = super::read(&self.input)?;
        let remeshed = progress::during("remeshing", || remesher(&mesh)).map_err(Failure::at(&self.input))?;
        if !face_attributes.is_empty() {
            let lost = names(&face_attributes);
            say(format_args!("warning: the faces are new; the face properties {lost} are left out"));
        }
        let carried = attributes.iter().map(|attribute| VertexAttribute {
            name: attribute.name.clone(),
            values: carry_attribute(&remeshed.sources, &attribute.values),
        });
        let mut attributes = carried.collect();
        keep_storable(&self.output, &mut attributes, &mut Vec::new());
        let options = WriteOptions::default();
        super::write(&self.output, &remeshed.mesh, &attributes, &[], &options)?;
        print(&super::make::written(&self.output, &remeshed.mesh))
    }
}
