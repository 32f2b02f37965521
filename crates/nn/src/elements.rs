//! The faces or edges of meshes that outputs are for.

use crate::error::check_size;
use crate::{Device, Extra, IncidenceBatch, Result};
use gemcnn_kernels::Real;
use gemcnn_kernels::incidence::IncidenceParts;

/// Faces or edges of the meshes of a batch; an output has a row for each.
#[derive(Debug, Clone, PartialEq)]
pub struct Elements<T> {
    incidence: IncidenceBatch<T>,
    /// Area of each element.
    pub areas: Vec<f32>,
    /// For a mesh that was remeshed, the nearest element of the mesh it was made from to each element; empty for
    /// others.
    pub origins: Vec<u32>,
}

impl<T: Real> Elements<T> {
    /// Elements of a mesh of `vertices` vertices. Element `i` has the corners from `offsets[i]` to `offsets[i + 1]`.
    ///
    /// # Errors
    /// The numbers of areas and elements differ, or a corner is not a vertex.
    pub fn new(vertices: usize, offsets: &[u32], corners: &[u32], areas: Vec<f32>) -> Result<Self> {
        let incidence = IncidenceBatch::new(&[IncidenceParts::faces(vertices, offsets, corners)])?;
        check_size("areas of elements", incidence.row_count(), areas.len())?;
        Ok(Self { incidence, areas, origins: Vec::new() })
    }

    /// The same elements with origins.
    pub fn with_origins(&self, origins: Vec<u32>) -> Self {
        Self { origins, ..self.clone() }
    }

    /// A row for each element, with its vertices as columns.
    pub fn incidence(&self) -> &IncidenceBatch<T> {
        &self.incidence
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.areas.len()
    }

    /// The vertices of an element.
    ///
    /// # Panics
    /// If there is no such element.
    pub fn corners(&self, element: usize) -> &[u32] {
        let (offsets, corners) = self.incidence.entries();
        &corners[offsets[element] as usize..offsets[element + 1] as usize]
    }
}

impl<T: Real> Extra<T> for Elements<T> {
    fn name() -> &'static str {
        "faces or edges"
    }

    fn join(parts: &[&Self]) -> Result<Self> {
        let incidences = parts.iter().map(|part| {
            let (offsets, corners) = part.incidence.entries();
            IncidenceParts::faces(part.incidence.column_count(), offsets, corners)
        });
        Ok(Self {
            incidence: IncidenceBatch::new(&incidences.collect::<Vec<_>>())?,
            areas: parts.iter().flat_map(|part| &part.areas).copied().collect(),
            origins: Vec::new(),
        })
    }

    fn fits(&self, mesh_offsets: &[u32]) -> bool {
        mesh_offsets.last().map(|&vertices| vertices as usize) == Some(self.incidence.column_count())
    }

    fn size_in_bytes(&self, _device: &Device) -> usize {
        self.incidence.size_in_bytes() + 4 * self.areas.len()
    }

    fn send(&self, device: &Device) -> Result<()> {
        self.incidence.copy_to(device)
    }
}
