//! What is changed between two runs of a network, made ready once for all networks.

use super::error::Outputs;
use super::{Draws, GAUGE_STREAM, MOTION_STREAM, Settings, Surface, model, rotational_symmetries};
use gemcnn_mesh::features::shot::{self, ShotOptions};
use gemcnn_mesh::{Gauge, GaugeGraph, GeometryOptions, Mesh};
use gemcnn_nn::{GraphBatch, NnError, Real};
use gemcnn_tasks::TaskError;
use serde::{Deserialize, Serialize};

/// Radius of the support of SHOT frames, in mean lengths of edges: a vertex and its neighbours.
const SHOT_RADIUS: f64 = 1.4;

/// What is changed and should not change the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transform {
    /// The frame of every vertex, by random angles. SHOT frames are turned too.
    Gauge,
    /// All positions, by a random rotation and translation; frames are computed anew. Positions are
    /// rounded to the precision of the network.
    Ambient,
    /// The input, carried along by each of the 60 rotations of the icosahedron onto itself; the output
    /// should be carried along. The deformed icosahedron has lost these symmetries and gets the same
    /// permutations.
    Isometry,
}

impl Transform {
    pub(super) const ALL: [Self; 3] = [Self::Gauge, Self::Ambient, Self::Isometry];
}

/// How frames are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frames {
    /// Towards the first neighbour.
    Neighbour,
    /// By SHOT, from the positions of the neighbours.
    Shot,
}

impl Frames {
    fn graph(self, mesh: &Mesh) -> Result<GaugeGraph, TaskError> {
        let geometry = |source| TaskError::Geometry {
            name: "icosahedron".into(),
            source,
        };
        let gauge = match self {
            Self::Neighbour => Gauge::FirstNeighbour,
            Self::Shot => {
                let options = ShotOptions {
                    radius: Some(SHOT_RADIUS * mean_edge_length(mesh)),
                    ..ShotOptions::default()
                };
                shot::gauge(mesh, &options).map_err(geometry)?
            }
        };
        let options = GeometryOptions {
            gauge,
            ..GeometryOptions::default()
        };
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

/// The graphs of a mesh for one transform and one choice of frames, or the permutations of its
/// vertices.
pub(super) struct Changes<T> {
    pub surface: Surface,
    pub transform: Transform,
    pub frames: Frames,
    pub vertices: usize,
    made: Made<T>,
}

enum Made<T> {
    /// For each network the changed graphs.
    OfEach(Vec<Vec<GraphBatch<T>>>),
    /// The same changed graphs for all networks.
    ForAll(Vec<GraphBatch<T>>),
    /// One graph, whose vertices go elsewhere.
    Permuted {
        graph: GraphBatch<T>,
        permutations: Vec<Vec<u32>>,
    },
}

impl<T: Real> Changes<T> {
    /// Those of all meshes, transforms and frames.
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

    fn new(
        settings: &Settings,
        surface: Surface,
        transform: Transform,
        frames: Frames,
    ) -> Result<Self, TaskError> {
        let mesh = surface.mesh(settings.seed)?;
        let single = |graph: &GaugeGraph| Ok(GraphBatch::new([graph])?);
        let made = match transform {
            Transform::Gauge => {
                let graph = frames.graph(&mesh)?;
                let mut draws = Draws::new(settings.seed, GAUGE_STREAM);
                let mut turned = || {
                    let angles: Vec<f64> = mesh.vertices().iter().map(|_| draws.angle()).collect();
                    let turned = graph.clone().gauge_transform(&angles);
                    single(&turned.map_err(|source| TaskError::Geometry {
                        name: "icosahedron".into(),
                        source,
                    })?)
                };
                let mut of_each = || (0..settings.gauges).map(|_| turned()).collect();
                let all = (0..settings.models).map(|_| of_each());
                Made::OfEach(all.collect::<Result<_, TaskError>>()?)
            }
            Transform::Ambient => {
                let mut draws = Draws::new(settings.seed, MOTION_STREAM);
                let mut moved = || {
                    let (rotation, shift) = (draws.rotation(), draws.shift());
                    // As a mesh of the same precision holds them.
                    let rounded = |v: f64| T::of(v).as_f64();
                    let moved = mesh.map_vertices(|p| (rotation * p + shift).map(rounded));
                    let moved =
                        moved.map_err(|error| TaskError::setting("motion", error.to_string()))?;
                    single(&frames.graph(&moved)?)
                };
                let all = (0..settings.motions).map(|_| moved());
                Made::ForAll(all.collect::<Result<_, TaskError>>()?)
            }
            Transform::Isometry => Made::Permuted {
                graph: single(&frames.graph(&mesh)?)?,
                permutations: rotational_symmetries(&Surface::Icosahedron.mesh(settings.seed)?),
            },
        };
        Ok(Self {
            surface,
            transform,
            frames,
            vertices: mesh.vertex_count(),
            made,
        })
    }

    /// What network number `index` makes of the changed input, changed back.
    pub fn outputs(
        &self,
        index: usize,
        input: &[T],
        mut apply: impl FnMut(&GraphBatch<T>, &[T]) -> Result<Vec<T>, NnError>,
    ) -> Result<Outputs, NnError> {
        let graphs = match &self.made {
            Made::OfEach(graphs) => graphs.get(index).map_or(&[][..], Vec::as_slice),
            Made::ForAll(graphs) => graphs,
            Made::Permuted {
                graph,
                permutations,
            } => {
                let plain = apply(graph, input)?;
                let mut outputs = Outputs::about(&plain);
                for permutation in permutations {
                    let moved = apply(graph, &carried(permutation, input))?;
                    outputs.add(&carried_back(permutation, &moved));
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

/// Row `v` of the features goes to row `permutation[v]`.
fn carried<T: Real>(permutation: &[u32], features: &[T]) -> Vec<T> {
    let mut carried = features.to_vec();
    let rows = features.chunks_exact(model::CHANNELS);
    for (row, &to) in rows.zip(permutation) {
        carried[to as usize * model::CHANNELS..][..model::CHANNELS].copy_from_slice(row);
    }
    carried
}

/// The inverse of [`carried`].
fn carried_back<T: Real>(permutation: &[u32], features: &[T]) -> Vec<T> {
    let row = |&to: &u32| &features[to as usize * model::CHANNELS..][..model::CHANNELS];
    permutation.iter().flat_map(row).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carrying_back_undoes_carrying() {
        let mesh = Surface::Icosahedron.mesh(1).unwrap();
        let features: Vec<f64> = (0..12 * model::CHANNELS).map(|i| i as f64).collect();
        for permutation in rotational_symmetries(&mesh) {
            let moved = carried(&permutation, &features);
            assert_eq!(carried_back(&permutation, &moved), features);
        }
    }
}
