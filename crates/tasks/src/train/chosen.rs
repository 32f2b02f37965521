//! Some samples of a source.

use crate::{Result, Sample, SampleSource};
use gemcnn_nn::Target;

/// Some samples of a source, without versions.
pub(super) struct Chosen<'a> {
    source: &'a dyn SampleSource,
    samples: Vec<usize>,
}

impl<'a> Chosen<'a> {
    /// The first version of each mesh. Statistics are those of these samples: the others may not be prepared yet.
    pub fn originals(source: &'a dyn SampleSource) -> Self {
        Self { source, samples: (0..source.len()).step_by(source.versions().max(1)).collect() }
    }

    /// The samples from which features are scaled.
    pub fn typical(source: &'a dyn SampleSource, seed: u64) -> Self {
        Self { source, samples: source.typical(seed) }
    }
}

impl SampleSource for Chosen<'_> {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn name(&self, index: usize) -> String {
        self.source.name(self.samples[index])
    }

    fn load(&self, index: usize) -> Result<Sample> {
        self.source.load(self.samples[index])
    }

    fn target(&self, index: usize) -> Result<Target> {
        self.source.target(self.samples[index])
    }

    fn extent(&self, index: usize) -> Result<(usize, Option<f64>)> {
        self.source.extent(self.samples[index])
    }

    fn checksum(&self, index: usize) -> Result<[u8; 32]> {
        self.source.checksum(self.samples[index])
    }
}
