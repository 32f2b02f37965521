//! Networks as a list of layers: built in a few lines, printed, saved, trained.

mod config;
mod layer;

pub use config::{NetworkConfig, WeightDecay};
pub use layer::LayerConfig;

use crate::tape::AnyTargets;
use crate::training_batch::SentTarget;
use crate::{
    Archive, BatchTarget, ClusterArrays, Device, GraphBatch, IGNORE, Levels, Loss, NnError,
    Parameters, Penalty, Rows, Tape, Targets, TrainingBatch, Var, Workspace,
    archive::no_differences,
};
use gemcnn_kernels::{FeatureType, Real, cross_entropy};
use layer::Layer;
use std::fmt;

/// Group of the weights in an archive, and key of the network's description.
const WEIGHTS: &str = "weights";
const NETWORK: &str = "network";

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
    levels: usize,
}

/// Where in a hierarchy a forward pass is, and what waits on finer graphs.
struct Place<'a, T: Real> {
    levels: Levels<'a, T>,
    level: usize,
    kept: Vec<Var<T>>,
}

impl<'a, T: Real> Place<'a, T> {
    fn graph(&self) -> Result<&'a GraphBatch<T>, NnError> {
        let graph = self.levels.graphs().get(self.level);
        graph.ok_or_else(|| self.missing(self.level))
    }

    /// The clusters that lead to the next coarser graph.
    fn down(&mut self, x: Var<T>) -> Result<&'a ClusterArrays<T>, NnError> {
        let clusters = self.levels.clusters().get(self.level);
        self.kept.push(x);
        self.level += 1;
        clusters.ok_or_else(|| self.missing(self.level))
    }

    /// The clusters that lead to the next finer graph, and what was kept there.
    fn up(&mut self) -> Result<(&'a ClusterArrays<T>, Var<T>), NnError> {
        self.level = self.level.saturating_sub(1);
        let clusters = self.levels.clusters().get(self.level);
        clusters
            .zip(self.kept.pop())
            .ok_or_else(|| self.missing(self.level + 1))
    }

    fn missing(&self, level: usize) -> NnError {
        NnError::Levels {
            needed: level + 1,
            found: self.levels.count(),
        }
    }
}

impl Network<f32> {
    /// Begins a network, in whatever precision it is made in the end.
    pub fn builder(input: FeatureType) -> NetworkConfig {
        NetworkConfig::new(input)
    }
}

impl<T: Real> Network<T> {
    /// Type of the input.
    pub fn input(&self) -> &FeatureType {
        self.config.input()
    }

    /// Type of the output.
    pub fn output(&self) -> &FeatureType {
        &self.output
    }

    /// What it was made of.
    pub fn config(&self) -> &NetworkConfig {
        &self.config
    }

    /// How many graphs it runs on ([`NetworkConfig::levels`]).
    pub fn levels(&self) -> usize {
        self.levels
    }

