//! Maps between pairs of synthetic bodies in other meshings, with the bundled model, with other models, and without a
//! network; and what the bundled model says of pairs that it cannot match.

mod trouble;

use crate::Report;
use crate::output::{Table, invalid};
use gemcnn_matching::{Evidence, Match, MatchError, Matcher, Shape, Verdict};
use gemcnn_mesh::remesh::{
    FlipRandomly, Isotropic, Jitter, MeshSize, RefineLocally, RemeshKind, Resample, Sequence, Simplify, Subdivide,
    SurfacePoint, carry_labels, carry_values, remesh,
};
use gemcnn_mesh::shapes::{BodyFamily, BodyOptions};
use gemcnn_mesh::{DVec3, GeodesicSolver, Mesh, vertex_areas};
use gemcnn_nn::{Device, Workspace};
use gemcnn_tasks::TaskError;
use gemcnn_tasks::train::TrainedModel;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Instant;

/// Points that are farther than this from the true ones count as flipped: in square roots of the area.
const FLIPPED: f64 = 0.25;
/// Up to this distance, distances are those in space on the body at rest.
const NEAR: f64 = 0.1;
/// Number of wave kernel signatures of the row without a network.
const SIGNATURES: usize = 100;

/// Settings of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Number of pairs of bodies (default 100). The first of a pair has one of five meshings in turn, the second one the
    /// next.
    pub pairs: usize,
    /// Number of vertices of the bodies before they are remeshed (default 5,000).
    pub vertices: usize,
    /// Seed of the bodies (default 77).
    pub seed: u64,
    /// Further variety of the bodies (default 0.5).
    pub variety: f64,
    /// Number of pairs that are tried with troubles of the second body, such as holes, and with other shapes in its place
    /// (default 3).
    pub troubled: usize,
    /// Models to compare with the bundled one: run directories or model files.
    pub models: Vec<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { pairs: 100, vertices: 5000, seed: 77, variety: 0.5, troubled: 3, models: Vec::new() }
    }
}

/// Errors of one way to match, times 100, in square roots of the area.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The descriptors.
    pub descriptors: String,
    /// Mean error of each pair, with a vertex for each vertex.
    pub means: Vec<f64>,
    /// The same with a point in a face for each vertex.
    pub precise: Vec<f64>,
    /// Share of the vertices of each pair that are farther than 0.25 from their true place.
    pub flips: Vec<f64>,
    /// Seconds of each pair, with the preparation of both meshes.
    pub seconds: Vec<f64>,
}

/// What the bundled model says of a pair, and how right that is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trial {
    /// What is wrong with the second mesh.
    pub trouble: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The measures.
    pub evidence: Evidence,
    /// Mean error times 100, where it is known what is right.
    pub error: Option<f64>,
    /// Share of the vertices that are farther than 0.25 from their true place.
    pub flips: Option<f64>,
}

/// The results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Results {
    /// The settings.
    pub settings: Settings,
    /// A row for each kind of descriptors.
    pub rows: Vec<Row>,
    /// Pairs with troubles.
    pub trials: Vec<Trial>,
}

impl Report for Results {
    fn to_markdown(&self) -> String {
        let mut table = Table::new([
            "descriptors",
            "mean error x 100",
            "precise",
            "median pair",
            "worst pair",
            "flips (%)",
            "seconds a pair",
        ]);
        for row in &self.rows {
            let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
            let mut sorted = row.means.clone();
            sorted.sort_by(f64::total_cmp);
            let at = |place: usize| format!("{:.2}", sorted.get(place).copied().unwrap_or(f64::NAN));
            table.row([
                row.descriptors.clone(),
                format!("{:.2}", mean(&row.means)),
                format!("{:.2}", mean(&row.precise)),
                at(sorted.len() / 2),
                at(sorted.len().saturating_sub(1)),
                format!("{:.2}", 100.0 * mean(&row.flips)),
                format!("{:.2}", mean(&row.seconds)),
            ]);
        }
        let Settings { pairs, vertices, seed, variety, .. } = self.settings;
        format!(
            "# Maps between synthetic bodies\n\n{pairs} pairs of bodies of about {vertices} vertices (seed {seed}, variety \
             {variety}), each in another meshing.\n\n{table}{}",
            trouble::to_markdown(&self.trials)
        )
    }
}

/// A body in another meshing.
struct Body {
    mesh: Mesh,
    /// Places of its vertices on the template, in square roots of its area.
    places: Vec<DVec3>,
    /// Nearest vertices of the template.
    nearest: Vec<u32>,
}

/// The five meshings.
fn meshing(number: usize, vertices: usize) -> RemeshKind {
    let steps: Vec<RemeshKind> = match number % 5 {
        0 => vec![Isotropic { size: MeshSize::EdgeLength(0.85), ..Default::default() }.into()],
        1 => vec![
            Subdivide { rounds: 1, rule: Default::default() }.into(),
            Simplify { size: MeshSize::Ratio(0.3) }.into(),
        ],
        2 => vec![Resample { resolution: (0.6 * (vertices as f64).sqrt()) as usize }.into()],
        3 => vec![RefineLocally { regions: 5, factor: 2.0 }.into(), Jitter { amount: 0.1 }.into()],
        _ => vec![Jitter { amount: 0.4 }.into(), FlipRandomly { share: 0.3 }.into()],
    };
    RemeshKind::Sequence(Sequence { steps })
}

