//! All logits at once, then the reference of [`cross_entropy`](crate::cross_entropy).

use crate::classifier::{Classifier, Gradients, Rows};
use crate::cross_entropy::{IGNORE, Score, predict, reference};
use crate::{KernelError, Real};

/// Loss and gradients for the gradient `dloss` of the loss; see the [module](crate::classifier).
pub fn loss_and_gradients<T: Real>(
    classifier: &Classifier<'_, T>,
    features: &[T],
    dloss: f64,
    gradients: Gradients<&mut [T]>,
    rows: Rows<'_>,
) -> Result<Score, KernelError> {
    classifier.check_gradients(&gradients)?;
    let score = evaluate(classifier, features, rows)?;
    let logits = logits(classifier, features);
    let mut dlogits = vec![T::zero(); logits.len()];
    reference::backward(&classifier.targets, &logits, dloss, &mut dlogits)?;
    let (channels, classes) = (classifier.channels, classifier.targets.classes);
    for values in [&mut *gradients.features, gradients.weight, gradients.bias] {
        values.fill(T::zero());
    }
    for row in 0..classifier.targets.labels.len() {
        for class in 0..classes {
            let p = dlogits[row * classes + class];
            gradients.bias[class] += p;
            for channel in 0..channels {
                gradients.features[row * channels + channel] += p * classifier.weight[class * channels + channel];
                gradients.weight[class * channels + channel] += p * features[row * channels + channel];
            }
        }
    }
    Ok(score)
}

/// Loss, predictions and ranks.
pub fn evaluate<T: Real>(classifier: &Classifier<'_, T>, features: &[T], rows: Rows<'_>) -> Result<Score, KernelError> {
    classifier.check(features)?;
    classifier.check_rows(&rows)?;
    let classes = classifier.targets.classes;
    let logits = logits(classifier, features);
    if let Some(predictions) = rows.predictions {
        predict(classes, &logits, predictions)?;
    }
    if let Some(ranks) = rows.ranks {
        for (row, rank) in ranks.iter_mut().enumerate() {
            let label = classifier.targets.labels[row];
            *rank = IGNORE;
            if label != IGNORE {
                let logits = &logits[row * classes..][..classes];
                let own = logits[label as usize];
                let after = |class: usize, z: T| z < own || (z == own && class >= label as usize);
                let before = |(class, z): &(usize, &T)| !after(*class, **z);
                *rank = logits.iter().enumerate().filter(before).count() as u32;
            }
        }
    }
    reference::forward(&classifier.targets, &logits)
}

fn logits<T: Real>(classifier: &Classifier<'_, T>, features: &[T]) -> Vec<T> {
    let (channels, classes) = (classifier.channels, classifier.targets.classes);
    let mut logits = Vec::with_capacity(classifier.targets.labels.len() * classes);
    for row in 0..classifier.targets.labels.len() {
        for class in 0..classes {
            let terms = (0..channels).map(|channel| {
                features[row * channels + channel].as_f64() * classifier.weight[class * channels + channel].as_f64()
            });
            logits.push(T::of(terms.sum::<f64>() + classifier.bias[class].as_f64()));
        }
    }
    logits
}
