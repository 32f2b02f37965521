pub(crate) mod reference;

use super::*;
use crate::cross_entropy::{IGNORE, Score};
use crate::cuda::ProductMode;
use crate::testing::{check_close, check_gradient, check_threads, random, wrong_length};
use crate::{Scratch, bf16};

/// Sizes with one and several class blocks, slabs and tiles, none of them a round number.
const SIZES: [(usize, usize, usize); 9] = [
    (0, 3, 4),
    (1, 1, 1),
    (5, 2, 0),
    (7, 3, 5),
    (130, 257, 3),
    (700, 9, 17),
    (1030, 300, 6),
    (515, 4100, 5),
    (3, 0, 2),
];

struct Problem<T> {
    rows: usize,
    classes: usize,
    channels: usize,
    features: Vec<T>,
    weight: Vec<T>,
    bias: Vec<T>,
    labels: Vec<u32>,
    smoothing: f64,
}

#[derive(Debug, Clone, PartialEq)]
struct Solution<T> {
    score: Score,
    features: Vec<T>,
    weight: Vec<T>,
    bias: Vec<T>,
    predictions: Vec<u32>,
}

impl<T: Real> Problem<T> {
    fn new((rows, classes, channels): (usize, usize, usize)) -> Self {
        let label = |row: usize| match row % 5 {
            3 => IGNORE,
            _ if classes == 0 => IGNORE,
            _ => (row * 31 % classes) as u32,
        };
        Self {
            rows,
            classes,
            channels,
            features: random(rows * channels, 1),
            weight: random(classes * channels, 2),
            bias: random(classes, 3),
            labels: (0..rows).map(label).collect(),
            smoothing: 0.0,
        }
    }

    fn classifier(&self) -> Classifier<'_, T> {
        Classifier {
            channels: self.channels,
            weight: &self.weight,
            bias: &self.bias,
            targets: Targets { smoothing: self.smoothing, ..Targets::new(self.classes, &self.labels) },
        }
    }

    /// Gradients start with NaN, to see that they are overwritten.
    fn solve(
        &self,
        solver: impl FnOnce(&Classifier<'_, T>, &[T], Gradients<&mut [T]>, Rows<'_>) -> Score,
    ) -> Solution<T> {
        let mut solution = Solution {
            score: Score::default(),
            features: vec![T::nan(); self.features.len()],
            weight: vec![T::nan(); self.weight.len()],
            bias: vec![T::nan(); self.bias.len()],
            predictions: vec![77; self.rows],
        };
        let gradients =
            Gradients { features: &mut solution.features[..], weight: &mut solution.weight, bias: &mut solution.bias };
        let rows = Rows { predictions: Some(&mut solution.predictions), ranks: None };
        solution.score = solver(&self.classifier(), &self.features, gradients, rows);
        solution
    }

    fn fast(&self) -> Solution<T> {
        self.fast_in(ProductMode::F32)
    }

    fn fast_in(&self, products: ProductMode) -> Solution<T> {
        self.solve(|classifier, features, gradients, rows| {
            let scratch = &mut Scratch::new();
            loss_and_gradients(classifier, features, 1.5, gradients, rows, products, scratch).unwrap()
        })
    }

    fn exact(&self) -> Solution<T> {
        self.solve(|classifier, features, gradients, rows| {
            reference::loss_and_gradients(classifier, features, 1.5, gradients, rows).unwrap()
        })
    }
}

fn compare<T: Real>(tolerance: f64) {
    for (size, smoothing) in SIZES.into_iter().flat_map(|size| [(size, 0.0), (size, 0.2)]) {
        let problem = Problem::<T> { smoothing, ..Problem::new(size) };
        let (expected, found) = (problem.exact(), problem.fast());
        let what = format!("{size:?}, smoothing {smoothing}");
        let loss = (found.score.loss - expected.score.loss).abs();
        assert!(loss <= tolerance * (1.0 + expected.score.loss), "{what}");
        assert_eq!(found.score.counted, expected.score.counted, "{what}");
        assert_eq!(found.score.correct, expected.score.correct, "{what}");
        assert_eq!(found.predictions, expected.predictions, "{what}");
        check_close(&found.features, &expected.features, tolerance, &what);
        check_close(&found.weight, &expected.weight, tolerance, &what);
        check_close(&found.bias, &expected.bias, tolerance, &what);
    }
}

