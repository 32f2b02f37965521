pub(crate) mod reference;

use super::*;
use crate::Real;
use crate::testing::{check_close, check_gradient, check_threads, random, turned, wrong_length};

const PENALTIES: [Penalty; 2] = [Penalty::MeanSquare, Penalty::L1];

fn kind(text: &str) -> FeatureType {
    text.parse().unwrap()
}

fn compare<T: Real>(tolerance: f64) {
    for (text, vertices) in [("3x0", 0), ("1x1", 1), ("5x0 + 3x2", 7), ("2x0 + 17x1 + 1x3", 1000)] {
        let features = kind(text);
        let count = vertices * features.dimension();
        let (x, mut t) = (random::<T>(count, 1), random::<T>(count, 2));
        for (t, x) in t.iter_mut().zip(&x).skip(count / 2).step_by(3) {
            *t = *x;
        }
        let mask: Vec<bool> = (0..vertices).map(|v| v % 3 != 1).collect();
        for penalty in PENALTIES {
            for mask in [None, Some(&mask[..])] {
                let loss = Regression { features: &features, penalty, mask };
                let expected = reference::forward(&loss, &x, &t).unwrap();
                let found = forward(&loss, &x, &t).unwrap();
                assert!((found - expected).abs() <= tolerance * (1.0 + expected), "{text}");
                let mut expected = vec![T::nan(); count];
                let mut found = expected.clone();
                reference::backward(&loss, &x, &t, 900.0, &mut expected).unwrap();
                backward(&loss, &x, &t, 900.0, &mut found).unwrap();
                check_close(&found, &expected, tolerance, text);
            }
        }
    }
}

#[test]
fn fast_equals_reference() {
    compare::<f32>(1e-6);
    compare::<f64>(1e-14);
}

#[test]
fn the_gradient_is_that_of_the_loss() {
    let features = kind("2x0 + 2x1 + 1x3");
    let (x, t) = (random::<f64>(5 * 8, 3), random::<f64>(5 * 8, 4));
    let mask = [true, false, true, true, false];
    for penalty in PENALTIES {
        let loss = Regression { features: &features, penalty, mask: Some(&mask) };
        let mut gradient = vec![0.0; x.len()];
        backward(&loss, &x, &t, 2.0, &mut gradient).unwrap();
        check_gradient(&x, &gradient, |x| 2.0 * forward(&loss, x, &t).unwrap());
    }
}

#[test]
fn both_losses_are_gauge_invariant() {
    let features = kind("3x0 + 4x1 + 2x2 + 1x5");
    let vertices = 200;
    let count = vertices * features.dimension();
    let (x, t) = (random::<f64>(count, 5), random::<f64>(count, 6));
    let angles: Vec<f64> = random::<f64>(vertices, 7).iter().map(|a| 3.0 * a).collect();
    for penalty in PENALTIES {
        let loss = Regression { features: &features, penalty, mask: None };
        let here = forward(&loss, &x, &t).unwrap();
        let (x, t) = (turned(&features, &x, &angles), turned(&features, &t, &angles));
        let there = forward(&loss, &x, &t).unwrap();
        assert!((here - there).abs() <= 1e-12 * here, "{penalty:?}: {here}, {there}");
    }
}

#[test]
fn equal_features_and_masked_vertices_have_gradient_zero() {
    let features = kind("1x0 + 1x1");
    let (x, t) = ([1.0f32, 2.0, 3.0, f32::NAN, 5.0, 6.0], [1.0f32, 2.0, 3.0, 4.0, 5.0, 5.0]);
    let mask = [true, false];
    for penalty in PENALTIES {
        let loss = Regression { features: &features, penalty, mask: Some(&mask) };
        assert_eq!(forward(&loss, &x, &t).unwrap(), 0.0);
        let mut gradient = [1.0; 6];
        backward(&loss, &x, &t, 1.0, &mut gradient).unwrap();
        assert_eq!(gradient, [0.0; 6]);
        let nothing = Regression { mask: Some(&[false, false]), ..loss };
        assert_eq!(forward(&nothing, &x, &t).unwrap(), 0.0);
        let everything = Regression { mask: None, ..loss };
        assert!(forward(&everything, &x, &t).unwrap().is_nan());
        backward(&everything, &x, &t, 1.0, &mut gradient).unwrap();
        assert!(gradient[3].is_nan() && gradient[0] == 0.0);
    }
}

#[test]
fn wrong_sizes_are_named() {
    let features = kind("1x1");
    let loss = Regression { features: &features, penalty: Penalty::L1, mask: None };
    let wrong = |loss: &Regression<'_>, x: &[f32], t: &[f32]| wrong_length(forward(loss, x, t).unwrap_err());
    let (buffer, found, _) = wrong(&loss, &[0.0; 3], &[0.0; 3]);
    assert_eq!((buffer, found), ("prediction", 3));
    assert_eq!(wrong(&loss, &[0.0; 4], &[0.0; 2]), ("target", 2, 4));
    let masked = Regression { mask: Some(&[true; 3]), ..loss };
    assert_eq!(wrong(&masked, &[0.0; 4], &[0.0; 4]).2, 6);
}

#[test]
fn threads_do_not_change_a_bit() {
    let features = kind("3x0 + 2x1");
    let (x, t) = (random::<f32>(7 * 5000, 8), random::<f32>(7 * 5000, 9));
    let loss = Regression { features: &features, penalty: Penalty::L1, mask: None };
    check_threads(|| {
        let mut gradient = vec![0.0; x.len()];
        backward(&loss, &x, &t, 1.0, &mut gradient).unwrap();
        (forward(&loss, &x, &t).unwrap().to_bits(), gradient)
    });
}
