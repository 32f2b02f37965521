//! The U-shaped network: residual blocks on coarser and coarser graphs, and back.

use super::head::turns_with_frames;
use super::{Head, NonlinearityChoice, ORDERS, WIDTHS, within};
use crate::data::HierarchySettings;
use crate::{Task, TaskError};
use gemcnn_nn::layers::GlobalPool;
use gemcnn_nn::{Aggregation, FeatureType, Network, NetworkConfig, WeightDecay};
use serde::{Deserialize, Serialize};

/// Neighbours on the coarser graphs that first values are scaled for, about those of the default radii.
const COARSE_DEGREE: f64 = 8.0;

/// Settings of the model `unet`: a residual block on each graph on the way down, and one on each finer
/// graph on the way up, where the features from the way down are joined on. Whole-mesh
/// classification leaves out the way up and pools the coarsest graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UNetModel {
    /// Channels of each order on each graph, from fine to coarse; 16, 32, 64.
    pub channels: Vec<usize>,
    /// For each coarser graph the part of the vertices of the one before that it keeps; a quarter.
    pub ratios: Vec<f64>,
    /// Radius of the neighbourhoods on each coarser graph, in mean edge lengths of the mesh; 3 and 6,
    /// which gives about 8 neighbours on an even mesh.
    pub radii: Vec<f64>,
    /// Most neighbours on the coarser graphs; 32.
    pub neighbour_limit: usize,
    /// Highest order; 2.
    pub band_limit: usize,
    /// Scalars that the last block gives; 64.
    pub scalars: usize,
    /// What follows each convolution; the regular nonlinearity.
    pub nonlinearity: NonlinearityChoice,
    /// Samples of the regular nonlinearity; by default `2 band_limit + 1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<usize>,
    /// Batch normalisation inside nonlinearities; yes.
    pub batch_norm: bool,
    /// Scalars between the two linear maps of the head; 256. None and there is a single map.
    pub head: usize,
    /// Dropout in the head; 0.5.
    pub dropout: f64,
    /// Pooling for whole-mesh tasks; the mean.
    pub pool: GlobalPool,
    /// Which weights decay; those of the head.
    pub decay: WeightDecay,
}

impl Default for UNetModel {
    fn default() -> Self {
        Self {
            channels: vec![16, 32, 64],
            ratios: vec![0.25, 0.25],
            radii: vec![3.0, 6.0],
            neighbour_limit: 32,
            band_limit: 2,
            scalars: 64,
            nonlinearity: NonlinearityChoice::Regular,
            samples: None,
            batch_norm: true,
            head: 256,
            dropout: 0.5,
            pool: GlobalPool::Mean,
            decay: WeightDecay::Linear,
        }
    }
}

impl UNetModel {
    /// The coarser graphs that it needs.
    pub fn hierarchy(&self) -> HierarchySettings {
        HierarchySettings {
            ratios: self.ratios.clone(),
            radii: self.radii.clone(),
            neighbour_limit: self.neighbour_limit,
        }
    }

    /// The network, as [`ModelConfig::network`](super::ModelConfig::network).
    ///
    /// # Errors
    /// Settings, types and tasks that do not go together, with what to change.
    pub fn network(
        &self,
        input: &FeatureType,
        task: Task,
        outputs: &FeatureType,
    ) -> Result<NetworkConfig, TaskError> {
        let Some((&finest, coarser)) = self.channels.split_first() else {
            return Err(TaskError::setting(
                "model: channels",
                "there are none; give one number for each graph, from fine to coarse",
            ));
        };
        for (name, given) in [("ratios", self.ratios.len()), ("radii", self.radii.len())] {
            if given != coarser.len() {
                let problem = format!(
                    "there are {given}, but `channels` has {} graphs, and each but the finest needs one",
                    self.channels.len()
                );
                return Err(TaskError::setting(format!("model: {name}"), problem));
            }
        }
        for &channels in &self.channels {
            within("channels", channels, WIDTHS)?;
        }
        within("scalars", self.scalars, WIDTHS)?;
        within("band_limit", self.band_limit, ORDERS)?;
        within("samples", self.samples.unwrap_or(1), WIDTHS)?;
        let turns = turns_with_frames(task, outputs)?;

        let act = (self.nonlinearity).with(self.band_limit, self.samples, self.batch_norm);
        let hidden = |channels: usize| FeatureType::uniform(channels, self.band_limit);
        let scalars = FeatureType::scalars(self.scalars);
        let head = Head {
            width: self.head,
            dropout: self.dropout,
            pool: self.pool,
        };
        let fine_degree = gemcnn_nn::ConvConfig::default().degree;
        let mut network = Network::builder(input.clone())
            .weight_decay(self.decay)
            .aggregation(Aggregation::Mean)
            .residual(&hidden(finest), act.clone())
            .degree(COARSE_DEGREE);
        for &channels in coarser {
            network = network.down().residual(&hidden(channels), act.clone());
        }
        if task == Task::Classification {
            let coarsest = hidden(coarser.last().copied().unwrap_or(finest));
            let network = network.residual_through(&coarsest, &scalars, act);
            return head.add(network, task, outputs);
        }
        for &channels in coarser.iter().rev().skip(1) {
            network = network.up().residual(&hidden(channels), act.clone());
        }
        if !coarser.is_empty() {
            network = network.up();
        }
        let last = if turns { hidden(finest) } else { scalars };
        network = network
            .degree(fine_degree)
            .residual_through(&hidden(finest), &last, act);
        match turns {
            true => Ok(network.conv(outputs)),
            false => head.add(network, task, outputs),
        }
    }
}
