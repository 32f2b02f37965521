//! Sparse maps of a mesh that a model reads.

use super::entry::{EntryReader, EntryWriter};
use super::extras::ExtraSource;
use crate::features::{FeatureError, Surface};
use gemcnn_mesh::{GaugeGraph, Mesh};
use gemcnn_nn::{PatchArrays, PatchBatch, SparseMap};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// A function of the surface that gives sparse maps from its vertices to rows, such as the bins of a patch around each
/// vertex.
pub trait Patches: fmt::Debug + Send + Sync {
    /// The maps of a mesh, always the same number of them. Meshes are prepared in parallel. The same mesh must give the
    /// same bits on any number of threads.
    ///
    /// # Errors
    /// A mesh for which the maps are not defined.
    fn compute(&self, surface: Surface<'_>) -> Result<Vec<SparseMap>, FeatureError>;
}

/// Settings of sparse maps. Gives a [`PatchBatch`].
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct SparseMaps {
    key: String,
    #[serde(skip)]
    patches: Arc<dyn Patches>,
}

impl SparseMaps {
    /// Maps with a name of their own. Change the name when the meaning of the settings changes.
    pub fn new<P: Patches + Serialize + 'static>(name: &str, patches: P) -> Self {
        let settings = serde_json::to_string(&patches).unwrap_or_default();
        Self { key: format!("{name} {settings}"), patches: Arc::new(patches) }
    }
}

impl ExtraSource for SparseMaps {
    const NAME: &'static str = "patches";
    type Extra = PatchBatch<f32>;

    fn compute(&self, surface: Surface<'_>) -> Result<PatchBatch<f32>, FeatureError> {
        let arrays = PatchArrays { vertices: surface.mesh.vertex_count(), maps: self.patches.compute(surface)? };
        Ok(PatchBatch::new([Arc::new(arrays)])?)
    }

    fn store(&self, patches: &PatchBatch<f32>, entry: &mut EntryWriter) {
        for arrays in patches.parts() {
            entry.numbers(&[arrays.maps.len() as u64]);
            for map in &arrays.maps {
                entry.numbers(&map.offsets);
                entry.numbers(&map.columns);
                entry.numbers(&map.weights);
                entry.numbers(&map.angles);
            }
        }
    }

    fn load(&self, mesh: &Mesh, _: &GaugeGraph, entry: &mut EntryReader<'_>) -> Option<PatchBatch<f32>> {
        let count: Vec<u64> = entry.numbers()?;
        let maps = (0..*count.first()?).map(|_| {
            Some(SparseMap {
                offsets: entry.numbers()?,
                columns: entry.numbers()?,
                weights: entry.numbers()?,
                angles: entry.numbers()?,
            })
        });
        let maps = maps.collect::<Option<Vec<SparseMap>>>()?;
        PatchBatch::new([Arc::new(PatchArrays { vertices: mesh.vertex_count(), maps })]).ok()
    }
}
