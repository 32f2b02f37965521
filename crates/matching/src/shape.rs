//! Meshes that are prepared for matching.

use crate::MatchError;
use gemcnn_mesh::features::wave_kernel_signatures;
use gemcnn_mesh::remesh::{MeshSize, Simplify, Subdivide, SurfacePoint, nearest_points, remesh};
use gemcnn_mesh::surface::{OperatorOptions, SurfaceOperators};
use gemcnn_mesh::{DVec3, GaugeGraph, GeometryOptions, Mesh, PointIndex, Repair, normalised, repair};
use serde::Serialize;
use std::fmt;

/// Fewest vertices of a surface: below, there is no spectrum to speak of.
const LEAST_VERTICES: usize = 20;

/// Options of [`Shape::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShapeOptions {
    /// Number of eigenvectors (default 150). A surface with fewer than twice as many vertices has half as many as
    /// vertices.
    pub eigenpairs: usize,
    /// Largest number of vertices that are matched directly (default 10,000). Larger meshes are simplified first.
    pub direct: usize,
    /// Number of vertices of simplified meshes (default 5,000).
    pub simplified: usize,
    /// Smallest number of vertices that are matched directly (default 1,500). The faces of smaller meshes are divided into
    /// four, as often as needed.
    pub subdivided: usize,
}

impl Default for ShapeOptions {
    fn default() -> Self {
        Self { eigenpairs: 150, direct: 10_000, simplified: 5_000, subdivided: 1_500 }
    }
}

/// What was done to a mesh before matching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    /// The mesh was inside out; all faces were reversed.
    TurnedInsideOut,
    /// Some faces were reversed to agree with the others.
    ReversedFaces(usize),
    /// Patches that cannot be oriented: on them left and right are undefined.
    NonOrientable(usize),
    /// Vertices at equal positions were merged.
    Merged(usize),
    /// Vertices that no face uses, or only faces without area; they are matched like the nearest others.
    Isolated(usize),
    /// A simplified copy with so many vertices was matched.
    Simplified(usize),
    /// A subdivided copy with so many vertices was matched.
    Subdivided(usize),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TurnedInsideOut => f.write_str("the mesh is inside out; its faces were reversed"),
            Self::ReversedFaces(count) => write!(f, "{count} faces were reversed to agree with the others"),
            Self::NonOrientable(count) => {
                write!(f, "{count} patches cannot be oriented: left and right are undefined there")
            }
            Self::Merged(count) => write!(f, "{count} vertices at the position of others were merged"),
            Self::Isolated(count) => write!(f, "{count} vertices without faces are matched like the nearest others"),
            Self::Simplified(count) => write!(f, "a copy simplified to {count} vertices was matched"),
            Self::Subdivided(count) => write!(f, "a copy subdivided to {count} vertices was matched"),
        }
    }
}

/// Eigenvectors in single precision, for products.
#[derive(Debug, Clone)]
pub(crate) struct Basis {
    /// Number of eigenvectors.
    pub(crate) size: usize,
    /// Eigenvectors, `[V, size]`.
    pub(crate) vectors: Vec<f32>,
    /// Mass of every vertex.
    pub(crate) mass: Vec<f32>,
}

/// Descriptors: rows of unit length, or zero.
#[derive(Debug, Clone, Default)]
pub(crate) struct Descriptors {
    /// Numbers in a row; 0 without descriptors.
    pub(crate) width: usize,
    /// Rows, `[V, width]`.
    pub(crate) rows: Vec<f32>,
}

