//! `gemcnn mesh make`: generates meshes of shapes.

use crate::failure::Failure;
use crate::kinds;
use crate::output::{count, print};
use crate::progress;
use clap::{Args, Subcommand, ValueEnum};
use gemcnn_mesh::shapes::{self, Axis, BodyFamily, BodyOptions, Cells, Profile, Roughness, ShapeError};
use gemcnn_mesh::{Mesh, WriteOptions};
use std::path::{Path, PathBuf};

/// Generate a mesh: sphere, torus, capsule, human-like body, or flat, bent or rough grid.
#[derive(Args)]
pub struct Make {
    #[command(subcommand)]
    shape: Shape,
}

#[derive(Subcommand)]
enum Shape {
    /// The regular icosahedron: 12 vertices, 20 triangles.
    Icosahedron {
        #[command(flatten)]
        output: Output,
    },
    /// A unit sphere: a subdivided icosahedron.
    Icosphere {
        /// Number of subdivisions, each of a triangle into four: 10 x 4^N + 2 vertices.
        #[arg(long, value_name = "N", default_value_t = 3)]
        subdivisions: u32,
        #[command(flatten)]
        output: Output,
    },
    /// A flat grid of unit squares in the xy plane.
    Grid {
        #[command(flatten)]
        size: GridSize,
        #[command(flatten)]
        output: Output,
    },
    /// A grid bent without stretching: all edges keep length 1.
    BentGrid {
        #[command(flatten)]
        size: GridSize,
        /// Profile of the bent sheet.
        #[arg(long, value_enum, default_value_t)]
        profile: Curve,
        /// Grid lines that stay straight.
        #[arg(long, value_enum, default_value_t)]
        straight: Straight,
        /// cylinder: total angle of the arc, in degrees.
        #[arg(long, value_name = "DEGREES", default_value_t = 180.0)]
        turn: f64,
        /// wave: largest slope, in degrees.
        #[arg(long, value_name = "DEGREES", default_value_t = 50.0)]
        slope: f64,
        /// wave: number of periods over the sheet.
        #[arg(long, value_name = "N", default_value_t = 2.0)]
        periods: f64,
        /// spiral: radius of curvature of the inner end, in grid spacings.
        #[arg(long, value_name = "R", default_value_t = 2.0)]
        inner_radius: f64,
        /// spiral: distance between successive layers, in grid spacings.
        #[arg(long, value_name = "D", default_value_t = 2.0)]
        gap: f64,
        /// random: seed of the profile.
        #[arg(long, value_name = "SEED", default_value_t = 0)]
        seed: u64,
        #[command(flatten)]
        output: Output,
    },
    /// A grid with smoothed random heights, scaled to mean edge length 1.
    RoughGrid {
        #[command(flatten)]
        size: GridSize,
        /// 3 minus the width of the smoothing Gaussian in pixels, from smooth (0.5) to very rough (2.5).
        #[arg(long, value_name = "R", default_value_t = 1.5)]
        roughness: f64,
        /// Largest absolute height before smoothing, in pixels; heights are uniformly distributed.
        #[arg(long, value_name = "A", default_value_t = Roughness::DEFAULT_AMPLITUDE)]
        amplitude: f64,
        /// Seed of the heights.
        #[arg(long, value_name = "SEED", default_value_t = 0)]
        seed: u64,
        #[command(flatten)]
        output: Output,
    },
    /// A torus around the z axis.
    Torus {
        /// Segments around the hole.
        #[arg(long, value_name = "N", default_value_t = 96)]
        major_segments: usize,
        /// Segments around the tube.
        #[arg(long, value_name = "N", default_value_t = 48)]
        minor_segments: usize,
        /// Radius of the centre line of the tube.
        #[arg(long, value_name = "R", default_value_t = 1.0)]
        major_radius: f64,
        /// Radius of the tube.
        #[arg(long, value_name = "R", default_value_t = 0.4)]
        minor_radius: f64,
        /// Quads instead of triangles.
        #[arg(long)]
        quads: bool,
        #[command(flatten)]
        output: Output,
    },
    /// A cylinder along the z axis, closed by hemispheres.
    Capsule {
        /// Segments around the axis.
        #[arg(long, value_name = "N", default_value_t = 48)]
        segments: usize,
        /// Rings of faces on each hemisphere.
        #[arg(long, value_name = "N", default_value_t = 12)]
        cap_bands: usize,
        /// Rings of faces on the cylinder.
        #[arg(long, value_name = "N", default_value_t = 16)]
        tube_bands: usize,
        /// Radius of the cylinder and of the hemispheres.
        #[arg(long, value_name = "R", default_value_t = 0.5)]
        radius: f64,
        /// Length of the cylinder.
        #[arg(long, value_name = "L", default_value_t = 1.0)]
        length: f64,
        /// Quads instead of triangles, except at the poles.
        #[arg(long)]
        quads: bool,
        #[command(flatten)]
        output: Output,
    },
    /// A human-like body. Bodies with the same seed and number of vertices share their connectivity;
    /// each index is a different person in a different pose.
    Body {
        /// Number of vertices, from 500 to 200,000.
        #[arg(long, value_name = "N", default_value_t = BodyOptions::default().vertices)]
        vertices: usize,
        /// Seed of body shapes and poses.
        #[arg(long, value_name = "SEED", default_value_t = 0)]
        seed: u64,
        /// Index of the body (default: the template in its rest pose).
        #[arg(long, value_name = "I")]
        index: Option<u64>,
        /// Further variety, from 0 to 1: children, stout people, clothes, hair, sitting, crawling, raised arms.
        #[arg(long, value_name = "V", default_value_t = BodyOptions::default().variety)]
        variety: f64,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Args)]
