//! `gemcnn mesh info`: reports on mesh files.

use crate::failure::Failure;
use crate::output::{count, grouped, json_line, print};
use crate::progress;
use clap::Args;
use gemcnn_mesh::{
    Adjacency, FileFormat, GeometryError, Mesh, MeshFile, MeshReport, NormalWeighting, Repair, vertex_normals,
};
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Report size, topology and defects of meshes, and suggest repairs.
#[derive(Args)]
pub struct Info {
    /// Mesh files in any format that `gemcnn mesh convert` reads, detected from the content.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Print one JSON object per line and file instead of text.
    #[arg(long)]
    json: bool,
}

/// The report on one file.
#[derive(Serialize)]
struct Verdict {
    file: String,
    format: String,
    attributes: Vec<String>,
    face_attributes: Vec<String>,
    #[serde(flatten)]
    report: MeshReport,
    sound: bool,
    /// True if gauge geometry can be computed; otherwise `geometry_error` has the reason.
    geometry: bool,
    geometry_error: Option<String>,
    min_neighbours: usize,
    max_neighbours: usize,
    suggested_repairs: Vec<Repair>,
}

/// The JSON object of a file that cannot be read.
#[derive(Serialize)]
struct Unreadable {
    file: String,
    error: String,
}

impl Info {
    pub fn run(self) -> Result<(), Failure> {
        let mut bad = false;
        let mut printed = false;
        for path in &self.files {
            let outcome = super::read(path).and_then(|file| verdict(path, &file));
            let text = match outcome {
                Ok(verdict) if self.json => json_line(&verdict)?,
                Ok(verdict) => {
                    let gap = if printed { "\n" } else { "" };
                    printed = true;
                    format!("{gap}{verdict}")
                }
                Err(failure) => {
                    bad = true;
                    failure.report();
                    match failure {
                        Failure::Input(error) if self.json => {
                            json_line(&Unreadable { file: path.display().to_string(), error })?
                        }
                        _ => continue,
                    }
                }
            };
            print(&text)?;
        }
        if bad { Err(Failure::Reported) } else { Ok(()) }
    }
}

fn verdict(path: &Path, file: &MeshFile) -> Result<Verdict, Failure> {
    let MeshFile { mesh, attributes, face_attributes, format, .. } = file;
    progress::during(&format!("examining {}", path.display()), || {
        let report = MeshReport::new(mesh);
        let (min_neighbours, max_neighbours) = neighbour_range(mesh).map_err(Failure::input)?;
        let geometry_error = vertex_normals(mesh, NormalWeighting::Area).err();
        Ok(Verdict {
            file: path.display().to_string(),
            format: FileFormat::to_string(format),
            attributes: attributes.iter().map(|a| a.name.clone()).collect(),
            face_attributes: face_attributes.iter().map(|a| a.name.clone()).collect(),
            sound: report.is_sound(),
            suggested_repairs: report.suggested_repairs(),
            geometry: geometry_error.is_none(),
            geometry_error: geometry_error.map(|error| error.to_string()),
            min_neighbours,
            max_neighbours,
            report,
        })
    })
}

/// Smallest and largest number of neighbours, over the vertices with at least one.
fn neighbour_range(mesh: &Mesh) -> Result<(usize, usize), GeometryError> {
    let adjacency = Adjacency::one_ring(mesh)?;
    let degrees = adjacency.offsets().windows(2).map(|w| (w[1] - w[0]) as usize);
    let used = degrees.filter(|&degree| degree > 0);
    Ok((used.clone().min().unwrap_or(0), used.max().unwrap_or(0)))
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let report = &self.report;
        writeln!(f, "{} ({})", self.file, self.format)?;
        writeln!(
            f,
            "  size       {}, {}, {}",
            count(report.vertices, "vertex", "vertices"),
            faces(report),
            count(report.edges, "edge", "edges"),
        )?;
        if let Some([low, high]) = report.bounds {
            let extent: Vec<String> = (0..3).map(|i| short(high[i] - low[i])).collect();
            writeln!(
                f,
                "  extent     {}; area {}; edges {} to {}, mean {}",
                extent.join(" x "),
                short(report.area),
                short(report.min_edge_length),
                short(report.max_edge_length),
                short(report.mean_edge_length),
            )?;
        }
        writeln!(f, "  topology   {}", topology(report))?;
        if !self.attributes.is_empty() {
            writeln!(f, "  attributes {}", self.attributes.join(", "))?;
        }
        if !self.face_attributes.is_empty() {
            writeln!(f, "  of faces   {}", self.face_attributes.join(", "))?;
        }
        match &self.geometry_error {
            None if report.faces == 0 => writeln!(f, "  geometry   none: the mesh has no faces")?,
            None => writeln!(
                f,
                "  geometry   a tangent plane at every vertex; {} to {} neighbours",
                self.min_neighbours, self.max_neighbours
            )?,
            Some(error) => writeln!(f, "  geometry   none: {error}")?,
        }
        for line in defects(report) {
            writeln!(f, "  defect     {line}")?;
        }
        if self.sound {
            return writeln!(f, "  verdict    sound");
        }
        let usable = if self.geometry && report.faces > 0 { "not sound, but usable" } else { "not usable" };
        writeln!(f, "  verdict    {usable}")?;
        if report.faces == 0 {
            writeln!(f, "  repair     gemcnn mesh connect {} OUT.ply", quoted(&self.file))?;
        } else if !self.suggested_repairs.is_empty() {
            let words: Vec<String> = self.suggested_repairs.iter().map(Repair::to_string).collect();
            writeln!(
                f,
                "  repair     gemcnn mesh convert {} OUT.ply --repair {}",
                quoted(&self.file),
                words.join(",")
            )?;
        }
        Ok(())
    }
}

