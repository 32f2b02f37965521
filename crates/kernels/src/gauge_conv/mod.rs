//! The fused gauge convolution.
//!
//! ```text
//! y_p = K_self f_p + s_p sum_q K(theta_pq) rho_in(g_pq) f_q + bias
//! K(theta) = rho_out(theta) W(r) rho_in(-theta),   W(r) = sum_r phi_r(r_pq) W_r  any matrix
//! ```
//!
//! Fused: aggregation, radial profile, neighbour and self weights, bias. The sum over neighbours depends on
//! `theta` only through its harmonics, so neighbours are aggregated first ([`aggregate`](crate::aggregate))
//! and multiplied by the weights once for each vertex:
//!
//! ```text
//! y_p[m] = W_m A_p[cos m] + J W_m A_p[sin m],   J = [[0, -1], [1, 0]] on the two components
//! ```
//!
//! `A` exists for one tile of vertices at a time. Nothing is saved. The backward pass needs neither
//! `A` nor its adjoint: the transposed convolution is a convolution on the reversed edges with the
//! angles `-(g - theta)` and `-theta` in the places of `theta` and `g - theta`. So `dy` is aggregated
//! (`B`, tile by tile), and both gradients are products with `B`:
//!
//! ```text
//! B_q[r, k] = sum_p s_p phi_r(r_pq) t_k(-(g_pq - theta_pq)) rho_out(-theta_pq) dy_p
//! dx_q[n]   = W'_n^T B_q[cos n] + J W'_n^T B_q[sin n]
//! dW'_n     = sum_q B_q[cos n] x_q[n]^T + B_q[sin n] (J^T x_q[n])^T
//! ```
//!
//! where `W'_n` are the columns of `W` for input order `n`.
//!
//! A graph may have coefficients of its edges ([`GraphSlices::coefficients`](crate::GraphSlices::coefficients)). One
//! factor for each edge takes the place of `s_p`. Coefficients `c_k` of harmonics take the place of `s_p exp(i k
//! theta_pq)`, and are zero for higher `k`. In complex numbers, with `z = exp(i n g_pq) f_q` of order `n`,
//!
//! ```text
//! y_p[m] = sum_q a c_(m-n) z + b c_(m+n) conj(z),   c_(-k) = conj(c_k)
//! ```
//!
//! where `a` and `b` are the weights of a pair of channels: with components `[[W00, W01], [W10, W11]]`, `a = W00 + i
//! W10` and `b = W01 + i W11`. For `n = 0` there is no `b`; for `m = 0`, `a = W00 + i W01`, there is no `b`, and `y` is
//! the real part. All orders of the result then share one row of terms. The transposed operator has the same form on
//! the reversed edges, with the coefficients `c_k exp(-i k g_pq)` and `conj(a)`.
//!
//! Shapes: `x` is `[V, D_in]`, `y` is `[V, D_out]`, neighbour weights are `[rings, D_out, D_in]`, self
//! weights as in [`self_map`], the bias has one value for each scalar output.

pub mod cuda;
mod fast;
mod fragments;
mod stacked;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::reference;
pub(crate) mod warps;

pub(crate) use fragments::{Fragments, row_stride};
pub(crate) use stacked::{Order, Stack};

use crate::aggregate::Radial;
use crate::arguments::{Graph, arguments};
use crate::{Aggregation, FeatureType, self_map};

const OPERATOR: &str = "gauge_conv";

/// Settings of a gauge convolution.
///
/// ```
/// use gemcnn_kernels::gauge_conv::GaugeConv;
/// // The worked example of the paper: 0+1+1 to 1+3.
/// let conv = GaugeConv::new("1x0 + 2x1".parse()?, "1x1 + 1x3".parse()?);
/// assert_eq!((conv.neighbour_count(), conv.self_count(), conv.bias_count()), (20, 4, 0));
/// # Ok::<(), gemcnn_kernels::ParseTypeError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct GaugeConv {
    /// Type of the input.
    pub input: FeatureType,
    /// Type of the output.
    pub output: FeatureType,
    /// Number of radial rings.
    pub rings: usize,
    /// Radius of the last ring; unused with one ring.
    pub max_radius: f64,
    /// Scale of the sum over neighbours, and of the self term.
    pub aggregation: Aggregation,
    /// True to add a self term.
    pub self_term: bool,
    /// True to add a bias to order 0.
    pub bias: bool,
}

/// Weights of a gauge convolution, or their gradients, which a backward pass adds to. `S` is a slice on
/// the host or on a GPU; weights that the settings leave out are empty.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weights<S> {
    /// `K(0)` of each ring: `[rings, D_out, D_in]`.
    pub neighbour: S,
    /// As in [`self_map`].
    pub self_term: S,
    /// One number for each scalar output.
    pub bias: S,
}

impl GaugeConv {
    /// The convolution of the paper: sum over neighbours, one ring, self term and bias.
    pub fn new(input: FeatureType, output: FeatureType) -> Self {
        Self { input, output, rings: 1, max_radius: 1.0, aggregation: Aggregation::Sum, self_term: true, bias: true }
    }

    /// Number of neighbour weights.
    pub fn neighbour_count(&self) -> usize {
        self.rings * self.output.dimension() * self.input.dimension()
    }

    /// Number of self weights.
    pub fn self_count(&self) -> usize {
        if self.self_term { self_map::parameter_count(&self.input, &self.output) } else { 0 }
    }

    /// Number of biases.
    pub fn bias_count(&self) -> usize {
        if self.bias { self.output.multiplicity(0) } else { 0 }
    }

    pub(crate) fn radial(&self) -> Radial {
        Radial { rings: self.rings, max_radius: self.max_radius }
    }
}

arguments! {
    /// Overwrites `y` with the convolution of `x`. `neighbour` is `K(0)` of each ring, `[rings, D_out, D_in]`, `self_term` as in
    /// [`self_map`], and `bias` one number for each scalar output. Weights that the settings leave out are empty.
    Forward = forward(OPERATOR, scratch) {
        op: &'a GaugeConv;
        graph: Graph,
        x: read[graph.vertex_count(), op.input.dimension()],
        neighbour: read[op.neighbour_count()],
        self_term: read[op.self_count()],
        bias: read[op.bias_count()],
        y: write[graph.vertex_count(), op.output.dimension()];
        op.radial().check(OPERATOR)?;
    }

    /// Overwrites `dx` if it is given, and adds to the gradients of the weights.
    Backward = backward(OPERATOR, scratch) {
        op: &'a GaugeConv;
        graph: Graph,
        x: read[graph.vertex_count(), op.input.dimension()],
        neighbour: read[op.neighbour_count()],
        self_term: read[op.self_count()],
        bias: read[op.bias_count()],
        dy: read[graph.vertex_count(), op.output.dimension()],
        dx: write_if[graph.vertex_count(), op.input.dimension()],
        dneighbour: add[op.neighbour_count()],
        dself_term: add[op.self_count()],
        dbias: add[op.bias_count()];
        op.radial().check(OPERATOR)?;
    }
}
