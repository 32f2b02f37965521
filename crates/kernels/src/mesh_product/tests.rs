mod reference;

use super::*;
use crate::Real;
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

fn project<T: Real>(
    op: &MeshProduct,
    basis: &[T],
    weights: Option<&[T]>,
    x: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    Project { op, mesh_offsets: &MESHES, basis, weights, x, y }.on_host()
}

fn expand<T: Real>(op: &MeshProduct, basis: &[T], y: &[T], x: &mut [T]) -> Result<(), KernelError> {
    Expand { op, mesh_offsets: &MESHES, basis, weights: None, y, x }.on_host()
}

fn check_fast<T: Real>(tolerance: f64) {
    for op in operators() {
        let Case { basis, weights, x, y } = case::<T>(&op);
        for weights in [None, Some(&weights[..])] {
            let (mut found, mut expected) = (vec![T::nan(); y.len()], vec![T::nan(); y.len()]);
            project(&op, &basis, weights, &x, &mut found).unwrap();
            reference::project(&op, &MESHES, &basis, weights, &x, &mut expected);
            check_close(&found, &expected, tolerance, "project");
        }
        let (mut found, mut expected) = (vec![T::nan(); x.len()], vec![T::nan(); x.len()]);
        expand(&op, &basis, &y, &mut found).unwrap();
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
    for op in operators() {
        let Case { basis, weights, x, y } = case::<f64>(&op);
        let (mut px, mut py) = (vec![f64::NAN; x.len()], vec![f64::NAN; y.len()]);
        for weights in [None, Some(&weights[..])] {
            project(&op, &basis, weights, &x, &mut py).unwrap();
            Expand { op: &op, mesh_offsets: &MESHES, basis: &basis[..], weights, y: &y[..], x: &mut px[..] }
                .on_host()
                .unwrap();
            assert_adjoint("project", dot(&py, &y), &x, &px);
        }
        expand(&op, &basis, &y, &mut px).unwrap();
        project(&op, &basis, None, &x, &mut py).unwrap();
        assert_adjoint("expand", dot(&px, &x), &y, &py);
    }
}

#[test]
fn a_complex_basis_is_equivariant() {
    let op = &operators()[2];
    let Case { basis, x, y, .. } = case::<f64>(op);
    let angles: Vec<f64> = random(MESHES[4] as usize, 5);
    // Fields of order 2 over the columns, so that the basis itself rotates with the frames.
    let fields = FeatureType::new(&[0, 0, op.columns]);
    let moved = turned(&fields, &basis, &angles);
    let (mut here, mut there) = (y.clone(), y.clone());
    project(op, &basis, None, &x, &mut here).unwrap();
    let seen = turned(&op.features, &x, &angles);
    project(op, &moved, None, &seen, &mut there).unwrap();
    check_close(&there, &here, 1e-12, "project");
    let (mut here, mut there) = (x.clone(), x.clone());
    expand(op, &basis, &y, &mut here).unwrap();
    expand(op, &moved, &y, &mut there).unwrap();
    check_close(&there, &turned(&op.features, &here, &angles), 1e-12, "expand");
}

#[test]
fn settings_and_lengths_are_checked_and_threads_do_not_matter() {
    let op = &operators()[2];
    let Case { basis, weights, x, y } = case::<f32>(op);
    check_threads(|| {
        let (mut px, mut py) = (x.clone(), y.clone());
        project(op, &basis, Some(&weights), &x, &mut py).unwrap();
        expand(op, &basis, &y, &mut px).unwrap();
        (px, py)
    });
    let mut to = y.clone();
    for text in ["5x0", "1x0 + 4x1", "3x1 + 2x2", "0x0"] {
        let other = MeshProduct { features: text.parse().unwrap(), ..op.clone() };
        let problem = project(&other, &basis, None, &x, &mut to);
        assert!(matches!(problem, Err(KernelError::Setting { .. })), "{text}");
    }
    let short = Some(&weights[1..]);
    assert!(project(op, &basis, short, &x, &mut to).is_err());
    assert!(project(op, &basis[1..], None, &x, &mut to).is_err());
    let (basis, x) = (&basis[..], &x[..]);
    for mesh_offsets in [&[][..], &[0, 5, 3, 460]] {
        assert!(Project { op, mesh_offsets, basis, weights: None, x, y: &mut to[..] }.on_host().is_err());
    }
    assert!(expand(op, basis, &y[1..], &mut x.to_vec()).is_err());
}
