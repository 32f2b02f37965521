mod reference;

use super::*;
use crate::Real;
use crate::incidence::IncidenceParts;
use crate::testing::{assert_adjoint, assert_gradient, check_close, dot, gauge_graphs, random};
use gemcnn_mesh::GaugeGraph;

/// Maps and masses of a batch in memory.
pub(super) struct Batch<T> {
    coupling: IncidenceArrays<T>,
    copies: IncidenceArrays<T>,
    vertex: Vec<T>,
    node: Vec<T>,
    stiffness: Vec<T>,
}

/// A positive Laplacian with random weights on the edges of a graph. The last vertices of a larger graph are copies of
/// the first one.
fn batch<T: Real>(graph: &GaugeGraph) -> Batch<T> {
    let vertices = graph.vertex_count();
    let copies = if vertices > 20 { 3 } else { 0 };
    let is_copy = |v: usize| v + copies >= vertices;
    let (mut offsets, mut indices, mut weights, mut angles) = (vec![0], vec![], vec![], vec![]);
    let mut stiffness = vec![0.0; vertices];
    for (p, stiffness) in stiffness.iter_mut().enumerate() {
        for edge in graph.row(p) {
            let q = graph.neighbours()[edge] as usize;
            if is_copy(p) || is_copy(q) {
                continue;
            }
            let weight = 0.2 + ((p * q % 7) as f64) / 7.0;
            indices.push(q as u32);
            weights.push(weight);
            angles.push(graph.transport()[edge]);
            *stiffness += weight;
        }
        offsets.push(indices.len() as u32);
    }
    let coupling = IncidenceParts {
        columns: vertices,
        offsets: &offsets,
        indices: &indices,
        angles: Some(&angles),
        weights: Some(&weights),
    };
    let nodes: Vec<u32> = (0..vertices).map(|v| if is_copy(v) { 0 } else { v as u32 }).collect();
    let own: Vec<u32> = (0..=vertices as u32).collect();
    let turns: Vec<f64> = (0..vertices).map(|v| if is_copy(v) { v as f64 } else { 0.0 }).collect();
    let copies =
        IncidenceParts { columns: vertices, offsets: &own, indices: &nodes, angles: Some(&turns), weights: None };
    let vertex: Vec<f64> = (0..vertices).map(|v| (0.5 + (v % 5) as f64) / vertices as f64).collect();
    let mut node = vertex.clone();
    for v in (0..vertices).filter(|&v| is_copy(v)) {
        node[0] += vertex[v];
        node[v] = 1.0;
    }
    let cast = |values: Vec<f64>| values.into_iter().map(T::of).collect();
    Batch {
        coupling: IncidenceArrays::union(&[coupling]).unwrap(),
        copies: IncidenceArrays::union(&[copies]).unwrap(),
        vertex: cast(vertex),
        node: cast(node),
        stiffness: cast(stiffness),
    }
}

impl<T: Real> Batch<T> {
    fn heat(&self) -> Heat<&IncidenceArrays<T>, &[T]> {
        let masses = Masses { vertex: &self.vertex[..], node: &self.node[..], stiffness: &self.stiffness[..] };
        Heat { coupling: &self.coupling, copies: &self.copies, masses }
    }

    fn forward(&self, op: &Implicit, mix: &[T], x: &[T]) -> (Vec<T>, Vec<T>) {
        let mut y = vec![T::nan(); x.len()];
        let mut saved = vec![T::nan(); op.times.len() * x.len()];
        Forward { op, heat: self.heat(), mix, x, y: &mut y[..], saved: &mut saved[..] }.on_host().unwrap();
        (y, saved)
    }

    fn backward(&self, op: &Implicit, mix: &[T], saved: &[T], dy: &[T]) -> (Vec<T>, Vec<T>) {
        let (mut dx, mut dmix) = (vec![T::nan(); dy.len()], vec![T::zero(); mix.len()]);
        let (heat, to) = (self.heat(), Some(&mut dx[..]));
        Backward { op, heat, mix, saved, dy, dx: to, dmix: &mut dmix[..] }.on_host().unwrap();
        (dx, dmix)
    }
}