/// The family that the bodies are from.
struct Bodies {
    family: BodyFamily,
    solver: GeodesicSolver,
    /// Square root of the area of the template.
    unit: f64,
    /// Vertices of the template in this unit.
    rest: Vec<f64>,
    vertices: usize,
}

impl Bodies {
    fn new(settings: &Settings) -> Result<Self, TaskError> {
        let &Settings { vertices, seed, variety, .. } = settings;
        let options = BodyOptions { vertices, seed, variety, ..Default::default() };
        let family = BodyFamily::new(&options).map_err(invalid("bodies"))?;
        let template = family.template();
        let unit = vertex_areas(template).iter().sum::<f64>().sqrt();
        let solver = GeodesicSolver::new(template).map_err(invalid("template"))?;
        let rest = template.vertices().iter().flat_map(|&point| (point / unit).to_array()).collect();
        Ok(Self { family, solver, unit, rest, vertices })
    }

    /// A body in one of the meshings.
    fn body(&self, index: usize, number: usize) -> Result<Body, TaskError> {
        let body = self.family.body(index as u64);
        let remeshed = remesh(&body, &meshing(number, self.vertices), index as u64).map_err(invalid("meshing"))?;
        let numbers: Vec<u32> = (0..self.vertices as u32).collect();
        let places = carry_values(&remeshed.sources, 3, &self.rest);
        Ok(Body {
            nearest: carry_labels(&remeshed.sources, &numbers),
            places: places.chunks_exact(3).map(DVec3::from_slice).collect(),
            mesh: remeshed.mesh,
        })
    }

    /// The mean error of a map times 100, to the nearest vertices and to points in faces, and the share of flips.
    fn errors(&self, a: &Body, b: &Body, map: &[SurfacePoint]) -> Result<[f64; 3], TaskError> {
        let nearest = |image: &SurfacePoint| b.nearest[image.nearest_corner() as usize];
        let mut targets: Vec<u32> = map.iter().map(nearest).collect();
        targets.sort_unstable();
        targets.dedup();
        let from = |&target: &u32| self.solver.distances_from(target as usize).map_err(invalid("template"));
        let distances: Result<Vec<Vec<f64>>, TaskError> = targets.par_iter().map(from).collect();
        let distances = distances?;
        let error = |(vertex, image): (usize, &SurfacePoint)| {
            let place = targets.binary_search(&nearest(image)).unwrap_or(0);
            let along = distances[place][a.nearest[vertex] as usize] / self.unit;
            let corner = b.places[image.nearest_corner() as usize];
            let near = |found: DVec3| if along < NEAR { a.places[vertex].distance(found) } else { along };
            (near(corner), near(image.position(&b.places)))
        };
        let (vertices, points): (Vec<f64>, Vec<f64>) = map.iter().enumerate().map(error).unzip();
        let count = vertices.len().max(1) as f64;
        let flips = vertices.iter().filter(|&&error| error > FLIPPED).count();
        let [mean, precise] = [vertices, points].map(|errors| 100.0 * errors.iter().sum::<f64>() / count);
        Ok([mean, precise, flips as f64 / count])
    }
}

/// Matches all pairs with all descriptors.
///
/// # Errors
/// Settings out of range, a model that cannot be used, or a failed GPU operation.
pub fn run(settings: &Settings, device: &Device) -> Result<Results, TaskError> {
    let bodies = Bodies::new(settings)?;
    let bundled = Matcher::of_bodies().map_err(invalid("bundled model"))?;
    let mut workspace = Workspace::new(device.clone());
    let trials = trouble::run(settings, &bodies, &bundled, &mut workspace)?;
    let mut ways = vec![("the bundled model".to_owned(), Some(bundled))];
    for path in &settings.models {
        let matcher = Matcher::new(TrainedModel::read(path)?).map_err(invalid(path.display().to_string()))?;
        ways.push((path.display().to_string(), Some(matcher)));
    }
    ways.push((format!("{SIGNATURES} wave kernel signatures"), None));
    let rows = ways.iter().map(|(name, _)| Row {
        descriptors: name.clone(),
        means: Vec::new(),
        precise: Vec::new(),
        flips: Vec::new(),
        seconds: Vec::new(),
    });
    let mut rows: Vec<Row> = rows.collect();
    for pair in 0..settings.pairs {
        let (a, b) = (bodies.body(2 * pair, pair)?, bodies.body(2 * pair + 1, pair + 1)?);
        for (row, (_, matcher)) in rows.iter_mut().zip(&ways) {
            let start = Instant::now();
            let shape = |mesh: &Mesh, workspace: &mut Workspace<f32>| match matcher {
                Some(matcher) => matcher.shape(workspace, mesh),
                None => signatures(mesh),
            };
            let mut maps = || {
                let (a, b) = (shape(&a.mesh, &mut workspace)?, shape(&b.mesh, &mut workspace)?);
                Match::new(&a, &b)
            };
            let found = maps().map_err(invalid(format!("pair {pair}")))?;
            row.seconds.push(start.elapsed().as_secs_f64());
            let [mean, precise, flips] = bodies.errors(&a, &b, &found.forward)?;
            row.means.push(mean);
            row.precise.push(precise);
            row.flips.push(flips);
        }
    }
    Ok(Results { settings: settings.clone(), rows, trials })
}

/// A shape with wave kernel signatures as descriptors.
fn signatures(mesh: &Mesh) -> Result<Shape, MatchError> {
    let mut shape = Shape::new(mesh, &Default::default())?;
    shape.set_signatures(SIGNATURES)?;
    Ok(shape)
}
