mod reference;

use super::*;
use crate::mesh_product::{Expand, MeshProduct, Project};
use crate::testing::{check_close, check_gradient, check_threads, dot, random, turned};

/// Unequal meshes, one without vertices.
const MESHES: [u32; 5] = [0, 131, 131, 132, 230];

fn operators() -> Vec<Diffusion> {
    let op = |text: &str, columns: &[usize], gradients| Diffusion {
        features: text.parse().unwrap(),
        columns: columns.to_vec(),
        gradients,
    };
    vec![
        op("3x0 + 2x1 + 1x2", &[9, 5, 4], true),
        op("3x0 + 2x1 + 1x2", &[9, 5, 4], false),
        op("4x0", &[37], true),
        op("2x0", &[6, 3], true),
        op("5x2", &[3, 0, 35], false),
        op("2x1", &[0, 4], true),
    ]
}

struct Case<T> {
    mass: Vec<T>,
    bases: Vec<T>,
    eigenvalues: Vec<T>,
    log_times: Vec<T>,
    bands: Vec<T>,
    x: Vec<T>,
    dy: Vec<T>,
}

impl<T: Real> Case<T> {
    fn new(op: &Diffusion) -> Self {
        let vertices = MESHES[4] as usize;
        let positive = |count, seed| {
            let values: Vec<T> = random(count, seed);
            values.into_iter().map(|value| value.abs()).collect()
        };
        Self {
            mass: positive(vertices, 1),
            bases: random(vertices * op.basis_width(), 2),
            eigenvalues: positive(4 * op.columns.iter().sum::<usize>(), 3),
            log_times: random(op.parameter_count(), 4),
            bands: random(op.parameter_count(), 5),
            x: random(vertices * op.features.dimension(), 6),
            dy: random(vertices * op.output().dimension(), 7),
        }
    }

    fn spectra(&self) -> Spectra<&[T]> {
        Spectra { mass: &self.mass, bases: &self.bases, eigenvalues: &self.eigenvalues, packed: &[] }
    }

    fn filters(&self) -> Filters<&[T]> {
        Filters { log_times: &self.log_times, bands: &self.bands }
    }

    /// Output and saved spectrum.
    fn forward(&self, op: &Diffusion) -> (Vec<T>, Vec<T>) {
        let mut y = vec![T::nan(); self.dy.len()];
        let mut saved = vec![T::nan(); op.saved_count(4)];
        let (spectra, Filters { log_times, bands }) = (self.spectra(), self.filters());
        let (mesh_offsets, x, to, saved_to) = (&MESHES[..], &self.x[..], &mut y[..], &mut saved[..]);
        Forward { op, mesh_offsets, spectra, log_times, bands, x, y: to, saved: saved_to }.on_host().unwrap();
        (y, saved)
    }
}

fn check_fast<T: Real>(tolerance: f64) {
    for op in operators() {
        let case = Case::<T>::new(&op);
        let (y, _) = case.forward(&op);
        let mut expected = vec![T::zero(); y.len()];
        reference::forward(&op, &MESHES, case.spectra(), case.filters(), &case.x, &mut expected);
        check_close(&y, &expected, tolerance, "forward");
    }
}

#[test]
fn fast_equals_reference() {
    check_fast::<f32>(2e-5);
    check_fast::<f64>(1e-12);
}

#[test]
fn gradients_equal_finite_differences() {
    for op in operators() {
        let case = Case::<f64>::new(&op);
        let (_, saved) = case.forward(&op);
        let mut dx = vec![f64::NAN; case.x.len()];
        let count = op.parameter_count();
        // Gradients are added to.
        let (mut dlog_times, mut dbands) = (vec![1.0; count], vec![2.0; count]);
        let run = |dx: Option<&mut [f64]>, dlog_times: &mut [f64], dbands: &mut [f64]| {
            let (op, mesh_offsets, spectra, Filters { log_times, bands }) =
                (&op, &MESHES[..], case.spectra(), case.filters());
            let (saved, dy) = (&saved[..], &case.dy[..]);
            Backward { op, mesh_offsets, spectra, log_times, bands, saved, dy, dx, dlog_times, dbands }
                .on_host()
                .unwrap();
        };
        run(Some(&mut dx), &mut dlog_times, &mut dbands);
        let alone = (dlog_times.clone(), dbands.clone());
        (dlog_times, dbands) = (vec![1.0; count], vec![2.0; count]);
        run(None, &mut dlog_times, &mut dbands);
        assert_eq!((&dlog_times, &dbands), (&alone.0, &alone.1));
        let loss = |changed: Case<f64>| dot(&changed.forward(&op).0, &case.dy);
        check_gradient(&case.x, &dx, |x| loss(Case { x: x.to_vec(), ..Case::new(&op) }));
        let dlog_times: Vec<f64> = dlog_times.iter().map(|d| d - 1.0).collect();
        check_gradient(&case.log_times, &dlog_times, |values| {
            loss(Case { log_times: values.to_vec(), ..Case::new(&op) })
        });
        let dbands: Vec<f64> = dbands.iter().map(|d| d - 2.0).collect();
        check_gradient(&case.bands, &dbands, |values| loss(Case { bands: values.to_vec(), ..Case::new(&op) }));
    }
}

