//! Samples with their features scaled.

use crate::{FeatureScaling, Sample, SampleSource, TaskError};

/// The samples of a source, with their features scaled as those that a network was trained on.
#[derive(Clone, Copy)]
pub struct Scaled<'a> {
    /// The samples as they are.
    pub source: &'a dyn SampleSource,
    /// The scaling.
    pub scaling: &'a FeatureScaling,
}

impl SampleSource for Scaled<'_> {
    fn len(&self) -> usize {
        self.source.len()
    }

    fn name(&self, index: usize) -> String {
        self.source.name(index)
    }

    fn load(&self, index: usize) -> Result<Sample, TaskError> {
        let mut sample = self.source.load(index)?;
        if sample.kind.dimension() != self.scaling.dimension() {
            return Err(TaskError::setting(
                &sample.name,
                format!(
                    "its features are {}, but {} numbers for each vertex are scaled",
                    sample.kind,
                    self.scaling.dimension()
                ),
            ));
        }
        self.scaling.apply(&mut sample.features);
        Ok(sample)
    }

    fn checksum(&self, index: usize) -> Result<[u8; 32], TaskError> {
        self.source.checksum(index)
    }
}
