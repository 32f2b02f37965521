use super::*;
use crate::testing::{assert_adjoint, assert_gradient, check_close, check_threads, dot as product, random, turned};

/// Types, with numbers of heads that they allow.
fn cases() -> Vec<(FeatureType, Grouping)> {
    use Grouping::{Heads, Irreps};
    let case = |text: &str, grouping| (text.parse().unwrap(), grouping);
    vec![
        case("0x0", Irreps),
        case("0x0", Heads(2)),
        case("5x0 + 3x1 + 7x2", Irreps),
        case("5x0 + 3x1 + 7x2", Heads(1)),
        case("6x0 + 3x1 + 9x3", Heads(3)),
        case("1x1", Irreps),
        case("4x2", Heads(4)),
    ]
}

const ROWS: [usize; 3] = [0, 1, 67];
const EPSILON: f64 = 1e-3;

fn check<T: Real>(tolerance: f64) {
    for (features, grouping) in cases() {
        for rows in ROWS {
            let (width, count) = (features.dimension(), grouping.count(&features));
            let (a, b): (Vec<T>, Vec<T>) = (random(rows * width, 1), random(rows * width, 2));
            let s: Vec<T> = random(rows * count, 3);
            let (mut found, mut expected) = (vec![T::nan(); s.len()], vec![T::nan(); s.len()]);
            dot(&features, grouping, rows, &a, &b, &mut found).unwrap();
            reference::dot(&features, grouping, rows, &a, &b, &mut expected);
            check_close(&found, &expected, tolerance, "dot");
            let (mut found, mut expected) = (vec![T::nan(); a.len()], vec![T::nan(); a.len()]);
            scale(&features, grouping, rows, &a, &s, &mut found).unwrap();
            reference::scale(&features, grouping, rows, &a, &s, &mut expected);
            check_close(&found, &expected, tolerance, "scale");
            if grouping != Grouping::Irreps {
                continue;
            }
            let mut norms = (vec![T::nan(); s.len()], vec![T::nan(); s.len()]);
            norm(&features, EPSILON, rows, &a, &mut norms.0).unwrap();
            reference::norm(&features, EPSILON, rows, &a, &mut norms.1);
            check_close(&norms.0, &norms.1, tolerance, "norm");
            norm_backward(&features, EPSILON, rows, &a, &s, &mut found).unwrap();
            reference::norm_backward(&features, EPSILON, rows, &a, &s, &mut expected);
            check_close(&found, &expected, 10.0 * tolerance, "norm backward");
        }
    }
}

#[test]
fn fast_equals_reference() {
    check::<f32>(2e-6);
    check::<f64>(1e-14);
}

#[test]
fn gradients() {
    for (features, grouping) in cases() {
        let (rows, width) = (13, features.dimension());
        let count = grouping.count(&features);
        let (a, b): (Vec<f64>, Vec<f64>) = (random(rows * width, 1), random(rows * width, 2));
        let s: Vec<f64> = random(rows * count, 3);
        let mut scalars = vec![0.0; s.len()];
        let (mut da, mut db) = (vec![f64::NAN; a.len()], vec![f64::NAN; a.len()]);
        // Products are linear in each of their factors.
        dot(&features, grouping, rows, &a, &b, &mut scalars).unwrap();
        let wanted = (Some(&mut da[..]), Some(&mut db[..]));
        dot_backward(&features, grouping, rows, &a, &b, &s, wanted.0, wanted.1).unwrap();
        assert_adjoint("da", product(&scalars, &s), &a, &da);
        assert_adjoint("db", product(&scalars, &s), &b, &db);
        let (mut y, mut ds) = (vec![0.0; a.len()], vec![f64::NAN; s.len()]);
        scale(&features, grouping, rows, &a, &s, &mut y).unwrap();
        let wanted = (Some(&mut da[..]), Some(&mut ds[..]));
        scale_backward(&features, grouping, rows, &a, &s, &b, wanted.0, wanted.1).unwrap();
        assert_adjoint("dx", product(&y, &b), &a, &da);
        assert_adjoint("dfactors", product(&y, &b), &s, &ds);
        // Nothing is wanted.
        dot_backward(&features, grouping, rows, &a, &b, &s, None, None).unwrap();
        scale_backward(&features, grouping, rows, &a, &s, &b, None, None).unwrap();
        if grouping == Grouping::Irreps {
            norm_backward(&features, EPSILON, rows, &a, &s, &mut da).unwrap();
            let value = |a: &[f64]| {
                let mut y = vec![0.0; s.len()];
                norm(&features, EPSILON, rows, a, &mut y).unwrap();
                product(&y, &s)
            };
            assert_gradient("norm", value, &a, &da);
        }
    }
}

#[test]
fn norms_and_products_do_not_depend_on_the_frame() {
    let features: FeatureType = "4x0 + 2x1 + 6x3".parse().unwrap();
    let (rows, width) = (31, features.dimension());
    let (a, b): (Vec<f64>, Vec<f64>) = (random(rows * width, 1), random(rows * width, 2));
    let angles: Vec<f64> = random::<f64>(rows, 3).iter().map(|a| 7.0 * a).collect();
    for grouping in [Grouping::Irreps, Grouping::Heads(2)] {
        let products = |a: &[f64], b: &[f64]| {
            let mut y = vec![0.0; rows * grouping.count(&features)];
            dot(&features, grouping, rows, a, b, &mut y).unwrap();
            y
        };
        let moved = [&a, &b].map(|values| turned(&features, values, &angles));
        check_close(&products(&moved[0], &moved[1]), &products(&a, &b), 1e-13, "dot");
    }
}

#[test]
fn settings_and_lengths_are_checked_and_threads_do_not_matter() {
    let features: FeatureType = "4x0 + 6x1".parse().unwrap();
    let x: Vec<f32> = random(500 * 16, 1);
    let mut y = vec![0.0; 500 * 10];
    for heads in [0, 3, 4] {
        let problem = dot(&features, Grouping::Heads(heads), 500, &x, &x, &mut y).unwrap_err();
        assert!(matches!(problem, KernelError::Setting { .. }), "{problem}");
    }
    for epsilon in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(norm(&features, epsilon, 500, &x, &mut y).is_err());
    }
    assert!(norm(&features, 1e-8, 499, &x, &mut y).is_err());
    assert!(scale(&features, Grouping::Irreps, 500, &x, &y[1..], &mut x.clone()).is_err());
    check_threads(|| {
        let (mut y, mut z) = (y.clone(), x.clone());
        norm(&features, 1e-8, 500, &x, &mut y).unwrap();
        scale(&features, Grouping::Irreps, 500, &x, &y, &mut z).unwrap();
        z
    });
}