/// A mesh that is prepared for matching.
///
/// The mesh is cleaned (vertices at equal positions merged, faces without area and vertices without faces dropped, faces
/// turned the same way and a closed mesh outwards) and scaled to unit area. A large mesh has a simplified copy, a small one a
/// subdivided copy. [`surface`](Self::surface), its operators and its descriptors belong to what is matched: the copy, or
/// the cleaned mesh.
///
/// ```
/// use gemcnn_matching::{Shape, ShapeOptions};
/// use gemcnn_mesh::shapes;
/// let mut shape = Shape::new(&shapes::icosphere(3)?, &ShapeOptions::default())?;
/// let rows: Vec<f32> = shape.surface().vertices().iter().flat_map(|p| p.to_array()).map(|x| x as f32).collect();
/// shape.set_descriptors(rows)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Shape {
    /// The cleaned mesh.
    whole: Mesh,
    /// Vertex of the cleaned mesh of every vertex of the given one.
    of_given: Vec<u32>,
    /// Vertex of the given mesh of every vertex of the cleaned one.
    given: Vec<u32>,
    /// A simplified or subdivided copy of the cleaned mesh.
    copy: Option<Mesh>,
    graph: GaugeGraph,
    operators: SurfaceOperators,
    basis: Basis,
    descriptors: Descriptors,
    notes: Vec<Note>,
}

impl Shape {
    /// Prepares a mesh.
    ///
    /// # Errors
    /// Too few vertices, no area, a large mesh that cannot be simplified, or a Laplacian that cannot be factored.
    pub fn new(mesh: &Mesh, options: &ShapeOptions) -> Result<Self, MatchError> {
        let repairs = [
            Repair::Weld { tolerance: 0.0 },
            Repair::DropDegenerateFaces,
            Repair::DropDuplicateFaces,
            Repair::DropIsolatedVertices,
            Repair::Orient,
        ];
        // Scaled first: areas of very large or small coordinates are out of range.
        let scaled = normalised(mesh)?;
        let cleaned = repair(&scaled, &repairs)?;
        let mut notes = Vec::new();
        for step in &cleaned.steps {
            notes.extend(match step.repair {
                Repair::Weld { .. } => (step.changed > 0).then_some(Note::Merged(step.changed)),
                Repair::DropIsolatedVertices => (step.changed > 0).then_some(Note::Isolated(step.changed)),
                Repair::Orient if step.changed > 0 && step.changed == step.total => Some(Note::TurnedInsideOut),
                Repair::Orient => (step.changed > 0).then_some(Note::ReversedFaces(step.changed)),
                _ => None,
            });
            notes.extend((step.nonorientable > 0).then_some(Note::NonOrientable(step.nonorientable)));
        }
        let whole = cleaned.mesh;
        let vertices = whole.vertex_count();
        if vertices < LEAST_VERTICES {
            return Err(MatchError::TooSmall { vertices, least: LEAST_VERTICES });
        }
        let copy = if vertices > options.direct {
            let copy = remesh(&whole, &Simplify { size: MeshSize::Vertices(options.simplified) }, 0)?.mesh;
            let reached = copy.vertex_count();
            if reached > options.direct {
                return Err(MatchError::NotSimplified { vertices, reached });
            }
            notes.push(Note::Simplified(reached));
            Some(copy)
        } else if vertices < options.subdivided {
            // Each round has about four times as many vertices.
            let rounds = (options.subdivided.div_ceil(vertices) as f64).log(4.0).ceil() as usize;
            let copy = remesh(&whole, &Subdivide { rounds, ..Subdivide::default() }, 0)?.mesh;
            notes.push(Note::Subdivided(copy.vertex_count()));
            Some(copy)
        } else {
            None
        };
        let surface = copy.as_ref().unwrap_or(&whole);
        let vertices = surface.vertex_count();
        if vertices < LEAST_VERTICES {
            return Err(MatchError::TooSmall { vertices, least: LEAST_VERTICES });
        }
        let graph = GaugeGraph::new(surface, &GeometryOptions { estimate_normals: true, ..Default::default() })?;
        let pairs = options.eigenpairs.min(vertices / 2);
        let operators = SurfaceOperators::new(
            surface,
            &graph,
            &OperatorOptions { eigenpairs: [pairs, 0, 0], ..Default::default() },
        )?;
        let eigen = operators.basis(0);
        let basis = Basis {
            size: eigen.map_or(0, |eigen| eigen.len()),
            vectors: eigen.map_or(Vec::new(), |eigen| eigen.vectors.iter().map(|&x| x as f32).collect()),
            mass: operators.mass.iter().map(|&mass| mass as f32).collect(),
        };
        let index = PointIndex::new(whole.vertices());
        let nearest = |vertex: usize| index.nearest(scaled.vertices()[vertex]).map_or(0, |found| found.point);
        let of_given = cleaned.vertex_map.iter().enumerate();
        Ok(Self {
            of_given: of_given.map(|(vertex, kept)| kept.unwrap_or_else(|| nearest(vertex))).collect(),
            given: cleaned.vertex_origin,
            whole,
            copy,
            graph,
            operators,
            basis,
            descriptors: Descriptors::default(),
            notes,
        })
    }

