//! Pooling of whole meshes.

use crate::{GraphBatch, NnError, Tape, Var};
use gemcnn_kernels::Real;
use serde::{Deserialize, Serialize};

/// One row for each mesh of a batch, from the scalars of its vertices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GlobalPool {
    /// Mean over the vertices.
    Mean,
    /// Largest value over the vertices.
    Max,
}

impl GlobalPool {
    /// Pools.
    ///
    /// # Shapes
    /// `x`: one row of scalars for each vertex; result: one row for each mesh.
    ///
    /// # Errors
    /// Features that are not scalars, or another number of rows.
    pub fn forward<'a, T: Real>(
        self,
        tape: &mut Tape<'a, T>,
        batch: &'a GraphBatch<T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        match self {
            Self::Mean => tape.global_mean(batch, x),
            Self::Max => tape.global_max(batch, x),
        }
    }
}
