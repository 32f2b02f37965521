//! The levels that a module runs on.

use crate::{ClusterBatch, GraphBatch, HeatBatch, HierarchyBatch, IncidenceBatch, NnError, PatchBatch, SpectraBatch};

/// The levels that a module runs on: graphs from fine to coarse, the clusters between them, and the eigenbases of the
/// finest graph if there are any.
///
/// ```
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
/// use gemcnn_nn::{GraphBatch, Levels};
/// let graph = GaugeGraph::new(&shapes::icosahedron(), &GeometryOptions::default())?;
/// let batch = GraphBatch::<f32>::new([&graph])?;
/// assert_eq!(Levels::from(&batch).count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Levels<'a, T> {
    pub(crate) graphs: &'a [GraphBatch<T>],
    pub(crate) clusters: &'a [ClusterBatch<T>],
    pub(crate) spectra: Option<&'a SpectraBatch<T>>,
    pub(crate) heat: Option<&'a HeatBatch<T>>,
    pub(crate) elements: Option<&'a IncidenceBatch<T>>,
    pub(crate) patches: Option<&'a PatchBatch<T>>,
}

impl<'a, T> Levels<'a, T> {
    /// Number of graphs.
    pub fn count(self) -> usize {
        self.graphs.len()
    }

    /// The finest graph.
    ///
    /// # Errors
    /// [`NnError::Levels`] if there is none.
    pub fn graph(self) -> Result<&'a GraphBatch<T>, NnError> {
        self.graphs.first().ok_or(NnError::Levels { needed: 1, found: 0 })
    }

    /// The eigenbases of the meshes.
    ///
    /// # Errors
    /// [`NnError::NoSpectra`] if there are none.
    pub fn spectra(self) -> Result<&'a SpectraBatch<T>, NnError> {
        self.spectra.ok_or(NnError::NoSpectra)
    }

    /// The operators of implicit diffusion of the meshes.
    ///
    /// # Errors
    /// [`NnError::NoHeat`] if there are none.
    pub fn heat(self) -> Result<&'a HeatBatch<T>, NnError> {
        self.heat.ok_or(NnError::NoHeat)
    }

    /// The faces or edges that the output is for.
    ///
    /// # Errors
    /// [`NnError::NoElements`] if there are none.
    pub fn elements(self) -> Result<&'a IncidenceBatch<T>, NnError> {
        self.elements.ok_or(NnError::NoElements)
    }

    /// The sparse maps of the meshes.
    ///
    /// # Errors
    /// [`NnError::NoPatches`] if there are none.
    pub fn patches(self) -> Result<&'a PatchBatch<T>, NnError> {
        self.patches.ok_or(NnError::NoPatches)
    }

    /// The clusters that lead to the next coarser graph, and the levels from that graph on.
    ///
    /// # Errors
    /// [`NnError::Levels`] if there is no coarser graph.
    pub fn coarser(self) -> Result<(&'a ClusterBatch<T>, Self), NnError> {
        match (self.clusters.split_first(), self.graphs.get(1..)) {
            (Some((first, clusters)), Some(graphs)) if !graphs.is_empty() => {
                let coarser = Self { graphs, clusters, spectra: None, heat: None, elements: None, patches: None };
                Ok((first, coarser))
            }
            _ => Err(NnError::Levels { needed: self.graphs.len() + 1, found: self.graphs.len() }),
        }
    }
}

// A derived implementation would require `T: Clone`.
impl<T> Clone for Levels<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Levels<'_, T> {}

impl<'a, T> From<&'a GraphBatch<T>> for Levels<'a, T> {
    fn from(batch: &'a GraphBatch<T>) -> Self {
        Self {
            graphs: std::slice::from_ref(batch),
            clusters: &[],
            spectra: None,
            heat: None,
            elements: None,
            patches: None,
        }
    }
}

impl<'a, T> From<&'a HierarchyBatch<T>> for Levels<'a, T> {
    fn from(batch: &'a HierarchyBatch<T>) -> Self {
        Self {
            graphs: &batch.levels,
            clusters: &batch.clusters,
            spectra: batch.spectra.as_deref(),
            heat: batch.heat.as_deref(),
            elements: batch.elements.as_deref(),
            patches: batch.patches.as_deref(),
        }
    }
}
