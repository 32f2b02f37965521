//! The description of a network: built in a few lines, stored, read from a file.

use super::layer::Stage;
use super::{Layer, LayerConfig, LayerLine, Network};
use crate::layers::{ConvConfig, GlobalPool, Kernel, Nonlinearity, Regular};
use crate::{Builder, NnError, Parameters, text};
use gemcnn_kernels::{Activation, Aggregation, FeatureType, Real};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::HashSet;
use std::fmt;

/// Which parameters weight decay acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightDecay {
    /// The weights of all layers, not biases, scales and shifts.
    #[default]
    All,
    /// The weights of [`LayerConfig::Linear`] maps alone, as in the paper.
    Linear,
}

/// A network to be: its input type and its layers.
///
/// ```
/// use gemcnn_nn::{FeatureType, Network};
/// use gemcnn_nn::layers::Regular;
/// let hidden: FeatureType = "16x0 + 16x1 + 16x2".parse()?;
/// let (network, parameters) = Network::builder("3x0".parse()?)
///     .residual(&hidden, Regular::relu(5))
///     .residual(&hidden, Regular::relu(5))
///     .residual(&FeatureType::scalars(64), Regular::relu(5))
///     .head(256, 10)
///     .init::<f32>(1)?;
/// println!("{network}");
/// assert_eq!(network.output(), &FeatureType::scalars(10));
/// # assert!(parameters.trained_count() > 0);
/// # Ok::<(), gemcnn_nn::NnError>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkConfig {
    #[serde(with = "text")]
    input: FeatureType,
    #[serde(default)]
    weight_decay: WeightDecay,
    #[serde(deserialize_with = "numbered_layers")]
    layers: Vec<LayerConfig>,
    /// For the convolutions that are still to come.
    #[serde(skip)]
    conv: ConvConfig,
}

/// Two are equal that make the same network, whatever convolutions would follow.
impl PartialEq for NetworkConfig {
    fn eq(&self, other: &Self) -> bool {
        (&self.input, self.weight_decay, &self.layers)
            == (&other.input, other.weight_decay, &other.layers)
    }
}

/// Reads layers so that an error says in which one it is.
fn numbered_layers<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<LayerConfig>, D::Error> {
    struct Layers;

    impl<'de> Visitor<'de> for Layers {
        type Value = Vec<LayerConfig>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of layers")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
            let mut layers = Vec::new();
            loop {
                let number = layers.len() + 1;
                match from.next_element() {
                    Ok(Some(layer)) => layers.push(layer),
                    Ok(None) => return Ok(layers),
                    Err(error) => {
                        let problem = error.to_string();
                        return Err(Error::custom(format!(
                            "layer {number}: {}",
                            problem.trim_end()
                        )));
                    }
                }
            }
        }
    }

    from.deserialize_seq(Layers)
}

impl NetworkConfig {
    pub(super) fn new(input: FeatureType) -> Self {
        Self {
            input,
            weight_decay: WeightDecay::default(),
            layers: Vec::new(),
            conv: ConvConfig::default(),
        }
    }

    /// Type of the input.
    pub fn input(&self) -> &FeatureType {
        &self.input
    }

    /// The layers, first to last.
    pub fn layers(&self) -> &[LayerConfig] {
        &self.layers
    }

    /// How many graphs it runs on: one, and one more for each level that it pools down to.
    pub fn levels(&self) -> usize {
        let mut depth: isize = 0;
        let depths = self.layers.iter().map(|layer| {
            depth += layer.depth_change();
            depth
        });
        1 + depths.max().unwrap_or(0).max(0) as usize
    }

    /// How many numbers are trained.
    ///
    /// # Errors
    /// As [`init`](Self::init).
    pub fn parameter_count(&self) -> Result<usize, NnError> {
        let (_, parameters) = self.clone().init::<f32>(0)?;
        Ok(parameters.trained_count())
    }

    /// Which parameters weight decay acts on; all weights by default. How strong it is, the
    /// [`Method`](crate::Method) of the optimiser says.
    pub fn weight_decay(mut self, on: WeightDecay) -> Self {
        self.weight_decay = on;
        self
    }

    /// How the convolutions that follow put neighbours together; their sum by default.
    pub fn aggregation(mut self, aggregation: Aggregation) -> Self {
        self.conv.aggregation = aggregation;
        self
    }

    /// Kernels of the convolutions that follow; gauge equivariant by default.
    pub fn kernel(mut self, kernel: Kernel) -> Self {
        self.conv.kernel = kernel;
        self
    }

    /// Radial rings of the convolutions that follow, up to a radius; one ring by default.
    pub fn rings(mut self, rings: usize, max_radius: f64) -> Self {
        self.conv.rings = rings;
        self.conv.max_radius = max_radius;
        self
    }

    /// Number of neighbours that first values of the convolutions that follow are scaled for; 6 by
    /// default. [`GraphBatch::mean_degree`](crate::GraphBatch::mean_degree) tells it of data.
    pub fn degree(mut self, degree: f64) -> Self {
        self.conv.degree = degree;
        self
    }

    /// Adds any layer.
    pub fn layer(mut self, layer: LayerConfig) -> Self {
        self.layers.push(layer);
        self
    }

    /// Adds a convolution.
    pub fn conv(self, output: &FeatureType) -> Self {
        let conv = self.conv.clone();
        self.layer(LayerConfig::Conv {
            output: output.clone(),
            conv,
        })
    }