#[test]
fn fast_equals_reference() {
    compare::<f32>(3e-6);
    compare::<f64>(1e-13);
}

/// With features and weights that bf16 holds exactly, only the gradient of the logits is rounded.
#[test]
fn bf16_rounds_the_factors_and_nothing_else() {
    let eighths = |values: &mut [f32]| values.iter_mut().for_each(|v| *v = (*v * 8.0).round() / 8.0);
    for (size, smoothing) in SIZES.into_iter().flat_map(|size| [(size, 0.0), (size, 0.2)]) {
        let mut problem = Problem::<f32> { smoothing, ..Problem::new(size) };
        eighths(&mut problem.features);
        eighths(&mut problem.weight);
        let (expected, found) = (problem.exact(), problem.fast_in(ProductMode::Bf16));
        let what = format!("{size:?}, smoothing {smoothing}");
        let loss = (found.score.loss - expected.score.loss).abs();
        assert!(loss <= 3e-6 * (1.0 + expected.score.loss), "{what}");
        assert_eq!(found.score.correct, expected.score.correct, "{what}");
        assert_eq!(found.predictions, expected.predictions, "{what}");
        check_close(&found.bias, &expected.bias, 3e-6, &what);
        let both = [(&found.features, &expected.features), (&found.weight, &expected.weight)];
        for (found, expected) in both {
            let size = |most: f32, e: &f32| most.max(e.abs());
            let largest = expected.iter().fold(0.0, size);
            for (f, e) in found.iter().zip(expected) {
                assert!((f - e).abs() <= largest / 128.0 + 1e-7, "{what}: {f} is not {e}");
            }
        }
    }
}

#[test]
fn bf16_is_used_for_f32_and_many_classes_where_the_cpu_has_it() {
    let problem = Problem::<f32>::new((300, 300, 7));
    let (rounded, exact) = (problem.fast_in(ProductMode::Bf16), problem.fast());
    assert_eq!(rounded != exact, bf16::is_supported());
    let scale = exact.score.loss;
    assert!((rounded.score.loss - scale).abs() < 0.01 * scale);
    let few = Problem::<f32>::new((300, 32, 7));
    assert_eq!(few.fast_in(ProductMode::Bf16), few.fast());
    let double = Problem::<f64>::new((300, 300, 7));
    assert_eq!(double.fast_in(ProductMode::Bf16), double.fast());
}

#[test]
fn evaluation_has_the_score_of_training_and_right_ranks() {
    for size in SIZES {
        let problem = Problem::<f64>::new(size);
        let (mut ranks, mut expected) = (vec![5; problem.rows], vec![6; problem.rows]);
        let (mut predictions, classifier) = (vec![5; problem.rows], problem.classifier());
        let rows = Rows { predictions: Some(&mut predictions), ranks: Some(&mut ranks) };
        let score = evaluate(&classifier, &problem.features, rows, &mut Scratch::new()).unwrap();
        let rows = Rows { predictions: None, ranks: Some(&mut expected) };
        reference::evaluate(&classifier, &problem.features, rows).unwrap();
        assert_eq!(ranks, expected, "{size:?}");
        assert_eq!(ranks.iter().filter(|&&rank| rank == 0).count(), score.correct);
        let trained = problem.fast();
        assert_eq!(score, trained.score, "{size:?}");
        assert_eq!(predictions, trained.predictions, "{size:?}");
    }
}

#[test]
fn gradients_are_those_of_the_loss() {
    for smoothing in [0.0, 0.2] {
        check_gradients(smoothing);
    }
}

