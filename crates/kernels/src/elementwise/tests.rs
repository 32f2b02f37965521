use super::*;
use crate::testing::{check_close, check_gradient, check_threads, dot, random};

fn kinds() -> [FeatureType; 5] {
    ["0x0", "3x0", "5x0 + 2x1 + 3x2", "2x1", "4x0 + 1x3"].map(|text| text.parse().unwrap())
}

#[test]
fn sums_and_multiples() {
    let (a, b): (Vec<f32>, Vec<f32>) = (random(20_001, 1), random(20_001, 2));
    let mut y = vec![0.0; a.len()];
    add(&a, &b, &mut y).unwrap();
    assert!((0..a.len()).all(|i| y[i] == a[i] + b[i]));
    accumulate(&b, &mut y).unwrap();
    assert!((0..a.len()).all(|i| y[i] == a[i] + b[i] + b[i]));
    scale(3.0, &a, &mut y).unwrap();
    assert!((0..a.len()).all(|i| y[i] == 3.0 * a[i]));
    assert!(add(&a, &b[1..], &mut y).is_err());
    assert!(add(&a, &b, &mut y[1..]).is_err());
    assert!(accumulate(&a[1..], &mut y).is_err());
    assert!(scale(1.0, &a[1..], &mut y).is_err());
}

#[test]
fn concatenation_interleaves_the_orders_and_split_undoes_it() {
    for first in kinds() {
        for second in kinds() {
            for vertices in [0, 1, 67] {
                let a: Vec<f64> = random(vertices * first.dimension(), 1);
                let b: Vec<f64> = random(vertices * second.dimension(), 2);
                let mut y = vec![f64::NAN; a.len() + b.len()];
                let mut expected = y.clone();
                concatenate(&first, &second, vertices, &a, &b, &mut y).unwrap();
                reference::concatenate(&first, &second, vertices, &a, &b, &mut expected);
                assert_eq!(y, expected, "{first} and {second}");
                let (mut da, mut db) = (vec![f64::NAN; a.len()], vec![f64::NAN; b.len()]);
                split(&first, &second, vertices, &y, &mut da, &mut db).unwrap();
                assert!(da == a && db == b, "{first} and {second}");
            }
        }
    }
    let kind = &kinds()[1];
    assert!(concatenate(kind, kind, 1, &[0f32; 3], &[0.0; 3], &mut [0.0; 5]).is_err());
    assert!(split(kind, kind, 1, &[0f32; 6], &mut [0.0; 3], &mut [0.0; 2]).is_err());
}

#[test]
fn slices_take_the_named_channels_and_have_the_adjoint() {
    let kind: FeatureType = "5x0 + 2x1 + 3x2".parse().unwrap();
    for channels in [vec![0..5, 0..2, 0..3], vec![1..3, 1..1, 2..3], vec![0..0, 1..2], vec![]] {
        let config = Slice { kind: kind.clone(), channels };
        let output = config.output().unwrap();
        for vertices in [0, 1, 130] {
            let x: Vec<f64> = random(vertices * kind.dimension(), 1);
            let mut y = vec![f64::NAN; vertices * output.dimension()];
            let mut expected = y.clone();
            slice(&config, vertices, &x, &mut y).unwrap();
            reference::slice(&config, &output, vertices, &x, &mut expected);
            assert_eq!(y, expected);
            let dy: Vec<f64> = random(y.len(), 2);
            let mut dx = vec![f64::NAN; x.len()];
            unslice(&config, vertices, &dy, &mut dx).unwrap();
            assert!((dot(&y, &dy) - dot(&x, &dx)).abs() < 1e-12);
        }
    }
    let outside = Slice { kind, channels: vec![0..6, 0..2] };
    assert!(matches!(outside.output(), Err(KernelError::Setting { .. })));
}

