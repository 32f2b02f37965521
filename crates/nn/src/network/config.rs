//! The description of a network, layer by layer.

use super::{Layers, Network};
use crate::error::expect_scalars;
use crate::layers::{
    ActivationLayer, BreakSymmetry, ConvConfig, DiffusionBlockConfig, ElementMean, EquivariantDropoutConfig,
    EquivariantLinearConfig, EquivariantNormConfig, GlobalPool, Kernel, Linear, LinearConfig, MessageBlockConfig,
    Nonlinearity, Regular, ResidualBlockConfig,
};
use crate::module::{Module, Part};
use crate::{Builder, NnError, ParameterId, Parameters, Result};
use gemcnn_kernels::{Activation, Aggregation, FeatureType, Real};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Which parameters weight decay acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightDecay {
    /// The weights of all layers; not biases, scales and shifts.
    #[default]
    All,
    /// Only the weights of [`Linear`] layers, as in the paper.
    Linear,
}

/// Settings of a layer in a [`NetworkConfig`]. Implement it to add a layer of your own with
/// [`NetworkConfig::layer`].
pub trait LayerConfig<T: Real>: fmt::Debug + Send + Sync {
    /// First part of the name of the layer, such as `conv`. Its position in the network is the second part: `conv1`.
    fn word(&self) -> &'static str;

    /// Adds the parameters of the layer and returns it.
    ///
    /// `stage` describes the input; the implementation updates it to the output with [`Stage::move_to`]. Parameters are
    /// added with `builder.within(name, ...)`, so that their names are unique. A layer that needs vertices must check
    /// [`Stage::pooled`] and return an error if it is true.
    ///
    /// # Errors
    /// An unsupported input type, features of whole meshes for a layer that needs vertices, or a name that is taken.
    /// [`NnError::in_layer`] adds `name` to the message.
    fn init(&self, name: &str, stage: &mut Stage, builder: &mut Builder<'_, T>) -> Result<Box<dyn Module<T>>>;
}

/// Properties of the features between two layers.
#[derive(Debug, Clone)]
pub struct Stage {
    /// Their type.
    pub kind: FeatureType,
    /// Expected mean squares of components by order; 1 for orders that are not listed.
    pub moments: Vec<f64>,
    /// True after a pooling: there is one row for each mesh, face or edge instead of one for each vertex.
    pub pooled: bool,
    /// Weights of linear layers so far.
    linear_weights: Vec<ParameterId>,
    /// The layer itself if it is linear: the last layer becomes the head of the network.
    linear: Option<Linear>,
}

/// Builds a layer from its name, the stage and the builder.
type Init<T> = dyn Fn(&str, &mut Stage, &mut Builder<'_, T>) -> Result<Box<dyn Module<T>>> + Send + Sync;

/// A layer of this crate.
struct BuiltIn<T: Real> {
    word: &'static str,
    needs_vertices: bool,
    init: Box<Init<T>>,
}

impl<T: Real> fmt::Debug for BuiltIn<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word)
    }
}

impl<T: Real> LayerConfig<T> for BuiltIn<T> {
    fn word(&self) -> &'static str {
        self.word
    }

    fn init(&self, name: &str, stage: &mut Stage, builder: &mut Builder<'_, T>) -> Result<Box<dyn Module<T>>> {
        if stage.pooled && self.needs_vertices {
            let problem = "it needs vertices, but the rows are meshes, faces or edges after a pooling";
            return Err(NnError::setting("layer", problem).in_layer(name));
        }
        (self.init)(name, stage, builder)
    }
}

