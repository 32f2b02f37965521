//! Networks as a list of layers: built in a few lines, printed, saved, trained.

use crate::layers::{
    EquivariantDropout, EquivariantDropoutConfig, EquivariantNorm, EquivariantNormConfig, GemConv,
    GemConvConfig, GlobalPool, Linear, LinearConfig, Regular, RegularNonlinearity, ResidualBlock,
    ResidualBlockConfig,
};
use crate::{
    Archive, Builder, Device, GraphBatch, Loss, NnError, Parameters, Rows, Tape, Targets, Var,
    Workspace, archive::no_differences, text,
};
use gemcnn_kernels::{Activation, Aggregation, FeatureType, Real};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Group of the weights in an archive, and key of the network's description.
const WEIGHTS: &str = "weights";
const NETWORK: &str = "network";

/// One layer of a [`NetworkConfig`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerConfig {
    /// A [`GemConv`].
    Conv {
        /// Type of its output.
        #[serde(with = "text")]
        output: FeatureType,
        /// How it aggregates.
        conv: ConvConfig,
    },
    /// A [`ResidualBlock`].
    Residual {
        /// Type of its output.
        #[serde(with = "text")]
        output: FeatureType,
        /// Both nonlinearities.
        nonlinearity: RegularConfig,
        /// How its convolutions aggregate.
        conv: ConvConfig,
    },
    /// A [`RegularNonlinearity`].
    Regular(RegularConfig),
    /// An [`EquivariantNorm`].
    Norm,
    /// An [`EquivariantDropout`] of irreps.
    Dropout {
        /// Probability of being dropped.
        probability: f64,
    },
    /// A [`Linear`] map of scalars.
    Linear {
        /// Scalars of its output.
        outputs: usize,
    },
    /// A function of each scalar.
    Activation(#[serde(with = "text::activation")] Activation),
    /// All numbers seen as scalars from here on: what follows depends on the choice of frames.
    BreakSymmetry,
    /// One row for each mesh.
    GlobalPool(GlobalPool),
}

/// How convolutions aggregate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConvConfig {
    /// How neighbours are put together.
    #[serde(with = "text::aggregation")]
    pub aggregation: Aggregation,
    /// Number of radial rings.
    pub rings: usize,
    /// Radius of the last ring.
    pub max_radius: f64,
    /// Number of neighbours that first values are scaled for.
    pub degree: f64,
}

/// A [`Regular`] nonlinearity, as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RegularConfig {
    samples: usize,
    #[serde(with = "text::activation")]
    activation: Activation,
    batch_norm: bool,
}

impl From<Regular> for RegularConfig {
    fn from(regular: Regular) -> Self {
        Self {
            samples: regular.samples,
            activation: regular.activation,
            batch_norm: regular.batch_norm,
        }
    }
}

impl RegularConfig {
    fn regular(&self) -> Regular {
        Regular {
            samples: self.samples,
            activation: self.activation.clone(),
            batch_norm: self.batch_norm,
        }
    }
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkConfig {
    #[serde(with = "text")]
    input: FeatureType,
    layers: Vec<LayerConfig>,
    /// For the convolutions that are still to come.
    #[serde(skip)]
    conv: ConvConfig,
}

impl Default for ConvConfig {
    fn default() -> Self {
        let GemConvConfig {
            aggregation,
            rings,
            max_radius,
            degree,
            ..
        } = GemConvConfig::new(FeatureType::default(), FeatureType::default());
        Self {
            aggregation,
            rings,
            max_radius,
            degree,
        }
    }
}

impl NetworkConfig {
    /// How the convolutions that follow put neighbours together; their sum by default.
    pub fn aggregation(mut self, aggregation: Aggregation) -> Self {
        self.conv.aggregation = aggregation;
        self
    }

    /// Radial rings of the convolutions that follow, up to a radius; one ring by default.
    pub fn rings(mut self, rings: usize, max_radius: f64) -> Self {
        self.conv.rings = rings;
        self.conv.max_radius = max_radius;
        self
    }

