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
//! The convolutions are those of [`gauge_conv`] on a graph with factors of edges. The products do not compute keys.
//! `K(theta)` depends on `theta` through harmonics only, so `y` is multiplied with the weights once for each vertex,
//!
//! ```text
//! B_p[cos m] = W_m^T y_p[m],   B_p[sin m] = (J W_m)^T y_p[m],   J = [[0, -1], [1, 0]] on the two components
//! l_pq = sum_k t_k(theta_pq) <B_p[k], rho_in(g_pq - theta_pq) x_q>
//! ```
//!
//! and `B` exists for one tile of vertices at a time. Nothing is saved.
//!
//! Shapes: `x` is `[V, D_in]`, `y` is `[V, D_out]`, factors and products are `[E]`, weights as in [`gauge_conv`].

pub mod cuda;
mod fast;
pub mod reference;
#[cfg(test)]
mod tests;

use crate::error::{Length, check_count, check_length};
use crate::gauge_conv::{self, GaugeConv, Weights};
use crate::real::compiled;
use crate::{GraphView, KernelError, Real, Scratch};

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

fn check_factors<T: Real>(graph: GraphView<'_, T>, factors: &[T]) -> Result<(), KernelError> {
    check_length(OPERATOR, "factors", factors, graph.edge_count())
}

/// Overwrites `y` with the weighted convolution of `x`.
pub fn forward<T: Real>(
    op: &GaugeConv,
    graph: GraphView<'_, T>,
    factors: &[T],
    x: &[T],
    weights: Weights<&[T]>,
    y: &mut [T],
    scratch: &mut Scratch<T>,
) -> Result<(), KernelError> {
    check_settings(op)?;
    check_factors(graph, factors)?;
    let graph = graph.with_factors(factors);
    gauge_conv::forward(op, graph, x, weights, y, scratch)
}

/// Overwrites `dx` if it is given, and adds to the gradients of the weights. [`products`] with `dy` gives the gradient
/// of the factors.
#[allow(clippy::too_many_arguments)]
pub fn backward<T: Real>(
    op: &GaugeConv,
    graph: GraphView<'_, T>,
    factors: &[T],
    x: &[T],
    weights: Weights<&[T]>,
    dy: &[T],
    dx: Option<&mut [T]>,
    gradients: Weights<&mut [T]>,
    scratch: &mut Scratch<T>,
) -> Result<(), KernelError> {
    check_settings(op)?;
    check_factors(graph, factors)?;
    let graph = graph.with_factors(factors);
    gauge_conv::backward(op, graph, x, weights, dy, dx, gradients, scratch)
}

/// Overwrites `products` with `<y_p, K(theta_pq) rho(g_pq) x_q>` for every edge. `weight` are the neighbour weights.
pub fn products<T: Real>(
    op: &GaugeConv,
    graph: GraphView<'_, T>,
    y: &[T],
    x: &[T],
    weight: &[T],
    products: &mut [T],
    scratch: &mut Scratch<T>,
) -> Result<(), KernelError> {
    check_products(op, graph.counts(), y, x, weight, products)?;
    compiled!(fast::products as fn(&GaugeConv, GraphView<'_, T>, &[T], &[T], &[T], &mut [T], &mut Scratch<T>))(
        op, graph, y, x, weight, products, scratch,
    );
    Ok(())
}

fn check_products<S: Length>(
    op: &GaugeConv,
    (vertices, edges): (usize, usize),
    y: S,
    x: S,
    weight: S,
    products: S,
) -> Result<(), KernelError> {
    check_settings(op)?;
    let (inputs, outputs) = (op.input.dimension(), op.output.dimension());
    check_count(OPERATOR, "y", y.length(), vertices * outputs)?;
    check_count(OPERATOR, "x", x.length(), vertices * inputs)?;
    check_count(OPERATOR, "weight", weight.length(), op.neighbour_count())?;
    check_count(OPERATOR, "products", products.length(), edges)
}
