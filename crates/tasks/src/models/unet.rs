//! The U-net: an encoder and a decoder of residual blocks over coarser graphs.

use super::head::rotates_with_frames;
use super::{Head, Model, ModelSpec, NonlinearityChoice, ORDERS, WIDTHS, within};
use crate::data::HierarchySettings;
use crate::registry::settings;
use crate::{Element, Result, TaskError};
use gemcnn_mesh::NeighbourWeights;
use gemcnn_nn::layers::{ConvConfig, GlobalPool, Linear, ResidualBlock, ResidualBlockConfig};
use gemcnn_nn::{
    Aggregation, Builder, FeatureType, Head as FusedHead, Levels, Module, Network, NnError, Part, Real, Tape, Var,
    WeightDecay,
};

/// Number of neighbours on the coarser graphs that the initialisation assumes: about that of the default
/// radii.
const COARSE_DEGREE: f64 = 8.0;

settings! {
    /// Settings of the model `unet`. The encoder has one residual block on each graph, from fine to coarse. The decoder
    /// has one on each finer graph, and skip connections concatenate the features of the encoder. Classification of
    /// whole meshes has no decoder and pools the coarsest graph.
    UNetModel = "unet" {
        /// Channels of each order on each graph, from fine to coarse (default `[16, 32, 64]`).
        channels: Vec<usize> = vec![16, 32, 64],
        /// For each coarser graph, the fraction of the vertices of the previous graph (default `[0.25, 0.25]`).
        ratios: Vec<f64> = vec![0.25, 0.25],
        /// Radius of the neighbourhoods on each coarser graph, in mean edge lengths of the mesh (default `[3, 6]`,
        /// which gives about 8 neighbours on an even mesh).
        radii: Vec<f64> = vec![3.0, 6.0],
        /// Largest number of neighbours on the coarser graphs (default 32).
        neighbour_limit: usize = 32,
        /// Highest order (default 2).
        band_limit: usize = 2,
        /// Weights of the neighbours in convolutions (default: all count the same).
        weights: NeighbourWeights = NeighbourWeights::Count,
        /// Scalar channels of the last block (default 64).
        scalars: usize = 64,
        /// Nonlinearity after each convolution (default: regular).
        nonlinearity: NonlinearityChoice = NonlinearityChoice::Regular,
        /// Samples of the regular nonlinearity (default `2 band_limit + 1`).
        #[serde(skip_serializing_if = "Option::is_none")]
        samples: Option<usize> = None,
        /// Batch normalisation inside nonlinearities (default true).
        batch_norm: bool = true,
        /// Hidden channels of the head (default 256). `0` makes the head a single linear layer.
        head: usize = 256,
        /// Dropout probability in the head (default 0.5).
        dropout: f64 = 0.5,
        /// Pooling for whole-mesh tasks (default: mean).
        pool: GlobalPool = GlobalPool::Mean,
        /// Weights that weight decay acts on (default: those of the head).
        decay: WeightDecay = WeightDecay::Linear,
    }
}

impl UNetModel {
    /// Builds the network in either precision.
    pub fn module<T: Real>(&self, spec: &ModelSpec, builder: &mut Builder<'_, T>) -> Result<Box<dyn Module<T>>> {
        let rotates = self.check(spec)?;
        let act = (self.nonlinearity).with(self.band_limit, self.samples, self.batch_norm);
        let hidden = |channels: usize| FeatureType::uniform(channels, self.band_limit);
        let mut parts = Vec::new();
        let mut block = |name: String, level: usize, input: &FeatureType, output: FeatureType| {
            let standard = ConvConfig::default();
            let conv = ConvConfig {
                aggregation: Aggregation::Mean,
                degree: match level {
                    0 => standard.degree,
                    _ => COARSE_DEGREE,
                },
                ..standard
            };
            let config = ResidualBlockConfig {
                conv,
                nonlinearity: act.clone(),
                ..ResidualBlockConfig::new(input.clone(), output.clone())
            };
            let before = builder.trained_count();
            let made = config.init(&name, builder)?;
            parts.push(Part {
                name,
                input: input.clone(),
                output,
                parameters: builder.trained_count() - before,
                level,
            });
            Ok::<_, NnError>(made)
        };

        let mut kind = spec.input.clone();
        let mut down = Vec::new();
        for (level, &channels) in self.channels.iter().enumerate() {
            down.push(block(format!("down{}", level + 1), level, &kind, hidden(channels))?);
            kind = hidden(channels);
        }
        let is_pooled = spec.per == Element::Mesh;
        let mut up = Vec::new();
        if !is_pooled {
            for level in (0..self.channels.len() - 1).rev() {
                kind = kind.concatenated(&hidden(self.channels[level]));
                // The tail takes the place of the block on the finest graph.
                if level > 0 {
                    let output = hidden(self.channels[level]);
                    up.push(block(format!("up{}", level + 1), level, &kind, output.clone())?);
                    kind = output;
                }
            }
        }

        let coarsest = *self.channels.last().unwrap_or(&1);
        let middle = hidden(if is_pooled { coarsest } else { self.channels[0] });
        let last = if rotates { hidden(self.channels[0]) } else { FeatureType::scalars(self.scalars) };
        let mut tail = Network::builder(kind).weight_decay(self.decay).aggregation(Aggregation::Mean);
        if is_pooled && self.channels.len() > 1 {
            tail = tail.degree(COARSE_DEGREE);
        }
        let tail = tail.block(Some(middle), &last, act);
        let tail = match rotates {
            true => tail.conv(&spec.outputs),
            false => Head { width: self.head, dropout: self.dropout, pool: self.pool }.add(tail, spec)?,
        };
        let tail = builder.within("tail", |builder| tail.build(builder))?;
        for mut part in tail.parts() {
            part.name = format!("tail.{}", part.name);
            part.level = if is_pooled { down.len() - 1 } else { 0 };
            parts.push(part);
        }
        let (tail, head) = tail.into_body_and_head();
        let body = UNetBody { input: spec.input.clone(), down, up, stays_coarse: is_pooled, tail };
        Ok(Box::new(UNet { body, head, output: spec.outputs.clone(), parts }))
    }
}

