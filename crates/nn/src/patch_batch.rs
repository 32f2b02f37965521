//! Sparse maps from the vertices of a batch of meshes to the rows that a model reads.

use crate::error::{check_size, mesh_offsets};
use crate::{Device, Extra, IncidenceBatch, NnError, Result};
use gemcnn_kernels::Real;
use gemcnn_kernels::incidence::IncidenceParts;
use std::sync::Arc;

/// A sparse matrix from the vertices of a mesh to rows, such as the bins of a patch around each vertex.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SparseMap {
    /// Start of each row in `columns`, and the number of entries at the end.
    pub offsets: Vec<u32>,
    /// Vertex of every entry.
    pub columns: Vec<u32>,
    /// Weight of every entry; empty for ones.
    pub weights: Vec<f32>,
    /// Rotation of features of order above 0 of every entry; empty for none.
    pub angles: Vec<f32>,
}

impl SparseMap {
    /// The map of rows that are lists of vertices and weights.
    pub fn weighted(rows: impl IntoIterator<Item = impl IntoIterator<Item = (u32, f64)>>) -> Self {
        let mut map = Self { offsets: vec![0], ..Default::default() };
        for row in rows {
            for (column, weight) in row {
                map.columns.push(column);
                map.weights.push(weight as f32);
            }
            map.offsets.push(map.columns.len() as u32);
        }
        map
    }

    /// The map that copies a vertex to each row.
    pub fn copies(vertices: Vec<u32>) -> Self {
        Self { offsets: (0..=vertices.len() as u32).collect(), columns: vertices, ..Default::default() }
    }
}

/// The sparse maps of one mesh.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchArrays {
    /// Number of vertices.
    pub vertices: usize,
    /// The maps, in the order that the model expects.
    pub maps: Vec<SparseMap>,
}

/// The sparse maps of a batch of meshes, each as one map: rows and vertices of each mesh after those of the one before.
///
/// ```
/// use gemcnn_nn::{PatchArrays, PatchBatch, SparseMap};
/// let mean = SparseMap::weighted([vec![(0, 0.5), (1, 0.5)], vec![(1, 1.0)]]);
/// let patches = PatchBatch::<f32>::new([PatchArrays { vertices: 2, maps: vec![mean] }.into()])?;
/// assert_eq!(patches.map(0)?.row_count(), 2);
/// # Ok::<(), gemcnn_nn::NnError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct PatchBatch<T> {
    parts: Vec<Arc<PatchArrays>>,
    mesh_offsets: Vec<u32>,
    maps: Vec<IncidenceBatch<T>>,
}

impl<T: Real> PatchBatch<T> {
    /// Joins the maps of meshes.
    ///
    /// # Errors
    /// Meshes with different numbers of maps, arrays that do not fit together, or more entries than 32-bit indices can
    /// address.
    pub fn new(meshes: impl IntoIterator<Item = Arc<PatchArrays>>) -> Result<Self> {
        let parts: Vec<Arc<PatchArrays>> = meshes.into_iter().collect();
        let count = parts.first().map_or(0, |part| part.maps.len());
        for part in &parts {
            check_size("sparse maps of a mesh", count, part.maps.len())?;
        }
        let mesh_offsets = mesh_offsets("patches", parts.iter().map(|part| part.vertices))?;
        let wide = |values: &[f32]| values.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
        let maps = (0..count).map(|index| {
            let of = |part: &Arc<PatchArrays>| {
                let map = &part.maps[index];
                (wide(&map.weights), wide(&map.angles))
            };
            let numbers: Vec<(Vec<f64>, Vec<f64>)> = parts.iter().map(of).collect();
            let incidences: Vec<IncidenceParts<'_>> = (parts.iter().zip(&numbers))
                .map(|(part, (weights, angles))| {
                    let map = &part.maps[index];
                    let given = |values: &'_ Vec<f64>| !values.is_empty() || map.columns.is_empty();
                    IncidenceParts {
                        columns: part.vertices,
                        offsets: &map.offsets,
                        indices: &map.columns,
                        angles: given(angles).then_some(&angles[..]),
                        weights: given(weights).then_some(&weights[..]),
                    }
                })
                .collect();
            IncidenceBatch::new(&incidences)
        });
        Ok(Self { maps: maps.collect::<Result<_, _>>()?, parts, mesh_offsets })
    }

    /// The maps of each mesh.
    pub fn parts(&self) -> &[Arc<PatchArrays>] {
        &self.parts
    }

    /// First vertex of each mesh, and the number of vertices at the end.
    pub fn mesh_offsets(&self) -> &[u32] {
        &self.mesh_offsets
    }

    /// A map of the whole batch, for [`Tape::apply_incidence`](crate::Tape::apply_incidence).
    ///
    /// # Errors
    /// [`NnError::Size`] if there are too few maps.
    pub fn map(&self, index: usize) -> Result<&IncidenceBatch<T>> {
        self.maps.get(index).ok_or_else(|| NnError::Size {
            what: "sparse maps of the batch".into(),
            expected: index + 1,
            found: self.maps.len(),
        })
    }
}

impl<T: Real> Extra<T> for PatchBatch<T> {
    fn name() -> &'static str {
        "sparse maps"
    }

    fn join(batches: &[&Self]) -> Result<Self> {
        Self::new(batches.iter().flat_map(|batch| batch.parts.iter().cloned()))
    }

    fn fits(&self, mesh_offsets: &[u32]) -> bool {
        self.mesh_offsets == mesh_offsets
    }

    fn size_in_bytes(&self, device: &Device) -> usize {
        // Two lists of entries with their places; weights and phases.
        let bytes = |map: &SparseMap| {
            12 * map.columns.len() + 4 * map.weights.len() + 8 * (map.angles.len() + map.offsets.len())
        };
        let bytes: usize = self.parts.iter().flat_map(|part| &part.maps).map(bytes).sum();
        // In main memory there are also those of each mesh.
        bytes * if *device == Device::Cpu { 2 } else { 1 }
    }

    fn send(&self, device: &Device) -> Result<()> {
        self.maps.iter().try_for_each(|map| map.copy_to(device))
    }
}
