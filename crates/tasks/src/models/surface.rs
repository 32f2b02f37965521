//! Networks on surfaces, which do not depend on the meshing: diffusion and a perceptron for each vertex.

use super::head::rotates_with_frames;
use super::{DEPTHS, Head, Model, ModelSpec, Recipe, WIDTHS, within};
use crate::data::{Eigenvectors, ExtraConfig, ImplicitDiffusion};
use crate::features::{Combined, HeatKernel, Position};
use crate::registry::settings;
use crate::{Result, Task, TaskError};
use gemcnn_nn::layers::{DiffusionBlockConfig, GlobalPool};
use gemcnn_nn::{Builder, FeatureType, Module, Network, NetworkConfig, Real, WeightDecay};
use serde::{Deserialize, Serialize};

settings! {
    /// Settings of the model `surface`: residual blocks of learned diffusion on scalars, vectors and second-order
    /// tensors, with invariants, a perceptron for each vertex and gates.
    SurfaceModel = "surface" {
        /// Residual blocks (default 4).
        blocks: usize = 4,
        /// Channels of orders 0, 1 and 2 (default `[128, 32, 16]`).
        channels: [usize; 3] = [128, 32, 16],
        /// Number of eigenvectors of orders 0, 1 and 2 (default `[128, 64, 64]`).
        eigenvectors: [usize; 3] = [128, 64, 64],
        /// Shortest and longest diffusion time at initialisation, for unit area (default `[0.001, 0.3]`).
        times: [f64; 2] = [1e-3, 0.3],
        /// Diffusion in eigenbases, or by implicit solves for meshes that are too large for eigenvectors (default:
        /// spectral).
        diffusion: DiffusionChoice = DiffusionChoice::Spectral,
        /// Times of implicit diffusion, for unit area (default `[0.001, 0.01, 0.1]`).
        implicit_times: Vec<f64> = vec![1e-3, 1e-2, 0.1],
        /// Dropout probability in the perceptrons (default 0).
        block_dropout: f64 = 0.0,
        /// Probability of dropping each vector and tensor that invariants and gates read (default 0).
        irrep_dropout: f64 = 0.0,
        /// Probability of dropping the update of a mesh in the last block (default 0). It grows linearly with depth.
        stochastic_depth: f64 = 0.0,
        /// Hidden channels of the head (default 0: a single linear layer).
        head: usize = 0,
        /// Dropout probability in the head (default 0).
        dropout: f64 = 0.0,
        /// Pooling for whole-mesh tasks (default: mean).
        pool: GlobalPool = GlobalPool::Mean,
        /// Weights that weight decay acts on (default: those of the head).
        decay: WeightDecay = WeightDecay::Linear,
    }
}

/// How fields diffuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiffusionChoice {
    /// In eigenbases, for a learned time of each channel.
    #[default]
    Spectral,
    /// By implicit solves for fixed times, with a learned sum over the times for each channel.
    Implicit,
}

impl SurfaceModel {
    /// The layers of the network.
    pub fn network<T: Real>(&self, spec: &ModelSpec) -> Result<NetworkConfig<T>> {
        self.layers(spec, true)
    }

    fn layers<T: Real>(&self, spec: &ModelSpec, oriented: bool) -> Result<NetworkConfig<T>> {
        within("blocks", self.blocks, DEPTHS)?;
        within("channels", self.channels[0], WIDTHS)?;
        let features = FeatureType::new(&self.channels);
        for (order, _) in features.orders() {
            within("channels", self.channels[order], WIDTHS)?;
            if self.diffusion == DiffusionChoice::Spectral {
                within("eigenvectors", self.eigenvectors[order], WIDTHS)?;
            }
        }
        let implicit = match self.diffusion {
            DiffusionChoice::Spectral => Vec::new(),
            DiffusionChoice::Implicit if self.implicit_times.is_empty() => {
                let problem = "the list is empty; give at least one time";
                return Err(TaskError::setting("model: implicit_times", problem));
            }
            DiffusionChoice::Implicit => self.implicit_times.clone(),
        };
        let rotates = rotates_with_frames(spec)?;
        let mut network = Network::builder(spec.input.clone()).weight_decay(self.decay).equivariant_linear(&features);
        for block in 1..=self.blocks {
            network = network.diffusion_block(DiffusionBlockConfig {
                dropout: self.block_dropout,
                irrep_dropout: self.irrep_dropout,
                stochastic_depth: self.stochastic_depth * block as f64 / self.blocks as f64,
                times: self.times,
                implicit: implicit.clone(),
                oriented,
                ..DiffusionBlockConfig::new(features.clone())
            });
        }
        if rotates {
            for (order, _) in spec.outputs.orders() {
                if features.multiplicity(order) == 0 {
                    let problem = format!("the network has no features of order {order}, but the outputs have");
                    return Err(TaskError::setting("model: channels", problem));
                }
            }
            return Ok(network.equivariant_linear(&spec.outputs));
        }
        if !features.is_scalar() {
            network = network.equivariant_linear(&FeatureType::scalars(self.channels[0]));
        }
        Head { width: self.head, dropout: self.dropout, pool: self.pool }.add(network, spec)
    }
}

