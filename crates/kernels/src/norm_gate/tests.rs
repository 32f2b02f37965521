mod reference;

use super::*;
use crate::activation;
use crate::elementwise::rotate;
use crate::testing::{check_close, check_gradient, check_threads, dot, random};

fn kinds() -> [FeatureType; 5] {
    ["0x0", "3x0", "5x0 + 17x1 + 3x2", "2x1", "4x0 + 1x3"].map(|text| text.parse().unwrap())
}

fn norm_pair<T: Real>(op: &NormNonlinearity, rows: usize, x: &[T], bias: &[T], dy: &[T]) -> [Vec<T>; 3] {
    let (mut y, mut dx, mut dbias) = (vec![T::nan(); x.len()], vec![T::nan(); x.len()], vec![T::one(); bias.len()]);
    NormForward { op, rows, x, bias, y: &mut y[..] }.on_host().unwrap();
    NormBackward { op, rows, x, bias, dy, dx: &mut dx[..], dbias: &mut dbias[..] }.on_host().unwrap();
    [y, dx, dbias]
}

fn gated_pair<T: Real>(op: &GatedNonlinearity, rows: usize, x: &[T], dy: &[T]) -> [Vec<T>; 2] {
    let (mut y, mut dx) = (vec![T::nan(); dy.len()], vec![T::nan(); x.len()]);
    GatedForward { op, rows, x, y: &mut y[..] }.on_host().unwrap();
    GatedBackward { op, rows, x, dy, dx: &mut dx[..] }.on_host().unwrap();
    [y, dx]
}

fn fast_is_reference<T: Real>(tolerance: f64) {
    for kind in kinds() {
        for activation in activation::examples() {
            for vertices in [0, 1, 67, 700] {
                let norm = NormNonlinearity::new(kind.clone(), activation.clone());
                let x: Vec<T> = random(vertices * kind.dimension(), 1);
                let dy: Vec<T> = random(x.len(), 2);
                let bias: Vec<T> = random(rotating_irreps(&kind), 3);
                let [y, dx, dbias] = norm_pair(&norm, vertices, &x, &bias, &dy);
                let (mut ry, mut rdx) = (y.clone(), dx.clone());
                let mut rdbias = vec![T::one(); bias.len()];
                reference::norm_forward(&norm, &x, &bias, &mut ry);
                reference::norm_backward(&norm, &x, &bias, &dy, &mut rdx, &mut rdbias);
                check_close(&y, &ry, tolerance, "norm y");
                check_close(&dx, &rdx, tolerance, "norm dx");
                check_close(&dbias, &rdbias, tolerance, "norm dbias");

                let gated = GatedNonlinearity { output: kind.clone(), activation: activation.clone() };
                let x: Vec<T> = random(vertices * gated.input().dimension(), 4);
                let [y, dx] = gated_pair(&gated, vertices, &x, &dy);
                let (mut ry, mut rdx) = (y.clone(), dx.clone());
                reference::gated_forward(&gated, &x, &mut ry);
                reference::gated_backward(&gated, &x, &dy, &mut rdx);
                check_close(&y, &ry, tolerance, "gated y");
                check_close(&dx, &rdx, tolerance, "gated dx");
            }
        }
    }
}

#[test]
fn fast_equals_reference() {
    fast_is_reference::<f32>(1e-4);
    fast_is_reference::<f64>(1e-12);
}

