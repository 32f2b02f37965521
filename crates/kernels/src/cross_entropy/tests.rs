pub(crate) mod reference;

use super::*;
use crate::testing::{check_close, check_gradient, check_threads, random, wrong_length};

/// Labels that leave out every fifth row.
fn labels(rows: usize, classes: usize) -> Vec<u32> {
    (0..rows).map(|row| if row % 5 == 3 { IGNORE } else { (row * 7 % classes) as u32 }).collect()
}

fn compare<T: Real>(tolerance: f64) {
    for (rows, classes) in [(0, 3), (1, 1), (1, 2), (7, 33), (300, 5), (64, 1000)] {
        let mut logits: Vec<T> = random(rows * classes, 1);
        logits.iter_mut().for_each(|z| *z *= T::of(8.0));
        let labels = labels(rows, classes);
        let weights: Vec<T> = (0..classes).map(|k| T::of((k % 4) as f64)).collect();
        let weighted = Some(&weights[..]);
        for (class_weights, smoothing) in [(None, 0.0), (weighted, 0.0), (None, 0.4), (weighted, 0.1)] {
            let targets = Targets { classes, labels: &labels, class_weights, smoothing };
            let expected = reference::forward(&targets, &logits).unwrap();
            let found = forward(&targets, &logits).unwrap();
            assert!((found.loss - expected.loss).abs() <= tolerance * (1.0 + expected.loss));
            assert_eq!((found.correct, found.counted), (expected.correct, expected.counted));
            let mut expected = vec![T::nan(); logits.len()];
            let mut found = expected.clone();
            reference::backward(&targets, &logits, 0.7, &mut expected).unwrap();
            backward(&targets, &logits, 0.7, &mut found).unwrap();
            check_close(&found, &expected, tolerance, "dlogits");
        }
    }
}

#[test]
fn fast_equals_reference() {
    compare::<f32>(2e-6);
    compare::<f64>(1e-14);
}

#[test]
fn the_gradient_is_that_of_the_loss() {
    let (rows, classes) = (6, 5);
    let (logits, labels) = (random::<f64>(rows * classes, 2), labels(rows, classes));
    for smoothing in [0.0, 0.2] {
        let targets = Targets { classes, labels: &labels, class_weights: Some(&[1.0, 0.0, 2.0, 0.5, 3.0]), smoothing };
        let mut gradient = vec![0.0; logits.len()];
        backward(&targets, &logits, 3.0, &mut gradient).unwrap();
        check_gradient(&logits, &gradient, |z| 3.0 * forward(&targets, z).unwrap().loss);
    }
}

#[test]
fn smoothing_spreads_a_share_of_the_target_over_all_classes() {
    let (ln2, ln3) = (2f64.ln(), 3f64.ln());
    let targets = Targets { smoothing: 0.3, ..Targets::new(3, &[1]) };
    // Probabilities 1/6, 2/6 and 3/6, targets 0.1, 0.8 and 0.1.
    let logits = [0.0, ln2, ln3];
    let loss = forward(&targets, &logits).unwrap().loss;
    let expected = 0.1 * (ln2 + ln3) + 0.8 * ln3 + 0.1 * ln2;
    assert!((loss - expected).abs() < 1e-14, "{loss} is not {expected}");
    let mut gradient = [0.0; 3];
    backward(&targets, &logits, 6.0, &mut gradient).unwrap();
    let expected = [1.0 - 0.6, 2.0 - 4.8, 3.0 - 0.6];
    check_close(&gradient, &expected, 1e-14, "gradient");
}

#[test]
fn without_a_counted_row_loss_and_gradient_are_zero() {
    let logits = [f32::NAN, 1.0, 2.0, 3.0];
    let cases: [(&[u32], Option<&[f32]>); 2] = [(&[IGNORE, IGNORE], None), (&[1, 1], Some(&[1.0, 0.0]))];
    for (labels, class_weights) in cases {
        let targets = Targets { classes: 2, labels, class_weights, smoothing: 0.1 };
        assert_eq!(forward(&targets, &logits).unwrap().loss, 0.0);
        let mut gradient = [1.0; 4];
        backward(&targets, &logits, 1.0, &mut gradient).unwrap();
        assert_eq!(gradient, [0.0; 4]);
    }
}