#[test]
fn rotation_follows_the_irreps_and_its_adjoint_turns_back() {
    for kind in kinds() {
        for vertices in [0, 1, 131] {
            let angles: Vec<f64> = random(vertices, 1).iter().map(|a: &f64| 7.0 * a).collect();
            let x: Vec<f64> = random(vertices * kind.dimension(), 2);
            let mut y = vec![f64::NAN; x.len()];
            let mut expected = y.clone();
            rotate(&kind, &angles, &x, &mut y).unwrap();
            reference::rotate(&kind, &angles, &x, &mut expected);
            check_close(&y, &expected, 1e-14, "rotation");
            let narrow = |values: &[f64]| values.iter().map(|&v| v as f32).collect::<Vec<f32>>();
            let mut y32 = narrow(&y);
            rotate(&kind, &narrow(&angles), &narrow(&x), &mut y32).unwrap();
            check_close(&y32, &narrow(&expected), 3e-6, "rotation in f32");
            let (dy, back): (Vec<f64>, Vec<f64>) = (random(x.len(), 3), angles.iter().map(|a| -a).collect());
            let mut dx = vec![f64::NAN; x.len()];
            rotate(&kind, &back, &dy, &mut dx).unwrap();
            assert!((dot(&y, &dy) - dot(&x, &dx)).abs() < 1e-12);
        }
    }
    assert!(rotate(&kinds()[1], &[0f32], &[0.0; 3], &mut [0.0; 2]).is_err());
}

#[test]
fn threads_do_not_change_a_bit() {
    let kind = &kinds()[2];
    let (angles, x): (Vec<f32>, Vec<f32>) = (random(500, 1), random(500 * kind.dimension(), 2));
    check_threads(|| {
        let mut y = vec![0.0; x.len()];
        rotate(kind, &angles, &x, &mut y).unwrap();
        let mut both = vec![0.0; 2 * x.len()];
        concatenate(kind, kind, 500, &x, &y, &mut both).unwrap();
        both
    });
}

#[test]
fn softmax_is_that_of_each_row_and_its_gradient_is_right() {
    for (rows, width) in [(0, 3), (1, 1), (67, 5)] {
        let x: Vec<f64> = (random::<f64>(rows * width, 1).iter())
            // Exponentials of these overflow without the largest value taken off.
            .map(|x| 800.0 + 3.0 * x)
            .collect();
        let (mut y, mut expected) = (vec![f64::NAN; x.len()], vec![f64::NAN; x.len()]);
        softmax(width, &x, &mut y).unwrap();
        reference::softmax(width, &x, &mut expected);
        check_close(&y, &expected, 1e-14, "softmax");
        let dy: Vec<f64> = random(x.len(), 2);
        let mut dx = vec![f64::NAN; x.len()];
        softmax_backward(width, &y, &dy, &mut dx).unwrap();
        check_gradient(&x, &dx, |x| {
            let mut y = vec![0.0; x.len()];
            softmax(width, x, &mut y).unwrap();
            dot(&y, &dy)
        });
    }
    let x = [0.0; 7];
    assert!(softmax(3, &x, &mut x.clone()).is_err());
    assert!(softmax(0, &x, &mut x.clone()).is_err());
    assert!(softmax(7, &x, &mut [0.0; 6]).is_err());
}

#[test]
fn maxima_of_blocks_and_their_gradient() {
    // Two rows of three blocks; the last column has a tie, and a largest value that is negative.
    let x = [1.0, 5.0, -2.0, 3.0, 4.0, -2.0, 2.0, 6.0, -3.0];
    let x: Vec<f64> = x.iter().copied().chain(x.iter().map(|x| -x)).collect();
    let mut y = vec![f64::NAN; 6];
    block_maximum(3, 3, &x, &mut y).unwrap();
    assert_eq!(y, [3.0, 6.0, -2.0, -1.0, -4.0, 3.0]);
    let dy = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let mut dx = vec![f64::NAN; x.len()];
    block_maximum_backward(3, 3, &x, &y, &dy, &mut dx).unwrap();
    let first = [0.0, 0.0, 3.0, 1.0, 0.0, 0.0, 0.0, 2.0, 0.0];
    let second = [4.0, 0.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0, 6.0];
    assert_eq!(dx, [first, second].concat());
    assert!(block_maximum(0, 3, &[0.0f32; 0], &mut [0.0; 3]).is_err());
    assert!(block_maximum(2, 3, &[0.0f32; 7], &mut [0.0; 3]).is_err());
}
