//! The arrays of a gauge graph, or of a batch of them, as operators read them.

use crate::real::compiled;
use crate::{KernelError, Real};
use bytemuck::{Pod, Zeroable};

/// Cosine and sine of the two angles of a directed edge `p <- q` that operators need: four numbers in
/// memory.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct EdgePhases<T> {
    /// `(cos, sin)` of the neighbour angle `theta_pq`.
    pub angle: [T; 2],
    /// `(cos, sin)` of `g_pq - theta_pq`: transport from `q` to `p`, then rotation into the frame of the
    /// edge.
    pub transport: [T; 2],
}

// SAFETY: four numbers in a row, without padding; all zeros are valid numbers.
unsafe impl<T: Zeroable> Zeroable for EdgePhases<T> {}
// SAFETY: as above.
unsafe impl<T: Pod> Pod for EdgePhases<T> {}

/// The gauge graph of one mesh, or of a batch of meshes as a disjoint union, in compressed rows.
///
/// Operators read it through a [`GraphView`].
#[derive(Debug, Clone, PartialEq)]
pub struct GraphArrays<T> {
    offsets: Vec<u32>,
    neighbours: Vec<u32>,
    reverse: Vec<u32>,
    phases: Vec<EdgePhases<T>>,
    radius: Vec<T>,
    columns: usize,
    coefficients: Vec<T>,
    mesh_offsets: Vec<u32>,
}

/// The geometry of one mesh that [`GraphArrays`] are made from.
#[derive(Debug, Clone, Copy)]
pub struct GraphParts<'a> {
    /// Start of each row in the arrays of edges, then the number of edges.
    pub offsets: &'a [u32],
    /// Neighbour `q` of every directed edge `p <- q`.
    pub neighbours: &'a [u32],
    /// Index of the reverse of every directed edge.
    pub reverse: &'a [u32],
    /// Neighbour angle of every directed edge, in radians.
    pub theta: &'a [f64],
    /// Transport `g_pq` from `q` to `p` of every directed edge, in radians.
    pub transport: &'a [f64],
    /// Length of every directed edge.
    pub radius: &'a [f64],
    /// Number of coefficients of each edge, and the coefficients, as [`GraphSlices::coefficients`].
    pub coefficients: (usize, &'a [f64]),
}

/// The slices that a [`GraphView`] is made from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GraphSlices<'a, T> {
    /// Start of each row in the slices of edges, then the number of edges.
    pub offsets: &'a [u32],
    /// Neighbour `q` of every directed edge `p <- q`.
    pub neighbours: &'a [u32],
    /// Index of the reverse of every directed edge.
    pub reverse: &'a [u32],
    /// Phases of every directed edge.
    pub phases: &'a [EdgePhases<T>],
    /// Length of every directed edge.
    pub radius: &'a [T],
    /// Number of coefficients of each edge, and the coefficients `[edges, columns]`. Without columns, neighbours are
    /// scaled by the [`Aggregation`](crate::Aggregation) of an operator. One column replaces that scale by a factor for
    /// each edge. `2K + 1` columns are coefficients of a gauge convolution in place of the scale times `1, cos theta,
    /// sin theta, ..., cos K theta, sin K theta`; they rotate with the frame as these do.
    pub coefficients: (usize, &'a [T]),
    /// First vertex of each mesh, then the number of vertices.
    pub mesh_offsets: &'a [u32],
}

/// A gauge graph in borrowed memory, as the operators on the CPU take it.
///
/// ```
/// use gemcnn_kernels::{EdgePhases, GraphSlices, GraphView};
/// // Two vertices and the two directions of the edge between them, in memory of the caller.
/// let phases = [EdgePhases { angle: [1.0, 0.0], transport: [1.0, 0.0] }; 2];
/// let graph = GraphView::new(GraphSlices {
///     offsets: &[0, 1, 2],
///     neighbours: &[1, 0],
///     reverse: &[1, 0],
///     phases: &phases,
///     radius: &[0.5, 0.5],
///     coefficients: (0, &[]),
///     mesh_offsets: &[0, 2],
/// })?;
/// assert_eq!((graph.vertex_count(), graph.edge_count(), graph.mesh_count()), (2, 2, 1));
/// # Ok::<(), gemcnn_kernels::KernelError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GraphView<'a, T> {
    slices: GraphSlices<'a, T>,
}

