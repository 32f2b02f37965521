//! The products edge by edge, as in their formula.

use super::check_products;
use crate::aggregate::reference::rotated;
use crate::gauge_conv::GaugeConv;
use crate::{GraphView, KernelError, Real};

/// Reference version of [`products`](super::products).
pub fn products<T: Real>(
    op: &GaugeConv,
    graph: GraphView<'_, T>,
    y: &[T],
    x: &[T],
    weight: &[T],
    products: &mut [T],
) -> Result<(), KernelError> {
    check_products(op, graph.counts(), y, x, weight, products)?;
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
    Ok(())
}
