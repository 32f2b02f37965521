use super::*;
use crate::testing::{assert_adjoint, check_close, check_threads, dot, random, turned};

/// Unequal meshes, one without vertices.
const MESHES: [u32; 5] = [0, 131, 131, 132, 460];

fn operators() -> Vec<MeshProduct> {
    let op = |text: &str, columns, complex| MeshProduct { features: text.parse().unwrap(), columns, complex };
    vec![
        op("3x0 + 2x1", 37, false),
        op("7x0", 1, false),
        op("5x2", 33, true),
        op("1x1", 3, true),
        op("3x1", 0, true),
        op("0x0", 4, false),
    ]
}

struct Case<T> {
    basis: Vec<T>,
    weights: Vec<T>,
    x: Vec<T>,
    y: Vec<T>,
}

fn case<T: Real>(op: &MeshProduct) -> Case<T> {
    let (vertices, width) = (MESHES[4] as usize, op.features.dimension());
    Case {
        basis: random(vertices * op.stride(), 1),
        weights: random(vertices, 2),
        x: random(vertices * width, 3),
        y: random(4 * op.columns * width, 4),
    }
}

fn check_fast<T: Real>(tolerance: f64) {
    let mut scratch = Scratch::new();
    for op in operators() {
        let Case { basis, weights, x, y } = case::<T>(&op);
        for weights in [None, Some(&weights[..])] {
            let (mut found, mut expected) = (vec![T::nan(); y.len()], vec![T::nan(); y.len()]);
            project(&op, &MESHES, &basis, weights, &x, &mut found, &mut scratch).unwrap();
            reference::project(&op, &MESHES, &basis, weights, &x, &mut expected);
            check_close(&found, &expected, tolerance, "project");
        }
        let (mut found, mut expected) = (vec![T::nan(); x.len()], vec![T::nan(); x.len()]);
        expand(&op, &MESHES, &basis, &y, &mut found, &mut scratch).unwrap();
        reference::expand(&op, &MESHES, &basis, &y, &mut expected);
        check_close(&found, &expected, tolerance, "expand");
    }
}

#[test]
fn fast_equals_reference() {
    check_fast::<f32>(1e-5);
    check_fast::<f64>(1e-13);
}

#[test]
fn backward_passes_are_adjoint() {
    let mut scratch = Scratch::new();
    for op in operators() {
        let Case { basis, weights, x, y } = case::<f64>(&op);
        let (mut px, mut py) = (vec![f64::NAN; x.len()], vec![f64::NAN; y.len()]);
        for weights in [None, Some(&weights[..])] {
            project(&op, &MESHES, &basis, weights, &x, &mut py, &mut scratch).unwrap();
            project_backward(&op, &MESHES, &basis, weights, &y, &mut px, &mut scratch).unwrap();
            assert_adjoint("project", dot(&py, &y), &x, &px);
        }
        expand(&op, &MESHES, &basis, &y, &mut px, &mut scratch).unwrap();
        expand_backward(&op, &MESHES, &basis, &x, &mut py, &mut scratch).unwrap();
        assert_adjoint("expand", dot(&px, &x), &y, &py);
    }
}

#[test]
fn a_complex_basis_is_equivariant() {
    let op = &operators()[2];
    let Case { basis, x, y, .. } = case::<f64>(op);
    let (vertices, mut scratch) = (MESHES[4] as usize, Scratch::new());
    let angles: Vec<f64> = random(vertices, 5);
    // Fields of order 2 over the columns, so that the basis itself rotates with the frames.
    let fields = FeatureType::new(&[0, 0, op.columns]);
    let moved = turned(&fields, &basis, &angles);
    let (mut here, mut there) = (y.clone(), y.clone());
    project(op, &MESHES, &basis, None, &x, &mut here, &mut scratch).unwrap();
    let seen = turned(&op.features, &x, &angles);
    project(op, &MESHES, &moved, None, &seen, &mut there, &mut scratch).unwrap();
    check_close(&there, &here, 1e-12, "project");
    let (mut here, mut there) = (x.clone(), x.clone());
    expand(op, &MESHES, &basis, &y, &mut here, &mut scratch).unwrap();
    expand(op, &MESHES, &moved, &y, &mut there, &mut scratch).unwrap();
    check_close(&there, &turned(&op.features, &here, &angles), 1e-12, "expand");
}

#[test]
fn settings_and_lengths_are_checked_and_threads_do_not_matter() {
    let op = &operators()[2];
    let Case { basis, weights, x, y } = case::<f32>(op);
    check_threads(|| {
        let (mut px, mut py, mut scratch) = (x.clone(), y.clone(), Scratch::new());
        project(op, &MESHES, &basis, Some(&weights), &x, &mut py, &mut scratch).unwrap();
        expand(op, &MESHES, &basis, &y, &mut px, &mut scratch).unwrap();
        (px, py)
    });
    let (mut to, mut scratch) = (y.clone(), Scratch::new());
    for text in ["5x0", "1x0 + 4x1", "3x1 + 2x2", "0x0"] {
        let other = MeshProduct { features: text.parse().unwrap(), ..op.clone() };
        let problem = project(&other, &MESHES, &basis, None, &x, &mut to, &mut scratch);
        assert!(matches!(problem, Err(KernelError::Setting { .. })), "{text}");
    }
    let short = Some(&weights[1..]);
    assert!(project(op, &MESHES, &basis, short, &x, &mut to, &mut scratch).is_err());
    assert!(project(op, &MESHES, &basis[1..], None, &x, &mut to, &mut scratch).is_err());
    assert!(project(op, &[], &basis, None, &x, &mut to, &mut scratch).is_err());
    assert!(project(op, &[0, 5, 3, 460], &basis, None, &x, &mut to, &mut scratch).is_err());
    assert!(expand(op, &MESHES, &basis, &y[1..], &mut x.clone(), &mut scratch).is_err());
}