fn operators() -> Vec<Implicit> {
    let op = |features: &str, times: &[f64]| Implicit { features: features.parse().unwrap(), times: times.to_vec() };
    vec![
        op("2x0 + 1x1 + 3x2", &[0.001, 0.01, 0.1]),
        op("5x0", &[0.3]),
        op("1x1", &[0.02, 2.0]),
        op("0x0", &[0.1]),
        op("1x0", &[]),
    ]
}

fn check<T: Real>(tolerance: f64) {
    for (name, graph) in gauge_graphs() {
        let batch = batch::<T>(&graph);
        for op in operators() {
            let x: Vec<T> = random(graph.vertex_count() * op.features.dimension(), 1);
            let mix: Vec<T> = random(op.times.len() * op.irreps(), 2);
            let (y, _) = batch.forward(&op, &mix, &x);
            let mut expected = vec![T::nan(); y.len()];
            let (coupling, copies) = (&batch.coupling, &batch.copies);
            reference::forward(&op, coupling, copies, batch.heat().masses, &mix, &x, &mut expected);
            check_close(&y, &expected, tolerance, &format!("{name}, {op:?}"));
        }
    }
}

#[test]
fn conjugate_gradients_equal_elimination() {
    check::<f64>(1e-12);
    check::<f32>(2e-5);
}

#[test]
fn gradients_equal_finite_differences_and_the_adjoint() {
    for (name, graph) in gauge_graphs() {
        let batch = batch::<f64>(&graph);
        for op in operators() {
            let x: Vec<f64> = random(graph.vertex_count() * op.features.dimension(), 1);
            let dy: Vec<f64> = random(x.len(), 3);
            let mix: Vec<f64> = random(op.times.len() * op.irreps(), 2);
            let (y, saved) = batch.forward(&op, &mix, &x);
            let (dx, dmix) = batch.backward(&op, &mix, &saved, &dy);
            assert_adjoint(name, dot(&y, &dy), &x, &dx);
            // The output is linear in the factors too.
            assert_adjoint(name, dot(&y, &dy), &mix, &dmix);
            let value = |mix: &[f64]| dot(&batch.forward(&op, mix, &x).0, &dy);
            assert_gradient("mix", value, &mix, &dmix);
            let value = |x: &[f64]| dot(&batch.forward(&op, &mix, x).0, &dy);
            assert_gradient("x", value, &x, &dx);
        }
    }
}

#[test]
fn constants_stay_and_mass_is_kept() {
    let (_, graph) = gauge_graphs().swap_remove(1);
    let batch = batch::<f64>(&graph);
    let op = Implicit { features: "1x0".parse().unwrap(), times: vec![0.7] };
    let (y, _) = batch.forward(&op, &[1.0], &vec![3.0; graph.vertex_count()]);
    assert!(y.iter().all(|y| (y - 3.0).abs() < 1e-12));
    let x: Vec<f64> = random(graph.vertex_count(), 4);
    let (y, _) = batch.forward(&op, &[1.0], &x);
    assert!((dot(&batch.vertex, &x) - dot(&batch.vertex, &y)).abs() < 1e-12);
    let spread = |values: &[f64]| values.iter().fold(0.0f64, |most, v| most.max(v.abs()));
    assert!(spread(&y) < 0.9 * spread(&x));
}

#[test]
fn times_and_lengths_are_checked() {
    let (_, graph) = gauge_graphs().swap_remove(0);
    let batch = batch::<f32>(&graph);
    for time in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let op = Implicit { features: "1x0".parse().unwrap(), times: vec![time] };
        let x = vec![0.0; graph.vertex_count()];
        let refused = |op: &Implicit, mix: &[f32]| {
            let (mut y, mut saved) = (x.clone(), x.clone());
            Forward { op, heat: batch.heat(), mix, x: &x[..], y: &mut y[..], saved: &mut saved[..] }.on_host()
        };
        assert!(matches!(refused(&op, &[1.0]), Err(KernelError::Setting { .. })));
        let op = Implicit { times: vec![0.1], ..op };
        assert!(matches!(refused(&op, &[]), Err(KernelError::Length { .. })));
    }
}
