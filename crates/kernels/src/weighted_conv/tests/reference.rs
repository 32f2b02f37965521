//! The products edge by edge, as in their formula.

use crate::aggregate::reference::rotated;
use crate::weighted_conv::Products;
use crate::{Host, Real};

/// Reference version of [`Products`].
pub fn products<T: Real>(Products { op, graph, y, x, weight, products }: Products<'_, Host<T>>) {
    let (inputs, outputs) = (op.input.dimension(), op.output.dimension());
    for p in 0..graph.vertex_count() {
        for edge in graph.row(p) {
            let q = graph.neighbours()[edge] as usize;
            let phases = graph.phases()[edge];
            let f = rotated(&op.input, phases.transport, &x[q * inputs..][..inputs]);
            let key: Vec<T> = (0..outputs).map(|i| (0..inputs).map(|j| weight[i * inputs + j] * f[j]).sum()).collect();
            let key = rotated(&op.output, phases.angle, &key);
            let query = &y[p * outputs..][..outputs];
            products[edge] = query.iter().zip(&key).map(|(&y, &k)| y * k).sum();
        }
    }
}