    /// Number of neighbours that first values of the convolutions that follow are scaled for; 6 by
    /// default. [`GraphBatch::mean_degree`] tells it of data.
    pub fn degree(mut self, degree: f64) -> Self {
        self.conv.degree = degree;
        self
    }

    /// Adds any layer.
    pub fn layer(mut self, layer: LayerConfig) -> Self {
        self.layers.push(layer);
        self
    }

    /// Adds a gauge convolution.
    pub fn conv(self, output: &FeatureType) -> Self {
        let conv = self.conv.clone();
        self.layer(LayerConfig::Conv {
            output: output.clone(),
            conv,
        })
    }

    /// Adds a residual block.
    pub fn residual(self, output: &FeatureType, nonlinearity: Regular) -> Self {
        let conv = self.conv.clone();
        self.layer(LayerConfig::Residual {
            output: output.clone(),
            nonlinearity: nonlinearity.into(),
            conv,
        })
    }

    /// Adds a regular nonlinearity.
    pub fn regular(self, nonlinearity: Regular) -> Self {
        self.layer(LayerConfig::Regular(nonlinearity.into()))
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
        let mut counts = Vec::with_capacity(self.layers.len());
        let mut kind = self.input.clone();
        let mut moments = Vec::new();
        for (index, config) in self.layers.iter().enumerate() {
            let name = format!("{}{}", config.word(), index + 1);
            let before = builder.trained_count();
            let layer = config.init(&name, &kind, &mut moments, &mut builder)?;
            let output = config.output(&kind);
            counts.push(LayerLine {
                name,
                input: std::mem::replace(&mut kind, output.clone()),
                output,
                parameters: builder.trained_count() - before,
            });
            layers.push(layer);
        }
        let network = Network {
            config: self,
            layers,
            lines: counts,
            output: kind,
        };
        Ok((network, parameters))
    }
}

impl LayerConfig {
    fn word(&self) -> &'static str {
        match self {
            Self::Conv { .. } => "conv",
            Self::Residual { .. } => "block",
            Self::Regular(_) => "regular",
            Self::Norm => "norm",
            Self::Dropout { .. } => "dropout",
            Self::Linear { .. } => "linear",
            Self::Activation(_) => "activation",
            Self::BreakSymmetry => "break",
            Self::GlobalPool(_) => "pool",
        }
    }

    fn output(&self, input: &FeatureType) -> FeatureType {
        match self {
            Self::Conv { output, .. } | Self::Residual { output, .. } => output.clone(),
            Self::Linear { outputs } => FeatureType::scalars(*outputs),
            Self::BreakSymmetry => FeatureType::scalars(input.dimension()),
            _ => input.clone(),
        }
    }

