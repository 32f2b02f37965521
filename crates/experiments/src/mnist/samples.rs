//! Digits as samples for training.
//!
//! The position in the batch decides the grid: position `p` has grid `p mod (number of grids)`. So all
//! batches of one size share their joined graph, which goes to a GPU once, and only pixels and labels
//! change from step to step.

use crate::digits::Digits;
use gemcnn_mesh::{GaugeGraph, Hierarchy};
use gemcnn_nn::{Extras, FeatureType, Geometry, NnError, Target};
use gemcnn_tasks::{Sample, SampleSource, TaskError};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The grids of one part of a geometry, at least one.
#[derive(Debug)]
pub(super) struct Grids {
    graphs: Vec<Arc<Hierarchy>>,
    /// Joined graphs by number of digits.
    joined: Mutex<HashMap<usize, Arc<Geometry<f32>>>>,
}

impl Grids {
    pub fn new(graphs: Vec<GaugeGraph>) -> Self {
        Self { graphs: graphs.into_iter().map(|graph| Arc::new(graph.into())).collect(), joined: Mutex::default() }
    }

    /// The graph of a batch of `count` digits; joined once for each number.
    pub fn batch(&self, count: usize) -> Result<Arc<Geometry<f32>>, NnError> {
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(batch) = joined.get(&count) {
            return Ok(Arc::clone(batch));
        }
        let graphs = self.graphs.iter().map(|graph| &**graph);
        let batch = Arc::new(Geometry::new(graphs.cycle().take(count))?);
        joined.insert(count, Arc::clone(&batch));
        Ok(batch)
    }
}

/// Digits on grids.
#[derive(Debug)]
pub(super) struct DigitSamples<'g> {
    pub digits: Digits,
    pub grids: &'g Grids,
}

/// Ink as 1 and paper as 0.
pub(super) fn intensities(pixels: &[u8]) -> Vec<f32> {
    let intensity = |&pixel: &u8| f32::from(pixel) / 255.0;
    pixels.iter().map(intensity).collect()
}

impl SampleSource for DigitSamples<'_> {
    fn len(&self) -> usize {
        self.digits.len()
    }

    fn name(&self, index: usize) -> String {
        format!("digit {index}")
    }

    fn load(&self, index: usize) -> Result<Sample, TaskError> {
        Ok(Sample {
            name: self.name(index),
            // Of the right size; the graph that counts is that of the batch.
            hierarchy: Arc::clone(&self.grids.graphs[0]),
            extras: Extras::default(),
            areas: Vec::new(),
            kind: FeatureType::scalars(1),
            features: intensities(self.digits.image(index)),
            target: Target::Classes(vec![self.digits.labels()[index].into()]),
        })
    }

    fn checksum(&self, index: usize) -> Result<[u8; 32], TaskError> {
        let label = [self.digits.labels()[index]];
        let hasher = Sha256::new().chain_update(label);
        Ok(hasher.chain_update(self.digits.image(index)).finalize().into())
    }

    fn shared_graphs(&self, count: usize) -> Option<Arc<Geometry<f32>>> {
        // A batch that is too large fails again, with a message, where samples are joined without this.
        self.grids.batch(count).ok()
    }
}
