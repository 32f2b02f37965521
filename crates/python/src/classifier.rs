//! The last linear layer of a classifier with its loss, on tensors of PyTorch.

use crate::settings::by_type;
use crate::tensor::Place;
use gemcnn_kernels::classifier::{self, Classifier, Gradients, RowResults};
use gemcnn_kernels::cross_entropy::cuda::DeviceTargets;
use gemcnn_kernels::cross_entropy::{ClassTargets, Targets};
use gemcnn_kernels::cuda::ProductMode;
use gemcnn_kernels::{Executor, Resolve};
use pyo3::prelude::*;

/// Loss, and gradients of features, weight and bias if there are tensors for them.
///
/// `settings` are the numbers of classes and channels and the label smoothing. `tensors` are features, weight, bias,
/// labels and the reciprocal of the total weight of the rows, which is read on a GPU only. There the labels were
/// checked by the caller. `score` takes loss, correct rows and counted rows.
#[pyfunction]
fn linear_cross_entropy(
    py: Python<'_>,
    settings: (usize, usize, f64),
    tensors: [Bound<'_, PyAny>; 5],
    class_weights: Option<&Bound<'_, PyAny>>,
    gradients: Option<[Bound<'_, PyAny>; 3]>,
    score: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (classes, channels, smoothing) = settings;
    let [x, weight, bias, labels, normaliser] = &tensors;
    by_type!(x, T => {
        let place = Place::of(x)?;
        let (x, weight) = (place.view::<T>("x", x)?, place.view::<T>("weight", weight)?);
        let (bias, labels) = (place.view::<T>("bias", bias)?, place.indices("labels", labels)?);
        let class_weights = class_weights.map(|weights| place.view::<T>("class_weights", weights));
        let class_weights = class_weights.transpose()?;
        let gradients = match &gradients {
            Some([features, weight, bias]) => Some(Gradients {
                features: place.view_mut::<T>("gradient of x", features)?,
                weight: place.view_mut::<T>("gradient of weight", weight)?,
                bias: place.view_mut::<T>("gradient of bias", bias)?,
            }),
            None => None,
        };
        let normaliser = place.wide("normaliser", normaliser)?;
        let score = place.wide_mut("score", score)?;
        place.run::<T>(py, |run| {
            let device = match run {
                Executor::Cuda(device) => device,
                Executor::Host(scratch) => {
                    let map = Classifier {
                        channels,
                        weight: weight.host()?,
                        bias: bias.host()?,
                        targets: Targets {
                            class_weights: class_weights.host()?,
                            smoothing,
                            ..Targets::new(classes, labels.host()?)
                        },
                    };
                    let (x, rows, scratch) = (x.host()?, RowResults::default(), scratch.narrow);
                    let found = match gradients.host()? {
                        Some(gradients) => classifier::loss_and_gradients(
                            &map,
                            x,
                            1.0,
                            gradients,
                            rows,
                            ProductMode::F32,
                            scratch,
                        )?,
                        None => classifier::evaluate(&map, x, rows, scratch)?,
                    };
                    let numbers = [found.loss, found.correct as f64, found.counted as f64];
                    for (place, number) in score.host()?.iter_mut().zip(numbers) {
                        *place = number;
                    }
                    return Ok(());
                }
            };
            let slices = ClassTargets {
                classes,
                labels: labels.cuda()?,
                class_weights: class_weights.cuda()?,
                smoothing,
            };
            // SAFETY: the caller marks all other labels as not counted.
            let targets = unsafe { DeviceTargets::from_device(device, slices, normaliser.cuda()?)? };
            let map = classifier::cuda::Classifier {
                channels,
                weight: weight.cuda()?,
                bias: bias.cuda()?,
                targets: &targets,
            };
            let (x, rows) = (x.cuda()?, RowResults::default());
            let found = match gradients.cuda()? {
                Some(gradients) => {
                    classifier::cuda::loss_and_gradients(device, &map, x, 1.0, gradients, rows)?
                }
                None => classifier::cuda::evaluate(device, &map, x, rows)?,
            };
            device.copy(found.numbers(), score.cuda()?)?;
            Ok(())
        })
    })
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(linear_cross_entropy, module)?)
}
