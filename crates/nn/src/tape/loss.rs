//! Losses: the ends of a tape.

use super::pointwise::scale;
use super::{Context, InputGradients, LinearWeights, NodeId, Step, Tape, Var};
use crate::NnError;
use crate::device::single_slice;
use crate::error::check_size;
use crate::storage::Storage;
use gemcnn_kernels::classifier::{self, Classifier, Gradients, Rows};
use gemcnn_kernels::cross_entropy::cuda::{DeviceScore, DeviceTargets};
use gemcnn_kernels::cross_entropy::{self, Score, Targets};
use gemcnn_kernels::cuda::{CudaDevice, CudaError, DeviceBuffer, DeviceSliceMut};
use gemcnn_kernels::regression::cuda::DeviceRegression;
use gemcnn_kernels::regression::{self, Penalty, Regression};
use gemcnn_kernels::{FeatureType, Real, elementwise};
use std::sync::Arc;

/// The value of a loss, and where [`Tape::backward`](super::Tape::backward) starts.
#[derive(Debug, Clone)]
pub struct Loss {
    pub(super) node: Option<NodeId>,
    value: Value,
}

/// A value, on the host or still to come from a GPU.
#[derive(Debug, Clone)]
enum Value {
    Number(f64),
    Score(Score),
    CudaNumber(CudaDevice, Arc<DeviceBuffer<f64>>),
    CudaScore(CudaDevice, Arc<DeviceScore>),
}

impl Loss {
    /// The value. That of a GPU is read now, after all work before: ask for it only when it is needed.
    ///
    /// # Errors
    /// Work on the GPU that failed.
    pub fn value(&self) -> Result<f64, NnError> {
        Ok(match &self.value {
            Value::Number(value) => *value,
            Value::CudaNumber(device, value) => {
                let mut read = [0.0];
                value.read(device, &mut read)?;
                read[0]
            }
            Value::Score(_) | Value::CudaScore(..) => self.score()?.map_or(0.0, |s| s.loss),
        })
    }

    /// The same value as a number of its own: what a replayed step computes next time does not change it.
    pub(crate) fn detached(&self) -> Result<Self, NnError> {
        let value = match &self.value {
            Value::CudaNumber(device, number) => {
                Value::CudaNumber(device.clone(), Arc::new(number.duplicate(device)?))
            }
            Value::CudaScore(device, score) => {
                Value::CudaScore(device.clone(), Arc::new(score.duplicate(device)?))
            }
            value => value.clone(),
        };
        Ok(Self { node: None, value })
    }

    /// How many rows were classified and how many correctly; none for regression losses. Read as
    /// [`value`](Self::value) is.
    ///
    /// # Errors
    /// Work on the GPU that failed.
    pub fn score(&self) -> Result<Option<Score>, NnError> {
        Ok(match &self.value {
            Value::Number(_) | Value::CudaNumber(..) => None,
            Value::Score(score) => Some(*score),
            Value::CudaScore(device, score) => Some(score.read(device)?),
        })
    }
}

pub(super) enum LossStep<'a, T: Real> {
    CrossEntropy {
        targets: Targets<'a, T>,
        logits: Arc<Storage<T>>,
    },
    CudaCrossEntropy {
        device: CudaDevice,
        targets: Arc<DeviceTargets>,
        logits: Arc<Storage<T>>,
    },
    /// Its gradients for a loss of weight 1 are known since the forward pass.
    Classifier {
        weights: LinearWeights,
        features: Storage<T>,
        weight: Storage<T>,
        bias: Storage<T>,
    },
    Regression {
        kind: FeatureType,
        penalty: Penalty,
        mask: Option<&'a [bool]>,
        prediction: Arc<Storage<T>>,
        target: &'a [T],
    },
    CudaRegression {
        device: CudaDevice,
        target: Arc<DeviceValues>,
        prediction: Arc<Storage<T>>,
    },
}

/// Labels on the host, or on the GPU of the tape.
pub(crate) enum AnyTargets<'t, T> {
    Host(Targets<'t, T>),
    Cuda(Arc<DeviceTargets>),
}

