//! The transforms, prepared once for all networks.

use super::error::Outputs;
use super::{Draws, GAUGE_STREAM, MOTION_STREAM, Settings, Surface, model, rotational_symmetries};
use gemcnn_mesh::features::shot::{self, ShotOptions};
use gemcnn_mesh::{Gauge, GaugeGraph, GeometryOptions, Mesh};
use gemcnn_nn::{GraphBatch, NnError, Real};
use gemcnn_tasks::TaskError;
use serde::{Deserialize, Serialize};

/// Radius of the support of SHOT frames, in mean edge lengths: a vertex and its neighbours.
const SHOT_RADIUS: f64 = 1.4;

/// A change that should leave the output of an equivariant network unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transform {
    /// Rotates the frame of every vertex by a random angle, SHOT frames too.
    Gauge,
    /// Moves all positions by a random rotation and translation and recomputes the frames. Positions are
    /// rounded to the precision of the network.
    Ambient,
    /// Permutes the input by each of the 60 rotational symmetries of the icosahedron; the output should be
    /// permuted in the same way. The deformed icosahedron lacks these symmetries but uses the same
    /// permutations.
    Isometry,
}

impl Transform {
    pub(super) const ALL: [Self; 3] = [Self::Gauge, Self::Ambient, Self::Isometry];
}

/// The choice of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frames {
    /// Towards the first neighbour.
    Neighbour,
    /// SHOT frames, from the positions of the neighbours.
    Shot,
}

impl Frames {
    fn graph(self, mesh: &Mesh) -> Result<GaugeGraph, TaskError> {
        let geometry = |source| TaskError::Geometry { name: "icosahedron".into(), source };
        let gauge = match self {
            Self::Neighbour => Gauge::FirstNeighbour,
            Self::Shot => {
                let options =
                    ShotOptions { radius: Some(SHOT_RADIUS * mean_edge_length(mesh)), ..ShotOptions::default() };
                shot::gauge(mesh, &options).map_err(geometry)?
            }
        };
        let options = GeometryOptions { gauge, ..GeometryOptions::default() };
        GaugeGraph::new(mesh, &options).map_err(geometry)
    }
}

fn mean_edge_length(mesh: &Mesh) -> f64 {
    let (mut length, mut count) = (0.0, 0.0f64);
    for face in mesh.faces().iter() {
        for (&from, &to) in face.iter().zip(face.iter().cycle().skip(1)) {
            length += mesh.vertices()[from as usize].distance(mesh.vertices()[to as usize]);
            count += 1.0;
        }
    }
    length / count.max(1.0)
}

/// The transformed graphs of a mesh, or the permutations of its vertices, for one choice of frames.
pub(super) struct Changes<T> {
    pub surface: Surface,
    pub transform: Transform,
    pub frames: Frames,
    pub vertices: usize,
    made: Made<T>,
}

enum Made<T> {
    /// Transformed graphs for each network.
    OfEach(Vec<Vec<GraphBatch<T>>>),
    /// Transformed graphs that all networks share.
    ForAll(Vec<GraphBatch<T>>),
    /// One graph and permutations of its vertices.
    Permuted { graph: Box<GraphBatch<T>>, permutations: Vec<Vec<u32>> },
}

impl<T: Real> Changes<T> {
    /// Prepares all meshes, transforms and frames.
    pub fn all(settings: &Settings) -> Result<Vec<Self>, TaskError> {
        let mut all = Vec::new();
        for surface in Surface::ALL {
            for transform in Transform::ALL {
                for frames in [Frames::Neighbour, Frames::Shot] {
                    all.push(Self::new(settings, surface, transform, frames)?);
                }
            }
        }
        Ok(all)
    }

