//! Attention over neighbours.

use super::{ConvConfig, EquivariantLinear, EquivariantLinearConfig, GemConv, GemConvConfig, Kernel};
use crate::{Builder, Levels, Module, NnError, ParameterId, Result, Tape, Var, signature};
use gemcnn_kernels::attention::{Attention as FusedAttention, HeadWeights};
use gemcnn_kernels::{Aggregation, FeatureType, Real};
use std::sync::Arc;

/// The kernel of attention over neighbours: an [`AttentionConv`] in place of each convolution. It has no use for
/// aggregation and rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attention {
    /// Number of heads, which divides the multiplicities of the output.
    pub heads: usize,
}

impl<T: Real> Kernel<T> for Attention {
    fn init(
        &self,
        config: &ConvConfig<T>,
        name: &str,
        [input, output]: [&FeatureType; 2],
        moments: &[f64],
        builder: &mut Builder<'_, T>,
    ) -> Result<Box<dyn Module<T>>> {
        if config.rings != 1 {
            let problem = "attention does not depend on distances; it takes 1";
            return Err(NnError::setting("rings", problem).in_layer(&builder.path(name)));
        }
        let config = AttentionConvConfig {
            heads: self.heads,
            input_moments: moments.to_vec(),
            ..AttentionConvConfig::new(input.clone(), output.clone())
        };
        Ok(Box::new(config.init(name, builder)?))
    }
}

/// Settings of an [`AttentionConv`].
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionConvConfig {
    /// Type of the input.
    pub input: FeatureType,
    /// Type of the output.
    pub output: FeatureType,
    /// Number of heads (default 1), which divides the multiplicities of the output.
    pub heads: usize,
    /// As [`GemConvConfig::input_moments`].
    pub input_moments: Vec<f64>,
}

impl AttentionConvConfig {
    /// Default settings.
    pub fn new(input: FeatureType, output: FeatureType) -> Self {
        Self { input, output, heads: 1, input_moments: Vec::new() }
    }

    /// Adds the parameters of `query`, `key` and `value` of every head, in the scopes `head1`, `head2` and so on.
    ///
    /// # Errors
    /// A name that is taken, or heads that do not divide the multiplicities.
    pub fn init<T: Real>(&self, name: &str, builder: &mut Builder<'_, T>) -> Result<AttentionConv> {
        builder.within(name, |builder| {
            let mut counts = self.output.multiplicities().iter();
            if self.heads == 0 || !counts.all(|count| count.is_multiple_of(self.heads)) {
                let problem = format!("{} heads do not divide the channels of {}", self.heads, self.output);
                return Err(NnError::setting("heads", problem).in_layer(builder.scope()));
            }
            let multiplicities = self.output.multiplicities().iter();
            let part: Vec<usize> = multiplicities.map(|count| count / self.heads).collect();
            let part = FeatureType::new(&part);
            let conv = GemConvConfig {
                self_term: false,
                input_moments: self.input_moments.clone(),
                ..GemConvConfig::new(self.input.clone(), part.clone())
            };
            let head = |index: usize, builder: &mut Builder<'_, T>| {
                builder.within(&format!("head{}", index + 1), |builder| {
                    let query = EquivariantLinearConfig {
                        bias: false,
                        ..EquivariantLinearConfig::new(self.input.clone(), part.clone())
                    };
                    let key = GemConvConfig {
                        bias: false,
                        // Keys are not summed over neighbours.
                        degree: 1.0,
                        ..conv.clone()
                    };
                    let value = GemConvConfig {
                        // Weights of attention start near those of a mean.
                        aggregation: Aggregation::Mean,
                        ..conv.clone()
                    };
                    Ok(Head {
                        query: query.init("query", builder)?,
                        key: key.init("key", builder)?,
                        value: value.init("value", builder)?,
                    })
                })
            };
            let heads = (0..self.heads).map(|index| head(index, builder)).collect::<Result<Vec<Head>, _>>()?;
            Ok(AttentionConv {
                name: builder.scope().into(),
                fused: Arc::new(FusedAttention {
                    input: self.input.clone(),
                    output: self.output.clone(),
                    heads: self.heads,
                }),
                weights: heads.iter().map(Head::weights).collect(),
                heads,
                scale: (part.dimension().max(1) as f64).sqrt().recip(),
            })
        })
    }
}

#[derive(Debug, Clone)]
struct Head {
    query: EquivariantLinear,
    key: GemConv,
    value: GemConv,
}

impl Head {
    fn weights(&self) -> HeadWeights<Option<ParameterId>> {
        HeadWeights {
            query: Some(self.query.weights().weight),
            key: Some(self.key.weights().neighbour),
            value: Some(self.value.weights().neighbour),
            bias: self.value.weights().bias,
        }
    }
}

/// Attention of each vertex over its neighbours, with gauge equivariant kernels:
///
/// ```text
/// q_p   = K_self x_p                                  queries
/// k_pq  = K(theta_pq) rho(g_pq) x_q                   keys, and values v_pq with weights of their own
/// a_pq  = softmax over q of <q_p, k_pq> / sqrt(d)     d numbers of a query
/// y_p   = sum_q a_pq v_pq + bias
/// ```
///
/// Heads split the channels of the output; each has its own weights and its own `a`. The logits do not depend on the
/// gauge, and the values rotate with it. A vertex without neighbours gets the bias. Saved for the backward pass: `x`,
/// the queries, and one number for each edge and head.
///
/// On a GPU that multiplies on tensor cores, all heads are one operator ([`attention`](gemcnn_kernels::attention));
/// elsewhere they are composed of products with keys, softmax and weighted convolutions.
#[derive(Debug, Clone)]
pub struct AttentionConv {
    name: String,
    fused: Arc<FusedAttention>,
    weights: Arc<[HeadWeights<Option<ParameterId>>]>,
    heads: Vec<Head>,
    scale: f64,
}

impl AttentionConv {
    fn attend<'a, T: Real>(
        &self,
        head: &Head,
        tape: &mut Tape<'a, T>,
        levels: Levels<'a, T>,
        x: Var<T>,
    ) -> Result<Var<T>> {
        let graph = levels.graph()?;
        let query = head.query.forward(tape, levels, x.clone())?;
        let query = tape.scale(self.scale, query)?;
        let (key, value) = (&head.key, &head.value);
        let weight = key.weights().neighbour;
        let logits = tape.edge_product(key.config(), graph, weight, query, x.clone())?;
        let weights = tape.edge_softmax(graph, logits)?;
        tape.weighted_conv(value.config(), graph, value.weights(), x, weights)
    }
}

impl<T: Real> Module<T> for AttentionConv {
    signature!(this: this.fused.input => this.fused.output, reach 1);

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        let fused = tape.attend(&self.fused, levels.graph()?, &self.weights, x.clone());
        if let Some(y) = fused.map_err(|error| error.in_layer(&self.name))? {
            return Ok(y);
        }
        let mut result: Option<Var<T>> = None;
        for head in &self.heads {
            let y = self.attend(head, tape, levels, x.clone()).map_err(|error| error.in_layer(&self.name))?;
            result = Some(match result {
                None => y,
                Some(result) => tape.concatenate(result, y)?,
            });
        }
        result.ok_or_else(|| NnError::setting("heads", "there are none").in_layer(&self.name))
    }
}