impl<T: Real> GraphArrays<T> {
    /// The disjoint union of graphs: the vertices of each mesh follow those of the previous one.
    ///
    /// # Errors
    /// [`KernelError::Graph`] for arrays that do not fit together, or a union too large for 32-bit indices.
    pub fn union(graphs: &[GraphParts<'_>]) -> Result<Self, KernelError> {
        compiled!(GraphArrays::union_of as fn(&[GraphParts<'_>]) -> Result<GraphArrays<T>, KernelError>)(graphs)
    }

    fn union_of(graphs: &[GraphParts<'_>]) -> Result<Self, KernelError> {
        let mut converted = Vec::with_capacity(graphs.len());
        for (index, graph) in graphs.iter().enumerate() {
            graph.check().map_err(|problem| KernelError::Graph { problem: format!("graph {index}: {problem}") })?;
            converted.push(Self::from_checked(graph));
        }
        match converted.len() {
            1 => Ok(converted.remove(0)),
            _ => Self::join(&converted.iter().map(Self::view).collect::<Vec<_>>()),
        }
    }

    /// The disjoint union of graphs that have been converted already: copies and additions only.
    ///
    /// # Errors
    /// [`KernelError::Graph`] for a union too large for 32-bit indices.
    pub fn join(graphs: &[GraphView<'_, T>]) -> Result<Self, KernelError> {
        compiled!(GraphArrays::joined as fn(&[GraphView<'_, T>]) -> Result<GraphArrays<T>, KernelError>)(graphs)
    }

    fn joined(graphs: &[GraphView<'_, T>]) -> Result<Self, KernelError> {
        let vertices: usize = graphs.iter().map(GraphView::vertex_count).sum();
        let edges: usize = graphs.iter().map(GraphView::edge_count).sum();
        if vertices.max(edges) >= u32::MAX as usize {
            return Err(KernelError::Graph {
                problem: format!("{vertices} vertices with {edges} edges are too many for 32-bit indices"),
            });
        }
        let mut union = Self {
            offsets: Vec::with_capacity(vertices + 1),
            neighbours: Vec::with_capacity(edges),
            reverse: Vec::with_capacity(edges),
            phases: Vec::with_capacity(edges),
            radius: Vec::with_capacity(edges),
            columns: graphs.first().map_or(0, GraphView::columns),
            coefficients: Vec::new(),
            mesh_offsets: vec![0],
        };
        union.offsets.push(0);
        for graph in graphs {
            if graph.columns() != union.columns {
                return Err(KernelError::Graph {
                    problem: format!(
                        "graphs with {} and {} coefficients of each edge cannot be joined",
                        union.columns,
                        graph.columns()
                    ),
                });
            }
            union.coefficients.extend_from_slice(graph.coefficients());
            let first_vertex = union.offsets.len() as u32 - 1;
            let first_edge = union.neighbours.len() as u32;
            let shifted = |values: &[u32], to: &mut Vec<u32>, by: u32| {
                to.extend(values.iter().map(|value| value + by));
            };
            shifted(&graph.offsets()[1..], &mut union.offsets, first_edge);
            shifted(graph.neighbours(), &mut union.neighbours, first_vertex);
            shifted(graph.reverse(), &mut union.reverse, first_edge);
            shifted(&graph.mesh_offsets()[1..], &mut union.mesh_offsets, first_vertex);
            union.radius.extend_from_slice(graph.radius());
            union.phases.extend_from_slice(graph.phases());
        }
        Ok(union)
    }

    /// A single graph in the precision of the operators.
    fn from_checked(graph: &GraphParts<'_>) -> Self {
        let pair = |angle: f64| [T::of(angle.cos()), T::of(angle.sin())];
        let angles = graph.theta.iter().zip(graph.transport);
        Self {
            offsets: graph.offsets.to_vec(),
            neighbours: graph.neighbours.to_vec(),
            reverse: graph.reverse.to_vec(),
            phases: angles
                .map(|(&theta, &transport)| EdgePhases { angle: pair(theta), transport: pair(transport - theta) })
                .collect(),
            radius: graph.radius.iter().map(|&r| T::of(r)).collect(),
            columns: graph.coefficients.0,
            coefficients: graph.coefficients.1.iter().map(|&c| T::of(c)).collect(),
            mesh_offsets: vec![0, graph.offsets.len() as u32 - 1],
        }
    }

    /// The arrays as operators take them.
    pub fn view(&self) -> GraphView<'_, T> {
        GraphView {
            slices: GraphSlices {
                offsets: &self.offsets,
                neighbours: &self.neighbours,
                reverse: &self.reverse,
                phases: &self.phases,
                radius: &self.radius,
                coefficients: (self.columns, &self.coefficients),
                mesh_offsets: &self.mesh_offsets,
            },
        }
    }

    /// Number of vertices.
    pub fn vertex_count(&self) -> usize {
        self.view().vertex_count()
    }

    /// Number of directed edges.
    pub fn edge_count(&self) -> usize {
        self.view().edge_count()
    }

    /// Number of meshes in the union.
    pub fn mesh_count(&self) -> usize {
        self.view().mesh_count()
    }

    /// First vertex of each mesh, then the number of vertices.
    pub fn mesh_offsets(&self) -> &[u32] {
        &self.mesh_offsets
    }
}

impl<'a, T> GraphView<'a, T> {
    /// A graph in memory of the caller. All indices are checked, in time linear in the number of edges.
    ///
    /// # Errors
    /// [`KernelError::Graph`] for slices that do not fit together.
    pub fn new(slices: GraphSlices<'a, T>) -> Result<Self, KernelError> {
        let edges = slices.neighbours.len();
        let lengths = [("phases", slices.phases.len()), ("radii", slices.radius.len())];
        let vertices = slices.offsets.len().saturating_sub(1);
        check_lengths(edges, &lengths)
            .and_then(|()| check_coefficients(edges, slices.coefficients))
            .and_then(|()| check_edges(slices.offsets, slices.neighbours, slices.reverse))
            .and_then(|()| check_offsets("mesh offsets", slices.mesh_offsets, vertices))
            .map_err(|problem| KernelError::Graph { problem })?;
        Ok(Self { slices })
    }

    /// Number of vertices.
    pub fn vertex_count(&self) -> usize {
        self.slices.offsets.len() - 1
    }

    /// Number of directed edges.
    pub fn edge_count(&self) -> usize {
        self.slices.neighbours.len()
    }

    /// Number of meshes.
    pub fn mesh_count(&self) -> usize {
        self.slices.mesh_offsets.len() - 1
    }

    /// Start of each row in the slices of edges, then the number of edges.
    pub fn offsets(&self) -> &'a [u32] {
        self.slices.offsets
    }

    /// Neighbour `q` of every directed edge `p <- q`, below the number of vertices.
    pub fn neighbours(&self) -> &'a [u32] {
        self.slices.neighbours
    }

    /// Index of the reverse of every directed edge, below the number of edges.
    pub fn reverse(&self) -> &'a [u32] {
        self.slices.reverse
    }

    /// Phases of every directed edge.
    pub fn phases(&self) -> &'a [EdgePhases<T>] {
        self.slices.phases
    }

    /// Length of every directed edge.
    pub fn radius(&self) -> &'a [T] {
        self.slices.radius
    }

    /// Number of coefficients of each edge.
    pub fn columns(&self) -> usize {
        self.slices.coefficients.0
    }

    /// Coefficients of every directed edge, `[edges, columns]`.
    pub fn coefficients(&self) -> &'a [T] {
        self.slices.coefficients.1
    }

    /// First vertex of each mesh, then the number of vertices.
    pub fn mesh_offsets(&self) -> &'a [u32] {
        self.slices.mesh_offsets
    }

    /// The same graph with one factor for each edge in place of its coefficients. The lengths must agree.
    pub(crate) fn with_factors<'b>(self, factors: &'b [T]) -> GraphView<'b, T>
    where
        'a: 'b,
    {
        debug_assert_eq!(factors.len(), self.edge_count());
        GraphView { slices: GraphSlices { coefficients: (1, factors), ..self.slices } }
    }

    /// Indices of the edges of one row.
    pub fn row(&self, vertex: usize) -> std::ops::Range<usize> {
        self.slices.offsets[vertex] as usize..self.slices.offsets[vertex + 1] as usize
    }
}

impl GraphParts<'_> {
    fn check(&self) -> Result<(), String> {
        let lengths =
            [("angles", self.theta.len()), ("transports", self.transport.len()), ("radii", self.radius.len())];
        check_lengths(self.neighbours.len(), &lengths)?;
        check_coefficients(self.neighbours.len(), self.coefficients)?;
        check_edges(self.offsets, self.neighbours, self.reverse)
    }
}

