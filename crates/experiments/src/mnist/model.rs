//! The networks of the experiment.

use super::surface::GridOptions;
use crate::digits::CLASSES;
use crate::names::names;
use gemcnn_nn::layers::{GlobalPool, Regular};
use gemcnn_nn::{Aggregation, FeatureType, Network, NetworkConfig};
use serde::{Deserialize, Serialize};

/// Samples of the nonlinearity around the circle.
const SAMPLES: usize = 7;
/// Highest order of features between the blocks.
const ORDER: usize = 3;
/// Dropout probability of irreps after each block.
const DROPOUT: f64 = 0.1;
/// Scalars of the last block, which are pooled.
const POOLED: usize = 64;

/// The networks.
///
/// Each has seven blocks of convolution, nonlinearity with batch normalisation inside, and dropout, then a
/// maximum over the grid and a linear layer to the ten digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// The paper's feature types: `M x (0+1+2+3)` with M = 4, 8, 12, 16, 24, 32; 99,978 parameters.
    PaperTypes,
    /// 1.3 times these multiplicities, for the paper's 163k parameters: 162,705.
    PaperSize,
    /// Scalars only, whose equivariant kernels are isotropic: a graph network that does not see the direction
    /// of neighbours. About as many parameters as `PaperSize`: 163,033.
    Graph,
}

names!(Model, "model", { PaperTypes: "paper-types", PaperSize: "paper-size", Graph: "graph" });

impl Model {
    /// Feature types between the blocks.
    fn hidden(self) -> [FeatureType; 6] {
        let scaled = |factor: f64| [4.0, 8.0, 12.0, 16.0, 24.0, 32.0].map(|m: f64| (factor * m).round() as usize);
        let uniform = |multiplicity| FeatureType::uniform(multiplicity, ORDER);
        match self {
            Self::PaperTypes => scaled(1.0).map(uniform),
            Self::PaperSize => scaled(1.3).map(uniform),
            Self::Graph => scaled(GRAPH_FACTOR).map(FeatureType::scalars),
        }
    }

    /// The network for these grids.
    pub fn network(self, grids: &GridOptions) -> NetworkConfig<f32> {
        let samples = match self {
            Self::PaperTypes | Self::PaperSize => SAMPLES,
            // All samples of a scalar are equal.
            Self::Graph => 1,
        };
        let blocks = (self.hidden().into_iter()).chain([FeatureType::scalars(POOLED)]);
        let start = Network::builder(FeatureType::scalars(1)).aggregation(Aggregation::Sum).degree(grids.degree());
        blocks
            .fold(start, |network, kind| {
                network.conv(&kind).nonlinearity(Regular::relu(samples).with_batch_norm()).dropout(DROPOUT)
            })
            .global_pool(GlobalPool::Max)
            .linear(CLASSES)
    }
}

/// Factor of the paper's multiplicities that gives the graph network as many parameters as
/// [`Model::PaperSize`].
const GRAPH_FACTOR: f64 = 6.71;

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(model: Model) -> usize {
        let (_, parameters) = model.network(&GridOptions::default()).init(1).unwrap();
        parameters.trained_count()
    }

    #[test]
    fn parameter_counts() {
        assert_eq!(parameters(Model::PaperTypes), 99_978);
        assert_eq!(parameters(Model::PaperSize), 162_705);
        assert_eq!(parameters(Model::Graph), 163_033);
    }

    #[test]
    fn names_parse_and_print() {
        for model in Model::ALL {
            assert_eq!(model.to_string().parse::<Model>().unwrap(), model);
        }
        assert!("paper".parse::<Model>().is_err());
    }
}
