//! `gemcnn mesh diff`: how two meshes differ.

use crate::failure::Failure;
use crate::output::{count, grouped, json_line, print, table};
use crate::progress;
use clap::Args;
use gemcnn_mesh::remesh::{RemeshError, nearest_points, sample};
use gemcnn_mesh::{DVec3, Mesh, MeshFile, vertex_areas};
use serde::Serialize;
use std::path::PathBuf;

/// Random points of each surface from which distances are measured, besides its vertices.
const POINTS: usize = 20_000;

/// Compare two meshes: sizes, distance between the surfaces, and vertices that correspond.
///
/// Exit status: 0 if both have the same vertices and faces, 1 otherwise.
#[derive(Args)]
pub struct Diff {
    /// First mesh.
    #[arg(value_name = "A")]
    first: PathBuf,

    /// Second mesh.
    #[arg(value_name = "B")]
    second: PathBuf,

    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// How two meshes differ. Lengths are in the units of the files.
#[derive(Serialize)]
struct Difference {
    /// True if both have the same vertices, to the bit, and faces.
    same: bool,
    vertices: [usize; 2],
    faces: [usize; 2],
    area: [f64; 2],
    /// Diagonal of the bounding box of the first mesh.
    diagonal: f64,
    /// From points of the first surface to the second one, and back; `None` without faces.
    distance: Option<[Distance; 2]>,
    /// With equal numbers of vertices: how far each vertex of the second mesh is from that of the first one.
    moved: Option<Distance>,
    /// True if the lists of faces are the same.
    same_faces: bool,
    /// Vertex properties of one mesh alone, and of both with different values (with equal numbers of vertices).
    properties: Properties,
}

#[derive(Serialize)]
struct Distance {
    mean: f64,
    root_mean_square: f64,
    largest: f64,
}

#[derive(Serialize)]
struct Properties {
    first_only: Vec<String>,
    second_only: Vec<String>,
    /// Name and number of vertices with another value.
    different: Vec<(String, usize)>,
}

impl Diff {
    pub fn run(self) -> Result<(), Failure> {
        let (first, second) = (super::read(&self.first)?, super::read(&self.second)?);
        let difference = progress::during("comparing", || Difference::new(&first, &second)).map_err(Failure::input)?;
        print(&if self.json { json_line(&difference)? } else { difference.in_words() })?;
        if difference.same { Ok(()) } else { Err(Failure::Reported) }
    }
}

impl Difference {
    fn new(first: &MeshFile, second: &MeshFile) -> Result<Self, RemeshError> {
        let (a, b) = (&first.mesh, &second.mesh);
        let same_faces = a.faces() == b.faces();
        let [low, high] = a.bounds().unwrap_or_default();
        let moved = (a.vertex_count() == b.vertex_count()).then(|| {
            let pairs = a.vertices().iter().zip(b.vertices());
            Distance::of(pairs.map(|(p, q)| p.distance(*q)))
        });
        let distance = match a.face_count() > 0 && b.face_count() > 0 {
            true => Some([directed(a, b)?, directed(b, a)?]),
            false => None,
        };
        Ok(Self {
            same: a == b,
            vertices: [a, b].map(Mesh::vertex_count),
            faces: [a, b].map(Mesh::face_count),
            area: [a, b].map(|mesh| vertex_areas(mesh).iter().sum()),
            diagonal: low.distance(high),
            distance,
            moved,
            same_faces,
            properties: Properties::new(first, second),
        })
    }

    fn in_words(&self) -> String {
        let pair = |what: &str, [a, b]: [String; 2]| vec![what.to_owned(), a, b];
        let mut rows = vec![
            pair("", ["A", "B"].map(String::from)),
            pair("vertices", self.vertices.map(grouped)),
            pair("faces", self.faces.map(grouped)),
            pair("area", self.area.map(|area| format!("{area:.6}"))),
        ];
        let share = |length: f64| match self.diagonal > 0.0 {
            true => format!("{length:.3e} ({:.4} %)", 100.0 * length / self.diagonal),
            false => format!("{length:.3e}"),
        };
        if let Some([to, back]) = &self.distance {
            let both = |of: fn(&Distance) -> f64| [share(of(to)), share(of(back))];
            rows.push(pair("", ["A to B", "B to A"].map(String::from)));
            rows.push(pair("largest distance", both(|d| d.largest)));
            rows.push(pair("root mean square", both(|d| d.root_mean_square)));
            rows.push(pair("mean distance", both(|d| d.mean)));
        }
        let mut text = table(&rows);
        if self.distance.is_some() {
            text += "  (% of the diagonal of the bounding box of A)\n";
        }
        if let Some(moved) = &self.moved {
            text += &format!(
                "vertices by number: moved by at most {}, {} on average\n",
                share(moved.largest),
                share(moved.mean)
            );
        }
        text += if self.same_faces { "faces: the same\n" } else { "faces: different\n" };
        let Properties { first_only, second_only, different } = &self.properties;
        for (names, of) in [(first_only, "A"), (second_only, "B")] {
            if !names.is_empty() {
                text += &format!("vertex properties of {of} alone: {}\n", names.join(", "));
            }
        }
        for (name, vertices) in different {
            text += &format!("vertex property {name}: different at {}\n", count(*vertices, "vertex", "vertices"));
        }
        if self.same {
            text += "the meshes are the same\n";
        }
        text
    }
}

/// Distances from the vertices and from random points of one surface to another one. Means are over the random points,
/// which are even by area.
fn directed(from: &Mesh, to: &Mesh) -> Result<Distance, RemeshError> {
    let distances = |points: &[DVec3]| -> Result<Vec<f64>, RemeshError> {
        let nearest = nearest_points(to, points)?;
        Ok(nearest.into_iter().map(|(_, distance)| distance).collect())
    };
    let corners = Distance::of(distances(from.vertices())?.into_iter());
    // A surface without area has its vertices alone.
    let Ok(points) = sample(from, POINTS, 1) else { return Ok(corners) };
    let inside = Distance::of(distances(points.mesh.vertices())?.into_iter());
    Ok(Distance { largest: inside.largest.max(corners.largest), ..inside })
}

impl Distance {
    fn of(distances: impl Iterator<Item = f64>) -> Self {
        let (mut sum, mut squares, mut largest, mut count) = (0.0, 0.0, 0.0f64, 0u64);
        for distance in distances {
            sum += distance;
            squares += distance * distance;
            largest = largest.max(distance);
            count += 1;
        }
        let count = count.max(1) as f64;
        Self { mean: sum / count, root_mean_square: (squares / count).sqrt(), largest }
    }
}

impl Properties {
    fn new(first: &MeshFile, second: &MeshFile) -> Self {
        let missing = |of: &MeshFile, from: &MeshFile| {
            let names = of.attributes.iter().map(|column| column.name.clone());
            let known = |name: &String| from.attributes.iter().any(|c| c.name == *name);
            names.filter(|name| !known(name)).collect()
        };
        let mut different = Vec::new();
        for a in &first.attributes {
            let twin = second.attributes.iter().find(|b| b.name == a.name);
            let Some(b) = twin.filter(|b| b.values.len() == a.values.len()) else { continue };
            let pairs = a.values.iter_f64().zip(b.values.iter_f64());
            let count = pairs.filter(|(a, b)| a.to_bits() != b.to_bits()).count();
            if count > 0 {
                different.push((a.name.clone(), count));
            }
        }
        Self { first_only: missing(first, second), second_only: missing(second, first), different }
    }
}
