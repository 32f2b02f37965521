//! Losses: the ends of a tape.

use super::{Context, InputGradients, LinearWeights, NodeId, Step, Tape, Var};
use crate::error::check_size;
use crate::{Buffer, NnError};
use gemcnn_kernels::classifier::{self, Classifier, Gradients, Rows};
use gemcnn_kernels::cross_entropy::{self, Score, Targets};
use gemcnn_kernels::regression::{self, Penalty, Regression};
use gemcnn_kernels::{FeatureType, Real, elementwise};
use std::sync::Arc;

/// The value of a loss, and where [`Tape::backward`](super::Tape::backward) starts.
#[derive(Debug, Clone)]
pub struct Loss {
    pub(super) node: Option<NodeId>,
    value: f64,
    score: Option<Score>,
}

impl Loss {
    /// The value.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// How many rows were classified and how many correctly; none for regression losses.
    pub fn score(&self) -> Option<Score> {
        self.score
    }
}

pub(super) enum LossStep<'a, T: Real> {
    CrossEntropy {
        targets: Targets<'a, T>,
        logits: Arc<Buffer<T>>,
    },
    /// Its gradients for a loss of weight 1 are known since the forward pass.
    Classifier {
        weights: LinearWeights,
        features: Buffer<T>,
        weight: Buffer<T>,
        bias: Buffer<T>,
    },
    Regression {
        kind: FeatureType,
        penalty: Penalty,
        mask: Option<&'a [bool]>,
        prediction: Arc<Buffer<T>>,
        target: &'a [T],
    },
}

impl<'a, T: Real> Tape<'a, T> {
    /// Softmax cross-entropy of logits. Keeps the logits.
    ///
    /// # Shapes
    /// `logits`: one row of `targets.classes` scalars for each label.
    ///
    /// # Errors
    /// Types or sizes that do not fit, or a label that names no class.
    pub fn cross_entropy(
        &mut self,
        logits: Var<T>,
        targets: Targets<'a, T>,
    ) -> Result<Loss, NnError> {
        self.check_own(&logits)?;
        let classes = FeatureType::scalars(targets.classes);
        logits.expect_kind("logits", &classes)?;
        logits.expect_rows("logits", targets.labels.len())?;
        let score = cross_entropy::forward(&targets, &logits.value)?;
        let node = self.record([logits.node, None], false, || {
            Step::Loss(LossStep::CrossEntropy {
                targets,
                logits: logits.value.clone(),
            })
        });
        Ok(Loss {
            node,
            value: score.loss,
            score: Some(score),
        })
    }

    /// A last linear map and softmax cross-entropy in one: rows times classes logits never exist at
    /// once. In training the gradients are computed along with the loss and kept.
    ///
    /// # Shapes
    /// `features`: one row of scalars for each label; weight `[classes, channels]`, bias `[classes]`.
    ///
    /// # Errors
    /// Types or sizes that do not fit, a map without bias, or a label that names no class.
    pub fn classifier(
        &mut self,
        weights: LinearWeights,
        features: Var<T>,
        targets: Targets<'a, T>,
        rows: Rows<'_>,
    ) -> Result<Loss, NnError> {
        self.check_own(&features)?;
        let channels = features.kind.dimension();
        features.expect_kind("features to classify", &FeatureType::scalars(channels))?;
        features.expect_rows("features to classify", targets.labels.len())?;
        let Some(bias) = weights.bias else {
            return Err(NnError::setting(
                "classifier",
                "its linear map needs a bias",
            ));
        };
        let training = self.is_training();
        let (parameters, workspace) = self.parts();
        let [weight, bias] = parameters.values_of([Some(weights.weight), Some(bias)]);
        let classifier = Classifier {
            channels,
            weight,
            bias,
            targets,
        };
        let scratch = &mut workspace.scratch;
        if !training {
            let score = classifier::evaluate(&classifier, &features.value, rows, scratch)?;
            return Ok(Loss {
                node: None,
                value: score.loss,
                score: Some(score),
            });
        }
        let pool = &workspace.pool;
        let mut dfeatures = pool.take(features.value.len());
        let mut dweight = pool.zeros(classifier.weight.len());
        let mut dbias = pool.zeros(classifier.bias.len());
        let gradients = Gradients {
            features: &mut dfeatures,
            weight: &mut dweight,
            bias: &mut dbias,
        };
        let score = classifier::loss_and_gradients(
            &classifier,
            &features.value,
            1.0,
            gradients,
            rows,
            scratch,
        )?;
        let node = self.record([features.node, None], true, || {
            Step::Loss(LossStep::Classifier {
                weights,
                features: dfeatures,
                weight: dweight,
                bias: dbias,
            })
        });
        Ok(Loss {
            node,
            value: score.loss,
            score: Some(score),
        })
    }

