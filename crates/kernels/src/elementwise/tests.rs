mod reference;

use super::*;
use crate::testing::{check_close, check_gradient, check_threads, dot, random};

fn kinds() -> [FeatureType; 5] {
    ["0x0", "3x0", "5x0 + 2x1 + 3x2", "2x1", "4x0 + 1x3"].map(|text| text.parse().unwrap())
}

#[test]
fn sums_and_multiples() {
    let (a, b): (Vec<f32>, Vec<f32>) = (random(20_001, 1), random(20_001, 2));
    let mut y = vec![0.0; a.len()];
    let (a, b) = (&a[..], &b[..]);
    Add { a, b, y: &mut y[..] }.on_host().unwrap();
    assert!((0..a.len()).all(|i| y[i] == a[i] + b[i]));
    Accumulate { a: b, y: &mut y[..] }.on_host().unwrap();
    assert!((0..a.len()).all(|i| y[i] == a[i] + b[i] + b[i]));
    Scale { factor: 3.0, x: a, y: &mut y[..] }.on_host().unwrap();
    assert!((0..a.len()).all(|i| y[i] == 3.0 * a[i]));
    assert!(Add { a, b: &b[1..], y: &mut y[..] }.on_host().is_err());
    assert!(Add { a, b, y: &mut y[1..] }.on_host().is_err());
    assert!(Accumulate { a: &a[1..], y: &mut y[..] }.on_host().is_err());
    assert!(Scale { factor: 1.0, x: &a[1..], y: &mut y[..] }.on_host().is_err());
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
                let (first, second, rows) = (&first, &second, vertices);
                Concatenate { first, second, rows, a: &a[..], b: &b[..], y: &mut y[..] }.on_host().unwrap();
                reference::concatenate(first, second, vertices, &a, &b, &mut expected);
                assert_eq!(y, expected, "{first} and {second}");
                let (mut da, mut db) = (vec![f64::NAN; a.len()], vec![f64::NAN; b.len()]);
                Split { first, second, rows, y: &y[..], a: &mut da[..], b: &mut db[..] }.on_host().unwrap();
                assert!(da == a && db == b, "{first} and {second}");
            }
        }
    }
    let (first, second, rows, x) = (&kinds()[1], &kinds()[1], 1, [0f32; 6]);
    assert!(Concatenate { first, second, rows, a: &x[..3], b: &x[..3], y: &mut [0.0; 5][..] }.on_host().is_err());
    assert!(Split { first, second, rows, y: &x[..], a: &mut [0.0; 3][..], b: &mut [0.0; 2][..] }.on_host().is_err());
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
            let (slice, rows) = (&config, vertices);
            Select { slice, rows, x: &x[..], y: &mut y[..] }.on_host().unwrap();
            reference::slice(&config, &output, vertices, &x, &mut expected);
            assert_eq!(y, expected);
            let dy: Vec<f64> = random(y.len(), 2);
            let mut dx = vec![f64::NAN; x.len()];
            Unselect { slice, rows, dy: &dy[..], dx: &mut dx[..] }.on_host().unwrap();
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
        Concatenate { first: kind, second: kind, rows: 500, a: &x[..], b: &y[..], y: &mut both[..] }.on_host().unwrap();
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
        Softmax { width, rows, x: &x[..], y: &mut y[..] }.on_host().unwrap();
        reference::softmax(width, &x, &mut expected);
        check_close(&y, &expected, 1e-14, "softmax");
        let dy: Vec<f64> = random(x.len(), 2);
        let mut dx = vec![f64::NAN; x.len()];
        SoftmaxBackward { width, rows, y: &y[..], dy: &dy[..], dx: &mut dx[..] }.on_host().unwrap();
        check_gradient(&x, &dx, |x| {
            let mut y = vec![0.0; x.len()];
            Softmax { width, rows, x, y: &mut y[..] }.on_host().unwrap();
            dot(&y, &dy)
        });
    }
    for (width, rows, x, y) in [(3, 2, 7, 7), (0, 7, 7, 7), (7, 1, 7, 6)] {
        let (x, y) = (&vec![0.0; x][..], &mut vec![0.0; y][..]);
        assert!(Softmax { width, rows, x, y }.on_host().is_err());
    }
}

#[test]
fn maxima_of_blocks_and_their_gradient() {
    // Two rows of three blocks; the last column has a tie, and a largest value that is negative.
    let x = [1.0, 5.0, -2.0, 3.0, 4.0, -2.0, 2.0, 6.0, -3.0];
    let x: Vec<f64> = x.iter().copied().chain(x.iter().map(|x| -x)).collect();
    let mut y = vec![f64::NAN; 6];
    let (blocks, width, rows) = (3, 3, 2);
    BlockMaximum { blocks, width, rows, x: &x[..], y: &mut y[..] }.on_host().unwrap();
    assert_eq!(y, [3.0, 6.0, -2.0, -1.0, -4.0, 3.0]);
    let dy = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let mut dx = vec![f64::NAN; x.len()];
    BlockMaximumBackward { blocks, width, rows, x: &x[..], y: &y[..], dy: &dy[..], dx: &mut dx[..] }.on_host().unwrap();
    let first = [0.0, 0.0, 3.0, 1.0, 0.0, 0.0, 0.0, 2.0, 0.0];
    let second = [4.0, 0.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0, 6.0];
    assert_eq!(dx, [first, second].concat());
    for (blocks, count) in [(0, 0), (2, 7)] {
        let (x, y) = (&vec![0.0; count][..], &mut [0.0; 3][..]);
        assert!(BlockMaximum { blocks, width: 3, rows: 1, x, y }.on_host().is_err());
    }
}