    fn new(settings: &Settings, surface: Surface, transform: Transform, frames: Frames) -> Result<Self, TaskError> {
        let mesh = surface.mesh(settings.seed)?;
        let batch_of = |graph: &GaugeGraph| Ok(GraphBatch::new([graph])?);
        let made = match transform {
            Transform::Gauge => {
                let graph = frames.graph(&mesh)?;
                let mut draws = Draws::new(settings.seed, GAUGE_STREAM);
                let mut rotated = || {
                    let angles: Vec<f64> = mesh.vertices().iter().map(|_| draws.angle()).collect();
                    let rotated = graph.clone().gauge_transform(&angles);
                    batch_of(&rotated.map_err(|source| TaskError::Geometry { name: "icosahedron".into(), source })?)
                };
                let mut of_each = || (0..settings.gauges).map(|_| rotated()).collect();
                let all = (0..settings.models).map(|_| of_each());
                Made::OfEach(all.collect::<Result<_, TaskError>>()?)
            }
            Transform::Ambient => {
                let mut draws = Draws::new(settings.seed, MOTION_STREAM);
                let mut moved = || {
                    let (rotation, shift) = (draws.rotation(), draws.shift());
                    // A mesh of this precision would hold rounded positions.
                    let rounded = |v: f64| T::of(v).as_f64();
                    let moved = mesh.map_vertices(|p| (rotation * p + shift).map(rounded));
                    let moved = moved.map_err(|error| TaskError::setting("motion", error.to_string()))?;
                    batch_of(&frames.graph(&moved)?)
                };
                let all = (0..settings.motions).map(|_| moved());
                Made::ForAll(all.collect::<Result<_, TaskError>>()?)
            }
            Transform::Isometry => Made::Permuted {
                graph: Box::new(batch_of(&frames.graph(&mesh)?)?),
                permutations: rotational_symmetries(&Surface::Icosahedron.mesh(settings.seed)?),
            },
        };
        Ok(Self { surface, transform, frames, vertices: mesh.vertex_count(), made })
    }

    /// Outputs of network number `index` under the transform, permuted back.
    pub fn outputs(
        &self,
        index: usize,
        input: &[T],
        mut apply: impl FnMut(&GraphBatch<T>, &[T]) -> Result<Vec<T>, NnError>,
    ) -> Result<Outputs, NnError> {
        let graphs = match &self.made {
            Made::OfEach(graphs) => graphs.get(index).map_or(&[][..], Vec::as_slice),
            Made::ForAll(graphs) => graphs,
            Made::Permuted { graph, permutations } => {
                let plain = apply(graph, input)?;
                let mut outputs = Outputs::about(&plain);
                for permutation in permutations {
                    let moved = apply(graph, &permuted(permutation, input))?;
                    outputs.add(&permuted_back(permutation, &moved));
                }
                return Ok(outputs);
            }
        };
        let mut outputs = Outputs::alike();
        for graph in graphs {
            outputs.add(&apply(graph, input)?);
        }
        Ok(outputs)
    }
}

/// Moves row `v` of the features to row `permutation[v]`.
fn permuted<T: Real>(permutation: &[u32], features: &[T]) -> Vec<T> {
    let mut permuted = features.to_vec();
    let rows = features.chunks_exact(model::CHANNELS);
    for (row, &to) in rows.zip(permutation) {
        permuted[to as usize * model::CHANNELS..][..model::CHANNELS].copy_from_slice(row);
    }
    permuted
}

/// The inverse of [`permuted`].
fn permuted_back<T: Real>(permutation: &[u32], features: &[T]) -> Vec<T> {
    let row = |&to: &u32| &features[to as usize * model::CHANNELS..][..model::CHANNELS];
    permutation.iter().flat_map(row).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permuting_back_is_the_inverse() {
        let mesh = Surface::Icosahedron.mesh(1).unwrap();
        let features: Vec<f64> = (0..12 * model::CHANNELS).map(|i| i as f64).collect();
        for permutation in rotational_symmetries(&mesh) {
            let moved = permuted(&permutation, &features);
            assert_eq!(permuted_back(&permutation, &moved), features);
        }
    }
}