#[test]
fn nan_gives_nan_and_is_never_correct() {
    let targets = Targets::new(2, &[0, 1]);
    let score = forward(&targets, &[f64::NAN, f64::NAN, 0.0, 1.0]).unwrap();
    assert!(score.loss.is_nan());
    assert_eq!((score.correct, score.counted), (1, 2));
}

#[test]
fn far_apart_logits_neither_overflow_nor_vanish() {
    let targets = Targets::new(3, &[0, 2]);
    let logits = [1e30f32, 0.0, -1e30, 500.0, f32::NEG_INFINITY, -500.0];
    assert_eq!(forward(&targets, &logits).unwrap().loss, 500.0);
    let mut gradient = [0.0; 6];
    backward(&targets, &logits, 2.0, &mut gradient).unwrap();
    assert_eq!(gradient, [0.0, 0.0, 0.0, 1.0, 0.0, -1.0]);
}

#[test]
fn ties_go_to_the_lower_class() {
    let mut predictions = [9; 3];
    predict(3, &[1.0, 1.0, 0.0, 0.0, 2.0, 2.0, 5.0, 1.0, 5.0], &mut predictions).unwrap();
    assert_eq!(predictions, [0, 1, 0]);
    let mut wide = vec![0.0f32; 100];
    (wide[70], wide[35]) = (1.0, 1.0);
    predict(100, &wide, &mut predictions[..1]).unwrap();
    assert_eq!(predictions[0], 35);
}

#[test]
fn wrong_arguments_are_named() {
    let error = |labels: &[u32], weights: Option<&[f32]>, logits: &[f32]| {
        let targets = Targets { classes: 2, labels, class_weights: weights, smoothing: 0.0 };
        forward(&targets, logits).unwrap_err()
    };
    assert!(matches!(error(&[0, 2], None, &[0.0; 4]), KernelError::Label { row: 1, label: 2, classes: 2, .. }));
    let wrong = wrong_length(error(&[0, 1], None, &[0.0; 5]));
    assert_eq!((wrong.0, wrong.1), ("logits", 5));
    let wrong = wrong_length(error(&[0, 1], Some(&[1.0]), &[0.0; 4]));
    assert_eq!(wrong.0, "class_weights");
    let weight = error(&[0, 1], Some(&[1.0, -1.0]), &[0.0; 4]);
    assert!(matches!(weight, KernelError::Setting { .. }));
    assert!(weight.to_string().contains("-1"), "{weight}");
    for smoothing in [-0.1, 1.0, f64::NAN] {
        let targets = Targets { smoothing, ..Targets::new(2, &[0]) };
        let error = forward(&targets, &[0f32; 2]).unwrap_err();
        assert!(matches!(error, KernelError::Setting { .. }), "{error}");
    }
    let none = Targets::<f32>::new(0, &[0]);
    assert!(forward(&none, &[]).is_err());
    let none = Targets::<f32>::new(0, &[IGNORE]);
    assert_eq!(forward(&none, &[]).unwrap(), Score::default());
    backward(&none, &[], 1.0, &mut []).unwrap();
}

#[test]
fn threads_do_not_change_a_bit() {
    let (rows, classes) = (5000, 13);
    let (logits, labels) = (random::<f32>(rows * classes, 3), labels(rows, classes));
    let targets = Targets::new(classes, &labels);
    check_threads(|| {
        let mut gradient = vec![0.0; logits.len()];
        backward(&targets, &logits, 1.0, &mut gradient).unwrap();
        (forward(&targets, &logits).unwrap().loss.to_bits(), gradient)
    });
}
