//! The gauge graph: the geometry of a mesh that a gauge equivariant network needs.

use super::adjacency::{CornerTable, block, split_blocks};
use super::angles::angles;
use super::frames::is_along_normal;
use super::normals::{normals_from_corners, of_moderate_size};
use super::weights::{Coefficients, vertex_areas};
use super::{Adjacency, Frame, Gauge, GeometryError, GeometryOptions, NeighbourWeights, Neighbourhood, frames};
use crate::Mesh;
use glam::DVec3;
use rayon::prelude::*;
use std::f64::consts::TAU;
use std::ops::Range;

/// Gauge graph of a mesh: the frame of every vertex and the geometry of every directed edge.
///
/// An edge `p <- q` has a neighbour `q`, the position of its reverse edge, the neighbour angle
/// `theta_pq`, the transport angle `g_pq` (from `q` to `p`) and the radius. Edges are stored in
/// compressed rows, sorted by the target `p`.
///
/// ```
/// use gemcnn_mesh::{shapes, GaugeGraph, GeometryOptions};
/// let graph = GaugeGraph::new(&shapes::icosphere(2)?, &GeometryOptions::default())?;
/// for edge in graph.row(0) {
///     let q = graph.neighbours()[edge];
///     println!("{q}: angle {:.3}, transport {:.3}", graph.theta()[edge], graph.transport()[edge]);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct GaugeGraph {
    pub(super) adjacency: Adjacency,
    pub(super) theta: Vec<f64>,
    pub(super) transport: Vec<f64>,
    pub(super) radius: Vec<f64>,
    pub(super) frames: Vec<Frame>,
    pub(super) coefficients: Option<Coefficients>,
}

impl GaugeGraph {
    /// Computes the gauge geometry of a mesh. Open, non-manifold and non-orientable meshes are
    /// supported; every vertex that a face uses must have a normal.
    ///
    /// # Errors
    /// A vertex that a face uses has no tangent plane, or `options` do not fit the mesh.
    pub fn new(mesh: &Mesh, options: &GeometryOptions) -> Result<Self, GeometryError> {
        let given = match &options.gauge {
            Gauge::FirstNeighbour => None,
            Gauge::Neighbours(references) => Some(("reference neighbours", references.len())),
            Gauge::Angles(angles) => Some(("gauge angles", angles.len())),
            Gauge::Directions(directions) => Some(("gauge directions", directions.len())),
        };
        if let Some((what, given)) = given {
            check_length(what, given, mesh.vertex_count())?;
        }
        if let Some((moderate, scale)) = of_moderate_size(mesh) {
            let mut options = options.clone();
            if let Some(radius) = options.neighbourhood.radius_mut() {
                *radius *= scale;
            }
            let mut graph = Self::new(&moderate, &options)?;
            for radius in &mut graph.radius {
                *radius = (*radius / scale).min(f64::MAX);
            }
            return Ok(graph);
        }
        let table = CornerTable::new(mesh);
        let normals = normals_from_corners(mesh, &table, options.normals, options.estimate_normals)?;
        let points = mesh.vertices();
        let adjacency = match options.neighbourhood {
            Neighbourhood::OneRing => Adjacency::one_ring_from_corners(mesh, &table)?,
            Neighbourhood::Radius { radius, limit } => Adjacency::within_radius(points, radius, limit)?,
            Neighbourhood::Patch { radius, limit } => {
                let one_ring = Adjacency::one_ring_from_corners(mesh, &table)?;
                Adjacency::patches(&one_ring, points, radius, limit)?
            }
        };
        drop(table);
        let frames = frames::frames(points, &normals, &adjacency, &options.gauge)?;
        let graph = match options.weights {
            NeighbourWeights::Count => Self::with_frames(points, frames, adjacency)?,
            weights => {
                let unit = options.neighbourhood.clone().radius_mut().copied();
                Self::weighted(points, frames, adjacency, weights, vertex_areas(mesh), unit)?
            }
        };
        match &options.gauge {
            Gauge::Angles(angles) => graph.gauge_transform(angles),
            _ => Ok(graph),
        }
    }

