pub(crate) mod reference;

use super::*;
use crate::testing::{assert_adjoint, assert_gradient, check_close, check_threads, dot as product, random, turned};
use crate::{Host, Real};

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
    for (ref features, grouping) in cases() {
        for rows in ROWS {
            let (width, count) = (features.dimension(), grouping.count(features));
            let (ref a, ref b): (Vec<T>, Vec<T>) = (random(rows * width, 1), random(rows * width, 2));
            let s: &Vec<T> = &random(rows * count, 3);
            let (mut found, mut expected) = (vec![T::nan(); s.len()], vec![T::nan(); s.len()]);
            Dot::<Host<_>> { features, grouping, rows, a, b, y: &mut found }.on_host().unwrap();
            reference::dot(features, grouping, rows, a, b, &mut expected);
            check_close(&found, &expected, tolerance, "dot");
            let (mut found, mut expected) = (vec![T::nan(); a.len()], vec![T::nan(); a.len()]);
            Scale::<Host<_>> { features, grouping, rows, x: a, factors: s, y: &mut found }.on_host().unwrap();
            reference::scale(features, grouping, rows, a, s, &mut expected);
            check_close(&found, &expected, tolerance, "scale");
            if grouping != Grouping::Irreps {
                continue;
            }
            let mut norms = (vec![T::nan(); s.len()], vec![T::nan(); s.len()]);
            Norm::<Host<_>> { features, epsilon: EPSILON, rows, x: a, y: &mut norms.0 }.on_host().unwrap();
            reference::norm(features, EPSILON, rows, a, &mut norms.1);
            check_close(&norms.0, &norms.1, tolerance, "norm");
            let pass = NormBackward::<Host<_>> { features, epsilon: EPSILON, rows, x: a, dy: s, dx: &mut found };
            pass.on_host().unwrap();
            reference::norm_backward(features, EPSILON, rows, a, s, &mut expected);
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
    for (ref features, grouping) in cases() {
        let rows = 13;
        let values = |seed| random::<f64>(rows * features.dimension(), seed);
        let (a, b, s) = (&values(1)[..], &values(2)[..], &random::<f64>(rows * grouping.count(features), 3)[..]);
        let dot = |a: &[f64], b: &[f64]| {
            let mut y = vec![f64::NAN; s.len()];
            Dot { features, grouping, rows, a, b, y: &mut y[..] }.on_host().unwrap();
            y
        };
        let scale = |x: &[f64]| {
            let mut y = vec![f64::NAN; x.len()];
            Scale { features, grouping, rows, x, factors: s, y: &mut y[..] }.on_host().unwrap();
            y
        };
        // Products are linear in each of their factors.
        let (product_ab, scaled) = (product(&dot(a, b), s), scale(a));
        assert_adjoint("da", product_ab, a, &scale(b));
        assert_adjoint("db", product_ab, b, &scaled);
        assert_adjoint("dx", product(&scaled, b), a, &scale(b));
        assert_adjoint("dfactors", product(&scaled, b), s, &dot(a, b));
        if grouping == Grouping::Irreps {
            let mut dx = vec![f64::NAN; a.len()];
            NormBackward { features, epsilon: EPSILON, rows, x: a, dy: s, dx: &mut dx[..] }.on_host().unwrap();
            let value = |x: &[f64]| {
                let mut y = vec![0.0; s.len()];
                Norm { features, epsilon: EPSILON, rows, x, y: &mut y[..] }.on_host().unwrap();
                product(&y, s)
            };
            assert_gradient("norm", value, a, &dx);
        }
    }
}

#[test]
fn norms_and_products_do_not_depend_on_the_frame() {
    let features: &FeatureType = &"4x0 + 2x1 + 6x3".parse().unwrap();
    let (rows, width) = (31, features.dimension());
    let (a, b): (Vec<f64>, Vec<f64>) = (random(rows * width, 1), random(rows * width, 2));
    let angles: Vec<f64> = random::<f64>(rows, 3).iter().map(|a| 7.0 * a).collect();
    for grouping in [Grouping::Irreps, Grouping::Heads(2)] {
        let products = |a: &[f64], b: &[f64]| {
            let mut y = vec![0.0; rows * grouping.count(features)];
            Dot { features, grouping, rows, a, b, y: &mut y[..] }.on_host().unwrap();
            y
        };
        let moved = [&a, &b].map(|values| turned(features, values, &angles));
        check_close(&products(&moved[0], &moved[1]), &products(&a, &b), 1e-13, "dot");
    }
}

#[test]
fn arguments_are_checked_and_threads_do_not_matter() {
    let (features, rows): (&FeatureType, _) = (&"4x0 + 6x1".parse().unwrap(), 500);
    let x: &[f32] = &random(rows * 16, 1);
    let y = &mut vec![0.0; rows * 10][..];
    for heads in [0, 3, 4] {
        let problem = Dot { features, grouping: Grouping::Heads(heads), rows, a: x, b: x, y: &mut *y }.on_host();
        assert!(matches!(problem, Err(KernelError::Setting { .. })), "{problem:?}");
    }
    for epsilon in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(Norm { features, epsilon, rows, x, y: &mut *y }.on_host().is_err());
    }
    assert!(Norm { features, epsilon: 1e-8, rows: 499, x, y: &mut *y }.on_host().is_err());
    let grouping = Grouping::Irreps;
    assert!(Scale { features, grouping, rows, x, factors: &y[1..], y: &mut x.to_vec()[..] }.on_host().is_err());
    check_threads(|| {
        let (mut norms, mut scaled) = (y.to_vec(), x.to_vec());
        Norm { features, epsilon: 1e-8, rows, x, y: &mut norms[..] }.on_host().unwrap();
        Scale { features, grouping, rows, x, factors: &norms[..], y: &mut scaled[..] }.on_host().unwrap();
        scaled
    });
}
