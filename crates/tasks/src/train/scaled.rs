//! Samples with scaled features and target values.

use crate::{FeatureScaling, Result, Sample, SampleSource, TaskError, Visit};
use gemcnn_nn::columns::clear;
use gemcnn_nn::{Geometry, Target};
use std::sync::Arc;

/// The samples of a source with scaled features and target values.
#[derive(Clone, Copy)]
pub struct Scaled<'a> {
    /// The samples without scaling.
    pub source: &'a dyn SampleSource,
    /// Scaling of features.
    pub features: &'a FeatureScaling,
    /// Scaling of target values; `None` leaves them as they are.
    pub targets: Option<&'a FeatureScaling>,
}

impl SampleSource for Scaled<'_> {
    fn len(&self) -> usize {
        self.source.len()
    }

    fn versions(&self) -> usize {
        self.source.versions()
    }

    fn name(&self, index: usize) -> String {
        self.source.name(index)
    }

    fn load(&self, index: usize) -> Result<Sample> {
        self.scale(self.source.load(index)?)
    }

    fn visit(&self, index: usize, visit: Visit) -> Result<Sample> {
        let mut sample = self.scale(self.source.visit(index, visit)?)?;
        clear(&mut sample.features, sample.kind.dimension(), &self.source.dropped(index, visit));
        Ok(sample)
    }

    fn checksum(&self, index: usize) -> Result<[u8; 32]> {
        self.source.checksum(index)
    }

    fn shared_graphs(&self, count: usize) -> Option<Arc<Geometry<f32>>> {
        self.source.shared_graphs(count)
    }
}

impl Scaled<'_> {
    fn scale(&self, mut sample: Sample) -> Result<Sample> {
        if sample.kind.dimension() != self.features.dimension() {
            return Err(TaskError::setting(
                &sample.name,
                format!(
                    "its features have type {}, but the scaling has {} components",
                    sample.kind,
                    self.features.dimension()
                ),
            ));
        }
        self.features.apply_limited(&sample.kind, &mut sample.features);
        if let (Some(scaling), Target::Values(values)) = (self.targets, &mut sample.target) {
            scaling.apply(values);
        }
        Ok(sample)
    }
}