fn check_lengths(edges: usize, lengths: &[(&str, usize)]) -> Result<(), String> {
    match lengths.iter().find(|(_, length)| *length != edges) {
        Some((what, length)) => Err(format!("{length} {what} for {edges} edges")),
        None => Ok(()),
    }
}

fn check_coefficients<T>(edges: usize, (columns, coefficients): (usize, &[T])) -> Result<(), String> {
    if columns > 0 && columns.is_multiple_of(2) {
        return Err(format!("{columns} coefficients of each edge; an odd number is needed"));
    }
    match coefficients.len() == edges * columns {
        true => Ok(()),
        false => Err(format!("{} coefficients for {edges} edges with {columns} each", coefficients.len())),
    }
}

/// Checks that offsets rise from 0 to `end`.
pub(crate) fn check_offsets(what: &str, offsets: &[u32], end: usize) -> Result<(), String> {
    match (offsets.first(), offsets.last()) {
        (Some(0), Some(&last)) if last as usize == end && offsets.is_sorted() => Ok(()),
        _ => Err(format!("the {what} do not rise from 0 to {end}")),
    }
}

/// Checks that every index is in range and that every edge is the reverse of its reverse.
fn check_edges(offsets: &[u32], neighbours: &[u32], reverse: &[u32]) -> Result<(), String> {
    let edges = neighbours.len();
    check_lengths(edges, &[("reverse edges", reverse.len())])?;
    check_offsets("row offsets", offsets, edges)?;
    for vertex in 0..offsets.len() - 1 {
        for edge in offsets[vertex] as usize..offsets[vertex + 1] as usize {
            let (neighbour, reverse) = (neighbours[edge] as usize, reverse[edge] as usize);
            if neighbour >= offsets.len() - 1 {
                return Err(format!("edge {edge} names vertex {neighbour}"));
            }
            let row = offsets[neighbour] as usize..offsets[neighbour + 1] as usize;
            if !row.contains(&reverse) || neighbours[reverse] as usize != vertex {
                return Err(format!("{reverse} is not the reverse of edge {edge}"));
            }
        }
    }
    Ok(())
}