    /// Computes the gauge geometry of points with given frames and neighbourhoods.
    ///
    /// An edge has no direction in the tangent plane if it is parallel to the normal or connects
    /// coincident points. It takes the angle of the first neighbour in its row that has a
    /// direction, so that it transforms correctly under a change of frames.
    ///
    /// # Errors
    /// The lengths of the arguments differ.
    pub fn with_frames(points: &[DVec3], frames: Vec<Frame>, adjacency: Adjacency) -> Result<Self, GeometryError> {
        check_length("positions", points.len(), adjacency.vertex_count())?;
        check_length("frames", frames.len(), adjacency.vertex_count())?;
        let edges = adjacency.edge_count();
        let (mut theta, mut transport, mut radius) = (vec![0.0; edges], vec![0.0; edges], vec![0.0; edges]);
        let offsets = adjacency.offsets();
        split_blocks(offsets, &mut theta)
            .into_par_iter()
            .zip(split_blocks(offsets, &mut transport))
            .zip(split_blocks(offsets, &mut radius))
            .enumerate()
            .for_each_init(
                || (Vec::new(), Vec::new()),
                |(theta_x, transport_x), (index, ((theta, transport), radius))| {
                    // Store the sines in `theta` and the cosines in `theta_x`, then compute the
                    // angles of the whole block at once.
                    theta_x.resize(theta.len(), 0.0);
                    transport_x.resize(theta.len(), 0.0);
                    let mut undirected = Vec::new();
                    let mut edge = 0;
                    for p in block(index, points.len()) {
                        let frame = &frames[p];
                        let row = edge..edge + adjacency.row(p).len();
                        for &q in adjacency.neighbours_of(p) {
                            let vector = points[q as usize] - points[p];
                            radius[edge] = vector.length();
                            let [x, y] = frame.coefficients(vector);
                            (theta_x[edge], theta[edge]) = (x, y);
                            if is_along_normal(x * x + y * y, vector) {
                                undirected.push((row.clone(), edge));
                            }
                            // The reverse direction is filled in below, as the exact inverse.
                            let [x, y] = if p < q as usize {
                                frame.transport_from(&frames[q as usize], vector)
                            } else {
                                [1.0, 0.0]
                            };
                            (transport_x[edge], transport[edge]) = (x, y);
                            edge += 1;
                        }
                    }
                    angles(theta, theta_x);
                    angles(transport, transport_x);
                    give_directions(theta, &undirected);
                },
            );
        for p in 0..points.len() {
            for edge in adjacency.row(p) {
                if (adjacency.neighbours()[edge] as usize) < p {
                    transport[edge] = -transport[adjacency.reverse()[edge] as usize];
                }
            }
        }
        Ok(Self { adjacency, theta, transport, radius, frames, coefficients: None })
    }

    /// Creates a graph from its arrays, as computed by [`new`](Self::new) or read from a file.
    ///
    /// # Errors
    /// The lengths of the arrays differ, or a number is not finite.
    pub fn from_parts(
        adjacency: Adjacency,
        theta: Vec<f64>,
        transport: Vec<f64>,
        radius: Vec<f64>,
        frames: Vec<Frame>,
    ) -> Result<Self, GeometryError> {
        for (what, values) in [("angle", &theta), ("transport", &transport), ("radius", &radius)] {
            if values.len() != adjacency.edge_count() {
                return Err(GeometryError::BadGraph {
                    problem: format!("{} values of {what} for {} edges", values.len(), adjacency.edge_count()),
                });
            }
            if let Some(index) = values.iter().position(|value| !value.is_finite()) {
                return Err(GeometryError::NotFinite { what, index });
            }
        }
        check_length("frames", frames.len(), adjacency.vertex_count())?;
        let finite = |f: &Frame| f.e1.is_finite() && f.e2.is_finite() && f.normal.is_finite();
        if let Some(index) = frames.iter().position(|frame| !finite(frame)) {
            return Err(GeometryError::NotFinite { what: "frame", index });
        }
        Ok(Self { adjacency, theta, transport, radius, frames, coefficients: None })
    }