struct Output {
    #[arg(short, long, value_name = "OUT", value_parser = super::mesh_output, help = kinds::mesh_output(""))]
    output: PathBuf,
}

#[derive(Args)]
struct GridSize {
    /// Number of vertices from top to bottom.
    #[arg(long, value_name = "N", default_value_t = 28)]
    rows: usize,
    /// Number of vertices from left to right.
    #[arg(long, value_name = "N", default_value_t = 28)]
    columns: usize,
    /// Split every square into two triangles.
    #[arg(long)]
    triangles: bool,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Curve {
    /// An arc of a circle.
    #[default]
    Cylinder,
    /// A spiral, as rolled paper.
    Spiral,
    /// A periodic wave.
    Wave,
    /// A smooth random curve.
    Random,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Straight {
    /// Columns stay straight; the sheet bends from left to right.
    #[default]
    Columns,
    /// Rows stay straight; the sheet bends from top to bottom.
    Rows,
}

fn cells(triangles: bool) -> Cells {
    if triangles { Cells::Triangles } else { Cells::Quads }
}

impl Make {
    pub fn run(self) -> Result<(), Failure> {
        let (mesh, output) = progress::during("generating the shape", || self.shape.make())?;
        super::write(&output, &mesh, &[], &[], &WriteOptions::default())?;
        print(&written(&output, &mesh))
    }
}

/// One line with the file and the size of the written mesh.
pub fn written(output: &Path, mesh: &Mesh) -> String {
    format!(
        "{}: {}, {}\n",
        output.display(),
        count(mesh.vertex_count(), "vertex", "vertices"),
        count(mesh.face_count(), "face", "faces")
    )
}

impl Shape {
    fn make(self) -> Result<(Mesh, PathBuf), Failure> {
        let (mesh, Output { output }) = self.try_make().map_err(|error| match error {
            ShapeError::OutOfMemory { .. } => Failure::input(error),
            _ => Failure::usage(error),
        })?;
        Ok((mesh, output))
    }

    fn try_make(self) -> Result<(Mesh, Output), ShapeError> {
        Ok(match self {
            Self::Icosahedron { output } => (shapes::icosahedron(), output),
            Self::Icosphere { subdivisions, output } => (shapes::icosphere(subdivisions)?, output),
            Self::Grid { size, output } => (shapes::grid(size.rows, size.columns, cells(size.triangles))?, output),
            Self::BentGrid { size, profile, straight, turn, slope, periods, inner_radius, gap, seed, output } => {
                let profile = match profile {
                    Curve::Cylinder => Profile::Cylinder { turn: turn.to_radians() },
                    Curve::Spiral => Profile::Spiral { inner_radius, gap },
                    Curve::Wave => Profile::Wave { amplitude: slope.to_radians(), periods },
                    Curve::Random => Profile::random(seed),
                };
                let axis = match straight {
                    Straight::Columns => Axis::Columns,
                    Straight::Rows => Axis::Rows,
                };
                let cells = cells(size.triangles);
                (shapes::bent_grid(size.rows, size.columns, cells, axis, &profile)?, output)
            }
            Self::RoughGrid { size, roughness, amplitude, seed, output } => {
                let roughness = Roughness { roughness, amplitude, seed };
                let cells = cells(size.triangles);
                (shapes::rough_grid(size.rows, size.columns, cells, &roughness)?, output)
            }
            Self::Torus { major_segments, minor_segments, major_radius, minor_radius, quads, output } => {
                let cells = cells(!quads);
                let (major, minor) = (major_segments, minor_segments);
                (shapes::torus(major, minor, major_radius, minor_radius, cells)?, output)
            }
            Self::Capsule { segments, cap_bands, tube_bands, radius, length, quads, output } => {
                let cells = cells(!quads);
                (shapes::capsule(segments, cap_bands, tube_bands, radius, length, cells)?, output)
            }
            Self::Body { vertices, seed, index, variety, output } => {
                let family = BodyFamily::new(&BodyOptions { vertices, seed, variety, ..BodyOptions::default() })?;
                let mesh = match index {
                    Some(index) => family.body(index),
                    None => family.template().clone(),
                };
                (mesh, output)
            }
        })
    }
}
