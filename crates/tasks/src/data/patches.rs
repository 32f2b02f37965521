//! Sparse maps of a mesh that a model reads.

use crate::features::{FeatureError, Surface};
use gemcnn_nn::SparseMap;
use serde::{Serialize, Serializer};
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

/// Settings of sparse maps. Prepared meshes are cached by a name and these settings; two are equal if both are.
#[derive(Debug, Clone)]
pub struct PatchSettings {
    key: String,
    patches: Arc<dyn Patches>,
}

impl PatchSettings {
    /// Maps with a name of their own. Change the name when the meaning of the settings changes.
    pub fn new<P: Patches + Serialize + 'static>(name: &str, patches: P) -> Self {
        let settings = serde_json::to_string(&patches).unwrap_or_default();
        Self { key: format!("{name} {settings}"), patches: Arc::new(patches) }
    }
}

impl std::ops::Deref for PatchSettings {
    type Target = dyn Patches;

    fn deref(&self) -> &Self::Target {
        &*self.patches
    }
}

impl PartialEq for PatchSettings {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Serialize for PatchSettings {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.key)
    }
}