impl Model for UNetModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>> {
        self.module(spec, builder)
    }

    fn weights(&self) -> NeighbourWeights {
        self.weights
    }

    fn hierarchy(&self) -> Option<HierarchySettings> {
        Some(HierarchySettings {
            ratios: self.ratios.clone(),
            radii: self.radii.clone(),
            neighbour_limit: self.neighbour_limit,
        })
    }
}

impl UNetModel {
    /// Checks all settings; true if the outputs rotate with the frames.
    fn check(&self, spec: &ModelSpec) -> Result<bool> {
        if self.channels.is_empty() {
            return Err(TaskError::setting(
                "model: channels",
                "the list is empty; give one number for each graph, from fine to coarse",
            ));
        }
        let coarser = self.channels.len() - 1;
        for (name, given) in [("ratios", self.ratios.len()), ("radii", self.radii.len())] {
            if given != coarser {
                let problem = format!(
                    "{given} value(s), but `channels` has {} graphs, and each except the finest needs one",
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
        rotates_with_frames(spec)
    }
}

/// The network with its head.
#[derive(Debug)]
struct UNet<T: Real> {
    body: UNetBody<T>,
    head: Option<Linear>,
    output: FeatureType,
    parts: Vec<Part>,
}

/// The network up to its last linear layer.
#[derive(Debug)]
struct UNetBody<T: Real> {
    input: FeatureType,
    /// Blocks from fine to coarse.
    down: Vec<ResidualBlock<T>>,
    /// Blocks from coarse to fine, without that of the finest graph.
    up: Vec<ResidualBlock<T>>,
    /// True if the tail runs on the coarsest graph.
    stays_coarse: bool,
    tail: Box<dyn Module<T>>,
}

impl<T: Real> Module<T> for UNetBody<T> {
    fn input(&self) -> &FeatureType {
        &self.input
    }

    fn output(&self) -> &FeatureType {
        self.tail.output()
    }

    fn levels(&self) -> usize {
        self.down.len()
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, mut levels: Levels<'a, T>, mut x: Var<T>) -> Result<Var<T>, NnError> {
        let mut finer = Vec::new();
        for (depth, block) in self.down.iter().enumerate() {
            if depth > 0 {
                let (clusters, coarser) = levels.coarser()?;
                let pooled = tape.transport_pool(clusters, x.clone())?;
                finer.push((levels, clusters, std::mem::replace(&mut x, pooled)));
                levels = coarser;
            }
            x = block.forward(tape, levels, x)?;
        }
        if !self.stays_coarse {
            let mut up = self.up.iter();
            while let Some((finer_levels, clusters, kept)) = finer.pop() {
                levels = finer_levels;
                x = tape.transport_unpool(clusters, x)?;
                x = tape.concatenate(x, kept)?;
                if let Some(block) = up.next() {
                    x = block.forward(tape, levels, x)?;
                }
            }
        }
        self.tail.forward(tape, levels, x)
    }
}

impl<T: Real> Module<T> for UNet<T> {
    fn input(&self) -> &FeatureType {
        &self.body.input
    }

    fn output(&self) -> &FeatureType {
        &self.output
    }

    fn levels(&self) -> usize {
        self.body.levels()
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>, NnError> {
        let x = self.body.forward(tape, levels, x)?;
        match &self.head {
            None => Ok(x),
            Some(head) => head.forward(tape, levels, x),
        }
    }

    fn split_head(&self) -> Option<(&dyn Module<T>, FusedHead<'_>)> {
        Some((&self.body, self.head.as_ref()?.head()))
    }

    fn parts(&self) -> Vec<Part> {
        self.parts.clone()
    }
}
