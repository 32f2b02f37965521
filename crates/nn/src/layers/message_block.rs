//! Blocks of nonlinear messages.

use super::{EquivariantLinear, EquivariantLinearConfig, LinearConfig, Nonlinearity, Regular};
use crate::operators::{MessageFunction, MessageLayer, UpdateFunction};
use crate::{Builder, Levels, Module, NnError, Result, Tape, Var, signature};
use gemcnn_kernels::linear::Linear;
use gemcnn_kernels::regular::Plan;
use gemcnn_kernels::{FeatureType, Real, irrep_dimension};
use std::sync::Arc;

/// Settings of a [`MessageBlock`], without the type of its input.
#[derive(Debug, Clone)]
pub struct MessageBlockConfig<T> {
    /// Type of the output.
    pub output: FeatureType,
    /// Type of the messages and between layers: the same multiplicity for every order up to its band limit.
    pub hidden: FeatureType,
    /// Layers of the message function (default 2).
    pub edge_layers: usize,
    /// Layers of the update function (default 2).
    pub node_layers: usize,
    /// Samples of the regular nonlinearity of messages (default `2 band_limit + 1`). Messages are in the frame of the
    /// edge, so any number is exactly equivariant.
    pub samples: usize,
    /// The nonlinearity between layers of the update function (default: ReLU of 5 samples).
    pub nonlinearity: Arc<dyn Nonlinearity<T>>,
}

impl<T: Real> MessageBlockConfig<T> {
    /// Default settings.
    pub fn new(hidden: FeatureType, output: FeatureType) -> Self {
        Self {
            output,
            samples: 2 * hidden.highest_order() + 1,
            hidden,
            edge_layers: 2,
            node_layers: 2,
            nonlinearity: Arc::new(Regular::relu(5)),
        }
    }

    /// Adds the parameters of the message layers `edge1`, `edge2` and so on, of the update layers `node1` and so on
    /// with their nonlinearities `act1` and so on, and of the map `skip` if the types at the ends of the skip
    /// connection differ.
    ///
    /// # Errors
    /// A name that is taken, no layers, or types that a nonlinearity does not support.
    pub fn init(
        &self,
        name: &str,
        input: &FeatureType,
        moments: &[f64],
        builder: &mut Builder<'_, T>,
    ) -> Result<MessageBlock<T>> {
        builder.within(name, |builder| {
            if self.edge_layers == 0 || self.node_layers == 0 {
                let problem = "messages and updates have at least one layer each";
                return Err(NnError::setting("layers", problem).in_layer(builder.scope()));
            }
            let messages = self.messages(input, moments, builder)?;
            let mut kind = input.concatenated(&self.hidden);
            let mut updates = Vec::with_capacity(self.node_layers);
            for index in 1..=self.node_layers {
                let act = &self.nonlinearity;
                let last = index == self.node_layers;
                let output = if last { self.output.clone() } else { act.input(&self.hidden) };
                let map = EquivariantLinearConfig::new(kind, output);
                let map = map.init(&format!("node{index}"), builder)?;
                let act = if last { None } else { Some(act.init(&format!("act{index}"), &self.hidden, builder)?) };
                updates.push(Update { map, act });
                kind = self.hidden.clone();
            }
            let skip = EquivariantLinearConfig {
                bias: false,
                ..EquivariantLinearConfig::new(input.clone(), self.output.clone())
            };
            let fused = self.fused(input, &updates);
            Ok(MessageBlock {
                name: builder.scope().into(),
                skip: if input == &self.output { None } else { Some(skip.init("skip", builder)?) },
                messages: Arc::new(messages),
                updates,
                fused,
                output: self.output.clone(),
            })
        })
    }

    /// The update function, if it may be one operator: all features have one type, and the nonlinearity is regular.
    fn fused(&self, input: &FeatureType, updates: &[Update<T>]) -> Option<Arc<UpdateFunction<T>>> {
        let regular = self.nonlinearity.as_regular()?;
        if regular.batch_norm || input != &self.hidden || input != &self.output {
            return None;
        }
        let plan = Plan::new(&regular.operator(input.clone())).ok()?;
        Some(Arc::new(UpdateFunction {
            layers: updates.iter().map(|update| update.map.weights()).collect(),
            plan: Arc::new(plan),
        }))
    }

