//! Gauge aggregation exactly as in its formula, edge by edge.

use crate::aggregate::Aggregate;
use crate::{FeatureType, GraphView, KernelError, Real};

/// `(cos n a, sin n a)` from `(cos a, sin a)`.
pub fn multiple<T: Real>(phase: [T; 2], order: usize) -> [T; 2] {
    (0..order).fold([T::one(), T::zero()], |[c, s], _| [c * phase[0] - s * phase[1], s * phase[0] + c * phase[1]])
}

/// `rho(a) f` for the features of one vertex, with `phase = (cos a, sin a)`.
pub fn rotated<T: Real>(kind: &FeatureType, phase: [T; 2], features: &[T]) -> Vec<T> {
    let mut turned = features.to_vec();
    for (order, channels) in kind.orders().filter(|&(order, _)| order > 0) {
        let [c, s] = multiple(phase, order);
        let start = kind.range(order).start;
        for cosine in start..start + channels {
            let sine = cosine + channels;
            turned[cosine] = c * features[cosine] - s * features[sine];
            turned[sine] = s * features[cosine] + c * features[sine];
        }
    }
    turned
}

/// `(cos -a, sin -a)`.
pub fn reversed<T: Real>([c, s]: [T; 2]) -> [T; 2] {
    [c, -s]
}

/// `s_p phi_r(r) t_k(theta)` for one edge of the row of `p`.
fn weight<T: Real>(op: &Aggregate, graph: GraphView<'_, T>, p: usize, edge: usize, ring: usize, k: usize) -> T {
    let [c, s] = multiple(graph.phases()[edge].angle, k.div_ceil(2));
    let harmonic = if k > 0 && k.is_multiple_of(2) { s } else { c };
    let scale = graph.factor(op.aggregation, p, edge);
    scale * op.radial().weight(ring, graph.radius()[edge]) * harmonic
}

/// Reference version of [`forward`](crate::aggregate::forward).
pub fn forward<T: Real>(op: &Aggregate, graph: GraphView<'_, T>, x: &[T], a: &mut [T]) -> Result<(), KernelError> {
    op.check(graph.columns())?;
    a.fill(T::zero());
    let dimension = op.input.dimension();
    for p in 0..graph.vertex_count() {
        for edge in graph.row(p) {
            let q = graph.neighbours()[edge] as usize;
            let phase = graph.phases()[edge].transport;
            let features = rotated(&op.input, phase, &x[q * dimension..][..dimension]);
            for ring in 0..op.rings {
                for k in 0..op.harmonics() {
                    let weight = weight(op, graph, p, edge, ring, k);
                    let row = (p * op.rings + ring) * op.harmonics() + k;
                    for (j, &feature) in features.iter().enumerate() {
                        a[row * dimension + j] += weight * feature;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Reference version of [`backward`](crate::aggregate::backward), scattered edge by edge.
pub fn backward<T: Real>(op: &Aggregate, graph: GraphView<'_, T>, da: &[T], dx: &mut [T]) -> Result<(), KernelError> {
    op.check(graph.columns())?;
    dx.fill(T::zero());
    let dimension = op.input.dimension();
    for p in 0..graph.vertex_count() {
        for edge in graph.row(p) {
            let q = graph.neighbours()[edge] as usize;
            let mut sum = vec![T::zero(); dimension];
            for ring in 0..op.rings {
                for k in 0..op.harmonics() {
                    let weight = weight(op, graph, p, edge, ring, k);
                    let row = (p * op.rings + ring) * op.harmonics() + k;
                    for (j, sum) in sum.iter_mut().enumerate() {
                        *sum += weight * da[row * dimension + j];
                    }
                }
            }
            let back = reversed(graph.phases()[edge].transport);
            for (j, value) in rotated(&op.input, back, &sum).into_iter().enumerate() {
                dx[q * dimension + j] += value;
            }
        }
    }
    Ok(())
}
