//! What a network is trained for, and how far it is from it on a batch.

use super::batches::PreparedBatch;
use super::metrics::BatchScores;
use crate::{Sample, Target, TaskError};
use gemcnn_nn::{FeatureType, Loss, Network, NnError, Penalty, Rows, Tape, Targets};

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

    /// Runs the network on a batch up to the loss.
    pub(super) fn loss<'a>(
        &'a self,
        network: &Network<f32>,
        tape: &mut Tape<'a, f32>,
        prepared: &'a PreparedBatch,
    ) -> Result<BatchLoss, NnError> {
        let batch = &prepared.batch;
        let x = tape.input(network.input().clone(), &batch.features)?;
        let counted = prepared.counted;
        match self {
            Self::Classes { count, weights } => {
                let targets = Targets {
                    classes: *count,
                    labels: &batch.labels,
                    class_weights: weights.as_deref(),
                };
                let loss = network.classify(tape, batch, x, targets, Rows::default())?;
                Ok(BatchLoss {
                    loss,
                    mean_square: None,
                    counted,
                })
            }
            Self::Values { penalty, .. } => {
                let values = network.forward(tape, batch, x)?;
                let evaluates = !tape.is_training();
                let mut compare = |penalty, values| {
                    let mask = prepared.mask.as_deref();
                    tape.regression(penalty, values, &batch.values, mask)
                };
                let mean_square = match evaluates {
                    true => Some(compare(Penalty::MeanSquare, values.clone())?),
                    false => None,
                };
                let loss = compare(*penalty, values)?;
                Ok(BatchLoss {
                    loss,
                    mean_square,
                    counted,
                })
            }
        }
    }
}

/// The loss of a batch and what goes with it, perhaps still on its way from a GPU.
#[derive(Debug)]
pub(super) struct BatchLoss {
    pub loss: Loss,
    mean_square: Option<Loss>,
    counted: u64,
}

impl BatchLoss {
    /// The numbers. Those of a GPU are read now, after all work before.
    pub fn read(&self) -> Result<BatchScores, NnError> {
        let mean_square = self.mean_square.as_ref().map(Loss::value).transpose()?;
        let score = self.loss.score()?;
        Ok(BatchScores {
            loss: match score {
                Some(score) => score.loss,
                None => self.loss.value()?,
            },
            mean_square,
            correct: score.map(|score| score.correct as u64),
            counted: self.counted,
        })
    }
}
