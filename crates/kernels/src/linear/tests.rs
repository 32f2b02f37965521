pub(crate) mod reference;

use super::*;
use crate::Real;
use crate::testing::{assert_adjoint, assert_gradient, check_threads, difference, dot, random};

fn operators() -> Vec<Linear> {
    [(5, 7, true), (16, 256, true), (1, 1, false), (80, 33, false), (300, 230, true), (0, 3, true), (3, 0, true)]
        .map(|(inputs, outputs, bias)| Linear { inputs, outputs, bias })
        .into()
}

/// `y`, `dx`, `dweight` and `dbias`; the last two on top of what was there.
fn run<T: Real>(op: &Linear, rows: usize, slow: bool) -> [Vec<T>; 4] {
    let x: Vec<T> = random(rows * op.inputs, 1);
    let weight: Vec<T> = random(op.weight_count(), 2);
    let bias: Vec<T> = random(op.bias_count(), 3);
    let dy: Vec<T> = random(rows * op.outputs, 4);
    let (mut y, mut dx) = (vec![T::nan(); dy.len()], vec![T::nan(); x.len()]);
    let (mut dw, mut db) = (random(weight.len(), 5), random(bias.len(), 6));
    if slow {
        reference::forward(op, rows, &x, &weight, &bias, &mut y);
        reference::backward(op, rows, &x, &weight, &dy, &mut dx, &mut dw, &mut db);
    } else {
        let (x, weight, dx) = (&x[..], &weight[..], Some(&mut dx[..]));
        Forward { op, rows, x, weight, bias: &bias[..], y: &mut y[..] }.on_host().unwrap();
        let (dweight, dbias) = (&mut dw[..], &mut db[..]);
        Backward { op, rows, x, weight, dy: &dy[..], dx, dweight, dbias }.on_host().unwrap();
    }
    [y, dx, dw, db]
}

fn check<T: Real>(tolerance: f64) {
    for op in operators() {
        for rows in [0, 1, 131, 400] {
            let (fast, slow) = (run::<T>(&op, rows, false), run::<T>(&op, rows, true));
            for (fast, slow) in fast.iter().zip(&slow) {
                assert!(difference(fast, slow) < tolerance, "{op:?} on {rows} rows");
            }
        }
    }
}

#[test]
fn fast_equals_reference() {
    check::<f32>(5e-6);
    check::<f64>(1e-13);
}

#[test]
fn gradients_equal_finite_differences_and_are_adjoint() {
    let op = operators()[0];
    let rows = 9;
    let x: Vec<f64> = random(rows * op.inputs, 1);
    let weight: Vec<f64> = random(op.weight_count(), 2);
    let bias: Vec<f64> = random(op.bias_count(), 3);
    let dy: Vec<f64> = random(rows * op.outputs, 4);
    let value = |x: &[f64], weight: &[f64], bias: &[f64]| {
        let mut y = vec![0.0; dy.len()];
        Forward { op: &op, rows, x, weight, bias, y: &mut y[..] }.on_host().unwrap();
        dot(&y, &dy)
    };
    let mut dx = vec![0.0; x.len()];
    let (mut dw, mut db) = (vec![0.0; weight.len()], vec![0.0; bias.len()]);
    let (op, to, dweight, dbias) = (&op, Some(&mut dx[..]), &mut dw[..], &mut db[..]);
    Backward { op, rows, x: &x[..], weight: &weight[..], dy: &dy[..], dx: to, dweight, dbias }.on_host().unwrap();
    assert_gradient("dx", |x| value(x, &weight, &bias), &x, &dx);
    assert_gradient("dweight", |w| value(&x, w, &bias), &weight, &dw);
    assert_gradient("dbias", |b| value(&x, &weight, b), &bias, &db);
    // Without bias it is linear in the input and in the weights.
    let output = value(&x, &weight, &vec![0.0; bias.len()]);
    assert_adjoint("dx", output, &x, &dx);
    assert_adjoint("dweight", output, &weight, &dw);
}

#[test]
fn threads_do_not_change_a_bit() {
    for op in operators() {
        check_threads(|| run::<f32>(&op, 1000, false).concat());
    }
}
