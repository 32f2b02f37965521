//! Global pooling: one row for each mesh.

use crate::{Levels, Module, Result, Tape, Var, signature};
use gemcnn_kernels::{FeatureType, Real};
use serde::{Deserialize, Serialize};

/// Reduction over the vertices of a mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GlobalPool {
    /// Mean over the vertices.
    Mean,
    /// Maximum over the vertices.
    Max,
}

/// Global pooling of scalars: one row for each mesh of a batch.
#[derive(Debug, Clone)]
pub struct GlobalPooling {
    pool: GlobalPool,
    kind: FeatureType,
}

impl GlobalPool {
    /// The layer for rows of `channels` scalars; it has no parameters.
    pub fn init(self, channels: usize) -> GlobalPooling {
        GlobalPooling { pool: self, kind: FeatureType::scalars(channels) }
    }
}

impl<T: Real> Module<T> for GlobalPooling {
    signature!(this: this.kind => this.kind);

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        x.expect_kind("input of a global pooling", &self.kind)?;
        match self.pool {
            GlobalPool::Mean => tape.global_mean(levels.graph()?, x),
            GlobalPool::Max => tape.global_max(levels.graph()?, x),
        }
    }
}
