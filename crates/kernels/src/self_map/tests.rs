pub(crate) mod reference;

use super::*;
use crate::Real;
use crate::testing::{assert_adjoint, assert_gradient, check_threads, difference, dot, random, wrong_length};

fn operators() -> Vec<SelfMap> {
    let op = |input: &str, output: &str, bias| SelfMap {
        input: input.parse().unwrap(),
        output: output.parse().unwrap(),
        bias,
    };
    vec![
        op("16x0 + 16x1 + 16x2", "16x0 + 16x1 + 16x2", true),
        op("3x0", "16x0 + 16x1 + 16x2", true),
        op("16x0 + 17x1 + 5x3", "33x0 + 3x3", false),
        op("4x1", "5x0 + 6x2", true),
        op("4x0", "0x0", true),
        op("0x0", "2x0 + 1x1", true),
    ]
}

struct Results<T> {
    y: Vec<T>,
    dx: Vec<T>,
    dweight: Vec<T>,
    dbias: Vec<T>,
}

fn run<T: Real>(op: &SelfMap, vertices: usize, weight: &[T], slow: bool) -> Results<T> {
    let x: Vec<T> = random(vertices * op.input.dimension(), 1);
    let dy: Vec<T> = random(vertices * op.output.dimension(), 2);
    let bias: Vec<T> = random(op.bias_count(), 3);
    let (mut y, mut dx) = (vec![T::nan(); dy.len()], vec![T::nan(); x.len()]);
    // Gradients are added to what is there.
    let mut dweight: Vec<T> = random(weight.len(), 4);
    let mut dbias: Vec<T> = random(bias.len(), 5);
    let (dw, db) = (&mut dweight[..], &mut dbias[..]);
    if slow {
        reference::forward(op, vertices, &x, weight, &bias, &mut y);
        reference::backward(op, vertices, &x, weight, &dy, &mut dx, dw, db);
    } else {
        let (rows, x, dx) = (vertices, &x[..], Some(&mut dx[..]));
        Forward { op, rows, x, weight, bias: &bias[..], y: &mut y[..] }.on_host().unwrap();
        Backward { op, rows, x, weight, dy: &dy[..], dx, dweight: dw, dbias: db }.on_host().unwrap();
    }
    Results { y, dx, dweight, dbias }
}

fn check<T: Real>(tolerance: f64) {
    for op in operators() {
        for vertices in [0, 1, 73, 301] {
            let weight: Vec<T> = random(op.parameter_count(), 6);
            let fast = run(&op, vertices, &weight, false);
            let slow = run(&op, vertices, &weight, true);
            assert!(difference(&fast.y, &slow.y) < tolerance, "{op:?}");
            assert!(difference(&fast.dx, &slow.dx) < tolerance, "{op:?}");
            assert!(difference(&fast.dweight, &slow.dweight) < tolerance, "{op:?}");
            assert!(difference(&fast.dbias, &slow.dbias) < tolerance, "{op:?}");
        }
    }
}

#[test]
fn fast_equals_reference() {
    check::<f32>(3e-6);
    check::<f64>(1e-13);
}

#[test]
fn gradients_equal_finite_differences_and_are_adjoint() {
    for op in operators() {
        let vertices = 11;
        let x: Vec<f64> = random(vertices * op.input.dimension(), 1);
        let weight: Vec<f64> = random(op.parameter_count(), 2);
        let dy: Vec<f64> = random(vertices * op.output.dimension(), 3);
        let bias: Vec<f64> = random(op.bias_count(), 4);
        let value = |x: &[f64], weight: &[f64], bias: &[f64]| {
            let mut y = vec![0.0; dy.len()];
            Forward { op: &op, rows: vertices, x, weight, bias, y: &mut y[..] }.on_host().unwrap();
            dot(&y, &dy)
        };
        let [mut dx, mut dw, mut db] = [&x, &weight, &bias].map(|like| vec![0.0; like.len()]);
        let (op, rows, to, dweight, dbias) = (&op, vertices, Some(&mut dx[..]), &mut dw[..], &mut db[..]);
        Backward { op, rows, x: &x[..], weight: &weight[..], dy: &dy[..], dx: to, dweight, dbias }.on_host().unwrap();
        assert_gradient("dx", |x| value(x, &weight, &bias), &x, &dx);
        assert_gradient("dweight", |w| value(&x, w, &bias), &weight, &dw);
        assert_gradient("dbias", |b| value(&x, &weight, b), &bias, &db);
        // Without bias it is linear in the input and in the weights.
        let output = value(&x, &weight, &vec![0.0; bias.len()]);
        assert_adjoint("dx", output, &x, &dx);
        assert_adjoint("dweight", output, &weight, &dw);
    }
}

#[test]
fn commutes_with_rotations() {
    let op = &operators()[2];
    let x: Vec<f64> = random(op.input.dimension(), 1);
    let weight: Vec<f64> = random(op.parameter_count(), 2);
    let apply = |x: &[f64]| {
        let mut y = vec![0.0; op.output.dimension()];
        Forward { op, rows: 1, x, weight: &weight[..], bias: &[][..], y: &mut y[..] }.on_host().unwrap();
        y
    };
    let phase = [0.7f64.cos(), 0.7f64.sin()];
    let turn = crate::aggregate::reference::rotated::<f64>;
    let before = apply(&turn(&op.input, phase, &x));
    let after = turn(&op.output, phase, &apply(&x));
    assert!(difference(&before, &after) < 1e-13);
}

#[test]
fn threads_do_not_change_a_bit() {
    for op in operators() {
        let weight: Vec<f32> = random(op.parameter_count(), 6);
        check_threads(|| {
            let results = run(&op, 500, &weight, false);
            [results.y, results.dx, results.dweight, results.dbias].concat()
        });
    }
}

#[test]
fn lengths_are_checked() {
    let op = &operators()[0];
    let (x, none, y) = (&[0.0f32; 80][..], &[][..], &mut [0.0; 80][..]);
    let result = Forward { op, rows: 1, x, weight: none, bias: none, y }.on_host();
    assert_eq!(wrong_length(result.unwrap_err()), ("weight", 0, 1280));
}
