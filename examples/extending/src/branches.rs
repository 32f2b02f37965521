//! A model with two branches: a gauge convolution sees the neighbours, a map of each vertex does not. Their
//! outputs are concatenated for the head.

use crate::softsign::Softsign;
use crate::tanh_norm::TanhNorm;
use gemcnn_nn::layers::{Linear, LinearConfig};
use gemcnn_nn::{Aggregation, Builder, FeatureType, Head, Levels, Module, Network, NnError, Part, Tape, Var};
use gemcnn_tasks::models::{Model, ModelSpec};
use gemcnn_tasks::{Settings, Task, TaskError};
use serde::{Deserialize, Serialize};

/// Settings of the model `branches`, for labels of vertices.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Branches {
    /// Channels of each order, and scalars of each branch (default 8).
    pub channels: usize,
    /// Highest order (default 2).
    pub band_limit: usize,
}

impl Default for Branches {
    fn default() -> Self {
        Self { channels: 8, band_limit: 2 }
    }
}

impl Settings for Branches {
    const KIND: &'static str = "branches";
}

impl Model for Branches {
    fn build(&self, spec: &ModelSpec, builder: &mut Builder<'_, f32>) -> Result<Box<dyn Module<f32>>, TaskError> {
        if !matches!(spec.task, Task::Segmentation | Task::Correspondence) {
            let problem = format!("`branches` labels vertices and cannot do {}", spec.task);
            return Err(TaskError::setting("model", problem));
        }
        let hidden = FeatureType::uniform(self.channels, self.band_limit);
        let scalars = FeatureType::scalars(self.channels);
        let local = Network::builder(spec.input.clone())
            .aggregation(Aggregation::Mean)
            .residual(&hidden, TanhNorm)
            .conv(&scalars);
        let own = Network::builder(spec.input.clone()).equivariant_linear(&scalars);
        let body = Body {
            local: builder.within("local", |builder| local.build(builder))?,
            own: builder.within("own", |builder| own.build(builder))?,
            output: FeatureType::scalars(2 * self.channels),
        };
        let head = LinearConfig::new(2 * self.channels, spec.outputs.dimension());
        Ok(Box::new(BranchesModel { body, head: head.init("head", builder)? }))
    }
}

/// The two branches.
#[derive(Debug)]
struct Body {
    local: Network<f32>,
    own: Network<f32>,
    output: FeatureType,
}

impl Module<f32> for Body {
    fn input(&self) -> &FeatureType {
        self.local.input()
    }

    fn output(&self) -> &FeatureType {
        &self.output
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, f32>, levels: Levels<'a, f32>, x: Var<f32>) -> Result<Var<f32>, NnError> {
        let local = self.local.forward(tape, levels, x.clone())?;
        let own = self.own.forward(tape, levels, x)?;
        let both = tape.concatenate(local, own)?;
        tape.apply(Softsign, [both])
    }
}

/// The branches and the linear layer to the classes.
#[derive(Debug)]
struct BranchesModel {
    body: Body,
    head: Linear,
}

impl Module<f32> for BranchesModel {
    fn input(&self) -> &FeatureType {
        self.body.input()
    }

    fn output(&self) -> &FeatureType {
        Module::<f32>::output(&self.head)
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, f32>, levels: Levels<'a, f32>, x: Var<f32>) -> Result<Var<f32>, NnError> {
        let features = self.body.forward(tape, levels, x)?;
        self.head.forward(tape, levels, features)
    }

    // With this the loss is fused with the last layer, and logits never exist all at once.
    fn split_head(&self) -> Option<(&dyn Module<f32>, Head<'_>)> {
        Some((&self.body, self.head.head()))
    }

    fn parts(&self) -> Vec<Part> {
        let mut parts = self.body.local.parts();
        parts.extend(self.body.own.parts());
        parts.push(Part {
            name: "head".into(),
            input: self.body.output.clone(),
            output: self.output().clone(),
            parameters: (self.body.output.dimension() + 1) * self.output().dimension(),
            level: 0,
        });
        parts
    }
}
