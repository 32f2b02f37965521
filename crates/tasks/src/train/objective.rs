//! What a network is trained for, and how far it is from it on a batch.

use super::batches::PreparedBatch;
use super::metrics::BatchScores;
use crate::evaluation::regression;
use crate::{FeatureScaling, Sample, Target, TaskError};
use gemcnn_nn::{
    BatchTarget, FeatureType, Loss, Network, NnError, Parameters, Penalty, Tape, Workspace,
};

/// What a network is trained for.
#[derive(Debug, Clone, PartialEq)]
pub enum Objective {
    /// A class for each row of its output: cross-entropy.
    Classes {
        /// How many classes there are.
        count: usize,
        /// Weight of each class in the loss; 1 without.
        weights: Option<Vec<f32>>,
    },
    /// Values for each vertex.
    Values {
        /// Their type.
        kind: FeatureType,
        /// How a difference counts.
        penalty: Penalty,
        /// How they are scaled before a network learns them, and what it says is scaled back; not at all
        /// without.
        scaling: Option<FeatureScaling>,
    },
}

impl Objective {
    /// Type of the output that a network for it has.
    pub fn output(&self) -> FeatureType {
        match self {
            Self::Classes { count, .. } => FeatureType::scalars(*count),
            Self::Values { kind, .. } => kind.clone(),
        }
    }

    /// Adds values as a network learns them to sums in their own units, and returns their mean squared difference.
    pub(crate) fn compare(
        &self,
        sums: &mut regression::Sums,
        found: &[f32],
        wanted: &[f32],
        known: Option<&[bool]>,
    ) -> f64 {
        sums.add(&self.unscaled(found), &self.unscaled(wanted), known)
    }

    fn unscaled(&self, values: &[f32]) -> Vec<f32> {
        let mut values = values.to_vec();
        if let Self::Values { scaling, .. } = self
            && let Some(scaling) = scaling
        {
            scaling.undo(&mut values);
        }
        values
    }

    /// Fails for a sample whose target is of another form, or a label that names no class.
    pub(super) fn check(&self, sample: &Sample) -> Result<(), TaskError> {
        let refuse = |problem: String| Err(TaskError::setting(&sample.name, problem));
        let labels: &[u32] = match (&sample.target, self) {
            (Target::VertexLabels(labels), Self::Classes { .. }) => labels,
            (Target::MeshLabel(label), Self::Classes { .. }) => std::slice::from_ref(label),
            (Target::VertexValues { kind, .. }, Self::Values { kind: wanted, .. }) => {
                if kind == wanted {
                    return Ok(());
                }
                return refuse(format!("its target is {kind}, but {wanted} is learned"));
            }
            (Target::Unknown, _) => return refuse("it has no target to learn from".into()),
            _ => return refuse("its target does not fit the task".into()),
        };
        let Self::Classes { count, .. } = self else {
            return Ok(());
        };
        let outside = |&label: &u32| label != gemcnn_nn::IGNORE && label as usize >= *count;
        match labels.iter().position(outside) {
            None => Ok(()),
            Some(row) => refuse(format!(
                "label {} of row {row} names none of the {count} classes",
                labels[row]
            )),
        }
    }

    /// Runs the network on a batch and compares; this is no training.
    pub(super) fn evaluate(
        &self,
        network: &Network<f32>,
        parameters: &Parameters<f32>,
        workspace: &mut Workspace<f32>,
        prepared: &PreparedBatch,
    ) -> Result<BatchLoss, NnError> {
        let batch = &prepared.batch;
        let mut tape = Tape::inference(workspace, parameters);
        let (loss, mean_square) = match batch.target() {
            BatchTarget::Classes { .. } => (network.loss(&mut tape, batch)?, None),
            BatchTarget::Values {
                penalty,
                values,
                known,
                ..
            } => {
                let x = tape.input(batch.kind().clone(), batch.features())?;
                let found = network.forward(&mut tape, batch.levels(), x)?;
                let mut sums = regression::Sums::new(network.output());
                let mean_square =
                    self.compare(&mut sums, &found.values()?, values, known.as_deref());
                let loss = tape.regression(*penalty, found, values, known.as_deref())?;
                (loss, Some(mean_square))
            }
        };
        Ok(BatchLoss {
            mean_square,
            ..BatchLoss::new(loss, prepared)
        })
    }
}

/// The loss of a batch and what goes with it, perhaps still on its way from a GPU.
#[derive(Debug)]
pub(super) struct BatchLoss {
    loss: Loss,
    weight: f64,
    mean_square: Option<f64>,
    counted: u64,
}

impl BatchLoss {
    pub fn new(loss: Loss, prepared: &PreparedBatch) -> Self {
        Self {
            loss,
            weight: prepared.weight,
            mean_square: None,
            counted: prepared.counted,
        }
    }

    /// The numbers. Those of a GPU are read now, after all work before.
    pub fn read(&self) -> Result<BatchScores, NnError> {
        let score = self.loss.score()?;
        Ok(BatchScores {
            loss: match score {
                Some(score) => score.loss,
                None => self.loss.value()?,
            },
            weight: self.weight,
            mean_square: self.mean_square,
            correct: score.map(|score| score.correct as u64),
            counted: self.counted,
        })
    }
}
