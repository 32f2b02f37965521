//! Scores of a segmentation that weigh vertices by area, count faces and edges, or leave out vertices next to a border
//! of the true classes.

use crate::Sample;
use crate::data::Scoring;
use crate::elements::sides;
use gemcnn_mesh::{Faces, GaugeGraph};
use gemcnn_nn::{Elements, IGNORE, Target};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

/// Vertices nearer than this to a border are left out of [`SegmentationScores::away_from_borders`], relative to the
/// square root of the area of the mesh.
pub const BORDER: f64 = 0.025;

/// Scores of a segmentation besides the accuracy of the vertices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SegmentationScores {
    /// Fraction of the area with the right class. Unlike the accuracy of the vertices, it does not depend on where a
    /// mesh has many of them.
    pub by_area: f64,
    /// Accuracy of the vertices that are not next to a border of the true classes; `None` if there are none, or for
    /// faces and edges. Labels on a coarse mesh place borders no better than to half an edge.
    pub away_from_borders: Option<f64>,
    /// The number of these vertices.
    pub counted: u64,
    /// Labels of vertices: fraction of the faces with the right class. The class of a face is that of most of its
    /// corners, of the first one if several are as frequent. Faces and edges with an unlabelled vertex are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_face: Option<f64>,
    /// Fraction of the edges with the right class at both ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_edge: Option<f64>,
    /// Fraction of the edges where the class predicted at each end is that of one of the two ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_edge_soft: Option<f64>,
    /// Labels of edges with soft labels: fraction of the area of the edges whose predicted class is one of those that
    /// the edge may have, the accuracy that MeshCNN reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_by_area: Option<f64>,
}

/// Where the vertices, faces or edges of a mesh lie.
pub(super) struct RowGeometry {
    areas: Vec<f32>,
    is_away: Vec<bool>,
    /// The faces between the vertices; none if the rows are faces or edges.
    faces: Faces,
    /// The classes that each edge may have, if the rows are edges with soft labels.
    soft: Vec<Vec<u32>>,
}

impl RowGeometry {
    /// `None` unless the sample has areas and a label for each row. Faces and edges are not told apart by borders.
    pub fn new(sample: &Sample, scoring: Scoring) -> Option<Self> {
        let Target::Classes(labels) = &sample.target else { return None };
        if let Some(elements) = sample.extras.get::<Elements<f32>>() {
            return (labels.len() == elements.areas.len()).then(|| Self {
                areas: elements.areas.clone(),
                is_away: vec![false; labels.len()],
                faces: Faces::new(),
                soft: scoring.soft.unwrap_or_default(),
            });
        }
        let vertices = sample.graph().vertex_count();
        if labels.len() != vertices || sample.areas.len() != vertices {
            return None;
        }
        let area: f64 = sample.areas.iter().map(|&area| f64::from(area)).sum();
        Some(Self {
            is_away: away_from_borders(sample.graph(), labels, BORDER * area.sqrt()),
            areas: sample.areas.clone(),
            faces: scoring.faces,
            soft: Vec::new(),
        })
    }
}

/// For each vertex, whether it is farther than `width` from the border of its class, along the edges. The border
/// crosses edges in the middle.
fn away_from_borders(graph: &GaugeGraph, labels: &[u32], width: f64) -> Vec<bool> {
    let (neighbours, lengths) = (graph.neighbours(), graph.radius());
    let mut distances = vec![f64::INFINITY; labels.len()];
    let mut queue = BinaryHeap::new();
    for (vertex, &label) in labels.iter().enumerate() {
        let differs = |&edge: &usize| {
            let other = labels[neighbours[edge] as usize];
            label != IGNORE && other != IGNORE && other != label
        };
        let edges = graph.row(vertex).filter(differs);
        let nearest = edges.map(|edge| lengths[edge] / 2.0).reduce(f64::min);
        if let Some(distance) = nearest {
            distances[vertex] = distance;
            // The order of positive numbers is that of their bits.
            queue.push(Reverse((distance.to_bits(), vertex as u32)));
        }
    }
    while let Some(Reverse((bits, vertex))) = queue.pop() {
        let distance = f64::from_bits(bits);
        if distance > distances[vertex as usize] || distance > width {
            continue;
        }
        for edge in graph.row(vertex as usize) {
            let (next, other) = (distance + lengths[edge], neighbours[edge]);
            if next < distances[other as usize] {
                distances[other as usize] = next;
                queue.push(Reverse((next.to_bits(), other)));
            }
        }
    }
    distances.iter().map(|&distance| distance > width).collect()
}

/// Sums over meshes.
#[derive(Default)]
pub(super) struct SegmentationSums {
    area: f64,
    right_area: f64,
    soft_area: f64,
    right_soft_area: f64,
    away: Share,
    faces: Share,
    edges: Share,
    soft_edges: Share,
}

/// How many of how many are right.
#[derive(Default)]
struct Share {
    right: u64,
    counted: u64,
}

impl Share {
    fn add(&mut self, is_right: bool) {
        self.right += u64::from(is_right);
        self.counted += 1;
    }

    fn fraction(&self) -> Option<f64> {
        (self.counted > 0).then(|| self.right as f64 / self.counted as f64)
    }
}