impl<'t, T: Real> AnyTargets<'t, T> {
    fn rows(&self) -> usize {
        match self {
            Self::Host(targets) => targets.labels.len(),
            Self::Cuda(targets) => targets.rows(),
        }
    }

    fn classes(&self) -> usize {
        match self {
            Self::Host(targets) => targets.classes,
            Self::Cuda(targets) => targets.classes(),
        }
    }

    /// On a GPU, sent there if they are on the host.
    fn on(self, device: &CudaDevice) -> Result<Arc<DeviceTargets>, NnError> {
        Ok(match self {
            Self::Host(targets) => Arc::new(DeviceTargets::new(device, &single_targets(targets)?)?),
            Self::Cuda(targets) => targets,
        })
    }

    fn host(self) -> Result<Targets<'t, T>, NnError> {
        match self {
            Self::Host(targets) => Ok(targets),
            Self::Cuda(_) => Err(NnError::setting("tape", "targets of another device")),
        }
    }
}

/// Values that a prediction is compared with, on a GPU.
#[derive(Debug)]
pub(crate) struct DeviceValues {
    pub regression: DeviceRegression,
    pub target: DeviceBuffer<f32>,
}

impl DeviceValues {
    pub fn new(
        device: &CudaDevice,
        regression: &Regression<'_>,
        rows: usize,
        target: &[f32],
    ) -> Result<Self, CudaError> {
        Ok(Self {
            regression: DeviceRegression::new(device, regression, rows)?,
            target: device.upload(target)?,
        })
    }
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
        self.any_cross_entropy(logits, AnyTargets::Host(targets))
    }

    /// As [`cross_entropy`](Self::cross_entropy), with labels that may be on the GPU already.
    pub(crate) fn any_cross_entropy(
        &mut self,
        logits: Var<T>,
        targets: AnyTargets<'a, T>,
    ) -> Result<Loss, NnError> {
        self.check_own(&logits)?;
        let classes = FeatureType::scalars(targets.classes());
        logits.expect_kind("logits", &classes)?;
        logits.expect_rows("logits", targets.rows())?;
        let operands = [logits.node, None];
        let logits = logits.value;
        if let Some(device) = self.cuda() {
            let targets = targets.on(&device)?;
            let score = cross_entropy::cuda::forward(&device, &targets, logits.cuda()?)?;
            let value = Value::CudaScore(device.clone(), Arc::new(score));
            let node = self.record(operands, false, || {
                Step::Loss(LossStep::CudaCrossEntropy {
                    device,
                    targets,
                    logits,
                })
            });
            return Ok(Loss { node, value });
        }
        let targets = targets.host()?;
        let value = Value::Score(cross_entropy::forward(&targets, logits.host()?)?);
        let node = self.record(operands, false, || {
            Step::Loss(LossStep::CrossEntropy { targets, logits })
        });
        Ok(Loss { node, value })
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
        targets: Targets<'_, T>,
        rows: Rows<'_>,
    ) -> Result<Loss, NnError> {
        self.any_classifier(weights, features, AnyTargets::Host(targets), rows)
    }

    /// As [`classifier`](Self::classifier), with labels that may be on the GPU already.
    pub(crate) fn any_classifier(
        &mut self,
        weights: LinearWeights,
        features: Var<T>,
        targets: AnyTargets<'_, T>,
        rows: Rows<'_>,
    ) -> Result<Loss, NnError> {
        self.check_own(&features)?;
        let channels = features.kind.dimension();
        features.expect_kind("features to classify", &FeatureType::scalars(channels))?;
        features.expect_rows("features to classify", targets.rows())?;
        let Some(bias) = weights.bias else {
            return Err(NnError::setting(
                "classifier",
                "its linear map needs a bias",
            ));
        };
        if let Some(device) = self.cuda() {
            let targets = targets.on(&device)?;
            return self.cuda_classifier(&device, weights, features, &targets, rows);
        }
        let targets = targets.host()?;
        let training = self.is_training();
        let (parameters, workspace) = self.parts();
        let [weight, bias] = parameters.values_of([Some(weights.weight), Some(bias)])?;
        let classifier = Classifier {
            channels,
            weight,
            bias,
            targets,
        };
        let values = features.value.host()?;
        if !training {
            let scratch = &mut workspace.scratch;
            let score = classifier::evaluate(&classifier, values, rows, scratch)?;
            return Ok(Loss {
                node: None,
                value: Value::Score(score),
            });
        }
        let mut dfeatures = workspace.take(values.len())?;
        let mut dweight = workspace.zeros(weight.len())?;
        let mut dbias = workspace.zeros(bias.len())?;
        let gradients = Gradients {
            features: dfeatures.host_mut()?,
            weight: dweight.host_mut()?,
            bias: dbias.host_mut()?,
        };
        let scratch = &mut workspace.scratch;
        let score =
            classifier::loss_and_gradients(&classifier, values, 1.0, gradients, rows, scratch)?;
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
            value: Value::Score(score),
        })
    }

    fn cuda_classifier(
        &mut self,
        device: &CudaDevice,
        weights: LinearWeights,
        features: Var<T>,
        targets: &DeviceTargets,
        rows: Rows<'_>,
    ) -> Result<Loss, NnError> {
        let training = self.is_training();
        let (parameters, workspace) = self.parts();
        let ids = [Some(weights.weight), weights.bias];
        let [weight, bias] = parameters.on(device)?.values_of(ids);
        let classifier = classifier::cuda::Classifier {
            channels: features.kind.dimension(),
            weight,
            bias,
            targets,
        };
        let mut predictions = DeviceRows::new(device, rows.predictions)?;
        let mut ranks = DeviceRows::new(device, rows.ranks)?;
        let rows = classifier::cuda::Rows {
            predictions: predictions.as_mut().map(DeviceRows::view_mut),
            ranks: ranks.as_mut().map(DeviceRows::view_mut),
        };
        let values = features.value.cuda()?;
        let (score, gradients) = if training {
            let mut dfeatures = workspace.take(values.len())?;
            let mut dweight = workspace.zeros(weight.len())?;
            let mut dbias = workspace.zeros(bias.len())?;
            let gradients = classifier::cuda::Gradients {
                features: dfeatures.cuda_mut()?,
                weight: dweight.cuda_mut()?,
                bias: dbias.cuda_mut()?,
            };
            let score = classifier::cuda::loss_and_gradients(
                device,
                &classifier,
                values,
                1.0,
                gradients,
                rows,
            )?;
            (score, Some((dfeatures, dweight, dbias)))
        } else {
            let score = classifier::cuda::evaluate(device, &classifier, values, rows)?;
            (score, None)
        };
        for wanted in [predictions, ranks].into_iter().flatten() {
            wanted.read(device)?;
        }
        let node = gradients.and_then(|(features_gradient, weight, bias)| {
            self.record([features.node, None], true, || {
                Step::Loss(LossStep::Classifier {
                    weights,
                    features: features_gradient,
                    weight,
                    bias,
                })
            })
        });
        Ok(Loss {
            node,
            value: Value::CudaScore(device.clone(), Arc::new(score)),
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
        if let Some(device) = self.cuda() {
            let target = single_slice(target)?;
            let target = DeviceValues::new(&device, &regression, prediction.rows, target)?;
            return self.cuda_regression(device, prediction, Arc::new(target));
        }
        let operands = [prediction.node, None];
        let value = regression::forward(&regression, prediction.value.host()?, target)?;
        let node = self.record(operands, false, || {
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
            value: Value::Number(value),
        })
    }
}

impl<T: Real> Tape<'_, T> {
    /// A regression loss with values that are on the GPU already.
    pub(crate) fn cuda_regression(
        &mut self,
        device: CudaDevice,
        prediction: Var<T>,
        target: Arc<DeviceValues>,
    ) -> Result<Loss, NnError> {
        self.check_own(&prediction)?;
        let operands = [prediction.node, None];
        let prediction = prediction.value;
        let (found, wanted) = (prediction.cuda()?, target.target.view());
        let value = regression::cuda::forward(&device, &target.regression, found, wanted)?;
        let value = Value::CudaNumber(device.clone(), Arc::new(value));
        let node = self.record(operands, false, || {
            Step::Loss(LossStep::CudaRegression {
                device,
                target,
                prediction,
            })
        });
        Ok(Loss { node, value })
    }
}

