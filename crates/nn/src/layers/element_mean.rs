//! Means over faces or edges: one row for each.

use crate::{Elements, Levels, Module, Result, Tape, Var, signature};
use gemcnn_kernels::{Aggregation, FeatureType, Real};

/// Mean of the scalars of the vertices of each face or edge. It has no parameters.
#[derive(Debug, Clone)]
pub struct ElementMean {
    kind: FeatureType,
}

impl ElementMean {
    /// The layer for rows of `channels` scalars.
    pub fn new(channels: usize) -> Self {
        Self { kind: FeatureType::scalars(channels) }
    }
}

impl<T: Real> Module<T> for ElementMean {
    signature!(this: this.kind => this.kind, reach 0);

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        x.expect_kind("input of a mean over elements", &self.kind)?;
        tape.apply_incidence(Aggregation::Mean, levels.get::<Elements<T>>()?.incidence(), x)
    }
}
