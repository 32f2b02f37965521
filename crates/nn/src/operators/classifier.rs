//! The fused classifier: a linear map to logits and softmax cross-entropy in one operator.

use super::LinearWeights;
use super::combine::scaled;
use super::cross_entropy::send_targets;
use crate::target::LossClasses;
use crate::{Context, Loss, LossOperator, LossValue, NnError, Result, Storage, Tape, Var};
use gemcnn_kernels::classifier::{self, Classifier, Gradients, RowResults, Rows};
use gemcnn_kernels::cross_entropy::Targets;
use gemcnn_kernels::cuda::{CudaDevice, DeviceBuffer};
use gemcnn_kernels::elementwise::Accumulate;
use gemcnn_kernels::{Executor, Real, Resolve};
use std::sync::Arc;

/// The backward pass of a classifier whose gradients were computed with its loss.
struct ClassifierLoss(LinearWeights);

/// Gradients of a loss of weight 1 with respect to the features, the weight and the bias.
type KnownGradients<T> = [Storage<T>; 3];

impl<T: Real> LossOperator<T> for ClassifierLoss {
    type Saved = KnownGradients<T>;

    fn forward(&self, _: &mut Context<'_, T>, _: [Var<T>; 1]) -> Result<(LossValue, Self::Saved)> {
        Err(NnError::setting("classifier", "its loss is computed by `Tape::classifier`"))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        [features, weight, bias]: Self::Saved,
        loss_weight: f64,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1]> {
        for (id, gradient) in [(Some(self.0.weight), weight), (self.0.bias, bias)] {
            let gradient = scaled(context, loss_weight, gradient)?;
            let (_, [y], mut run) = context.gradients([id])?;
            Accumulate { a: gradient.view(), y }.run(&mut run)?;
        }
        Ok([Some(scaled(context, loss_weight, features)?)])
    }
}

/// Values of each row that are requested on the host.
struct DeviceRows<'r> {
    numbers: DeviceBuffer<u32>,
    wanted: &'r mut [u32],
}

impl<'r> DeviceRows<'r> {
    fn new(device: &CudaDevice, wanted: Option<&'r mut [u32]>) -> Result<Option<Self>> {
        let Some(wanted) = wanted else { return Ok(None) };
        let numbers = device.buffer(wanted.len())?;
        Ok(Some(Self { numbers, wanted }))
    }
}

/// Runs the classifier; a gradient is computed if it has a buffer.
fn run<T: Real>(
    context: &mut Context<'_, T>,
    weights: LinearWeights,
    features: &Var<T>,
    targets: &LossClasses<'_, T>,
    rows: Rows<'_>,
    gradients: Option<&mut KnownGradients<T>>,
) -> Result<LossValue> {
    let channels = features.kind().dimension();
    let ids = [Some(weights.weight), weights.bias];
    let products = context.workspace.product_mode();
    let ([weight, bias], run) = context.values(ids)?;
    let gradients = gradients.map(|[features, weight, bias]| Gradients {
        features: features.view_mut(),
        weight: weight.view_mut(),
        bias: bias.view_mut(),
    });
    let device = match run {
        Executor::Host(scratch) => {
            let map = Classifier { channels, weight: weight.host()?, bias: bias.host()?, targets: targets.host };
            let (values, scratch) = (features.host()?, scratch.narrow);
            let score = match gradients {
                None => classifier::evaluate(&map, values, rows, scratch)?,
                Some(gradients) => {
                    let gradients = gradients.host()?;
                    classifier::loss_and_gradients(&map, values, 1.0, gradients, rows, products, scratch)?
                }
            };
            return Ok(LossValue::Score(score));
        }
        Executor::Cuda(device) => device,
    };
    let targets = targets.on(|targets| send_targets(device, targets))?;
    let map = classifier::cuda::Classifier { channels, weight: weight.cuda()?, bias: bias.cuda()?, targets: &targets };
    let mut predictions = DeviceRows::new(device, rows.predictions)?;
    let mut ranks = DeviceRows::new(device, rows.ranks)?;
    let rows = RowResults {
        predictions: predictions.as_mut().map(|rows| rows.numbers.view_mut()),
        ranks: ranks.as_mut().map(|rows| rows.numbers.view_mut()),
    };
    let values = features.view().cuda()?;
    let score = match gradients {
        None => classifier::cuda::evaluate(device, &map, values, rows)?,
        Some(gradients) => {
            let gradients = gradients.cuda()?;
            classifier::cuda::loss_and_gradients(device, &map, values, 1.0, gradients, rows)?
        }
    };
    for DeviceRows { numbers, wanted } in [predictions, ranks].into_iter().flatten() {
        numbers.read(device, wanted)?;
    }
    Ok(LossValue::CudaScore(device.clone(), Arc::new(score)))
}

impl<'a, T: Real> Tape<'a, T> {
    /// A last linear map fused with softmax cross-entropy: the `rows x classes` logits are never stored at once.
    /// In training the gradients are computed with the loss and saved.
    ///
    /// # Shapes
    /// `features`: one row of scalars for each label; weight `[classes, channels]`, bias `[classes]`.
    pub fn classifier(
        &mut self,
        weights: LinearWeights,
        features: Var<T>,
        targets: Targets<'_, T>,
        rows: Rows<'_>,
    ) -> Result<Loss> {
        self.any_classifier(weights, features, &targets.into(), rows)
    }

    /// As [`classifier`](Self::classifier), with labels that may be on the GPU already.
    pub(crate) fn any_classifier(
        &mut self,
        weights: LinearWeights,
        features: Var<T>,
        targets: &LossClasses<'_, T>,
        rows: Rows<'_>,
    ) -> Result<Loss> {
        let nodes = self.nodes_of(std::slice::from_ref(&features))?;
        features.expect_scalars("features to classify")?;
        features.expect_rows("features to classify", targets.host.labels.len())?;
        if weights.bias.is_none() {
            return Err(NnError::setting("classifier", "its linear map needs a bias"));
        }
        let training = self.is_training();
        let mut context = self.context();
        if !training {
            let value = run(&mut context, weights, &features, targets, rows, None)?;
            return Ok(Loss::new(value, None));
        }
        let classes = targets.host.classes;
        let mut gradients = [
            context.buffer(features.values_len())?,
            context.buffer(classes * features.kind().dimension())?,
            context.buffer(classes)?,
        ];
        let value = run(&mut context, weights, &features, targets, rows, Some(&mut gradients))?;
        Ok(self.record_loss(value, ClassifierLoss(weights), gradients, nodes))
    }
}
