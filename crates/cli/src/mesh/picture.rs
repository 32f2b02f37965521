//! `gemcnn mesh picture`: renders a mesh to a PNG file.

use crate::failure::Failure;
use crate::kinds::{AXES, word};
use crate::output::{print, write_file};
use crate::progress;
use clap::Args;
use gemcnn_mesh::{AttributeValues, GaugeGraph, GeometryOptions, Mesh, MeshFile, MeshReport, VertexAttribute};
use gemcnn_view::render::{Arrow, Paint, RenderOptions, Shading, Up, View, colour_map, label_colour, render_painted};
use std::path::PathBuf;

/// Colours of the two tangent axes of a frame.
const AXIS_COLOURS: [[u8; 3]; 2] = [[200, 60, 50], [40, 110, 190]];

/// Render a mesh to a PNG file.
#[derive(Args)]
pub struct PictureCommand {
    /// Mesh file in any format that `gemcnn mesh convert` reads.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Output file.
    #[arg(short, long, value_name = "OUT.png", value_parser = |name: &str| super::output_path(name, &["png"]))]
    output: PathBuf,

    /// Width of the picture in pixels.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    width: u32,

    /// Height of the picture in pixels.
    #[arg(long, value_name = "N", default_value_t = 768)]
    height: u32,

    /// Azimuth of the view about the up axis, in degrees.
    #[arg(long, value_name = "DEGREES", default_value_t = 30.0)]
    azimuth: f64,

    /// Elevation of the view above the horizontal plane, in degrees.
    #[arg(long, value_name = "DEGREES", default_value_t = 20.0)]
    elevation: f64,

    /// Axis that points up [default: inferred from the mesh]
    #[arg(long, value_parser = word::<Up>(AXES))]
    up: Option<Up>,

    /// Draw the edges of faces.
    #[arg(long)]
    wireframe: bool,

    /// Flat shading (default: smooth).
    #[arg(long)]
    flat: bool,

    /// Draw the tangent frame of every vertex: first axis red, second blue.
    #[arg(long)]
    frames: bool,

    /// Vertex property of a PLY file to colour by: integers as labels, other numbers from dark (lowest)
    /// to light (highest). By default, the vertex colours of the file are used.
    #[arg(long, value_name = "NAME")]
    colour: Option<String>,
}

impl PictureCommand {
    pub fn run(self) -> Result<(), Failure> {
        let file = super::read(&self.file)?;
        let colours = self.colours(&file)?;
        // Borders between labels are crisp.
        let classes = self.colour.as_ref().and_then(|name| labels(&file, name));
        let arrows = if self.frames { frame_arrows(&file.mesh).map_err(Failure::at(&self.file))? } else { Vec::new() };
        let up = self.up.unwrap_or_else(|| Up::of(&file.mesh));
        let options = RenderOptions {
            width: self.width,
            height: self.height,
            view: View::orbit(self.azimuth, self.elevation, up),
            wireframe: self.wireframe,
            shading: if self.flat { Shading::Flat } else { Shading::Smooth },
            ..Default::default()
        };
        let picture = progress::during("drawing", || {
            let paint = match (&colours, &classes) {
                (None, _) => Paint::Surface,
                (Some(colours), None) => Paint::Smooth(colours),
                (Some(colours), Some(classes)) => Paint::Classes { classes, colours },
            };
            render_painted(&file.mesh, paint, &arrows, &options)
        })
        .map_err(Failure::usage)?;
        write_file(&self.output, &picture.encode_png())?;
        print(&format!("{}: {} x {} pixels\n", self.output.display(), self.width, self.height))
    }

    /// One colour per vertex, by `--colour` or from the file; `None` if there are none.
    fn colours(&self, file: &MeshFile) -> Result<Option<Vec<[u8; 3]>>, Failure> {
        let find = |name: &str| file.attributes.iter().find(|a| a.name == name);
        if let Some(name) = &self.colour {
            let Some(attribute) = find(name) else {
                let names: Vec<&str> = file.attributes.iter().map(|a| a.name.as_str()).collect();
                return Err(Failure::input(format!(
                    "{} has no vertex property `{name}`; available: {}",
                    self.file.display(),
                    if names.is_empty() { "none".into() } else { names.join(", ") }
                )));
            };
            return Ok(Some(value_colours(attribute)));
        }
        let channels = ["red", "green", "blue"].map(|name| match find(name) {
            Some(VertexAttribute { values: AttributeValues::U8(values), .. }) => Some(values),
            _ => None,
        });
        let [Some(red), Some(green), Some(blue)] = channels else { return Ok(None) };
        let each = red.iter().zip(green).zip(blue);
        Ok(Some(each.map(|((&r, &g), &b)| [r, g, b]).collect()))
    }
}

/// The values of an integer vertex property.
fn labels(file: &MeshFile, name: &str) -> Option<Vec<u32>> {
    let attribute = file.attributes.iter().find(|a| a.name == *name)?;
    let label = |label: f64| label as i64 as u32;
    (!is_float(attribute)).then(|| attribute.values.iter_f64().map(label).collect())
}

fn is_float(attribute: &VertexAttribute) -> bool {
    matches!(attribute.values, AttributeValues::F32(_) | AttributeValues::F64(_))
}

fn value_colours(attribute: &VertexAttribute) -> Vec<[u8; 3]> {
    let values: Vec<f64> = attribute.values.iter_f64().collect();
    if !is_float(attribute) {
        return values.iter().map(|&label| label_colour(label as i64 as u32)).collect();
    }
    let finite = values.iter().copied().filter(|v| v.is_finite());
    let low = finite.clone().fold(f64::INFINITY, f64::min);
    let high = finite.fold(f64::NEG_INFINITY, f64::max);
    let span = if high > low { high - low } else { 1.0 };
    values.iter().map(|v| colour_map((v - low) / span)).collect()
}

/// Both tangent axes of every vertex, as arrows of about a third of the mean edge length.
fn frame_arrows(mesh: &Mesh) -> Result<Vec<Arrow>, gemcnn_mesh::GeometryError> {
    let graph = GaugeGraph::new(mesh, &GeometryOptions::default())?;
    let length = 0.35 * MeshReport::new(mesh).mean_edge_length;
    let frames = graph.frames().iter().zip(mesh.vertices());
    Ok(frames
        .flat_map(|(frame, &from)| {
            [frame.e1, frame.e2].into_iter().zip(AXIS_COLOURS).map(move |(axis, colour)| Arrow {
                from,
                to: from + length * axis,
                colour,
            })
        })
        .collect())
}
