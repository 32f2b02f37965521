//! Networks: layers one after the other, built in a few lines.

mod config;

pub use config::{LayerConfig, NetworkConfig, Stage, WeightDecay};

use crate::layers::Linear;
use crate::module::{Head, Module, Part, Parts, signature};
use crate::{Levels, NnError, Result, Tape, Var};
use gemcnn_kernels::{FeatureType, Real};
use std::fmt;

/// A module that runs others one after the other. Its parameters are in
/// [`Parameters`](crate::Parameters).
#[derive(Debug)]
pub struct Network<T: Real> {
    body: Layers<T>,
    /// The last layer, if it is a linear one: a classification loss is fused with it.
    head: Option<Linear>,
    output: FeatureType,
    parts: Vec<Part>,
    levels: usize,
}

/// Layers one after the other.
#[derive(Debug)]
struct Layers<T: Real> {
    input: FeatureType,
    layers: Vec<(String, Box<dyn Module<T>>)>,
    output: FeatureType,
}

impl<T: Real> Module<T> for Layers<T> {
    signature!(this: this.input => this.output);

    fn reach(&self) -> Option<usize> {
        (self.layers.iter()).map(|(_, layer)| layer.reach()).sum()
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, mut x: Var<T>) -> Result<Var<T>> {
        x.expect_kind("input of the network", &self.input)?;
        for (name, layer) in &self.layers {
            x = layer.forward(tape, levels, x).map_err(|error| match error {
                named @ NnError::Layer { .. } => named,
                other => other.in_layer(name),
            })?;
        }
        Ok(x)
    }
}

impl<T: Real> Network<T> {
    /// Begins a network.
    pub fn builder(input: FeatureType) -> NetworkConfig<T> {
        NetworkConfig::new(input)
    }

    /// The layers before the head, and the head if the last layer is linear: for a larger model that ends
    /// with this network.
    pub fn into_body_and_head(self) -> (Box<dyn Module<T>>, Option<Linear>) {
        (Box::new(self.body), self.head)
    }
}

impl<T: Real> Module<T> for Network<T> {
    signature!(this: this.body.input => this.output);

    fn levels(&self) -> usize {
        self.levels
    }

    fn reach(&self) -> Option<usize> {
        self.body.reach()
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        let x = self.body.forward(tape, levels, x)?;
        match &self.head {
            None => Ok(x),
            Some(head) => head.forward(tape, levels, x),
        }
    }

    fn split_head(&self) -> Option<(&dyn Module<T>, Head<'_>)> {
        let head = self.head.as_ref()?;
        Some((&self.body, head.head()))
    }

    fn parts(&self) -> Vec<Part> {
        self.parts.clone()
    }
}