    /// Runs all layers, on a [`GraphBatch`] or, if the network pools, on a
    /// [`HierarchyBatch`](crate::HierarchyBatch).
    ///
    /// # Shapes
    /// `x`: one row of the input type for each vertex of the batch; result: one row of the output type
    /// for each vertex of the graph that it ends on, or for each mesh after a global pooling.
    ///
    /// # Errors
    /// Features of another type or number of rows, or too few levels.
    pub fn forward<'a>(
        &self,
        tape: &mut Tape<'a, T>,
        levels: impl Into<Levels<'a, T>>,
        x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        self.run(&self.layers, tape, levels.into(), x)
    }

    /// Runs all layers and compares with labels by cross-entropy. A last linear map is fused with the
    /// loss, so that rows times classes logits never exist at once.
    ///
    /// # Shapes
    /// As [`forward`](Self::forward), with one label for each row of the output.
    ///
    /// # Errors
    /// Features of another type or number of rows, too few levels, or a label that names no class.
    pub fn classify<'a>(
        &self,
        tape: &mut Tape<'a, T>,
        levels: impl Into<Levels<'a, T>>,
        x: Var<T>,
        targets: Targets<'a, T>,
        rows: Rows<'_>,
    ) -> Result<Loss, NnError> {
        self.classify_any(tape, levels.into(), x, AnyTargets::Host(targets), rows)
    }

    fn classify_any<'a>(
        &self,
        tape: &mut Tape<'a, T>,
        levels: Levels<'a, T>,
        x: Var<T>,
        targets: AnyTargets<'a, T>,
        rows: Rows<'_>,
    ) -> Result<Loss, NnError> {
        match self.layers.split_last() {
            Some((Layer::Linear(last), layers)) => {
                let features = self.run(layers, tape, levels, x)?;
                tape.any_classifier(last.weights(), features, targets, rows)
                    .map_err(|error| error.in_layer(last.name()))
            }
            _ => {
                let logits = self.forward(tape, levels, x)?;
                if rows.ranks.is_some() {
                    return Err(NnError::setting(
                        "ranks",
                        "they need a network that ends with a linear map",
                    ));
                }
                if let Some(predictions) = rows.predictions {
                    let classes = logits.kind().dimension();
                    cross_entropy::predict(classes, &logits.values()?, predictions)?;
                }
                tape.any_cross_entropy(logits, targets)
            }
        }
    }

    /// The loss of the network on a batch: cross-entropy of classes, or the penalty on values.
    ///
    /// # Errors
    /// A batch without target, or one that the network does not fit.
    pub fn loss<'a>(
        &self,
        tape: &mut Tape<'a, T>,
        batch: &'a TrainingBatch<T>,
    ) -> Result<Loss, NnError> {
        let levels = batch.levels();
        let Some(device) = tape.cuda() else {
            let x = tape.input(batch.kind().clone(), batch.features())?;
            return match batch.target() {
                BatchTarget::Classes {
                    classes,
                    labels,
                    weights,
                } => {
                    let targets = Targets {
                        classes: *classes,
                        labels,
                        class_weights: weights.as_deref(),
                    };
                    self.classify(tape, levels, x, targets, Rows::default())
                }
                BatchTarget::Values {
                    penalty,
                    values,
                    known,
                    ..
                } => self.regress(tape, levels, x, *penalty, values, known.as_deref()),
            };
        };
        let sent = batch.on(&device)?;
        let x = tape.shared_input(batch.kind().clone(), sent.features());
        match sent.target() {
            SentTarget::Classes(targets) => {
                let targets = AnyTargets::Cuda(targets.clone());
                self.classify_any(tape, levels, x, targets, Rows::default())
            }
            SentTarget::Values(values) => {
                let prediction = self.forward(tape, levels, x)?;
                tape.cuda_regression(device, prediction, values.clone())
            }
        }
    }

    /// Runs all layers and tells the class with the largest output for each row, the lower one in ties.
    /// As in [`classify`](Self::classify), rows times classes outputs of a last linear map never exist
    /// at once.
    ///
    /// # Shapes
    /// `x` as in [`forward`](Self::forward); result: one class for each row of the output.
    ///
    /// # Errors
    /// Features of another type or number of rows, or too few levels.
    pub fn predict_classes<'a>(
        &self,
        tape: &mut Tape<'a, T>,
        levels: impl Into<Levels<'a, T>>,
        x: Var<T>,
    ) -> Result<Vec<u32>, NnError> {
        match self.layers.split_last() {
            Some((Layer::Linear(last), layers)) => {
                let features = self.run(layers, tape, levels.into(), x)?;
                let labels = vec![IGNORE; features.rows()];
                let targets = Targets {
                    classes: self.output.dimension(),
                    labels: &labels,
                    class_weights: None,
                };
                let mut classes = vec![0; features.rows()];
                let rows = Rows {
                    predictions: Some(&mut classes),
                    ranks: None,
                };
                tape.classifier(last.weights(), features, targets, rows)
                    .map_err(|error| error.in_layer(last.name()))?;
                Ok(classes)
            }
            _ => {
                let outputs = self.forward(tape, levels, x)?;
                let mut classes = vec![0; outputs.rows()];
                let width = outputs.kind().dimension();
                cross_entropy::predict(width, &outputs.values()?, &mut classes)?;
                Ok(classes)
            }
        }
    }

    /// Runs all layers and compares with a target by a penalty on the difference, over the rows that
    /// `mask` counts (all without a mask); gauge invariant for outputs of any type.
    ///
    /// # Shapes
    /// As [`forward`](Self::forward), with a row of the output's type in `target` for each row of it.
    ///
    /// # Errors
    /// Features of another type or number of rows, too few levels, or a target or mask of another size.
    pub fn regress<'a>(
        &self,
        tape: &mut Tape<'a, T>,
        levels: impl Into<Levels<'a, T>>,
        x: Var<T>,
        penalty: Penalty,
        target: &'a [T],
        mask: Option<&'a [bool]>,
    ) -> Result<Loss, NnError> {
        let prediction = self.forward(tape, levels, x)?;
        tape.regression(penalty, prediction, target, mask)
    }

    /// Rescales the convolutions on data before training, so that features have unit scale in every
    /// order after each of them ([`Tape::calibrating`]). This runs on the CPU, wherever the workspace is.
    ///
    /// # Errors
    /// Features of another type or number of rows, or too few levels.
    pub fn calibrate<'a>(
        &self,
        workspace: &mut Workspace<T>,
        parameters: &mut Parameters<T>,
        levels: impl Into<Levels<'a, T>>,
        features: &[T],
    ) -> Result<(), NnError> {
        parameters.move_to_host()?;
        let mut on_host = Workspace::default();
        let workspace = match workspace.device() {
            Device::Cpu => workspace,
            Device::Cuda(_) => &mut on_host,
        };
        let mut tape = Tape::calibrating(workspace, parameters);
        let x = tape.input(self.config.input().clone(), features)?;
        self.run(&self.layers, &mut tape, levels.into(), x)
            .map(drop)
    }

    fn run<'a>(
        &self,
        layers: &[Layer<T>],
        tape: &mut Tape<'a, T>,
        levels: Levels<'a, T>,
        mut x: Var<T>,
    ) -> Result<Var<T>, NnError> {
        x.expect_kind("input of the network", self.config.input())?;
        if levels.count() < self.levels {
            return Err(NnError::Levels {
                needed: self.levels,
                found: levels.count(),
            });
        }
        let mut place = Place {
            levels,
            level: 0,
            kept: Vec::new(),
        };
        for (layer, line) in layers.iter().zip(&self.lines) {
            x = layer
                .forward(tape, &mut place, x)
                .map_err(|error| match error {
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
    use crate::layers::{GlobalPool, Kernel, Nonlinearity, Regular};
    use gemcnn_kernels::Aggregation;

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

    /// Every kind of layer.
    fn every_layer() -> NetworkConfig {
        let gated = Nonlinearity::gated().with_batch_norm();
        let hidden: FeatureType = "2x0 + 2x1".parse().unwrap();
        Network::builder("1x0 + 1x1".parse().unwrap())
            .weight_decay(WeightDecay::Linear)
            .rings(2, 0.5)
            .conv(&gated.input(&hidden))
            .nonlinearity(gated)
            .rings(1, 1.0)
            .down()
            .residual_through(&hidden, &FeatureType::uniform(3, 1), Nonlinearity::norm())
            .norm()
            .up()
            .equivariant_linear(&FeatureType::scalars(2))
            .kernel(Kernel::Graph)
            .residual(&FeatureType::scalars(2), Nonlinearity::None)
            .kernel(Kernel::Angular { band_limit: 1 })
            .conv(&FeatureType::scalars(5))
            .break_symmetry()
            .global_pool(GlobalPool::Max)
            .dropout(0.5)
            .head(4, 3)
    }

    #[test]
    fn every_layer_is_printed_and_counts_its_levels() {
        let (network, parameters) = every_layer().init::<f64>(1).unwrap();
        let expected = "\
conv1         1x0 + 1x1 -> 4x0 + 2x1         60
gated2        4x0 + 2x1 -> 2x0 + 2x1         12
down3         2x0 + 2x1 -> 2x0 + 2x1          0
block4        2x0 + 2x1 -> 3x0 + 3x1        148
norm5         3x0 + 3x1 -> 3x0 + 3x1         12
up6           3x0 + 3x1 -> 5x0 + 5x1          0
map7          5x0 + 5x1 -> 2x0               12
block8        2x0 -> 2x0                     20
conv9         2x0 -> 5x0                     40
break10       5x0 -> 5x0                      0
pool11        5x0 -> 5x0                      0
dropout12     5x0 -> 5x0                      0
linear13      5x0 -> 4x0                     24
activation14  4x0 -> 4x0                      0
linear15      4x0 -> 3x0                     15
total                                       343";
        assert_eq!(network.to_string(), expected);
        assert_eq!(parameters.trained_count(), 343);
        assert_eq!((network.levels(), small().levels()), (2, 1));
    }

    #[test]
    fn descriptions_survive_json_and_toml() {
        for config in [small(), every_layer()] {
            let text = serde_json::to_string(&config).unwrap();
            assert_eq!(
                serde_json::from_str::<NetworkConfig>(&text).unwrap(),
                config
            );
            let text = toml::to_string(&config).unwrap();
            assert_eq!(toml::from_str::<NetworkConfig>(&text).unwrap(), config);
        }
        // The list in the page on networks.
        let page = include_str!("../../../../docs/networks.md");
        let (_, listed) = page.split_once("```toml").unwrap();
        let (listed, _) = listed.split_once("```").unwrap();
        let config: NetworkConfig = toml::from_str(listed).unwrap();
        let written = Network::builder(FeatureType::scalars(3))
            .weight_decay(WeightDecay::Linear)
            .aggregation(Aggregation::Mean)
            .residual(
                &FeatureType::uniform(16, 2),
                Regular::relu(5).with_batch_norm(),
            )
            .aggregation(Aggregation::Sum)
            .residual(&FeatureType::scalars(64), Nonlinearity::None)
            .norm()
            .kernel(Kernel::Angular { band_limit: 2 })
            .conv(&FeatureType::scalars(32))
            .linear(10);
        assert!(written.clone().init::<f32>(1).is_ok());
        assert_eq!(config, written);
    }

    #[test]
    fn errors_of_descriptions_name_the_layer() {
        let message = |layer: &str| {
            let text =
                format!("input = '3x0'\nlayers = [{{ linear = {{ outputs = 2 }} }}, {layer}]");
            let error = toml::from_str::<NetworkConfig>(&text).unwrap_err();
            error.to_string()
        };
        for (layer, problem) in [
            ("{ linaer = { outputs = 2 } }", "unknown variant `linaer`"),
            ("{ linear = { output = 2 } }", "available keys: outputs"),
            (
                "{ conv = { output = '2y0' } }",
                "`2y0` is not a feature type",
            ),
            (
                "{ conv = { output = '2x0', conv = { kernel = 'grph' } } }",
                "unknown variant `grph`",
            ),
        ] {
            let found = message(layer);
            assert!(found.contains("layer 2: "), "{found}");
            assert!(found.contains(problem), "{found}");
        }
    }

    #[test]
    fn layers_that_cannot_follow_are_refused() {
        let input = || Network::builder("2x0 + 1x1".parse().unwrap());
        let scalars = FeatureType::scalars(3);
        for (config, expected) in [
            (input().up(), "up1: layer: there is no `down` before it"),
            (
                input().kernel(Kernel::Graph).conv(&scalars),
                "conv1: input: expected features of type 4x0, found 2x0 + 1x1",
            ),
            (
                input()
                    .break_symmetry()
                    .kernel(Kernel::Angular { band_limit: 1 })
                    .rings(2, 1.0)
                    .residual(&scalars, Regular::relu(1)),
                "block2.conv1: rings: only gauge kernels",
            ),
            (
                input()
                    .equivariant_linear(&"1x0 + 2x1".parse().unwrap())
                    .nonlinearity(Nonlinearity::gated()),
                "gated2: gated nonlinearity: 1x0 + 2x1 has 2 irreps of order above 0",
            ),
            (
                input()
                    .conv(&scalars)
                    .global_pool(GlobalPool::Mean)
                    .conv(&scalars),
                "conv3: layer: it needs vertices",
            ),
        ] {
            let message = config.init::<f32>(1).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}");
        }
    }

    #[test]
    fn weight_decay_on_linear_maps_survives_storing() {
        let decaying = |parameters: &Parameters<f32>| -> Vec<String> {
            let decaying = parameters.iter().filter(|entry| entry.decays());
            decaying.map(|entry| entry.name().to_owned()).collect()
        };
        let (_, everywhere) = small().init::<f32>(1).unwrap();
        assert!(decaying(&everywhere).contains(&"block3.conv1.self_weight".into()));
        let config = small().weight_decay(WeightDecay::Linear);
        let (network, parameters) = config.init::<f32>(1).unwrap();
        assert_eq!(decaying(&parameters), ["linear5.weight", "linear7.weight"]);
        let mut archive = Archive::new();
        network.store(&mut archive, &parameters).unwrap();
        let (_, stored) = Network::from_archive(&archive).unwrap();
        assert_eq!(decaying(&stored), ["linear5.weight", "linear7.weight"]);
        let (plain, mut values) = small().init::<f32>(1).unwrap();
        let message = plain.load(&archive, &mut values).unwrap_err().to_string();
        assert!(message.contains("weight decay"), "{message}");
    }
}