fn check_gradients(smoothing: f64) {
    let problem = Problem::<f64> { smoothing, ..Problem::new((6, 5, 3)) };
    let weights = [1.0, 0.0, 2.0, 0.5, 3.0];
    let weighted = |features: &[f64], weight: &[f64], bias: &[f64], gradients: Option<Gradients<&mut [f64]>>| {
        let mut classifier = problem.classifier();
        classifier.targets.class_weights = Some(&weights);
        let classifier = Classifier { weight, bias, ..classifier };
        let (rows, scratch) = (Rows::default(), &mut Scratch::new());
        match gradients {
            Some(gradients) => {
                let products = ProductMode::F32;
                loss_and_gradients(&classifier, features, 1.0, gradients, rows, products, scratch)
            }
            None => evaluate(&classifier, features, rows, scratch),
        }
        .unwrap()
        .loss
    };
    let (h, w, b) = (&problem.features, &problem.weight, &problem.bias);
    let (mut dh, mut dw, mut db) = (vec![0.0; h.len()], vec![0.0; w.len()], vec![0.0; b.len()]);
    let gradients = Gradients { features: &mut dh[..], weight: &mut dw, bias: &mut db };
    weighted(h, w, b, Some(gradients));
    check_gradient(h, &dh, |h| weighted(h, w, b, None));
    check_gradient(w, &dw, |w| weighted(h, w, b, None));
    check_gradient(b, &db, |b| weighted(h, w, b, None));
}

#[test]
fn rows_without_label_are_left_out_even_with_nan() {
    let mut problem = Problem::<f32>::new((300, 600, 4));
    let clean = problem.fast();
    for row in (0..problem.rows).filter(|row| row % 5 == 3) {
        problem.features[row * 4] = f32::NAN;
    }
    let found = problem.fast();
    assert_eq!(found.score, clean.score);
    // Not so the gradient of the weights: P^T h meets 0 * NaN there.
    assert_eq!(found.bias, clean.bias);
    problem.labels.fill(IGNORE);
    problem.features.fill(1.0);
    let none = problem.fast();
    assert_eq!(none.score, Score::default());
    assert!(none.features.iter().all(|&d| d == 0.0));
    assert!(none.weight.iter().chain(&none.bias).all(|&d| d == 0.0));
}

#[test]
fn without_weight_or_upstream_gradient_all_gradients_are_zero() {
    let problem = Problem::<f32>::new((40, 300, 3));
    for (dloss, weight) in [(0.0, 1.0), (1.0, 0.0)] {
        let weights = vec![weight; problem.classes];
        let solution = problem.solve(|classifier, features, gradients, rows| {
            let mut classifier = *classifier;
            classifier.targets.class_weights = Some(&weights);
            let (products, scratch) = (ProductMode::F32, &mut Scratch::new());
            loss_and_gradients(&classifier, features, dloss, gradients, rows, products, scratch).unwrap()
        });
        assert!(solution.features.iter().all(|&d| d == 0.0));
        assert!(solution.weight.iter().chain(&solution.bias).all(|&d| d == 0.0));
    }
}

#[test]
fn nan_gives_a_nan_loss() {
    let mut problem = Problem::<f32>::new((9, 300, 2));
    problem.features[0] = f32::NAN;
    assert!(problem.fast().score.loss.is_nan());
}

#[test]
fn threads_do_not_change_a_bit() {
    for size in [(1000, 40, 8), (600, 2000, 8)] {
        let problem = Problem::<f32> { smoothing: 0.1, ..Problem::new(size) };
        check_threads(|| problem.fast());
        check_threads(|| problem.fast_in(ProductMode::Bf16));
    }
}

#[test]
fn scratch_holds_a_tile_and_not_all_logits() {
    let problem = Problem::<f32>::new((3000, 3000, 1));
    let mut scratch = Scratch::new();
    evaluate(&problem.classifier(), &problem.features, Rows::default(), &mut scratch).unwrap();
    assert!(scratch.bytes() < 3000 * 3000 * 4 / 5, "{}", scratch.bytes());
}

#[test]
fn wrong_arguments_are_named() {
    let mut problem = Problem::<f32>::new((4, 3, 2));
    let mut short = [0; 3];
    let rows = Rows { predictions: None, ranks: Some(&mut short) };
    let scratch = &mut Scratch::new();
    let result = evaluate(&problem.classifier(), &problem.features, rows, scratch);
    assert_eq!(wrong_length(result.unwrap_err()), ("ranks", 3, 4));
    let result = evaluate(&problem.classifier(), &[0.0; 7], Rows::default(), scratch);
    assert_eq!(wrong_length(result.unwrap_err()), ("features", 7, 8));
    problem.labels[2] = 3;
    let result = evaluate(&problem.classifier(), &problem.features, Rows::default(), scratch);
    assert!(matches!(result, Err(KernelError::Label { row: 2, label: 3, .. })));
}
