//! The gauge graph: everything a gauge equivariant network needs to know of a mesh.

use super::adjacency::{CornerTable, block, split_blocks};
use super::angles::angles;
use super::frames::is_along_normal;
use super::normals::{normals_from_corners, of_moderate_size};
use super::{Adjacency, Frame, Gauge, GeometryError, GeometryOptions, Neighbourhood, frames};
use crate::Mesh;
use glam::DVec3;
use rayon::prelude::*;
use std::f64::consts::TAU;
use std::ops::Range;

/// Neighbourhoods with angles: for every directed edge `p <- q` the neighbour, the position of the
/// reverse edge, the neighbour angle `theta_pq`, the transport `g_pq` (from `q` to `p`) and the
/// radius, in compressed rows sorted by the target `p`; and for every vertex its frame.
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
    adjacency: Adjacency,
    theta: Vec<f64>,
    transport: Vec<f64>,
    radius: Vec<f64>,
    frames: Vec<Frame>,
}

impl GaugeGraph {
    /// The gauge geometry of a mesh. Works on open, non-manifold and non-orientable meshes: all it
    /// needs is a normal at every vertex that a face uses.
    ///
    /// # Errors
    /// A used vertex without a tangent plane, or a choice in `options` that does not fit the mesh.
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
            if let Neighbourhood::Radius { radius, .. } = &mut options.neighbourhood {
                *radius *= scale;
            }
            let mut graph = Self::new(&moderate, &options)?;
            for radius in &mut graph.radius {
                *radius = (*radius / scale).min(f64::MAX);
            }
            return Ok(graph);
        }
        let table = CornerTable::new(mesh);
        let normals = normals_from_corners(mesh, &table, options.normals)?;
        let adjacency = match options.neighbourhood {
            Neighbourhood::OneRing => Adjacency::one_ring_from_corners(mesh, &table)?,
            Neighbourhood::Radius { radius, limit } => {
                Adjacency::within_radius(mesh.vertices(), radius, limit)?
            }
        };
        drop(table);
        let frames = frames::frames(mesh.vertices(), &normals, &adjacency, &options.gauge)?;
        let graph = Self::with_frames(mesh.vertices(), frames, adjacency)?;
        match &options.gauge {
            Gauge::Angles(angles) => graph.gauge_transform(angles),
            _ => Ok(graph),
        }
    }

    /// The gauge geometry of points with given frames and neighbourhoods.
    ///
    /// An edge without a direction in the tangent plane (along the normal, or between coincident
    /// points) is given the angle of the first neighbour in its row that has one, so that it
    /// obeys the same law under a change of frames.
    ///
    /// # Errors
    /// Lengths that differ.
    pub fn with_frames(
        points: &[DVec3],
        frames: Vec<Frame>,
        adjacency: Adjacency,
    ) -> Result<Self, GeometryError> {
        check_length("positions", points.len(), adjacency.vertex_count())?;
        check_length("frames", frames.len(), adjacency.vertex_count())?;
        let edges = adjacency.edge_count();
        let (mut theta, mut transport, mut radius) =
            (vec![0.0; edges], vec![0.0; edges], vec![0.0; edges]);
        let offsets = adjacency.offsets();
        split_blocks(offsets, &mut theta)
            .into_par_iter()
            .zip(split_blocks(offsets, &mut transport))
            .zip(split_blocks(offsets, &mut radius))
            .enumerate()
            .for_each_init(
                || (Vec::new(), Vec::new()),
                |(theta_x, transport_x), (index, ((theta, transport), radius))| {
                    // Sines go to where the angles will stand, cosines beside them; the angles of
                    // the whole block follow at once.
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
                            // The other direction is filled in below, as the exact inverse.
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
        Ok(Self {
            adjacency,
            theta,
            transport,
            radius,
            frames,
        })
    }

    /// Puts a graph together from its arrays, as [`new`](Self::new) makes them or as they were
    /// stored.
    ///
    /// # Errors
    /// Lengths that differ, or a number that is not finite.
    pub fn from_parts(
        adjacency: Adjacency,
        theta: Vec<f64>,
        transport: Vec<f64>,
        radius: Vec<f64>,
        frames: Vec<Frame>,
    ) -> Result<Self, GeometryError> {
        for (what, values) in [
            ("angle", &theta),
            ("transport", &transport),
            ("radius", &radius),
        ] {
            if values.len() != adjacency.edge_count() {
                return Err(GeometryError::BadGraph {
                    problem: format!(
                        "{} values of {what} for {} edges",
                        values.len(),
                        adjacency.edge_count()
                    ),
                });
            }
            if let Some(index) = values.iter().position(|value| !value.is_finite()) {
                return Err(GeometryError::NotFinite { what, index });
            }
        }
        check_length("frames", frames.len(), adjacency.vertex_count())?;
        let finite = |f: &Frame| f.e1.is_finite() && f.e2.is_finite() && f.normal.is_finite();
        if let Some(index) = frames.iter().position(|frame| !finite(frame)) {
            return Err(GeometryError::NotFinite {
                what: "frame",
                index,
            });
        }
        Ok(Self {
            adjacency,
            theta,
            transport,
            radius,
            frames,
        })
    }

    /// The same geometry seen from frames that are turned by `angles`, from `e1` towards `e2`:
    /// `theta_pq - a_p` and `g_pq - a_p + a_q`, brought back to [-pi, pi].
    ///
    /// # Errors
    /// Not one finite angle for each vertex.
    pub fn gauge_transform(mut self, angles: &[f64]) -> Result<Self, GeometryError> {
        check_length("gauge angles", angles.len(), self.vertex_count())?;
        if let Some(index) = angles.iter().position(|angle| !angle.is_finite()) {
            return Err(GeometryError::NotFinite {
                what: "gauge angle",
                index,
            });
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

    /// Who is whose neighbour.
    pub fn adjacency(&self) -> &Adjacency {
        &self.adjacency
    }

    /// Start of each row, and the number of edges at the end.
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

    /// Transport `g_pq` from `q` to `p` of every directed edge `p <- q`, in [-pi, pi].
    pub fn transport(&self) -> &[f64] {
        &self.transport
    }

    /// Distance in space of the two ends of every directed edge.
    pub fn radius(&self) -> &[f64] {
        &self.radius
    }

    /// Frame of every vertex.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }
}

/// Gives edges without a direction of their own the angle of the first edge in their row that has
/// one, or zero if none has. `undirected` lists such edges in order, each with its row.
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

/// The same angle in [-pi, pi].
fn wrap(angle: f64) -> f64 {
    angle - TAU * (angle / TAU).round()
}

/// Refuses a list that has not one entry for each vertex.
pub(crate) fn check_length(
    what: &'static str,
    given: usize,
    vertices: usize,
) -> Result<(), GeometryError> {
    if given == vertices {
        Ok(())
    } else {
        Err(GeometryError::WrongLength {
            what,
            given,
            vertices,
        })
    }
}
