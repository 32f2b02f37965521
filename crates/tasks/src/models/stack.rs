//! The architecture that the published single-scale networks share, and what their layers have in common.

use super::{Head, ModelSpec, WIDTHS, within};
use crate::features::{FeatureError, Surface};
use crate::registry::settings;
use crate::{Result, TaskError};
use gemcnn_mesh::patches::Discs;
use gemcnn_mesh::vertex_areas;
use gemcnn_nn::layers::{GlobalPool, Linear, LinearConfig};
use gemcnn_nn::operators::RotatedMap;
use gemcnn_nn::{
    Activation, Aggregation, Builder, FeatureType, IncidenceBatch, IncidenceParts, LayerConfig, Levels, Module,
    Network, NetworkConfig, NnError, PatchBatch, Real, Stage, Tape, Var, WeightDecay,
};
use std::fmt;
use std::sync::Arc;

settings! {
    /// Layers of a single-scale network: a linear layer, convolutions, and the layers of [`Head`].
    Stack {
        /// Channels of the first linear layer, then those of each convolution (default `[16, 32, 64, 128]`).
        channels: Vec<usize> = vec![16, 32, 64, 128],
        /// Hidden channels of the head (default 256). `0` makes the head a single linear layer.
        head: usize = 256,
        /// Dropout probability in the head (default 0.5).
        dropout: f64 = 0.5,
        /// Pooling for whole-mesh tasks (default: mean).
        pool: GlobalPool = GlobalPool::Mean,
        /// Weights that weight decay acts on (default: those of linear layers).
        decay: WeightDecay = WeightDecay::Linear,
    }
}

impl Stack {
    /// The network with convolutions that `conv` makes from their number of output channels, each with an activation,
    /// after a batch normalisation if there is one.
    pub(super) fn network<T: Real, L: LayerConfig<T> + 'static>(
        &self,
        kind: &str,
        spec: &ModelSpec,
        (batch_norm, activation): (bool, Activation),
        conv: impl Fn(usize) -> L,
    ) -> Result<NetworkConfig<T>> {
        if !spec.input.is_scalar() {
            return Err(TaskError::setting(
                format!("model: {kind} on features of type {}", spec.input),
                "this network takes scalars only; use the features `xyz` or `shot`, or another model",
            ));
        }
        let Some((&first, convolutions)) = self.channels.split_first() else {
            let problem = "the list is empty; give the channels of the first linear layer";
            return Err(TaskError::setting("model: layers.channels", problem));
        };
        for &channels in &self.channels {
            within("layers.channels", channels, WIDTHS)?;
        }
        let activated = |network: NetworkConfig<T>| match batch_norm {
            true => network.norm().activation(activation.clone()),
            false => network.activation(activation.clone()),
        };
        let network = Network::builder(spec.input.clone()).weight_decay(self.decay);
        let mut network = activated(network.linear(first));
        for &channels in convolutions {
            network = activated(network.layer(conv(channels)));
        }
        Head { width: self.head, dropout: self.dropout, pool: self.pool }.add(network, spec)
    }
}

/// The forward pass of a layer.
pub(super) type Forward<T> =
    Box<dyn for<'a> Fn(&mut Tape<'a, T>, Levels<'a, T>, Var<T>) -> Result<Var<T>, NnError> + Send + Sync>;

/// Makes a layer of its forward pass.
pub(super) fn forward<T: Real>(
    forward: impl for<'a> Fn(&mut Tape<'a, T>, Levels<'a, T>, Var<T>) -> Result<Var<T>, NnError> + Send + Sync + 'static,
) -> Result<Forward<T>, NnError> {
    Ok(Box::new(forward))
}

/// Adds the parameters of a layer, from its name, the number of its inputs and their mean square.
type Init<T> = dyn Fn(&str, usize, f64, &mut Builder<'_, T>) -> Result<Forward<T>, NnError> + Send + Sync;

/// Settings of a layer from scalars of vertices to scalars of vertices.
pub(super) struct VertexConv<T: Real> {
    word: &'static str,
    outputs: usize,
    init: Box<Init<T>>,
}

impl<T: Real> VertexConv<T> {
    /// A layer with the first part of its name, its number of outputs, and a function that adds its parameters and
    /// returns its forward pass.
    pub fn new(
        word: &'static str,
        outputs: usize,
        init: impl Fn(&str, usize, f64, &mut Builder<'_, T>) -> Result<Forward<T>, NnError> + Send + Sync + 'static,
    ) -> Self {
        Self { word, outputs, init: Box::new(init) }
    }
}

impl<T: Real> fmt::Debug for VertexConv<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word)
    }
}

impl<T: Real> LayerConfig<T> for VertexConv<T> {
    fn word(&self) -> &'static str {
        self.word
    }

    fn init(&self, name: &str, stage: &mut Stage, builder: &mut Builder<'_, T>) -> Result<Box<dyn Module<T>>, NnError> {
        if stage.pooled {
            let problem = "it needs vertices, but after a global pooling there is one row for each mesh";
            return Err(NnError::setting("layer", problem).in_layer(name));
        }
        let output = FeatureType::scalars(self.outputs);
        let (input, moments) = stage.move_to(output.clone(), Vec::new());
        let moment = moments.first().copied().unwrap_or(1.0);
        let forward = (self.init)(name, input.dimension(), moment, builder)?;
        Ok(Box::new(VertexLayer { word: self.word, input: FeatureType::scalars(input.dimension()), output, forward }))
    }
}

