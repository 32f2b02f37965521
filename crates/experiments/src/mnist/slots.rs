//! Batches whose graph stays: a fixed row of slots, each with a grid of its own, that digits are put
//! into. Only pictures and labels change from step to step; the graph goes to a GPU once.

use crate::digits::{CLASSES, Digits, PIXELS};
use gemcnn_mesh::GaugeGraph;
use gemcnn_nn::{
    BatchTarget, FeatureType, GraphBatch, Network, Parameters, Tape, TrainingBatch, Var, Workspace,
};
use gemcnn_tasks::TaskError;
use std::sync::Arc;

/// Slots for digits. Slot `s` has the grid `s mod (number of grids)`.
#[derive(Debug)]
pub(super) struct Slots {
    graph: Arc<GraphBatch<f32>>,
    pixels: Vec<f32>,
    labels: Vec<u32>,
}

impl Slots {
    /// So many slots over these grids.
    pub fn new(grids: &[GaugeGraph], count: usize) -> Result<Self, TaskError> {
        Ok(Self {
            graph: GraphBatch::new(grids.iter().cycle().take(count))?.into(),
            pixels: vec![0.0; count * PIXELS],
            labels: vec![0; count],
        })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.labels.len()
    }

    /// Puts digits into the first slots, ink as 1 and paper as 0. Other slots keep what they have.
    fn fill(&mut self, digits: &Digits, which: impl Iterator<Item = usize>) {
        let slots = self.pixels.chunks_exact_mut(PIXELS).zip(&mut self.labels);
        for (digit, (pixels, label)) in which.zip(slots) {
            for (pixel, &ink) in pixels.iter_mut().zip(digits.image(digit)) {
                *pixel = f32::from(ink) / 255.0;
            }
            *label = digits.labels()[digit].into();
        }
    }

    /// A training batch of as many digits as there are slots.
    pub fn training_batch(
        &mut self,
        digits: &Digits,
        which: &[usize],
    ) -> Result<TrainingBatch<f32>, TaskError> {
        self.fill(digits, which.iter().copied());
        let target = BatchTarget::Classes {
            classes: CLASSES,
            labels: self.labels.clone(),
            weights: None,
        };
        let (graph, pixels) = (self.graph.clone(), self.pixels.clone());
        let kind = FeatureType::scalars(1);
        Ok(TrainingBatch::new(graph, kind, pixels, target)?)
    }

    /// The logits of all digits, a row for each in their order: digit `i` lies in slot
    /// `i mod (number of slots)`. They are read when all work is queued.
    pub fn logits(
        &mut self,
        network: &Network<f32>,
        parameters: &Parameters<f32>,
        workspace: &mut Workspace<f32>,
        digits: &Digits,
    ) -> Result<Vec<f32>, TaskError> {
        let mut batches: Vec<Var<f32>> = Vec::with_capacity(digits.len().div_ceil(self.count()));
        for first in (0..digits.len()).step_by(self.count().max(1)) {
            let end = digits.len().min(first + self.count());
            self.fill(digits, first..end);
            let mut tape = Tape::inference(workspace, parameters);
            let x = tape.input(network.input().clone(), &self.pixels)?;
            batches.push(network.forward(&mut tape, &*self.graph, x)?);
        }
        let mut logits = Vec::with_capacity(digits.len() * CLASSES);
        for batch in &batches {
            logits.extend_from_slice(&batch.values()?);
        }
        // The last batch may have slots to spare.
        logits.truncate(digits.len() * CLASSES);
        Ok(logits)
    }
}