/// The description of a network: its input type and its layers.
///
/// ```
/// use gemcnn_nn::{FeatureType, Module, Network};
/// use gemcnn_nn::layers::Regular;
/// let hidden: FeatureType = "16x0 + 16x1 + 16x2".parse()?;
/// let (network, parameters) = Network::<f32>::builder("3x0".parse()?)
///     .residual(&hidden, Regular::relu(5))
///     .residual(&hidden, Regular::relu(5))
///     .residual(&FeatureType::scalars(64), Regular::relu(5))
///     .head(256, 10)
///     .init(1)?;
/// println!("{network}");
/// assert_eq!(network.output(), &FeatureType::scalars(10));
/// # assert!(parameters.trained_count() > 0);
/// # Ok::<(), gemcnn_nn::NnError>(())
/// ```
#[derive(Debug, Clone)]
pub struct NetworkConfig<T> {
    input: FeatureType,
    weight_decay: WeightDecay,
    layers: Vec<Arc<dyn LayerConfig<T>>>,
    /// Settings of the convolutions that follow.
    conv: ConvConfig<T>,
}

impl<T: Real> NetworkConfig<T> {
    pub(super) fn new(input: FeatureType) -> Self {
        Self { input, weight_decay: WeightDecay::default(), layers: Vec::new(), conv: ConvConfig::default() }
    }

    /// Which parameters weight decay acts on (default: all weights). Its strength is a setting of the
    /// optimiser ([`Method`](crate::Method)).
    pub fn weight_decay(mut self, on: WeightDecay) -> Self {
        self.weight_decay = on;
        self
    }

    /// Aggregation of the convolutions that follow (default: sum).
    pub fn aggregation(mut self, aggregation: Aggregation) -> Self {
        self.conv.aggregation = aggregation;
        self
    }

    /// Kernel of the convolutions that follow (default: [`Gauge`](crate::layers::Gauge)).
    pub fn kernel(mut self, kernel: impl Kernel<T> + 'static) -> Self {
        self.conv.kernel = Arc::new(kernel);
        self
    }

    /// Radial rings of the convolutions that follow, up to a radius (default: one ring).
    pub fn rings(mut self, rings: usize, max_radius: f64) -> Self {
        self.conv.rings = rings;
        self.conv.max_radius = max_radius;
        self
    }

    /// Number of neighbours that the initialisation of the convolutions that follow assumes (default 6).
    /// [`GraphBatch::mean_degree`](crate::GraphBatch::mean_degree) gives it for data.
    pub fn degree(mut self, degree: f64) -> Self {
        self.conv.degree = degree;
        self
    }

    /// Adds a layer of any kind, for example one of your own.
    pub fn layer(mut self, layer: impl LayerConfig<T> + 'static) -> Self {
        self.layers.push(Arc::new(layer));
        self
    }