struct VertexLayer<T: Real> {
    word: &'static str,
    input: FeatureType,
    output: FeatureType,
    forward: Forward<T>,
}

impl<T: Real> fmt::Debug for VertexLayer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word)
    }
}

impl<T: Real> Module<T> for VertexLayer<T> {
    fn input(&self) -> &FeatureType {
        &self.input
    }

    fn output(&self) -> &FeatureType {
        &self.output
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>, NnError> {
        (self.forward)(tape, levels, x)
    }
}

/// A layer that maps the bins of each patch together: `y_i = W (D_1 x, ..., D_bins x)_i + bias`, with the first sparse
/// map of the model as `D`, `bins` rows for each vertex.
pub(super) fn patch_conv<T: Real>(word: &'static str, bins: usize, outputs: usize) -> VertexConv<T> {
    VertexConv::new(word, outputs, move |name, inputs, input_moment, builder| {
        let config = LinearConfig { input_moment, ..LinearConfig::new(inputs * bins, outputs) };
        let linear: Linear = config.init(name, builder)?;
        forward(move |tape, levels, x| {
            let patches = gathered(tape, levels, 0, x)?;
            linear.forward(tape, levels, patches)
        })
    })
}

/// The rows of a sparse map, those of each vertex together: `[vertices, bins channels]`.
pub(super) fn gathered<'a, T: Real>(
    tape: &mut Tape<'a, T>,
    levels: Levels<'a, T>,
    map: usize,
    x: Var<T>,
) -> Result<Var<T>, NnError> {
    let vertices = x.rows();
    let map = levels.get::<PatchBatch<T>>()?.map(map)?;
    let rows = tape.apply_incidence(Aggregation::Sum, map, x)?;
    rows.with_rows(vertices)
}

/// The largest response of each output of a linear map in several rotations: `max_k W_k x`.
#[derive(Debug)]
pub(super) struct RotatedMaximum<T> {
    map: RotatedMap<T>,
    rotations: usize,
}

impl<T: Real> RotatedMaximum<T> {
    /// Adds the weights of `config`, which has no bias, under a name. As rows of `kind` they are those of the first
    /// matrix; `rows` names the row that each row of the rotated matrices is made of, and the angle that it is rotated
    /// by.
    ///
    /// # Errors
    /// A name that is taken, or rows that do not exist.
    pub fn new(
        (name, config): (&str, LinearConfig),
        kind: FeatureType,
        rotations: usize,
        rows: impl Iterator<Item = (u32, f64)>,
        builder: &mut Builder<'_, T>,
    ) -> Result<Self, NnError> {
        let (sources, angles): (Vec<u32>, Vec<f64>) = rows.unzip();
        let parts = IncidenceParts {
            columns: config.inputs * config.outputs / kind.dimension().max(1),
            offsets: &(0..=sources.len() as u32).collect::<Vec<u32>>(),
            indices: &sources,
            angles: (!kind.is_scalar()).then_some(&angles[..]),
            weights: None,
        };
        let rotated = Arc::new(IncidenceBatch::new(&[parts])?);
        let linear = config.init(name, builder)?;
        Ok(Self {
            map: RotatedMap { weight: linear.weights().weight, kind, rotations: rotated, inputs: config.inputs },
            rotations,
        })
    }

    /// The largest responses.
    pub fn forward(&self, tape: &mut Tape<'_, T>, x: Var<T>) -> Result<Var<T>, NnError> {
        let responses = tape.rotated_map(self.map.clone(), x)?;
        tape.block_maximum(self.rotations, responses)
    }
}

/// Largest number of vertices of a geodesic disc. It bounds the memory, and is well above what discs have on training
/// meshes, so that those of a denser mesh still cover the same surface.
const DISC_LIMIT: usize = 400;

/// The geodesic discs of a surface and their radius in lengths of the mesh. `radius` is in square roots of the area.
///
/// # Errors
/// A mesh without an area, or whose area overflows.
pub(super) fn discs(surface: Surface<'_>, radius: f64) -> Result<(Discs, f64), FeatureError> {
    let area: f64 = vertex_areas(surface.mesh).iter().sum();
    let radius = radius * area.sqrt();
    match radius > 0.0 && radius.is_finite() {
        true => Ok((Discs::new(surface.graph, radius, DISC_LIMIT), radius)),
        false => Err(format!("geodesic discs need a surface, but the area is {area}").into()),
    }
}

/// Checks the radius of a disc.
pub(super) fn check_radius(radius: f64) -> Result<()> {
    match radius > 0.0 && radius <= 1.0 {
        true => Ok(()),
        false => {
            Err(TaskError::setting("model: radius", format!("{radius} is out of range: must be above 0 and at most 1")))
        }
    }
}