    /// `moments` are the mean squares of input components by order that are expected (none: all 1), and
    /// then of output ones.
    fn init<T: Real>(
        &self,
        name: &str,
        input: &FeatureType,
        moments: &mut Vec<f64>,
        builder: &mut Builder<'_, T>,
    ) -> Result<Layer<T>, NnError> {
        let conv_config =
            |output: &FeatureType, conv: &ConvConfig, moments: Vec<f64>| GemConvConfig {
                aggregation: conv.aggregation,
                rings: conv.rings,
                max_radius: conv.max_radius,
                degree: conv.degree,
                input_moments: moments,
                ..GemConvConfig::new(input.clone(), output.clone())
            };
        let scalars_only = || match input.is_scalar() {
            true => Ok(()),
            false => Err(NnError::Type {
                what: "input".into(),
                expected: FeatureType::scalars(input.dimension()),
                found: input.clone(),
            }
            .in_layer(name)),
        };
        Ok(match self {
            Self::Conv { output, conv } => {
                let config = conv_config(output, conv, std::mem::take(moments));
                Layer::Conv(config.init(name, builder)?)
            }
            Self::Residual {
                output,
                nonlinearity,
                conv,
            } => {
                let config = ResidualBlockConfig {
                    nonlinearity: nonlinearity.regular(),
                    conv: conv_config(output, conv, std::mem::take(moments)),
                    ..ResidualBlockConfig::new(input.clone(), output.clone())
                };
                Layer::Residual(Box::new(config.init(name, builder)?))
            }
            Self::Regular(regular) => {
                let regular = regular.regular();
                *moments = regular.moments(input);
                Layer::Regular(regular.init(name, input, builder)?)
            }
            Self::Norm => {
                moments.clear();
                Layer::Norm(EquivariantNormConfig::new(input.clone()).init(name, builder)?)
            }
            Self::Dropout { probability } => {
                let config = EquivariantDropoutConfig {
                    probability: *probability,
                    ..EquivariantDropoutConfig::new(input.clone())
                };
                Layer::Dropout(config.init(name)?)
            }
            Self::Linear { outputs } => {
                scalars_only()?;
                let config = LinearConfig {
                    input_moment: moments.first().copied().unwrap_or(1.0),
                    ..LinearConfig::new(input.dimension(), *outputs)
                };
                moments.clear();
                Layer::Linear(config.init(name, builder)?)
            }
            Self::Activation(activation) => {
                scalars_only()?;
                let regular = Regular {
                    samples: 1,
                    activation: activation.clone(),
                    batch_norm: false,
                };
                *moments = regular.moments(&FeatureType::scalars(1));
                Layer::Activation(activation.clone())
            }
            Self::BreakSymmetry => {
                moments.clear();
                Layer::BreakSymmetry
            }
            Self::GlobalPool(pool) => {
                scalars_only()?;
                Layer::GlobalPool(*pool)
            }
        })
    }
}

#[derive(Debug, Clone)]
enum Layer<T: Real> {
    Conv(GemConv),
    Residual(Box<ResidualBlock<T>>),
    Regular(RegularNonlinearity<T>),
    Norm(EquivariantNorm),
    Dropout(EquivariantDropout),
    Linear(Linear),
    Activation(Activation),
    BreakSymmetry,
    GlobalPool(GlobalPool),
}

impl<T: Real> Layer<T> {
    fn forward<'a>(
        &self,
        tape: &mut Tape<'a, T>,
        batch: &'a GraphBatch<T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        match self {
            Self::Conv(conv) => conv.forward(tape, batch, x),
            Self::Residual(block) => block.forward(tape, batch, x),
            Self::Regular(regular) => regular.forward(tape, x),
            Self::Norm(norm) => norm.forward(tape, x),
            Self::Dropout(dropout) => dropout.forward(tape, x),
            Self::Linear(linear) => linear.forward(tape, x),
            Self::Activation(activation) => tape.activation(activation, x),
            Self::BreakSymmetry => Ok(x.into_scalars()),
            Self::GlobalPool(pool) => pool.forward(tape, batch, x),
        }
    }
}

/// What is printed of a layer.
#[derive(Debug, Clone)]
struct LayerLine {
    name: String,
    input: FeatureType,
    output: FeatureType,
    parameters: usize,
}

/// A network: layers one after the other. Its parameters lie in [`Parameters`].
#[derive(Debug, Clone)]
pub struct Network<T: Real> {
    config: NetworkConfig,
    layers: Vec<Layer<T>>,
    lines: Vec<LayerLine>,
    output: FeatureType,
}

impl Network<f32> {
    /// Begins a network, in whatever precision it is made in the end.
    pub fn builder(input: FeatureType) -> NetworkConfig {
        NetworkConfig {
            input,
            layers: Vec::new(),
            conv: ConvConfig::default(),
        }
    }
}

impl<T: Real> Network<T> {
    /// Type of the input.
    pub fn input(&self) -> &FeatureType {
        &self.config.input
    }

