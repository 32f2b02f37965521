//! The arrays of a gauge graph, or of a batch of them, as operators read them.

use crate::{KernelError, Real};

/// Cosine and sine of the two angles of a directed edge `p <- q` that operators need.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct EdgePhases<T> {
    /// `(cos, sin)` of the neighbour angle `theta_pq`.
    pub angle: [T; 2],
    /// `(cos, sin)` of `g_pq - theta_pq`: transport from `q`, then into the frame of the edge.
    pub transport: [T; 2],
}

/// Compressed rows of a gauge graph: the neighbourhoods of one mesh, or of a batch of meshes as a
/// disjoint union.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphArrays<T> {
    offsets: Vec<u32>,
    neighbours: Vec<u32>,
    reverse: Vec<u32>,
    phases: Vec<EdgePhases<T>>,
    radius: Vec<T>,
    mesh_offsets: Vec<u32>,
}

/// The parts that [`GraphArrays`] are made of.
#[derive(Debug, Clone, Copy)]
pub struct GraphParts<'a> {
    /// Start of each row, and the number of edges at the end.
    pub offsets: &'a [u32],
    /// Neighbour `q` of every directed edge `p <- q`.
    pub neighbours: &'a [u32],
    /// Position of the reverse of every directed edge.
    pub reverse: &'a [u32],
    /// Neighbour angle of every directed edge.
    pub theta: &'a [f64],
    /// Transport `g_pq` from `q` to `p` of every directed edge.
    pub transport: &'a [f64],
    /// Length of every directed edge.
    pub radius: &'a [f64],
}

impl<T: Real> GraphArrays<T> {
    /// Joins graphs to one, the vertices of each after those of the one before.
    ///
    /// # Errors
    /// Arrays that do not fit together, or a union that 32-bit indices cannot address.
    pub fn union(graphs: &[GraphParts<'_>]) -> Result<Self, KernelError> {
        let total = |count: fn(&GraphParts<'_>) -> usize| graphs.iter().map(count).sum::<usize>();
        let vertices = total(|graph| graph.offsets.len().saturating_sub(1));
        let edges = total(|graph| graph.neighbours.len());
        if vertices.max(edges) >= u32::MAX as usize {
            return Err(KernelError::Graph {
                problem: format!(
                    "{vertices} vertices with {edges} edges are too many for 32-bit indices"
                ),
            });
        }
        let mut union = Self {
            offsets: Vec::with_capacity(vertices + 1),
            neighbours: Vec::with_capacity(edges),
            reverse: Vec::with_capacity(edges),
            phases: Vec::with_capacity(edges),
            radius: Vec::with_capacity(edges),
            mesh_offsets: Vec::with_capacity(graphs.len() + 1),
        };
        union.offsets.push(0);
        union.mesh_offsets.push(0);
        for (index, graph) in graphs.iter().enumerate() {
            graph.check().map_err(|problem| KernelError::Graph {
                problem: format!("graph {index}: {problem}"),
            })?;
            let first_vertex = union.offsets.len() as u32 - 1;
            let first_edge = union.neighbours.len() as u32;
            let later =
                |values: &[u32], by: u32| values.iter().map(move |v| v + by).collect::<Vec<_>>();
            union.offsets.extend(later(&graph.offsets[1..], first_edge));
            union
                .neighbours
                .extend(later(graph.neighbours, first_vertex));
            union.reverse.extend(later(graph.reverse, first_edge));
            union.radius.extend(graph.radius.iter().map(|&r| T::of(r)));
            let angles = graph.theta.iter().zip(graph.transport);
            union.phases.extend(angles.map(|(&theta, &transport)| {
                let pair = |angle: f64| [T::of(angle.cos()), T::of(angle.sin())];
                EdgePhases {
                    angle: pair(theta),
                    transport: pair(transport - theta),
                }
            }));
            union.mesh_offsets.push(union.offsets.len() as u32 - 1);
        }
        Ok(union)
    }

    /// Number of vertices.
    pub fn vertex_count(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Number of directed edges.
    pub fn edge_count(&self) -> usize {
        self.neighbours.len()
    }

    /// Number of meshes in the union.
    pub fn mesh_count(&self) -> usize {
        self.mesh_offsets.len() - 1
    }

    /// Start of each row, and the number of edges at the end.
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// Neighbour `q` of every directed edge `p <- q`; every one is below the number of vertices.
    pub fn neighbours(&self) -> &[u32] {
        &self.neighbours
    }

    /// Position of the reverse of every directed edge; every one is below the number of edges.
    pub fn reverse(&self) -> &[u32] {
        &self.reverse
    }

    /// Phases of every directed edge.
    pub fn phases(&self) -> &[EdgePhases<T>] {
        &self.phases
    }

    /// Length of every directed edge.
    pub fn radius(&self) -> &[T] {
        &self.radius
    }

    /// First vertex of each mesh, and the number of vertices at the end.
    pub fn mesh_offsets(&self) -> &[u32] {
        &self.mesh_offsets
    }

    /// Positions of the edges of one row.
    pub fn row(&self, vertex: usize) -> std::ops::Range<usize> {
        self.offsets[vertex] as usize..self.offsets[vertex + 1] as usize
    }
}

impl GraphParts<'_> {
    fn check(&self) -> Result<(), String> {
        let edges = self.neighbours.len();
        for (what, length) in [
            ("reverse positions", self.reverse.len()),
            ("angles", self.theta.len()),
            ("transports", self.transport.len()),
            ("radii", self.radius.len()),
        ] {
            if length != edges {
                return Err(format!("{length} {what} for {edges} edges"));
            }
        }
        let Some((&first, &last)) = self.offsets.first().zip(self.offsets.last()) else {
            return Err("there are no row offsets".into());
        };
        if first != 0 || last as usize != edges || !self.offsets.is_sorted() {
            return Err(format!("row offsets do not rise from 0 to {edges}"));
        }
        for vertex in 0..self.offsets.len() - 1 {
            for edge in self.offsets[vertex] as usize..self.offsets[vertex + 1] as usize {
                let neighbour = self.neighbours[edge] as usize;
                let reverse = self.reverse[edge] as usize;
                if neighbour >= self.offsets.len() - 1 {
                    return Err(format!("edge {edge} names vertex {neighbour}"));
                }
                let row = self.offsets[neighbour] as usize..self.offsets[neighbour + 1] as usize;
                if !row.contains(&reverse) || self.neighbours[reverse] as usize != vertex {
                    return Err(format!("{reverse} is not the reverse of edge {edge}"));
                }
            }
        }
        Ok(())
    }
}