fn faces(report: &MeshReport) -> String {
    let kinds: Vec<String> = [
        (report.triangles, "triangle", "triangles"),
        (report.quads, "quad", "quads"),
        (report.polygons, "larger polygon", "larger polygons"),
    ]
    .into_iter()
    .filter(|&(number, ..)| number > 0)
    .map(|(number, one, many)| count(number, one, many))
    .collect();
    match kinds.len() {
        0 => "no faces".into(),
        1 => kinds.concat(),
        _ => format!("{} faces ({})", grouped(report.faces), kinds.join(", ")),
    }
}

fn topology(report: &MeshReport) -> String {
    let mut text = count(report.components, "component", "components");
    if report.closed {
        text += ", closed";
    } else if report.faces > 0 {
        let _ = write!(text, ", open with {}", count(report.boundary_loops, "boundary loop", "boundary loops"));
    }
    text += if report.orientable { ", orientable" } else { ", not orientable" };
    text += if report.manifold { ", manifold" } else { ", not manifold" };
    if let Some(genus) = report.genus {
        let _ = write!(text, ", genus {genus}");
    }
    let _ = write!(text, " (Euler characteristic {})", report.euler);
    text
}

/// One line for each kind of defect, with the first examples.
fn defects(report: &MeshReport) -> Vec<String> {
    let examples = &report.examples;
    let indices = |list: &[u32]| list.iter().map(u32::to_string).collect::<Vec<_>>();
    let pairs = |list: &[[u32; 2]]| list.iter().map(|[a, b]| format!("{a}-{b}")).collect::<Vec<_>>();
    [
        (
            report.nonmanifold_edges,
            "edge with more than two faces",
            "edges with more than two faces",
            pairs(&examples.nonmanifold_edges),
        ),
        (report.nonmanifold_vertices, "pinched vertex", "pinched vertices", indices(&examples.nonmanifold_vertices)),
        (
            report.nonorientable_components,
            "non-orientable component, at vertex",
            "non-orientable components, at vertices",
            indices(&examples.nonorientable_components),
        ),
        (
            report.inconsistent_edges,
            "inconsistently oriented edge",
            "inconsistently oriented edges",
            pairs(&examples.inconsistent_edges),
        ),
        (report.isolated_vertices, "vertex in no face", "vertices in no face", indices(&examples.isolated_vertices)),
        (report.degenerate_faces, "face of zero area", "faces of zero area", indices(&examples.degenerate_faces)),
        (report.duplicate_faces, "duplicate face", "duplicate faces", pairs(&examples.duplicate_faces)),
        (
            report.coincident_vertices,
            "vertex at the position of another",
            "vertices at the position of another",
            pairs(&examples.coincident_vertices),
        ),
    ]
    .into_iter()
    .filter(|&(number, ..)| number > 0)
    .map(|(number, one, many, shown)| {
        let more = if number > shown.len() { ", ..." } else { "" };
        format!("{}: {}{more}", count(number, one, many), shown.join(", "))
    })
    .chain(report.inside_out.then(|| "inside out: the faces of the closed mesh point inwards".into()))
    .collect()
}

/// A path, quoted for a shell.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%=".contains(c);
    if !path.is_empty() && path.chars().all(plain) { path.into() } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

/// A number with four significant digits.
fn short(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e6).contains(&value.abs()) {
        return format!("{value:.3e}");
    }
    let digits = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    let text = format!("{value:.*}", (3 - digits).max(0) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}