    /// Type of the output.
    pub fn output(&self) -> &FeatureType {
        &self.output
    }

    /// What it was made of.
    pub fn config(&self) -> &NetworkConfig {
        &self.config
    }

    /// Runs all layers.
    ///
    /// # Shapes
    /// `x`: one row of the input type for each vertex of the batch; result: one row of the output type
    /// for each vertex, or for each mesh after a global pooling.
    ///
    /// # Errors
    /// Features of another type or number of rows.
    pub fn forward<'a>(
        &self,
        tape: &mut Tape<'a, T>,
        batch: &'a GraphBatch<T>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        self.run(&self.layers, tape, batch, x)
    }

    /// Runs all layers and compares with labels by cross-entropy. A last linear map is fused with the
    /// loss, so that rows times classes logits never exist at once.
    ///
    /// # Shapes
    /// As [`forward`](Self::forward), with one label for each row of the output.
    ///
    /// # Errors
    /// Features of another type or number of rows, or a label that names no class.
    pub fn classify<'a>(
        &self,
        tape: &mut Tape<'a, T>,
        batch: &'a GraphBatch<T>,
        x: Var<T>,
        targets: Targets<'a, T>,
        rows: Rows<'_>,
    ) -> Result<Loss, NnError> {
        match self.layers.split_last() {
            Some((Layer::Linear(last), layers)) => {
                let features = self.run(layers, tape, batch, x)?;
                tape.classifier(last.weights(), features, targets, rows)
                    .map_err(|error| error.in_layer(last.name()))
            }
            _ => {
                let logits = self.forward(tape, batch, x)?;
                tape.cross_entropy(logits, targets)
            }
        }
    }

    /// Rescales the convolutions on data before training, so that features have unit scale in every
    /// order after each of them ([`Tape::calibrating`]). This runs on the CPU, wherever the workspace is.
    ///
    /// # Errors
    /// Features of another type or number of rows.
    pub fn calibrate(
        &self,
        workspace: &mut Workspace<T>,
        parameters: &mut Parameters<T>,
        batch: &GraphBatch<T>,
        features: &[T],
    ) -> Result<(), NnError> {
        parameters.move_to_host()?;
        let mut on_host = Workspace::default();
        let workspace = match workspace.device() {
            Device::Cpu => workspace,
            Device::Cuda(_) => &mut on_host,
        };
        let mut tape = Tape::calibrating(workspace, parameters);
        let x = tape.input(self.config.input.clone(), features)?;
        self.forward(&mut tape, batch, x).map(drop)
    }

    fn run<'a>(
        &self,
        layers: &[Layer<T>],
        tape: &mut Tape<'a, T>,
        batch: &'a GraphBatch<T>,
        mut x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        x.expect_kind("input of the network", &self.config.input)?;
        for (layer, line) in layers.iter().zip(&self.lines) {
            x = layer.forward(tape, batch, x).map_err(|error| match error {
                named @ NnError::Layer { .. } => named,
                other => other.in_layer(&line.name),
            })?;
        }
        Ok(x)
    }

    /// Puts weights and configuration into an archive.
    ///
    /// # Errors
    /// None that can happen.
    pub fn store(&self, archive: &mut Archive, parameters: &Parameters<T>) -> Result<(), NnError> {
        archive.set_json(NETWORK, &self.config)?;
        parameters.store(archive, WEIGHTS)
    }

    /// Takes weights from an archive, after a check that they are of the same network.
    ///
    /// # Errors
    /// Every layer that differs, or every name and shape that differs.
    pub fn load(&self, archive: &Archive, parameters: &mut Parameters<T>) -> Result<(), NnError> {
        let stored: NetworkConfig = archive.json(NETWORK)?;
        no_differences(self.config.differences(&stored))?;
        parameters.load(archive, WEIGHTS)
    }

    /// The network that an archive holds, with its weights.
    ///
    /// # Errors
    /// An archive without a network, or whose weights do not fit it.
    pub fn from_archive(archive: &Archive) -> Result<(Self, Parameters<T>), NnError> {
        let config: NetworkConfig = archive.json(NETWORK)?;
        let (network, mut parameters) = config.init(0)?;
        parameters.load(archive, WEIGHTS)?;
        Ok((network, parameters))
    }
}