impl<T: Real> fmt::Display for Network<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Parts(&self.parts).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::{Angular, Gates, GlobalPool, Identity, Isotropic, Nonlinearity, Norms, Regular};
    use crate::{Archive, NnError, Parameters};
    use gemcnn_kernels::Aggregation;

    fn small<T: Real>() -> NetworkConfig<T> {
        Network::builder("1x0".parse().unwrap())
            .aggregation(Aggregation::Mean)
            .conv(&"2x0 + 2x1".parse().unwrap())
            .nonlinearity(Regular::relu(5).with_batch_norm())
            .residual(&FeatureType::scalars(4), Regular::relu(3))
            .dropout(0.25)
            .head(8, 3)
    }

    #[test]
    fn it_prints_types_and_parameters() {
        let (network, parameters) = small::<f64>().init(1).unwrap();
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
        assert_eq!((&network as &dyn Module<f64>).to_string(), expected);
        assert_eq!(parameters.trained_count(), 257);
    }

    #[test]
    fn every_layer_is_printed() {
        let gated = Gates::relu().with_batch_norm();
        let hidden: FeatureType = "2x0 + 2x1".parse().unwrap();
        let (network, parameters) = Network::<f64>::builder("1x0 + 1x1".parse().unwrap())
            .rings(2, 0.5)
            .conv(&Nonlinearity::<f64>::input(&gated, &hidden))
            .nonlinearity(gated)
            .rings(1, 1.0)
            .residual_through(&hidden, &FeatureType::uniform(3, 1), Norms::relu())
            .norm()
            .equivariant_linear(&FeatureType::scalars(2))
            .kernel(Isotropic)
            .residual(&FeatureType::scalars(2), Identity)
            .kernel(Angular { band_limit: 1 })
            .conv(&FeatureType::scalars(5))
            .break_symmetry()
            .global_pool(GlobalPool::Max)
            .dropout(0.5)
            .head(4, 3)
            .init(1)
            .unwrap();
        let expected = "\
conv1         1x0 + 1x1 -> 4x0 + 2x1         60
gated2        4x0 + 2x1 -> 2x0 + 2x1         12
block3        2x0 + 2x1 -> 3x0 + 3x1        148
norm4         3x0 + 3x1 -> 3x0 + 3x1         12
map5          3x0 + 3x1 -> 2x0                8
block6        2x0 -> 2x0                     20
conv7         2x0 -> 5x0                     40
break8        5x0 -> 5x0                      0
pool9         5x0 -> 5x0                      0
dropout10     5x0 -> 5x0                      0
linear11      5x0 -> 4x0                     24
activation12  4x0 -> 4x0                      0
linear13      4x0 -> 3x0                     15
total                                       339";
        assert_eq!(network.to_string(), expected);
        assert_eq!(parameters.trained_count(), 339);
    }

    #[test]
    fn layers_that_do_not_fit_are_named() {
        let input = || Network::<f32>::builder("2x0 + 1x1".parse().unwrap());
        let scalars = FeatureType::scalars(3);
        let layer = |config: NetworkConfig<f32>| match config.init(1).unwrap_err() {
            NnError::Layer { layer, .. } => layer,
            other => panic!("{other}"),
        };
        let uneven: FeatureType = "2x0 + 3x1".parse().unwrap();
        for (config, name) in [
            (input().conv(&uneven).linear(3), "linear2"),
            (input().conv(&uneven).nonlinearity(Regular::relu(5)), "regular2"),
            (input().kernel(Isotropic).conv(&scalars), "conv1"),
            (
                input()
                    .break_symmetry()
                    .kernel(Angular { band_limit: 1 })
                    .rings(2, 1.0)
                    .residual(&scalars, Regular::relu(1)),
                "block2.conv1",
            ),
            (input().equivariant_linear(&"1x0 + 2x1".parse().unwrap()).nonlinearity(Gates::relu()), "gated2"),
            (input().conv(&scalars).global_pool(GlobalPool::Mean).conv(&scalars), "conv3"),
        ] {
            assert_eq!(layer(config), name);
        }
    }

    #[test]
    fn weight_decay_acts_on_all_weights_or_on_linear_layers_alone() {
        let decaying = |parameters: &Parameters<f32>| -> Vec<String> {
            let decaying = parameters.iter().filter(|entry| entry.decays());
            decaying.map(|entry| entry.name().to_owned()).collect()
        };
        let (_, everywhere) = small().init(1).unwrap();
        assert!(decaying(&everywhere).contains(&"block3.conv1.self_weight".into()));
        let config = small().weight_decay(WeightDecay::Linear);
        let (_, parameters) = config.init(1).unwrap();
        assert_eq!(decaying(&parameters), ["linear5.weight", "linear7.weight"]);
    }

    #[test]
    fn sizes_are_compared_before_they_are_allocated() {
        let network = |rings, outputs| {
            Network::<f32>::builder("3x0".parse().unwrap())
                .rings(rings, 1.0)
                .conv(&FeatureType::uniform(16, 2))
                .conv(&FeatureType::scalars(8))
                .linear(outputs)
        };
        let (_, parameters) = network(1, 4).init(1).unwrap();
        let mut archive = Archive::new();
        parameters.store(&mut archive, "weights").unwrap();
        let stored =
            |rings, outputs| Parameters::stored(&archive, "weights", |builder| network(rings, outputs).build(builder));
        let (_, loaded) = stored(1, 4).unwrap();
        for (a, b) in parameters.iter().zip(loaded.iter()) {
            assert_eq!((a.name(), a.value()), (b.name(), b.value()));
        }
        for (rings, outputs) in [(usize::MAX, 4), (100_000, 4), (1, 100_000_000_000), (1, usize::MAX)] {
            let error = stored(rings, outputs).unwrap_err();
            assert!(matches!(error, NnError::Mismatch { .. }), "{error}");
            if rings != 100_000 {
                let error = network(rings, outputs).init(1).unwrap_err();
                assert!(matches!(error, NnError::Setting { .. }), "{error}");
            }
        }
        // Tensors that the network does not have.
        let fewer = Parameters::stored(&archive, "weights", |builder| {
            Network::<f32>::builder("3x0".parse().unwrap()).conv(&FeatureType::uniform(16, 2)).build(builder)
        });
        assert!(matches!(fewer, Err(NnError::Mismatch { differences }) if differences.len() > 2));
    }
}