#[test]
fn diffusion_is_a_projection_a_filter_and_an_expansion() {
    let diffusion = Diffusion { features: "3x2".parse().unwrap(), columns: vec![2, 3, 5], gradients: false };
    let case = Case::<f64>::new(&diffusion);
    let vertices = MESHES[4] as usize;
    // After the bases of orders 0 and 1.
    let basis = &case.bases[vertices * 8..vertices * 18];
    let settings = MeshProduct { features: diffusion.features.clone(), columns: 5, complex: true };
    let (op, mesh_offsets, weights) = (&settings, &MESHES[..], Some(&case.mass[..]));
    let mut s = vec![0.0; 4 * 5 * 6];
    Project { op, mesh_offsets, basis, weights, x: &case.x[..], y: &mut s[..] }.on_host().unwrap();
    for (row, s) in s.chunks_exact_mut(6).enumerate() {
        for (place, s) in s.iter_mut().enumerate() {
            let lambda = case.eigenvalues[4 * 5 + row];
            let (log_time, band) = (case.log_times[place % 3], case.bands[place % 3]);
            let u = lambda * log_time.exp();
            *s *= (-u).exp() * (1.0 + band * u);
        }
    }
    let mut expected = vec![0.0; case.dy.len()];
    Expand { op, mesh_offsets, basis, weights: None, y: &s[..], x: &mut expected[..] }.on_host().unwrap();
    check_close(&case.forward(&diffusion).0, &expected, 1e-12, "composition");
}

#[test]
fn diffusion_commutes_with_changes_of_frames() {
    let op = &operators()[0];
    let case = Case::<f64>::new(op);
    let vertices = MESHES[4] as usize;
    let angles: Vec<f64> = random(vertices, 8);
    // Every column of a basis is a field of its order.
    let mut moved = case.bases.clone();
    let mut start = vertices * op.columns[0];
    let orders = [(1, op.columns[1]), (2, op.columns[2]), (1, op.columns[0])];
    for (order, columns) in orders {
        let mut multiplicities = [0; 3];
        multiplicities[order] = columns;
        let fields = FeatureType::new(&multiplicities);
        let range = start..start + vertices * 2 * columns;
        let values = turned(&fields, &case.bases[range.clone()], &angles);
        moved[range.clone()].copy_from_slice(&values);
        start = range.end;
    }
    let seen = Case { bases: moved, x: turned(&op.features, &case.x, &angles), ..Case::new(op) };
    let here = turned(&op.output(), &case.forward(op).0, &angles);
    check_close(&seen.forward(op).0, &here, 1e-12, "frames");
}

#[test]
fn settings_and_lengths_are_checked_and_threads_do_not_matter() {
    let op = &operators()[0];
    let case = Case::<f32>::new(op);
    check_threads(|| case.forward(op));
    let run = |op: &Diffusion, case: &Case<f32>| {
        let mut y = vec![0.0; case.dy.len()];
        let mut saved = vec![0.0; operators()[0].saved_count(4)];
        let (spectra, Filters { log_times, bands }) = (case.spectra(), case.filters());
        let (mesh_offsets, x, to, saved_to) = (&MESHES[..], &case.x[..], &mut y[..], &mut saved[..]);
        Forward { op, mesh_offsets, spectra, log_times, bands, x, y: to, saved: saved_to }.on_host()
    };
    assert!(run(op, &case).is_ok());
    let fewer = Diffusion { columns: vec![9, 5], ..op.clone() };
    assert!(matches!(run(&fewer, &case), Err(KernelError::Setting { .. })));
    let mut short = Case::<f32>::new(op);
    short.bases.pop();
    assert!(run(op, &short).is_err());
    let mut short = Case::<f32>::new(op);
    short.log_times.pop();
    assert!(run(op, &short).is_err());
}