    /// The geometry in frames rotated by `angles`, from `e1` towards `e2`: `theta_pq - a_p` and
    /// `g_pq - a_p + a_q`, wrapped to [-pi, pi].
    ///
    /// # Errors
    /// `angles` is not one finite angle per vertex.
    pub fn gauge_transform(mut self, angles: &[f64]) -> Result<Self, GeometryError> {
        check_length("gauge angles", angles.len(), self.vertex_count())?;
        if let Some(index) = angles.iter().position(|angle| !angle.is_finite()) {
            return Err(GeometryError::NotFinite { what: "gauge angle", index });
        }
        if let Some(coefficients) = &mut self.coefficients {
            coefficients.rotate(&self.adjacency, angles);
        }
        for (p, &angle) in angles.iter().enumerate() {
            self.frames[p] = self.frames[p].turned(angle);
            for edge in self.adjacency.row(p) {
                let q = self.adjacency.neighbours()[edge] as usize;
                self.theta[edge] = wrap(self.theta[edge] - angle);
                self.transport[edge] = wrap(self.transport[edge] - angle + angles[q]);
            }
        }
        Ok(self)
    }

    /// Number of vertices.
    pub fn vertex_count(&self) -> usize {
        self.adjacency.vertex_count()
    }

    /// Number of directed edges.
    pub fn edge_count(&self) -> usize {
        self.adjacency.edge_count()
    }

    /// Adjacency of the vertices.
    pub fn adjacency(&self) -> &Adjacency {
        &self.adjacency
    }

    /// Start of each row, followed by the number of edges.
    pub fn offsets(&self) -> &[u32] {
        self.adjacency.offsets()
    }

    /// Neighbour `q` of every directed edge `p <- q`.
    pub fn neighbours(&self) -> &[u32] {
        self.adjacency.neighbours()
    }

    /// Position of the reverse edge `q <- p` of every directed edge `p <- q`.
    pub fn reverse(&self) -> &[u32] {
        self.adjacency.reverse()
    }

    /// Positions of the edges of one row.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn row(&self, vertex: usize) -> Range<usize> {
        self.adjacency.row(vertex)
    }

    /// Neighbour angle `theta_pq` of every directed edge `p <- q`, in [-pi, pi].
    pub fn theta(&self) -> &[f64] {
        &self.theta
    }

    /// Transport angle `g_pq` from `q` to `p` of every directed edge `p <- q`, in [-pi, pi].
    pub fn transport(&self) -> &[f64] {
        &self.transport
    }

    /// Euclidean length of every directed edge.
    pub fn radius(&self) -> &[f64] {
        &self.radius
    }

    /// Frame of every vertex.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }
}

/// Assigns a direction to edges without one: the angle of the first edge in their row that has a
/// direction, or zero if there is none. `undirected` lists these edges in order, each with its row.
fn give_directions(theta: &mut [f64], undirected: &[(Range<usize>, usize)]) {
    for of_one_row in undirected.chunk_by(|a, b| a.0 == b.0) {
        let row = of_one_row[0].0.clone();
        let undirected = of_one_row.iter().map(|(_, edge)| *edge);
        let leading = row.clone().zip(undirected.clone());
        let first = row.start + leading.take_while(|(place, edge)| place == edge).count();
        let angle = if first < row.end { theta[first] } else { 0.0 };
        for edge in undirected {
            theta[edge] = angle;
        }
    }
}

/// Wraps an angle to [-pi, pi].
fn wrap(angle: f64) -> f64 {
    angle - TAU * (angle / TAU).round()
}

/// Returns an error unless there is one entry per vertex.
pub(crate) fn check_length(what: &'static str, given: usize, vertices: usize) -> Result<(), GeometryError> {
    if given == vertices { Ok(()) } else { Err(GeometryError::WrongLength { what, given, vertices }) }
}
