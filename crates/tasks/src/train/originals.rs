//! The meshes of a source as they are, without their versions.

use crate::{Sample, SampleSource, TaskError};

/// The first version of each mesh. Statistics are those of these samples: the others may not be prepared yet.
pub(super) struct Originals<'a>(pub &'a dyn SampleSource);

impl Originals<'_> {
    fn at(&self, index: usize) -> usize {
        index * self.0.versions()
    }
}

impl SampleSource for Originals<'_> {
    fn len(&self) -> usize {
        self.0.len() / self.0.versions()
    }

    fn name(&self, index: usize) -> String {
        self.0.name(self.at(index))
    }

    fn load(&self, index: usize) -> Result<Sample, TaskError> {
        self.0.load(self.at(index))
    }

    fn checksum(&self, index: usize) -> Result<[u8; 32], TaskError> {
        self.0.checksum(self.at(index))
    }
}