impl Model for SurfaceModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>> {
        Ok(Box::new(self.network(spec)?.build(builder)?))
    }

    fn extras(&self) -> Vec<ExtraConfig> {
        vec![match self.diffusion {
            DiffusionChoice::Spectral => {
                let is_read = |order: usize| usize::from(self.channels[order] > 0);
                Eigenvectors(std::array::from_fn(|order| self.eigenvectors[order] * is_read(order))).into()
            }
            DiffusionChoice::Implicit => ImplicitDiffusion.into(),
        }]
    }

    fn recipe(&self, task: Task) -> Recipe {
        Recipe::of_surfaces(task)
    }
}

settings! {
    /// Settings of the model `diffusion`: DiffusionNet (Sharp, Attaiki, Crane and Ovsjanikov 2022), with its published
    /// sizes as defaults. Gradients come from the jets of the surface, and diffusion times start between 0.001 and
    /// 0.3 of the area.
    DiffusionModel = "diffusion" {
        /// Residual blocks (default 4).
        blocks: usize = 4,
        /// Scalar channels (default 128).
        channels: usize = 128,
        /// Number of eigenvectors (default 128).
        eigenvectors: usize = 128,
        /// Shortest and longest diffusion time at initialisation, for unit area (default `[0.001, 0.3]`).
        times: [f64; 2] = [1e-3, 0.3],
        /// Diffusion in eigenbases, or by implicit solves for meshes that are too large for eigenvectors (default:
        /// spectral).
        diffusion: DiffusionChoice = DiffusionChoice::Spectral,
        /// Times of implicit diffusion, for unit area (default `[0.001, 0.01, 0.1]`).
        implicit_times: Vec<f64> = vec![1e-3, 1e-2, 0.1],
        /// Dropout probability in the perceptrons (default 0.1).
        dropout: f64 = 0.1,
        /// False makes the network blind to the orientation of the surface, and so to left and right (default true).
        #[serde(skip_serializing_if = "Clone::clone")]
        oriented: bool = true,
        /// Probability of dropping each gradient that the invariants read (default 0).
        irrep_dropout: f64 = 0.0,
        /// Probability of dropping the update of a mesh in the last block (default 0). It grows linearly with depth.
        stochastic_depth: f64 = 0.0,
        /// Pooling for whole-mesh tasks (default: mean).
        pool: GlobalPool = GlobalPool::Mean,
        /// Weights that weight decay acts on (default: those of the head).
        decay: WeightDecay = WeightDecay::Linear,
    }
}

impl DiffusionModel {
    /// The same network as settings of the model `surface`.
    fn surface(&self) -> SurfaceModel {
        SurfaceModel {
            blocks: self.blocks,
            channels: [self.channels, 0, 0],
            eigenvectors: [self.eigenvectors, 0, 0],
            times: self.times,
            diffusion: self.diffusion,
            implicit_times: self.implicit_times.clone(),
            block_dropout: self.dropout,
            irrep_dropout: self.irrep_dropout,
            stochastic_depth: self.stochastic_depth,
            pool: self.pool,
            decay: self.decay,
            ..SurfaceModel::default()
        }
    }
}

impl Model for DiffusionModel {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>> {
        Ok(Box::new(self.surface().layers(spec, self.oriented)?.build(builder)?))
    }

    fn extras(&self) -> Vec<ExtraConfig> {
        self.surface().extras()
    }

    fn recipe(&self, task: Task) -> Recipe {
        let recipe = Recipe::of_surfaces(task);
        match task {
            // Without curvature, which differs between sources.
            Task::Segmentation | Task::Classification => Recipe {
                features: Combined {
                    of: vec![HeatKernel::default().into(), Position::default().into()],
                    ..Combined::default()
                }
                .into(),
                ..recipe
            },
            // As published.
            _ => Recipe { features: HeatKernel::default().into(), augmentation: Default::default(), ..recipe },
        }
    }
}
