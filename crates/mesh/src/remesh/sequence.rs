//! Several remeshers, one after the other.

use serde::{Deserialize, Serialize};

use super::{Remesh, RemeshError, RemeshKind, Remeshed};
use crate::mesh::Mesh;

/// Several remeshers, one after the other. The steps have different seeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sequence {
    /// The remeshers in order.
    pub steps: Vec<RemeshKind>,
}

impl Remesh for Sequence {
    fn remesh(&self, mesh: &Mesh, seed: u64) -> Result<Remeshed, RemeshError> {
        let mut done = Remeshed::identity(mesh)?;
        for (step, kind) in self.steps.iter().enumerate() {
            // Distinct seeds for the steps, by the golden ratio.
            let seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(step as u64));
            let next = kind.remesh(&done.mesh, seed)?;
            done = if step == 0 { next } else { done.then(mesh, next) };
        }
        Ok(done)
    }
}
