//! Geodesic errors of correspondences, after the Princeton protocol (Kim, Lipman and Funkhouser, *Blended
//! Intrinsic Maps*, 2011): the fraction of vertices whose predicted point lies within a geodesic radius of the
//! true one on the template. Radii are in units of the square root of the template's area.

use crate::data::{Dataset, Split, TemplateDistances};
use crate::{Result, Task, TaskError};
use gemcnn_nn::IGNORE;
use gemcnn_view::plot::{Axis, Chart, Panel, Series};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write;

/// Largest radius of the curve, in square roots of the template's area.
pub const LARGEST_RADIUS: f64 = 0.25;
/// Number of steps of the curve.
const STEPS: usize = 50;

/// Counts of wrong predictions, by true and predicted template vertex.
pub(super) type Confusions = BTreeMap<(u32, u32), u64>;

/// Geodesic distances between predicted and true points on the template.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GeodesicScores {
    /// Mean distance in square roots of the template's area, over reachable points.
    pub mean: f64,
    /// Median distance in square roots of the template's area.
    #[serde(default)]
    pub median: f64,
    /// Number of predictions on another connected component of the template.
    pub unreachable: u64,
    /// Radii of the curve, in square roots of the template's area.
    pub radii: Vec<f64>,
    /// Fraction of vertices within each radius.
    pub within: Vec<f64>,
}

/// A map between two meshes of a split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshMap {
    /// The mesh that is mapped.
    pub from: usize,
    /// The mesh that it is mapped to.
    pub to: usize,
    /// Vertex of this for each vertex of the other.
    pub vertices: Vec<u32>,
}

impl GeodesicScores {
    /// Scores of maps between the meshes of a split: distances on the template between the points that correspond to each
    /// vertex and to its image.
    ///
    /// # Errors
    /// A data set without a template, a mesh without targets, or a map that does not fit its meshes.
    pub fn of_maps(dataset: &Dataset, split: Split, maps: &[MeshMap]) -> Result<Self> {
        let template = dataset.distances()?.filter(|_| dataset.task() == Task::Correspondence);
        let template =
            template.ok_or_else(|| TaskError::setting(dataset.name(), "there is no template to compare on"))?;
        let mut labels = BTreeMap::new();
        for index in maps.iter().flat_map(|map| [map.from, map.to]) {
            if let Entry::Vacant(entry) = labels.entry(index) {
                entry.insert(dataset.labels(split, index)?);
            }
        }
        let (mut confusions, mut counted) = (Confusions::new(), 0);
        for map in maps {
            let (from, to) = (&labels[&map.from], &labels[&map.to]);
            if map.vertices.len() != from.len() {
                let problem = format!("a map of {} vertices, but it has {}", map.vertices.len(), from.len());
                return Err(TaskError::setting(dataset.mesh_name(split, map.from), problem));
            }
            for (&true_point, &image) in from.iter().zip(&map.vertices) {
                let problem =
                    || TaskError::setting(dataset.mesh_name(split, map.to), format!("vertex {image} is out of range"));
                let found = *to.get(image as usize).ok_or_else(problem)?;
                if true_point == IGNORE || found == IGNORE {
                    continue;
                }
                counted += 1;
                if true_point != found {
                    *confusions.entry((true_point, found)).or_insert(0) += 1;
                }
            }
        }
        Self::new(template, &confusions, counted)
    }

    /// Computes the scores from the wrong ones of `counted` predictions.
    pub(super) fn new(template: &TemplateDistances, confusions: &Confusions, counted: u64) -> Result<Self> {
        let errors = distances(template, confusions)?;
        let wrong: u64 = confusions.values().sum();
        let reached = errors.iter().filter(|(distance, _)| distance.is_finite());
        let unreachable: u64 = wrong - reached.clone().map(|(_, times)| times).sum::<u64>();
        let sum: f64 = reached.map(|(d, times)| d * *times as f64).sum();
        let radii: Vec<f64> = (0..=STEPS).map(|step| LARGEST_RADIUS * step as f64 / STEPS as f64).collect();
        let share = |&radius: &f64| {
            let beyond = errors.iter().filter(|(d, _)| *d > radius);
            let beyond: u64 = beyond.map(|(_, times)| times).sum();
            1.0 - beyond as f64 / counted.max(1) as f64
        };
        Ok(Self {
            median: median(&errors, counted),
            mean: sum / counted.saturating_sub(unreachable).max(1) as f64,
            unreachable,
            within: radii.iter().map(share).collect(),
            radii,
        })
    }

    /// Fraction of vertices within a radius: the value of the curve at the largest radius that is not above it.
    pub fn share_within(&self, radius: f64) -> f64 {
        let points = self.radii.iter().zip(&self.within);
        let inside = points.take_while(|(r, _)| **r <= radius + 1e-9);
        inside.last().map_or(0.0, |(_, share)| *share)
    }

    pub(super) fn to_csv(&self) -> String {
        let mut text = "radius,share\n".to_string();
        for (radius, share) in self.radii.iter().zip(&self.within) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{radius:.4},{share:.6}");
        }
        text
    }

    pub(super) fn chart(&self, title: &str) -> Chart {
        let points = self.radii.iter().zip(&self.within);
        let points = points.map(|(&radius, &share)| (radius, 100.0 * share));
        let panel = Panel::new(
            "",
            Axis::linear("geodesic error / root of area").limits(0.0, LARGEST_RADIUS),
            Axis::linear("vertices within (%)").limits(0.0, 101.0),
        );
        let name = format!("mean error {:.5}", self.mean);
        Chart::new(title).panel(panel.series(Series::new(name, points)))
    }
}

