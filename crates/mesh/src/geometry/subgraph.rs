//! Parts of gauge graphs.

use super::adjacency::reverse_edges;
use super::weights::Coefficients;
use super::{Adjacency, GaugeGraph};

impl GaugeGraph {
    /// The graph of some vertices, in ascending order, and of the edges between them. Rows keep their order. Frames,
    /// angles and weights stay as they are, so a row with all its edges gives the same result in an operator.
    ///
    /// ```
    /// use gemcnn_mesh::{shapes, GaugeGraph, GeometryOptions};
    /// let graph = GaugeGraph::new(&shapes::icosahedron(), &GeometryOptions::default())?;
    /// let pair = graph.subgraph(&[0, graph.neighbours()[0]]);
    /// assert_eq!((pair.vertex_count(), pair.edge_count()), (2, 2));
    /// assert_eq!(pair.theta()[0], graph.theta()[0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If a vertex is not in the graph.
    pub fn subgraph(&self, vertices: &[u32]) -> Self {
        let mut offsets = Vec::with_capacity(vertices.len() + 1);
        offsets.push(0);
        let (mut neighbours, mut edges) = (Vec::new(), Vec::new());
        for &vertex in vertices {
            for edge in self.row(vertex as usize) {
                if let Ok(place) = vertices.binary_search(&self.neighbours()[edge]) {
                    neighbours.push(place as u32);
                    edges.push(edge);
                }
            }
            offsets.push(edges.len() as u32);
        }
        let take = |values: &[f64]| edges.iter().map(|&edge| values[edge]).collect::<Vec<f64>>();
        let of_vertices = |values: &[f64]| {
            let value = |&vertex: &u32| values[vertex as usize];
            vertices.iter().map(value).collect::<Vec<f64>>()
        };
        let coefficients = self.coefficients.as_ref().map(|all| {
            let columns = all.values.len().checked_div(self.edge_count()).unwrap_or(0);
            let row = |&edge: &usize| &all.values[edge * columns..(edge + 1) * columns];
            Coefficients {
                weights: all.weights,
                areas: of_vertices(&all.areas),
                values: edges.iter().flat_map(row).copied().collect(),
            }
        });
        let frames = self.frames();
        Self {
            theta: take(self.theta()),
            transport: take(self.transport()),
            radius: take(self.radius()),
            frames: (vertices.iter().map(|&vertex| frames[vertex as usize])).collect(),
            coefficients,
            adjacency: Adjacency { reverse: reverse_edges(&offsets, &neighbours), offsets, neighbours },
        }
    }
}
