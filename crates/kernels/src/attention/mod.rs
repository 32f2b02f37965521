//! Attention of each vertex over its neighbours, all heads in one kernel, on a GPU.
//!
//! ```text
//! q_p  = K_self x_p / sqrt(d)                                   queries, d numbers each
//! a_pq = softmax over q of <q_p, K_key(theta_pq) rho(g_pq) x_q>
//! y_p  = sum_q a_pq K_value(theta_pq) rho(g_pq) x_q + bias
//! ```
//!
//! for every head, each with a part of the channels of every order of `y` and weights of its own. It is the composition
//! of [`self_map`], [`weighted_conv::Products`](crate::weighted_conv::Products),
//! [`edges::Softmax`](crate::edges::Softmax) and [`weighted_conv::Forward`](crate::weighted_conv::Forward), which is
//! also its version on the CPU.
//!
//! A block of threads holds some vertices and one head. On tensor cores it computes the queries and `B`, their products
//! with the weights of the keys ([`weighted_conv`](crate::weighted_conv)). It then reads the neighbours twice, for the
//! logits and for the weighted sums, and multiplies the sums with the weights of the values. Only `q`, `a` and `y` are
//! written. The backward pass has the same form, with `dy` in place of the query, and keys and values exchanged: it
//! gives the gradients of the logits and of the queries. The gradients of `x` and of the weights are two transposed
//! gauge convolutions on graphs with a factor for each edge and head, one for `dy` and one for the queries; the latter
//! takes the gradients of the queries as its self term.
//!
//! From features with 16 channels of each order, rows stay in registers (`warps.rs`).
//!
//! Saved: `x`, `q` and `a`. Shapes: `x` is `[V, D_in]`, `q` and `y` are `[V, D_out]`, `a` is `[E, heads]`.

pub mod cuda;
mod plan;
pub(crate) mod warps;

use crate::gauge_conv::GaugeConv;
use crate::self_map;
use crate::{Aggregation, FeatureType};

const OPERATOR: &str = "attention";

/// Settings of attention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attention {
    /// Type of the input.
    pub input: FeatureType,
    /// Type of the output of all heads together.
    pub output: FeatureType,
    /// Number of heads, which divides the multiplicities of the output.
    pub heads: usize,
}

/// The weights of one head, or their gradients. `S` is a slice on a GPU.
#[derive(Debug, Clone, Copy)]
pub struct HeadWeights<S> {
    /// Of the self kernel of the queries, as in [`self_map`].
    pub query: S,
    /// `K_key(0)`, `[D_out / heads, D_in]`.
    pub key: S,
    /// `K_value(0)`, likewise.
    pub value: S,
    /// One number for each scalar output of the head.
    pub bias: S,
}
crate::view::fields!(HeadWeights { query, key, value, bias });

impl Attention {
    /// Type of the output of one head.
    pub fn part(&self) -> FeatureType {
        let counts = self.output.multiplicities().iter();
        FeatureType::new(&counts.map(|n| n / self.heads.max(1)).collect::<Vec<_>>())
    }

    /// Numbers of the weights of one head: of queries, keys, values and bias.
    fn counts(&self) -> [usize; 4] {
        let part = self.part();
        let neighbours = part.dimension() * self.input.dimension();
        let queries = self_map::parameter_count(&self.input, &part);
        [queries, neighbours, neighbours, part.multiplicity(0)]
    }

    /// Length of the weights of all heads, one after the other.
    pub fn parameter_count(&self) -> usize {
        self.heads * self.counts().iter().sum::<usize>()
    }

    /// The factor of the queries.
    fn scale(&self) -> f32 {
        (self.part().dimension().max(1) as f32).sqrt().recip()
    }

    /// The convolution with the weights of keys or values to an output.
    fn convolution(&self, output: FeatureType, self_term: bool) -> GaugeConv {
        GaugeConv {
            aggregation: Aggregation::Sum,
            self_term,
            bias: false,
            ..GaugeConv::new(self.input.clone(), output)
        }
    }

    /// Index in the output of every number of the output of a head.
    fn places(&self, head: usize) -> Vec<usize> {
        let mut places = Vec::with_capacity(self.part().dimension());
        for (order, channels) in self.output.orders() {
            let (start, run) = (self.output.range(order).start, channels / self.heads);
            for component in 0..crate::irrep_dimension(order) {
                let first = start + component * channels + head * run;
                places.extend(first..first + run);
            }
        }
        places
    }
}