/// The median distance of `counted` predictions; those that are not listed are right.
fn median(errors: &[(f64, u64)], counted: u64) -> f64 {
    let mut sorted = errors.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let wrong: u64 = sorted.iter().map(|(_, times)| times).sum();
    let mut passed = counted.saturating_sub(wrong);
    for (distance, times) in sorted {
        if 2 * passed >= counted {
            break;
        }
        passed += times;
        if 2 * passed >= counted {
            return distance;
        }
    }
    0.0
}

/// The distance and count of each wrong prediction, in square roots of the area.
fn distances(template: &TemplateDistances, confusions: &Confusions) -> Result<Vec<(f64, u64)>> {
    let pairs: Vec<(u32, u32, u64)> = confusions.iter().map(|(&(a, b), &n)| (a, b, n)).collect();
    let sources: Vec<&[(u32, u32, u64)]> = pairs.chunk_by(|a, b| a.0 == b.0).collect();
    let found: Result<Vec<Vec<(f64, u64)>>> = sources
        .par_iter()
        .map(|pairs| {
            let row = template.from(pairs.first().map_or(0, |pair| pair.0))?;
            let distance = |to: u32| row.get(to as usize).map_or(f64::INFINITY, |&d| d.into());
            Ok(pairs.iter().map(|&(_, to, n)| (distance(to), n)).collect())
        })
        .collect();
    Ok(found?.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_counts_right_answers_as_zero() {
        let errors = [(0.3, 2), (0.1, 1), (0.2, 1)];
        assert_eq!(median(&errors, 8), 0.0);
        assert_eq!(median(&errors, 7), 0.1);
        assert_eq!(median(&errors, 5), 0.2);
        assert_eq!(median(&errors, 4), 0.2);
        assert_eq!(median(&[], 4), 0.0);
    }
    use crate::data::{BodiesConfig, DataConfig};
    use gemcnn_mesh::Mesh;
    use gemcnn_mesh::shapes::{self, Cells};

    fn scored(template: &Mesh, confusions: &Confusions, counted: u64) -> Result<GeodesicScores> {
        GeodesicScores::new(&TemplateDistances::new(template)?, confusions, counted)
    }

    #[test]
    fn errors_on_a_flat_sheet_are_known() {
        // 11 x 11 points a unit apart: the root of the area is 10.
        let sheet = shapes::grid(11, 11, Cells::Quads).unwrap();
        let confusions = Confusions::from([((0, 1), 3), ((0, 2), 1), ((60, 61), 2)]);
        let scores = scored(&sheet, &confusions, 10).unwrap();
        assert!((scores.mean - 0.1 * 7.0 / 10.0).abs() < 1e-7);
        for (radius, share) in [(0.0, 0.4), (0.095, 0.4), (0.105, 0.9), (0.205, 1.0)] {
            assert!((scores.share_within(radius) - share).abs() < 1e-12, "{radius}");
        }
        assert_eq!((scores.radii.len(), scores.unreachable), (STEPS + 1, 0));
    }

    #[test]
    fn other_pieces_are_infinitely_far_and_no_errors_are_none() {
        let one = shapes::icosphere(1).unwrap();
        let first = one.vertex_count() as u32;
        let two = Mesh::side_by_side([0.0, 5.0].map(|shift| (&one, gemcnn_mesh::DVec3::splat(shift)))).unwrap();
        let scores = scored(&two, &Confusions::from([((0, first), 2)]), 8).unwrap();
        assert_eq!((scores.unreachable, scores.mean), (2, 0.0));
        assert!(scores.within.iter().all(|&share| share == 0.75));
        let perfect = scored(&two, &Confusions::new(), 8).unwrap();
        assert!(perfect.within.iter().all(|&share| share == 1.0));
    }

    #[test]
    fn maps_between_meshes_are_compared_on_the_template() {
        let bodies = BodiesConfig { count: 4, vertices: 500, ..Default::default() };
        let dataset = Dataset::open(&DataConfig::Bodies(bodies)).unwrap();
        let template = TemplateDistances::new(dataset.template().unwrap()).unwrap();
        let map = |vertices: Vec<u32>| MeshMap { from: 2, to: 0, vertices };
        let scored = |maps: &[MeshMap]| GeodesicScores::of_maps(&dataset, Split::Train, maps);
        let right = map((0..500).collect());
        assert_eq!(scored(std::slice::from_ref(&right)).unwrap().mean, 0.0);
        // All vertices are mapped to one.
        let expected = template.from(7).unwrap().iter().map(|&distance| f64::from(distance)).sum::<f64>() / 1000.0;
        let scores = scored(&[right, map(vec![7; 500])]).unwrap();
        assert!((scores.mean - expected).abs() < 1e-3 * expected && expected > 0.1, "{} {expected}", scores.mean);
        for wrong in [vec![0; 499], vec![500; 500]] {
            assert!(scored(&[map(wrong)]).is_err());
        }
    }
}