impl NetworkConfig {
    /// Where two networks differ, one line each.
    fn differences(&self, stored: &Self) -> Vec<String> {
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

impl<T: Real> fmt::Display for Network<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrow = |line: &LayerLine| format!("{} -> {}", line.input, line.output);
        let longest =
            |cell: fn(&LayerLine) -> usize| self.lines.iter().map(cell).max().unwrap_or(0);
        let names = longest(|line| line.name.len());
        let arrows = self.lines.iter().map(|line| arrow(line).len());
        let arrows = arrows.max().unwrap_or(0);
        for line in &self.lines {
            let arrow = arrow(line);
            writeln!(
                f,
                "{:names$}  {arrow:arrows$}  {:>9}",
                line.name, line.parameters
            )?;
        }
        let total: usize = self.lines.iter().map(|line| line.parameters).sum();
        write!(f, "{:names$}  {:arrows$}  {total:>9}", "total", "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> NetworkConfig {
        Network::builder("1x0".parse().unwrap())
            .aggregation(Aggregation::Mean)
            .conv(&"2x0 + 2x1".parse().unwrap())
            .regular(Regular::relu(5).with_batch_norm())
            .residual(&FeatureType::scalars(4), Regular::relu(3))
            .dropout(0.25)
            .head(8, 3)
    }

    #[test]
    fn it_prints_types_and_parameters() {
        let (network, parameters) = small().init::<f64>(1).unwrap();
        let expected = "\
conv1        1x0 -> 2x0 + 2x1               10
regular2     2x0 + 2x1 -> 2x0 + 2x1          4
block3       2x0 + 2x1 -> 4x0              176
dropout4     4x0 -> 4x0                      0
linear5      4x0 -> 8x0                     40
activation6  8x0 -> 8x0                      0
linear7      8x0 -> 3x0                     27
total                                      257";
        assert_eq!(network.to_string(), expected);
        assert_eq!(parameters.trained_count(), 257);
    }

    #[test]
    fn a_stored_network_comes_back_whole() {
        let (network, parameters) = small().init::<f64>(1).unwrap();
        let mut archive = Archive::new();
        network.store(&mut archive, &parameters).unwrap();
        let archive = Archive::from_bytes(&archive.to_bytes().unwrap()).unwrap();
        let (again, loaded) = Network::<f64>::from_archive(&archive).unwrap();
        assert_eq!(again.to_string(), network.to_string());
        for (a, b) in parameters.iter().zip(loaded.iter()) {
            assert_eq!((a.name(), a.value()), (b.name(), b.value()));
        }
        let (other, mut values) = small().head(4, 3).init::<f64>(1).unwrap();
        let message = other.load(&archive, &mut values).unwrap_err().to_string();
        for part in ["layer 8 is nothing in the file", "layer 10 is nothing"] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn layers_that_do_not_fit_are_named() {
        let hidden: FeatureType = "2x0 + 2x1".parse().unwrap();
        let input = || Network::builder("1x0".parse().unwrap());
        let message = |config: NetworkConfig| config.init::<f32>(1).unwrap_err().to_string();
        let linear = message(input().conv(&hidden).linear(3));
        assert!(linear.starts_with("linear2: input: expected"), "{linear}");
        let uneven: FeatureType = "2x0 + 3x1".parse().unwrap();
        let regular = message(input().conv(&uneven).regular(Regular::relu(5)));
        assert!(regular.starts_with("regular2: "), "{regular}");
        assert!(regular.contains("2x0 + 3x1"), "{regular}");
    }
}
