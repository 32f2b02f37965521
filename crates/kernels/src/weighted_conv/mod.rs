//! The gauge convolution with one weight for each directed edge, and its derivative with respect to these weights.
//!
//! ```text
//! convolution:  y_p  = sum_q w_pq K(theta_pq) rho_in(g_pq) x_q + bias
//! products:     l_pq = <y_p, K(theta_pq) rho_in(g_pq) x_q>
//! K(theta) = rho_out(theta) W rho_in(-theta),   W any matrix
//! ```
//!
//! The products with queries `y` are the logits of attention whose keys are `K(theta) rho(g) x`. The products with the
//! gradient `dy` of the convolution are the gradient of its weights. In turn the gradients of the products are weighted
//! convolutions: with `dl` in the place of `w`, `dy` is the convolution of `x`, and `dx` and `dW` are the gradients of
//! the convolution for the output gradient `y`. So attention needs these two operators and a softmax, and keeps one
//! number for each edge.
//!
//! The convolutions are [gauge convolutions](crate::gauge_conv) on a graph with factors of edges. The products do not
//! compute keys.
//! `K(theta)` depends on `theta` through harmonics only, so `y` is multiplied with the weights once for each vertex,
//!
//! ```text
//! B_p[cos m] = W_m^T y_p[m],   B_p[sin m] = (J W_m)^T y_p[m],   J = [[0, -1], [1, 0]] on the two components
//! l_pq = sum_k t_k(theta_pq) <B_p[k], rho_in(g_pq - theta_pq) x_q>
//! ```
//!
//! and `B` exists for one tile of vertices at a time. Nothing is saved.
//!
//! Shapes: `x` is `[V, D_in]`, `y` is `[V, D_out]`, factors and products are `[E]`, weights are those of a gauge
//! convolution.

pub mod cuda;
mod fast;
#[cfg(test)]
mod tests;

use crate::KernelError;
use crate::arguments::{Graph, arguments};
use crate::gauge_conv::GaugeConv;

const OPERATOR: &str = "weighted_conv";

/// Refuses settings of a gauge convolution that have no place here.
fn check_settings(op: &GaugeConv) -> Result<(), KernelError> {
    if op.rings == 1 && !op.self_term {
        return Ok(());
    }
    Err(KernelError::Setting {
        operator: OPERATOR,
        problem: "a convolution with weights of edges has one ring and no self term".into(),
    })
}

arguments! {
    /// Overwrites `y` with the weighted convolution of `x`.
    Forward = forward(OPERATOR, scratch) {
        op: &'a GaugeConv;
        graph: Graph,
        factors: read[graph.edge_count()],
        x: read[graph.vertex_count(), op.input.dimension()],
        weight: read[op.neighbour_count()],
        bias: read[op.bias_count()],
        y: write[graph.vertex_count(), op.output.dimension()];
        check_settings(op)?;
    }

    /// Overwrites `dx` if it is given, and adds to the gradients of the weights. [`Products`] with `dy` gives the gradient of
    /// the factors.
    Backward = backward(OPERATOR, scratch) {
        op: &'a GaugeConv;
        graph: Graph,
        factors: read[graph.edge_count()],
        x: read[graph.vertex_count(), op.input.dimension()],
        weight: read[op.neighbour_count()],
        bias: read[op.bias_count()],
        dy: read[graph.vertex_count(), op.output.dimension()],
        dx: write_if[graph.vertex_count(), op.input.dimension()],
        dweight: add[op.neighbour_count()],
        dbias: add[op.bias_count()];
        check_settings(op)?;
    }

    /// Overwrites `products` with `<y_p, K(theta_pq) rho(g_pq) x_q>` for every edge.
    Products = products(OPERATOR, scratch) {
        op: &'a GaugeConv;
        graph: Graph,
        y: read[graph.vertex_count(), op.output.dimension()],
        x: read[graph.vertex_count(), op.input.dimension()],
        weight: read[op.neighbour_count()],
        products: write[graph.edge_count()];
        check_settings(op)?;
    }
}