/// Targets for a GPU.
pub(crate) fn single_targets<'t, T: Real>(
    targets: Targets<'t, T>,
) -> Result<Targets<'t, f32>, NnError> {
    Ok(Targets {
        classes: targets.classes,
        labels: targets.labels,
        class_weights: targets.class_weights.map(single_slice).transpose()?,
    })
}

/// A number for each row that is wanted on the host.
struct DeviceRows<'r> {
    numbers: DeviceBuffer<u32>,
    wanted: &'r mut [u32],
}

impl<'r> DeviceRows<'r> {
    fn new(device: &CudaDevice, wanted: Option<&'r mut [u32]>) -> Result<Option<Self>, NnError> {
        let Some(wanted) = wanted else {
            return Ok(None);
        };
        let numbers = device.buffer(wanted.len())?;
        Ok(Some(Self { numbers, wanted }))
    }

    fn view_mut(&mut self) -> DeviceSliceMut<'_, u32> {
        self.numbers.view_mut()
    }

    fn read(self, device: &CudaDevice) -> Result<(), NnError> {
        Ok(self.numbers.read(device, self.wanted)?)
    }
}

impl<T: Real> LossStep<'_, T> {
    pub(super) fn backward(
        self,
        context: &mut Context<'_, T>,
        dloss: T,
    ) -> Result<InputGradients<T>, NnError> {
        let weight_of_loss = dloss.as_f64();
        let dx = match self {
            Self::CrossEntropy { targets, logits } => {
                let mut dx = context.take(logits.len())?;
                let (logits, dlogits) = (logits.host()?, dx.host_mut()?);
                cross_entropy::backward(&targets, logits, weight_of_loss, dlogits)?;
                dx
            }
            Self::CudaCrossEntropy {
                device,
                targets,
                logits,
            } => {
                let mut dx = context.take(logits.len())?;
                let (logits, dlogits) = (logits.cuda()?, dx.cuda_mut()?);
                cross_entropy::cuda::backward(&device, &targets, logits, weight_of_loss, dlogits)?;
                dx
            }
            Self::Classifier {
                weights,
                features,
                weight,
                bias,
            } => {
                let cuda = context.cuda();
                for (id, gradient) in [(Some(weights.weight), weight), (weights.bias, bias)] {
                    let gradient = scaled(context, dloss, gradient)?;
                    match &cuda {
                        None => context.with_gradients([id], |_, [sum], _| {
                            elementwise::accumulate(gradient.host()?, sum)?;
                            Ok::<(), NnError>(())
                        })?,
                        Some(device) => {
                            let gradient = gradient.cuda()?;
                            context.with_cuda_gradients(device, [id], |_, [sum]| {
                                elementwise::cuda::accumulate(device, gradient, sum)
                            })?;
                        }
                    }
                }
                scaled(context, dloss, features)?
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
                let mut dx = context.take(prediction.len())?;
                let (prediction, gradient) = (prediction.host()?, dx.host_mut()?);
                regression::backward(&regression, prediction, target, weight_of_loss, gradient)?;
                dx
            }
            Self::CudaRegression {
                device,
                target,
                prediction,
            } => {
                let mut dx = context.take(prediction.len())?;
                regression::cuda::backward(
                    &device,
                    &target.regression,
                    prediction.cuda()?,
                    target.target.view(),
                    weight_of_loss,
                    dx.cuda_mut()?,
                )?;
                dx
            }
        };
        Ok([Some(dx), None])
    }
}

/// A gradient for a loss of weight 1 as that for the weight `dloss`.
fn scaled<T: Real>(
    context: &Context<'_, T>,
    dloss: T,
    gradient: Storage<T>,
) -> Result<Storage<T>, NnError> {
    if dloss == T::one() {
        return Ok(gradient);
    }
    let mut scaled = context.take(gradient.len())?;
    scale(context.cuda().as_ref(), dloss, &gradient, &mut scaled)?;
    Ok(scaled)
}