#[test]
fn gradients_are_those_of_the_values() {
    for kind in kinds() {
        for activation in activation::examples() {
            let vertices = 3;
            let norm = NormNonlinearity::new(kind.clone(), activation.clone());
            let x: Vec<f64> = random(vertices * kind.dimension(), 1);
            let dy: Vec<f64> = random(x.len(), 2);
            let bias: Vec<f64> = random(rotating_irreps(&kind), 3);
            let [_, dx, dbias] = norm_pair(&norm, vertices, &x, &bias, &dy);
            let loss = |x: &[f64], bias: &[f64]| {
                let mut y = vec![0.0; x.len()];
                NormForward { op: &norm, rows: vertices, x, bias, y: &mut y[..] }.on_host().unwrap();
                dot(&y, &dy)
            };
            check_gradient(&x, &dx, |x| loss(x, &bias));
            let dbias: Vec<f64> = dbias.iter().map(|d| d - 1.0).collect();
            check_gradient(&bias, &dbias, |bias| loss(&x, bias));

            let gated = GatedNonlinearity { output: kind.clone(), activation };
            let x: Vec<f64> = random(vertices * gated.input().dimension(), 4);
            let [_, dx] = gated_pair(&gated, vertices, &x, &dy);
            check_gradient(&x, &dx, |x| {
                let mut y = vec![0.0; dy.len()];
                GatedForward { op: &gated, rows: vertices, x, y: &mut y[..] }.on_host().unwrap();
                dot(&y, &dy)
            });
        }
    }
}

#[test]
fn rotating_first_or_last_is_the_same_for_every_angle() {
    let vertices = 50;
    let angles: Vec<f64> = random(vertices, 9).iter().map(|a: &f64| 4.0 * a).collect();
    let turn = |kind: &FeatureType, x: &[f64]| {
        let mut y = vec![0.0; x.len()];
        rotate(kind, &angles, x, &mut y).unwrap();
        y
    };
    for kind in kinds() {
        for activation in activation::examples() {
            let norm = NormNonlinearity::new(kind.clone(), activation.clone());
            let x: Vec<f64> = random(vertices * kind.dimension(), 1);
            let bias: Vec<f64> = random(rotating_irreps(&kind), 3);
            let apply = |x: &[f64]| norm_pair(&norm, vertices, x, &bias, x)[0].clone();
            check_close(&apply(&turn(&kind, &x)), &turn(&kind, &apply(&x)), 1e-12, "norm");

            let gated = GatedNonlinearity { output: kind.clone(), activation };
            let x: Vec<f64> = random(vertices * gated.input().dimension(), 4);
            let dy = vec![0.0; vertices * kind.dimension()];
            let apply = |x: &[f64]| gated_pair(&gated, vertices, x, &dy)[0].clone();
            let turned = apply(&turn(&gated.input(), &x));
            check_close(&turned, &turn(&kind, &apply(&x)), 1e-12, "gated");
        }
    }
}

#[test]
fn zero_vectors_have_finite_gradients() {
    let kind: FeatureType = "1x1".parse().unwrap();
    let config = NormNonlinearity::new(kind, Activation::Relu);
    let [y, dx, dbias] = norm_pair(&config, 1, &[0f32, 0.0], &[-0.5], &[1.0, 2.0]);
    assert!(y == [0.0, 0.0] && dx == [0.0, 0.0] && dbias == [1.0]);
}

#[test]
fn threads_do_not_change_a_bit() {
    let kind = &kinds()[2];
    let config = NormNonlinearity::new(kind.clone(), Activation::Tanh);
    let x: Vec<f32> = random(2000 * kind.dimension(), 1);
    let bias: Vec<f32> = random(rotating_irreps(kind), 2);
    check_threads(|| norm_pair(&config, 2000, &x, &bias, &x));
}

#[test]
fn settings_and_lengths_are_checked() {
    let kind: FeatureType = "1x0 + 2x1".parse().unwrap();
    let mut op = NormNonlinearity::new(kind.clone(), Activation::Relu);
    let (x, y) = (&[0f32; 5][..], &mut [0f32; 5][..]);
    assert!(NormForward { op: &op, rows: 1, x, bias: &[0f32][..], y: &mut *y }.on_host().is_err());
    op.epsilon = 0.0;
    assert!(NormForward { op: &op, rows: 1, x, bias: &[0f32; 2][..], y: &mut *y }.on_host().is_err());
    let op = &GatedNonlinearity { output: kind, activation: Activation::Relu };
    assert!(GatedForward { op, rows: 1, x, y }.on_host().is_err());
}