    fn built_in(
        self,
        word: &'static str,
        needs_vertices: bool,
        init: impl Fn(&str, &mut Stage, &mut Builder<'_, T>) -> Result<Box<dyn Module<T>>> + Send + Sync + 'static,
    ) -> Self {
        let init = Box::new(init);
        self.layer(BuiltIn { word, needs_vertices, init })
    }

    /// Adds a convolution with the settings given before.
    pub fn conv(self, output: &FeatureType) -> Self {
        let (conv, output) = (self.conv.clone(), output.clone());
        self.built_in("conv", true, move |name, stage, builder| {
            let (input, moments) = stage.move_to(output.clone(), Vec::new());
            conv.init(name, [&input, &output], &moments, builder)
        })
    }

    /// Adds a residual block of two convolutions with the settings given before.
    pub fn residual(self, output: &FeatureType, nonlinearity: impl Nonlinearity<T> + 'static) -> Self {
        self.block(None, output, Arc::new(nonlinearity))
    }

    /// Adds a residual block with a given type between its convolutions.
    pub fn residual_through(
        self,
        middle: &FeatureType,
        output: &FeatureType,
        nonlinearity: impl Nonlinearity<T> + 'static,
    ) -> Self {
        self.block(Some(middle.clone()), output, Arc::new(nonlinearity))
    }

    /// Adds a residual block; `middle` is the type between its convolutions, by default that of
    /// [`ResidualBlockConfig::new`].
    pub fn block(
        self,
        middle: Option<FeatureType>,
        output: &FeatureType,
        nonlinearity: Arc<dyn Nonlinearity<T>>,
    ) -> Self {
        let (conv, output) = (self.conv.clone(), output.clone());
        self.built_in("block", true, move |name, stage, builder| {
            let (input, input_moments) = stage.move_to(output.clone(), Vec::new());
            let standard = ResidualBlockConfig::new(input, output.clone());
            let config = ResidualBlockConfig {
                middle: middle.clone().unwrap_or(standard.middle.clone()),
                nonlinearity: Arc::clone(&nonlinearity),
                conv: conv.clone(),
                input_moments,
                ..standard
            };
            Ok(Box::new(config.init(name, builder)?))
        })
    }

    /// Adds a block of diffusion on surfaces. Its features are those of the layer before.
    pub fn diffusion_block(self, config: DiffusionBlockConfig) -> Self {
        self.built_in("block", true, move |name, stage, builder| {
            if stage.kind != config.features {
                let problem = format!("its input has type {}, not {}", stage.kind, config.features);
                return Err(NnError::setting("layer", problem).in_layer(name));
            }
            stage.move_to(config.features.clone(), Vec::new());
            Ok(Box::new(config.init(name, builder)?))
        })
    }

    /// Adds a block of nonlinear messages.
    pub fn message_block(self, config: MessageBlockConfig<T>) -> Self {
        self.built_in("block", true, move |name, stage, builder| {
            let (input, moments) = stage.move_to(config.output.clone(), Vec::new());
            Ok(Box::new(config.init(name, &input, &moments, builder)?))
        })
    }

    /// Adds a nonlinearity. [`Gates`](crate::layers::Gates) use the last scalars of their input as gates
    /// ([`Nonlinearity::input`]).
    pub fn nonlinearity(self, nonlinearity: impl Nonlinearity<T> + 'static) -> Self {
        self.built_in(nonlinearity.word(), false, move |name, stage, builder| {
            let output = nonlinearity.output(&stage.kind);
            let output = output.map_err(|error| error.in_layer(name))?;
            let moments = nonlinearity.moments(&output);
            stage.move_to(output.clone(), moments);
            nonlinearity.init(name, &output, builder)
        })
    }

    /// Adds an equivariant linear map of each row.
    pub fn equivariant_linear(self, output: &FeatureType) -> Self {
        let output = output.clone();
        self.built_in("map", false, move |name, stage, builder| {
            let (input, _) = stage.move_to(output.clone(), Vec::new());
            let config = EquivariantLinearConfig::new(input, output.clone());
            Ok(Box::new(config.init(name, builder)?))
        })
    }

    /// Adds a batch normalisation of irreps.
    pub fn norm(self) -> Self {
        self.built_in("norm", false, |name, stage, builder| {
            let (input, _) = stage.move_to(stage.kind.clone(), Vec::new());
            Ok(Box::new(EquivariantNormConfig::new(input).init(name, builder)?))
        })
    }

    /// Adds dropout of whole irreps, which are single values for scalars.
    pub fn dropout(self, probability: f64) -> Self {
        self.built_in("dropout", false, move |name, stage, _| {
            let config = EquivariantDropoutConfig { probability, ..EquivariantDropoutConfig::new(stage.kind.clone()) };
            Ok(Box::new(config.init(name)?))
        })
    }

    /// Adds a linear layer of scalars.
    pub fn linear(self, outputs: usize) -> Self {
        self.built_in("linear", false, move |name, stage, builder| {
            expect_scalars("input", &stage.kind).map_err(|error| error.in_layer(name))?;
            let (input, moments) = stage.move_to(FeatureType::scalars(outputs), Vec::new());
            let config = LinearConfig {
                input_moment: moments.first().copied().unwrap_or(1.0),
                ..LinearConfig::new(input.dimension(), outputs)
            };
            let linear = config.init(name, builder)?;
            stage.linear_weights.push(linear.weights().weight);
            stage.linear = Some(linear.clone());
            Ok(Box::new(linear))
        })
    }

    /// Adds a pointwise function of scalars.
    pub fn activation(self, activation: Activation) -> Self {
        self.built_in("activation", false, move |name, stage, _| {
            expect_scalars("input", &stage.kind).map_err(|error| error.in_layer(name))?;
            let regular = Regular { activation: activation.clone(), ..Regular::relu(1) };
            let moments = Nonlinearity::<T>::moments(&regular, &FeatureType::scalars(1));
            let (input, _) = stage.move_to(stage.kind.clone(), moments);
            Ok(Box::new(ActivationLayer::new(activation.clone(), input.dimension())))
        })
    }

    /// Adds global pooling of scalars: one row for each mesh.
    pub fn global_pool(self, pool: GlobalPool) -> Self {
        self.built_in("pool", true, move |name, stage, _| {
            expect_scalars("input", &stage.kind).map_err(|error| error.in_layer(name))?;
            stage.pooled = true;
            Ok(Box::new(pool.init(stage.kind.dimension())))
        })
    }

    /// Adds the mean of scalars over the vertices of each face or edge: one row for each
    /// ([`Elements`](crate::Elements)).
    pub fn element_mean(self) -> Self {
        self.built_in("elements", true, move |name, stage, _| {
            expect_scalars("input", &stage.kind).map_err(|error| error.in_layer(name))?;
            stage.pooled = true;
            Ok(Box::new(ElementMean::new(stage.kind.dimension())))
        })
    }

    /// Treats all components as scalars from here on: the network is no longer gauge equivariant.
    pub fn break_symmetry(self) -> Self {
        self.built_in("break", false, |_, stage, _| {
            let scalars = FeatureType::scalars(stage.kind.dimension());
            let (input, _) = stage.move_to(scalars, Vec::new());
            Ok(Box::new(BreakSymmetry::new(input)))
        })
    }

    /// Adds a linear layer to `hidden` scalars, ReLU, and a linear layer to the classes.
    pub fn head(self, hidden: usize, classes: usize) -> Self {
        self.linear(hidden).activation(Activation::Relu).linear(classes)
    }

    /// Builds the network and its parameters, initialised from `seed`.
    ///
    /// # Errors
    /// A layer whose input type does not match the output of the layer before it, or invalid settings.
    pub fn init(&self, seed: u64) -> Result<(Network<T>, Parameters<T>)> {
        let mut parameters = Parameters::new();
        let network = self.build(&mut Builder::new(&mut parameters, seed))?;
        Ok((network, parameters))
    }

    /// Builds the network as a part of a larger model, in the scope of `builder`.
    pub fn build(&self, builder: &mut Builder<'_, T>) -> Result<Network<T>> {
        let mut stage = Stage {
            kind: self.input.clone(),
            moments: Vec::new(),
            pooled: false,
            linear_weights: Vec::new(),
            linear: None,
        };
        let mut layers = Vec::with_capacity(self.layers.len());
        let mut parts = Vec::with_capacity(self.layers.len());
        let mut head = None;
        for (index, config) in self.layers.iter().enumerate() {
            let name = format!("{}{}", config.word(), index + 1);
            let (before, input) = (builder.trained_count(), stage.kind.clone());
            let layer = config.init(&name, &mut stage, builder)?;
            head = stage.linear.take();
            parts.push(Part {
                name: name.clone(),
                input,
                output: stage.kind.clone(),
                parameters: builder.trained_count() - before,
                level: 0,
            });
            layers.push((name, layer));
        }
        if self.weight_decay == WeightDecay::Linear {
            builder.decay_only(&stage.linear_weights);
        }
        let levels = layers.iter().map(|(_, layer)| layer.levels()).max();
        if head.is_some() {
            layers.pop();
        }
        let body = Layers {
            output: match (&head, parts.last()) {
                (Some(_), Some(last)) => last.input.clone(),
                _ => stage.kind.clone(),
            },
            input: self.input.clone(),
            layers,
        };
        Ok(Network { body, head, output: stage.kind, parts, levels: levels.unwrap_or(1) })
    }
}

impl Stage {
    /// Sets type and moments; returns the previous ones. Empty moments mean unit scale in all orders.
    pub fn move_to(&mut self, kind: FeatureType, moments: Vec<f64>) -> (FeatureType, Vec<f64>) {
        (std::mem::replace(&mut self.kind, kind), std::mem::replace(&mut self.moments, moments))
    }
}