    /// The surface that is matched, with unit area: the cleaned mesh or its copy. Descriptors are for its vertices.
    pub fn surface(&self) -> &Mesh {
        self.copy.as_ref().unwrap_or(&self.whole)
    }

    /// Frames and neighbours of the surface.
    pub fn graph(&self) -> &GaugeGraph {
        &self.graph
    }

    /// Masses, eigenvectors of order 0, their gradients, and jets of the surface.
    pub fn operators(&self) -> &SurfaceOperators {
        &self.operators
    }

    /// Number of vertices of the given mesh.
    pub fn vertex_count(&self) -> usize {
        self.of_given.len()
    }

    /// What was done to the mesh.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Sets the descriptors: a row for each vertex of [`surface`](Self::surface), which is scaled to unit length.
    ///
    /// # Errors
    /// Values that are not finite, or not the same number of them for each vertex.
    pub fn set_descriptors(&mut self, mut rows: Vec<f32>) -> Result<(), MatchError> {
        let vertices = self.surface().vertex_count();
        let refuse = |problem| MatchError::Descriptors { given: rows.len(), vertices, problem };
        if rows.is_empty() || !rows.len().is_multiple_of(vertices) {
            return Err(refuse("not the same number for each vertex"));
        }
        if !rows.iter().all(|x| x.is_finite()) {
            return Err(refuse("some are not finite"));
        }
        let width = rows.len() / vertices;
        for row in rows.chunks_exact_mut(width) {
            let largest = row.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            if largest > 0.0 {
                row.iter_mut().for_each(|x| *x /= largest);
                let scale = row.iter().map(|x| x * x).sum::<f32>().sqrt().recip();
                row.iter_mut().for_each(|x| *x *= scale);
            }
        }
        self.descriptors = Descriptors { width, rows };
        Ok(())
    }

    /// Sets wave kernel signatures as descriptors, which need no network.
    ///
    /// # Errors
    /// A surface without eigenvectors.
    pub fn set_signatures(&mut self, count: usize) -> Result<(), MatchError> {
        let values = self.operators.basis(0).map_or(Vec::new(), |basis| wave_kernel_signatures(basis, count));
        self.set_descriptors(values.iter().map(|&value| value as f32).collect())
    }

    /// The point of [`surface`](Self::surface) that is nearest to every vertex of the cleaned mesh; `None` if that is the
    /// surface itself.
    pub(crate) fn on_copy(&self) -> Result<Option<Vec<SurfacePoint>>, MatchError> {
        let Some(copy) = &self.copy else { return Ok(None) };
        let nearest = nearest_points(copy, self.whole.vertices())?;
        Ok(Some(nearest.into_iter().map(|(point, _)| point).collect()))
    }

    /// Moves points of [`surface`](Self::surface) to the given mesh.
    pub(crate) fn to_given(&self, mut points: Vec<SurfacePoint>) -> Result<Vec<SurfacePoint>, MatchError> {
        if let Some(copy) = &self.copy {
            let positions: Vec<DVec3> = points.iter().map(|point| point.position(copy.vertices())).collect();
            points = nearest_points(&self.whole, &positions)?.into_iter().map(|(point, _)| point).collect();
        }
        for point in &mut points {
            point.corners = point.corners.map(|corner| self.given[corner as usize]);
        }
        Ok(points)
    }

    /// A value of every vertex of the cleaned mesh for every vertex of the given one.
    pub(crate) fn for_given<T: Copy>(&self, values: &[T]) -> Vec<T> {
        self.of_given.iter().map(|&vertex| values[vertex as usize]).collect()
    }

    pub(crate) fn basis(&self) -> &Basis {
        &self.basis
    }

    pub(crate) fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }
}