    fn messages(
        &self,
        input: &FeatureType,
        moments: &[f64],
        builder: &mut Builder<'_, T>,
    ) -> Result<MessageFunction<T>> {
        let regular = Regular::relu(self.samples);
        let plan = Plan::new(&regular.operator(self.hidden.clone()))
            .map_err(|error| NnError::from(error).in_layer(builder.scope()))?;
        let (plan, outputs) = (Arc::new(plan), self.hidden.dimension());
        let (mut inputs, mut moment) = (2 * input.dimension(), mean_moment(input, moments));
        let mut layers = Vec::with_capacity(self.edge_layers);
        for index in 1..=self.edge_layers {
            let map = LinearConfig { input_moment: moment, ..LinearConfig::new(inputs, outputs) };
            let layer = map.init(&format!("edge{index}"), builder)?;
            layers.push(MessageLayer {
                map: Linear { inputs, outputs, bias: true },
                weights: layer.weights(),
                plan: Arc::clone(&plan),
            });
            inputs = outputs;
            moment = mean_moment(&self.hidden, &Nonlinearity::<T>::moments(&regular, &self.hidden));
        }
        Ok(MessageFunction { input: input.clone(), layers })
    }
}

/// Mean square of a component, from those of each order.
fn mean_moment(kind: &FeatureType, moments: &[f64]) -> f64 {
    let of_order = |(order, channels): (usize, usize)| {
        let moment = moments.get(order).copied().unwrap_or(1.0);
        (channels * irrep_dimension(order)) as f64 * moment
    };
    let sum: f64 = kind.orders().map(of_order).sum();
    if sum > 0.0 { sum / kind.dimension() as f64 } else { 1.0 }
}

/// A block of nonlinear messages:
///
/// ```text
/// m_p = 1/|N(p)| sum_q rho(theta_pq) phi_e(rho(-theta_pq) x_p, rho(g_pq - theta_pq) x_q)
/// y_p = skip(x_p) + phi_n(x_p, m_p)
/// ```
///
/// `phi_e` is a chain of linear maps, each followed by a regular nonlinearity, in the frame of the edge. `phi_n` is a
/// chain of equivariant linear maps with nonlinearities between them. `skip` is the identity, or an equivariant linear
/// map if the types differ. A vertex without neighbours has the message 0. Saved for the backward pass: `x`, `m`, and
/// the features inside of `phi_n`, except on a GPU that computes `y` from `x` and `m` in one kernel.
#[derive(Debug)]
pub struct MessageBlock<T: Real> {
    name: String,
    messages: Arc<MessageFunction<T>>,
    updates: Vec<Update<T>>,
    /// The updates and the skip connection, where one operator may compute them.
    fused: Option<Arc<UpdateFunction<T>>>,
    skip: Option<EquivariantLinear>,
    output: FeatureType,
}

/// A layer of the update function.
#[derive(Debug)]
struct Update<T: Real> {
    map: EquivariantLinear,
    /// The nonlinearity after each map but the last.
    act: Option<Box<dyn Module<T>>>,
}

impl<T: Real> MessageBlock<T> {
    /// The message function.
    pub fn messages(&self) -> &Arc<MessageFunction<T>> {
        &self.messages
    }
}

impl<T: Real> Module<T> for MessageBlock<T> {
    signature!(this: this.messages.input => this.output, reach 1);

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        let message = tape
            .send_messages(&self.messages, levels.graph()?, x.clone())
            .map_err(|error| error.in_layer(&self.name))?;
        if let Some(fused) = &self.fused {
            let update = tape.update_vertices(fused, x.clone(), message.clone());
            if let Some(y) = update.map_err(|error| error.in_layer(&self.name))? {
                return Ok(y);
            }
        }
        let mut update = tape.concatenate(x.clone(), message)?;
        for Update { map, act } in &self.updates {
            update = map.forward(tape, levels, update)?;
            if let Some(act) = act {
                update = act.forward(tape, levels, update)?;
            }
        }
        let skipped = match &self.skip {
            None => x,
            Some(skip) => skip.forward(tape, levels, x)?,
        };
        tape.add(update, skipped)
    }
}