    /// Mean over rows of the squared length of the difference from `target`. Keeps the prediction.
    ///
    /// # Errors
    /// A target of another size.
    pub fn mean_square(&mut self, prediction: Var<T>, target: &'a [T]) -> Result<Loss, NnError> {
        self.regression(Penalty::MeanSquare, prediction, target, None)
    }

    /// Mean over the rows that `mask` counts (all without a mask) of a penalty on the difference from
    /// `target`; gauge invariant for features of any type. Keeps the prediction.
    ///
    /// # Errors
    /// A target or a mask of another size.
    pub fn regression(
        &mut self,
        penalty: Penalty,
        prediction: Var<T>,
        target: &'a [T],
        mask: Option<&'a [bool]>,
    ) -> Result<Loss, NnError> {
        self.check_own(&prediction)?;
        if let Some(mask) = mask {
            check_size("rows in the mask", prediction.rows, mask.len())?;
        }
        let regression = Regression {
            features: &prediction.kind,
            penalty,
            mask,
        };
        let value = regression::forward(&regression, &prediction.value, target)?;
        let node = self.record([prediction.node, None], false, || {
            Step::Loss(LossStep::Regression {
                kind: prediction.kind.clone(),
                penalty,
                mask,
                prediction: prediction.value.clone(),
                target,
            })
        });
        Ok(Loss {
            node,
            value,
            score: None,
        })
    }
}

impl<T: Real> LossStep<'_, T> {
    pub(super) fn backward(
        self,
        context: &mut Context<'_, T>,
        dloss: T,
    ) -> Result<InputGradients<T>, NnError> {
        let dx = match self {
            Self::CrossEntropy { targets, logits } => {
                let mut dx = context.workspace.pool.take(logits.len());
                cross_entropy::backward(&targets, &logits, dloss.as_f64(), &mut dx)?;
                dx
            }
            Self::Classifier {
                weights,
                features,
                weight,
                bias,
            } => {
                let pool = context.workspace.pool.clone();
                let scaled = |gradient: Buffer<T>| -> Result<Buffer<T>, NnError> {
                    if dloss == T::one() {
                        return Ok(gradient);
                    }
                    let mut scaled = pool.take(gradient.len());
                    elementwise::scale(dloss, &gradient, &mut scaled)?;
                    Ok(scaled)
                };
                for (id, gradient) in [(Some(weights.weight), weight), (weights.bias, bias)] {
                    if let Some(id) = id {
                        let sum = context.parameters.get_mut(id).gradient_mut();
                        elementwise::accumulate(&scaled(gradient)?, sum)?;
                    }
                }
                scaled(features)?
            }
            Self::Regression {
                kind,
                penalty,
                mask,
                prediction,
                target,
            } => {
                let regression = Regression {
                    features: &kind,
                    penalty,
                    mask,
                };
                let mut dx = context.workspace.pool.take(prediction.len());
                let dloss = dloss.as_f64();
                regression::backward(&regression, &prediction, target, dloss, &mut dx)?;
                dx
            }
        };
        Ok([Some(dx), None])
    }
}
