//! Geodesic distances on the template of a correspondence.

use crate::{Result, TaskError};
use gemcnn_mesh::{GeodesicError, GeodesicSolver, Mesh, MeshReport};
use std::borrow::Cow;
use std::sync::OnceLock;

/// Distances are kept if all of them take at most this many bytes.
const MAX_BYTES: usize = 1 << 30;

/// Geodesic distances between the vertices of a template, computed row by row and kept for the next evaluation.
#[derive(Debug)]
pub(crate) struct TemplateDistances {
    solver: GeodesicSolver,
    unit: f64,
    /// One for each vertex; empty if there is no room.
    rows: Vec<OnceLock<Vec<f32>>>,
}

fn refuse(error: GeodesicError) -> TaskError {
    TaskError::setting("geodesic distances on the template", error.to_string())
}

impl TemplateDistances {
    pub fn new(template: &Mesh) -> Result<Self> {
        let vertices = template.vertex_count();
        let bytes = vertices.saturating_mul(vertices).saturating_mul(4);
        let kept = if bytes <= MAX_BYTES { vertices } else { 0 };
        Ok(Self {
            solver: GeodesicSolver::new(template).map_err(refuse)?,
            unit: MeshReport::new(template).area.sqrt(),
            rows: (0..kept).map(|_| OnceLock::new()).collect(),
        })
    }

    /// Distances of all vertices from one, in square roots of the area; infinite on other components.
    pub fn from(&self, vertex: u32) -> Result<Cow<'_, [f32]>> {
        let compute = || {
            let row = self.solver.distances_from(vertex as usize).map_err(refuse)?;
            Ok::<_, TaskError>(row.iter().map(|d| (d / self.unit) as f32).collect::<Vec<f32>>())
        };
        let Some(kept) = self.rows.get(vertex as usize) else { return Ok(Cow::Owned(compute()?)) };
        if let Some(row) = kept.get() {
            return Ok(Cow::Borrowed(row));
        }
        let row = compute()?;
        Ok(Cow::Borrowed(kept.get_or_init(|| row)))
    }
}