    /// Adds a residual block.
    pub fn residual(self, output: &FeatureType, nonlinearity: impl Into<Nonlinearity>) -> Self {
        let conv = self.conv.clone();
        self.layer(LayerConfig::Residual {
            output: output.clone(),
            middle: None,
            nonlinearity: nonlinearity.into(),
            conv,
        })
    }

    /// Adds a residual block with a type of choice between its convolutions.
    pub fn residual_through(
        self,
        middle: &FeatureType,
        output: &FeatureType,
        nonlinearity: impl Into<Nonlinearity>,
    ) -> Self {
        let conv = self.conv.clone();
        self.layer(LayerConfig::Residual {
            output: output.clone(),
            middle: Some(middle.clone()),
            nonlinearity: nonlinearity.into(),
            conv,
        })
    }

    /// Adds a nonlinearity. A gated one takes its gates from the last scalars
    /// ([`Nonlinearity::input`]).
    pub fn nonlinearity(self, nonlinearity: impl Into<Nonlinearity>) -> Self {
        self.layer(LayerConfig::Nonlinearity(nonlinearity.into()))
    }

    /// Adds a regular nonlinearity.
    pub fn regular(self, nonlinearity: Regular) -> Self {
        self.nonlinearity(nonlinearity)
    }

    /// Adds an equivariant linear map of each vertex by itself.
    pub fn equivariant_linear(self, output: &FeatureType) -> Self {
        self.layer(LayerConfig::EquivariantLinear {
            output: output.clone(),
        })
    }

    /// Adds a batch normalisation of irreps.
    pub fn norm(self) -> Self {
        self.layer(LayerConfig::Norm)
    }

    /// Adds dropout of irreps.
    pub fn dropout(self, probability: f64) -> Self {
        self.layer(LayerConfig::Dropout { probability })
    }

    /// Adds a plain linear map of scalars.
    pub fn linear(self, outputs: usize) -> Self {
        self.layer(LayerConfig::Linear { outputs })
    }

    /// Adds a function of each scalar.
    pub fn activation(self, activation: Activation) -> Self {
        self.layer(LayerConfig::Activation(activation))
    }

    /// Pools to the next coarser graph.
    pub fn down(self) -> Self {
        self.layer(LayerConfig::Down)
    }

    /// Comes back to the next finer graph, and joins on the features from before the pooling.
    pub fn up(self) -> Self {
        self.layer(LayerConfig::Up)
    }

    /// Adds pooling of each mesh to one row.
    pub fn global_pool(self, pool: GlobalPool) -> Self {
        self.layer(LayerConfig::GlobalPool(pool))
    }

    /// From here on all numbers count as scalars: the network is no longer gauge equivariant.
    pub fn break_symmetry(self) -> Self {
        self.layer(LayerConfig::BreakSymmetry)
    }

    /// Adds a linear map to `hidden` scalars, ReLU, and a linear map to the classes.
    pub fn head(self, hidden: usize, classes: usize) -> Self {
        self.linear(hidden)
            .activation(Activation::Relu)
            .linear(classes)
    }

    /// Makes the network and its parameters, with first values drawn from `seed`.
    ///
    /// # Errors
    /// A layer that cannot take the type that the one before gives.
    pub fn init<T: Real>(self, seed: u64) -> Result<(Network<T>, Parameters<T>), NnError> {
        let mut parameters = Parameters::new();
        let mut builder = Builder::new(&mut parameters, seed);
        let mut layers = Vec::with_capacity(self.layers.len());
        let mut lines = Vec::with_capacity(self.layers.len());
        let mut stage = Stage::new(self.input.clone());
        for (index, config) in self.layers.iter().enumerate() {
            let name = format!("{}{}", config.word(), index + 1);
            let (before, input) = (builder.trained_count(), stage.kind.clone());
            layers.push(config.init(&name, &mut stage, &mut builder)?);
            lines.push(LayerLine {
                name,
                input,
                output: stage.kind.clone(),
                parameters: builder.trained_count() - before,
            });
        }
        if self.weight_decay == WeightDecay::Linear {
            decay_linear_maps(&layers, &mut parameters);
        }
        let network = Network {
            levels: self.levels(),
            config: self,
            layers,
            lines,
            output: stage.kind,
        };
        Ok((network, parameters))
    }

    /// Where two networks differ, one line each.
    pub(super) fn differences(&self, stored: &Self) -> Vec<String> {
        let show = |layer: Option<&LayerConfig>| match layer {
            Some(layer) => serde_json::to_string(layer).unwrap_or_else(|e| e.to_string()),
            None => "nothing".into(),
        };
        let mut differences = Vec::new();
        if self.input != stored.input {
            differences.push(format!(
                "the input is {} in the file, but {} here",
                stored.input, self.input
            ));
        }
        if self.weight_decay != stored.weight_decay {
            differences.push(format!(
                "weight decay acts on {:?} in the file, but on {:?} here",
                stored.weight_decay, self.weight_decay
            ));
        }
        for index in 0..self.layers.len().max(stored.layers.len()) {
            let (ours, theirs) = (self.layers.get(index), stored.layers.get(index));
            if ours != theirs {
                differences.push(format!(
                    "layer {} is {} in the file, but {} here",
                    index + 1,
                    show(theirs),
                    show(ours)
                ));
            }
        }
        differences
    }
}

fn decay_linear_maps<T: Real>(layers: &[Layer<T>], parameters: &mut Parameters<T>) {
    let weights = layers.iter().filter_map(|layer| match layer {
        Layer::Linear(linear) => Some(linear.weights().weight),
        _ => None,
    });
    let names: HashSet<String> = weights
        .map(|id| parameters.get(id).name().to_owned())
        .collect();
    parameters.set_weight_decay(|name| names.contains(name));
}