/// The most frequent label at the corners of a face, the first of those that are as frequent.
fn majority(labels: &[u32], corners: &[u32]) -> Option<u32> {
    let at = |&corner: &u32| labels[corner as usize];
    let count = |label: u32| corners.iter().filter(|corner| at(corner) == label).count();
    // Of equal ones, the last is taken.
    corners.iter().rev().map(at).max_by_key(|&label| count(label))
}

impl SegmentationSums {
    pub fn add(&mut self, geometry: &RowGeometry, labels: &[u32], predicted: &[u32]) {
        let rows = labels.iter().zip(predicted);
        let weights = geometry.areas.iter().zip(&geometry.is_away);
        for ((label, predicted), (&area, &is_away)) in rows.zip(weights) {
            if *label == IGNORE {
                continue;
            }
            let is_right = label == predicted;
            self.area += f64::from(area);
            if is_right {
                self.right_area += f64::from(area);
            }
            if is_away {
                self.away.add(is_right);
            }
        }
        for ((allowed, predicted), &area) in geometry.soft.iter().zip(predicted).zip(&geometry.areas) {
            self.soft_area += f64::from(area);
            if allowed.contains(predicted) {
                self.right_soft_area += f64::from(area);
            }
        }
        self.add_faces(&geometry.faces, labels, predicted);
    }

    fn add_faces(&mut self, faces: &Faces, labels: &[u32], predicted: &[u32]) {
        let is_known = |corners: &[u32]| corners.iter().all(|&v| labels[v as usize] != IGNORE);
        let mut met = HashSet::new();
        for corners in faces.iter() {
            if is_known(corners) {
                self.faces.add(majority(labels, corners) == majority(predicted, corners));
            }
            for edge in sides(corners).filter(|edge| is_known(edge)) {
                if met.insert(edge) {
                    let [truth, found] = [labels, predicted].map(|l| edge.map(|v| l[v as usize]));
                    self.edges.add(truth == found);
                    self.soft_edges.add(found.iter().all(|label| truth.contains(label)));
                }
            }
        }
    }

    /// `None` if nothing was counted.
    pub fn scores(&self) -> Option<SegmentationScores> {
        (self.area > 0.0).then(|| SegmentationScores {
            by_area: self.right_area / self.area,
            away_from_borders: self.away.fraction(),
            counted: self.away.counted,
            by_face: self.faces.fraction(),
            by_edge: self.edges.fraction(),
            by_edge_soft: self.soft_edges.fraction(),
            soft_by_area: (self.soft_area > 0.0).then(|| self.right_soft_area / self.soft_area),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_mesh::{shapes, vertex_areas};

    #[test]
    fn vertices_near_the_equator_of_a_sphere_are_next_to_a_border() {
        let mesh = shapes::icosphere(4).unwrap();
        let heights: Vec<f64> = mesh.vertices().iter().map(|p| p.z).collect();
        let labels: Vec<u32> = heights.iter().map(|&z| u32::from(z > 0.02)).collect();
        let areas = vertex_areas(&mesh);
        let sample = Sample { target: Target::Classes(labels.clone()), ..Sample::bare(&mesh) };
        let scoring = Scoring { faces: mesh.faces().clone(), soft: None };
        let geometry = RowGeometry::new(&sample, scoring).unwrap();
        let width = BORDER * areas.iter().sum::<f64>().sqrt();
        let edge = 0.08;
        for (vertex, z) in heights.iter().enumerate() {
            let distance = (z - 0.02).abs();
            if distance > width + edge {
                assert!(geometry.is_away[vertex], "{z}");
            }
            if distance < width - edge / 2.0 {
                assert!(!geometry.is_away[vertex], "{z}");
            }
        }
        // All wrong below: half of the area, whatever the number of vertices; unknown ones do not count.
        let mut sums = SegmentationSums::default();
        sums.add(&geometry, &labels, &vec![1; labels.len()]);
        let scores = sums.scores().unwrap();
        let lower: f64 = (areas.iter().zip(&labels)).map(|(area, &label)| area * f64::from(label)).sum();
        assert!((scores.by_area - lower / areas.iter().sum::<f64>()).abs() < 1e-5);
        let away = geometry.is_away.iter().filter(|away| **away).count();
        assert_eq!(scores.counted, away as u64);
        let mut unknown = SegmentationSums::default();
        unknown.add(&geometry, &vec![IGNORE; labels.len()], &labels);
        assert_eq!(unknown.scores(), None);
        // Two triangles of three classes: the first has a tie, whose first corner decides.
        let mut faces = Faces::new();
        faces.push(&[0, 1, 2]);
        faces.push(&[2, 1, 3]);
        let mut sums = SegmentationSums::default();
        sums.add_faces(&faces, &[0, 1, 2, 1], &[0, 2, 1, 2]);
        // All edges have a wrong end; at 12 and 23 the labels are exchanged.
        assert_eq!((sums.faces.right, sums.faces.counted), (1, 2));
        assert_eq!((sums.edges.right, sums.edges.counted), (0, 5));
        assert_eq!(sums.soft_edges.right, 2);
        sums.add_faces(&faces, &[0, 1, 2, IGNORE], &[0, 1, 2, 2]);
        assert_eq!((sums.faces.right, sums.faces.counted), (2, 3));
        assert_eq!((sums.edges.right, sums.edges.counted), (3, 8));
        // One class has no border.
        let whole = away_from_borders(sample.graph(), &vec![3; labels.len()], 10.0);
        assert!(whole.iter().all(|away| *away));
    }
}
