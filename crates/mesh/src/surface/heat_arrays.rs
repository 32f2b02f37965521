//! The sparse arrays of implicit diffusion and of gradients on a mesh.

use super::{Jets, SurfaceError, SurfaceLaplacian};
use crate::classes::bucket;
use crate::geometry::{atan2, check_length};
use crate::{GaugeGraph, Mesh};

/// Mass, Laplacian and gradient of a mesh in the frames of its gauge graph, as sparse arrays: what networks need for
/// diffusion without eigenvectors. Lengths are in units of the square root of the area.
///
/// Edges, weights and transport define the connection Laplacian of any order. Vertices at the same position are one
/// node, which the first of them represents; only these have edges.
///
/// ```
/// use gemcnn_mesh::surface::HeatArrays;
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
/// let mesh = shapes::icosphere(2)?;
/// let graph = GaugeGraph::new(&mesh, &GeometryOptions::default())?;
/// let arrays = HeatArrays::new(&mesh, &graph)?;
/// assert!((arrays.mass.iter().sum::<f64>() - 1.0).abs() < 1e-12);
/// assert_eq!(arrays.gradient_offsets.len(), 2 * 162 + 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HeatArrays {
    /// Mass of every vertex; the masses sum to 1.
    pub mass: Vec<f64>,
    /// Start of the row of every vertex in the arrays of edges, followed by the number of edges.
    pub offsets: Vec<u32>,
    /// Neighbour `q` of every directed edge `p <- q` of the Laplacian.
    pub neighbours: Vec<u32>,
    /// Weight of every directed edge.
    pub weights: Vec<f64>,
    /// Transport angle from `q` to `p` of every directed edge.
    pub transport: Vec<f64>,
    /// Vertex that represents the node of every vertex.
    pub representatives: Vec<u32>,
    /// Transport angle from the representative to every vertex.
    pub copies: Vec<f64>,
    /// Start of every row of the gradient of scalars: two rows for each vertex, the derivatives along both axes.
    pub gradient_offsets: Vec<u32>,
    /// Vertex of every entry of the gradient.
    pub gradient_neighbours: Vec<u32>,
    /// Coefficient of every entry of the gradient.
    pub gradient: Vec<f64>,
}

impl HeatArrays {
    /// Computes the arrays of a mesh.
    ///
    /// # Errors
    /// The graph belongs to a mesh with another number of vertices, or the mesh has no surface.
    pub fn new(mesh: &Mesh, graph: &GaugeGraph) -> Result<Self, SurfaceError> {
        let vertices = mesh.vertex_count();
        check_length("vertices of a graph", graph.vertex_count(), vertices)?;
        let laplacian = SurfaceLaplacian::new(mesh)?;
        let frames = graph.frames();
        let edges = laplacian.edges().iter().zip(0u32..);
        let both = edges.flat_map(|(&[i, j], edge)| [(i, (j, edge)), (j, (i, edge))]);
        let pairs = both.map(|(vertex, (other, edge))| (vertex, [other, edge]));
        let (offsets, entries) = bucket(vertices, pairs);
        let phases: Vec<f64> = (laplacian.edges().iter())
            .map(|edge| {
                let [i, j] = edge.map(|v| v as usize);
                let vector = mesh.vertices()[j] - mesh.vertices()[i];
                let [x, y] = frames[i].transport_from(&frames[j], vector);
                atan2(y, x)
            })
            .collect();
        let mut arrays = Self {
            mass: laplacian.mass().to_vec(),
            representatives: laplacian.representatives().collect(),
            copies: laplacian.copies(1, frames).iter().map(|&[x, y]| atan2(y, x)).collect(),
            offsets,
            gradient_offsets: vec![0],
            ..Self::default()
        };
        for [neighbour, edge] in entries {
            let edge = edge as usize;
            let forward = laplacian.edges()[edge][1] == neighbour;
            arrays.neighbours.push(neighbour);
            arrays.weights.push(laplacian.weights()[edge]);
            arrays.transport.push(if forward { phases[edge] } else { -phases[edge] });
        }
        let jets = Jets::new(&laplacian, frames)?;
        for vertex in 0..vertices {
            let row = jets.offsets[vertex] as usize..jets.offsets[vertex + 1] as usize;
            for axis in 0..2 {
                let coefficients = jets.coefficients[row.clone()].iter().map(|c| c[axis]);
                arrays.gradient_neighbours.extend_from_slice(&jets.neighbours[row.clone()]);
                arrays.gradient.extend(coefficients.clone());
                if !row.is_empty() {
                    arrays.gradient_neighbours.push(vertex as u32);
                    arrays.gradient.push(-coefficients.sum::<f64>());
                }
                arrays.gradient_offsets.push(arrays.gradient.len() as u32);
            }
        }
        Ok(arrays)
    }

    /// Number of vertices.
    pub fn vertex_count(&self) -> usize {
        self.mass.len()
    }
}
