//! The block of the networks on surfaces: diffusion, invariants and a perceptron for each vertex.

use super::{
    Diffusion, DiffusionConfig, EquivariantLinear, EquivariantLinearConfig, ImplicitDiffusion, ImplicitDiffusionConfig,
    Linear, LinearConfig,
};
use crate::operators::DiffusionWeights;
use crate::{Builder, Levels, Module, NnError, ParameterId, Result, Tape, Var, signature};
use gemcnn_kernels::diffusion_net::Weights;
use gemcnn_kernels::dropout::{Dropout, DropoutUnit};
use gemcnn_kernels::elementwise::Slice;
use gemcnn_kernels::irrep::Grouping;
use gemcnn_kernels::norm_gate::GatedNonlinearity;
use gemcnn_kernels::{Activation, FeatureType, Real};
use std::sync::Arc;

/// Mean square of the inputs that the initialisation of the perceptron assumes: that of the published DiffusionNet.
const MOMENT: f64 = 3.0;

/// Settings of a [`DiffusionBlock`].
#[derive(Debug, Clone, PartialEq)]
pub struct DiffusionBlockConfig {
    /// Type of input and output. Scalars alone give the block of DiffusionNet.
    pub features: FeatureType,
    /// Dropout probability before the second and the third layer of the perceptron (default 0).
    pub dropout: f64,
    /// Probability of dropping each irrep of order above 0 that the invariants and the gates read (default 0). With
    /// scalars alone, these are the gradients.
    pub irrep_dropout: f64,
    /// Probability of dropping the whole update of a mesh: stochastic depth (default 0).
    pub stochastic_depth: f64,
    /// Shortest and longest diffusion time at initialisation (default `[1e-3, 0.3]`).
    pub times: [f64; 2],
    /// Times of implicit diffusion, which takes the place of diffusion in eigenbases (default: none).
    pub implicit: Vec<f64>,
    /// True (default) if invariants depend on the orientation of the surface. Without it, a block of scalars computes the
    /// same on a mirror image, and cannot tell left from right.
    pub oriented: bool,
}

impl DiffusionBlockConfig {
    /// Default settings.
    pub fn new(features: FeatureType) -> Self {
        Self {
            times: DiffusionConfig::new(features.clone()).times,
            features,
            dropout: 0.0,
            irrep_dropout: 0.0,
            stochastic_depth: 0.0,
            implicit: Vec::new(),
            oriented: true,
        }
    }

    /// Adds the parameters of the layers `diffusion`, `lift`, `product`, and of the perceptron `scalars`,
    /// `invariants`, `hidden` and `update`.
    ///
    /// # Errors
    /// A name that is taken, no scalars, or settings out of range.
    pub fn init<T: Real>(&self, name: &str, builder: &mut Builder<'_, T>) -> Result<DiffusionBlock> {
        let features = &self.features;
        let scalars = features.multiplicity(0);
        if scalars == 0 {
            let problem = format!("{features} has no scalars");
            return Err(NnError::setting("features of a diffusion block", problem));
        }
        let depth = self.stochastic_depth;
        if !(0.0..1.0).contains(&depth) {
            let problem = format!("{depth} must be at least 0 and below 1");
            return Err(NnError::setting("stochastic depth", problem).in_layer(name));
        }
        builder.within(name, |builder| {
            let diffusion = match &self.implicit[..] {
                [] => {
                    let config = DiffusionConfig {
                        gradients: true,
                        times: self.times,
                        ..DiffusionConfig::new(features.clone())
                    };
                    Diffuser::Spectral(config.init("diffusion", builder)?)
                }
                times => {
                    let config = ImplicitDiffusionConfig {
                        gradients: true,
                        times: times.to_vec(),
                        ..ImplicitDiffusionConfig::new(features.clone())
                    };
                    Diffuser::Implicit(config.init("diffusion", builder)?)
                }
            };
            let both = features.concatenated(diffusion.module::<T>().output());
            let equivariant = |input: &FeatureType, output: &FeatureType, bias: bool| EquivariantLinearConfig {
                bias,
                ..EquivariantLinearConfig::new(input.clone(), output.clone())
            };
            let mut rotating = features.multiplicities().to_vec();
            rotating[0] = 0;
            let rotating = FeatureType::new(&rotating);
            let lift = match rotating.dimension() {
                0 => Lift::Gradients(Arc::new(Slice { kind: both.clone(), channels: vec![0..0, 0..scalars] })),
                _ => Lift::Linear(equivariant(&both, &rotating, false).init("lift", builder)?),
            };
            let lifted = match &lift {
                Lift::Gradients(_) => FeatureType::new(&[0, scalars]),
                Lift::Linear(_) => rotating.clone(),
            };
            let product = match self.oriented {
                true => Product::Oriented(equivariant(&lifted, &lifted, false).init("product", builder)?),
                false if rotating.dimension() == 0 => {
                    let config = LinearConfig { bias: false, ..LinearConfig::new(scalars, scalars) };
                    Product::Mirrored(config.init("product", builder)?)
                }
                false => {
                    let problem = "is for features of scalars only: vectors and tensors see the orientation anyway";
                    return Err(NnError::setting("oriented = false", problem));
                }
            };
            let invariants = Grouping::Irreps.count(&lifted);
            let gates = Grouping::Irreps.count(&rotating);
            let linear = |inputs: usize, outputs: usize, bias: bool| LinearConfig {
                bias,
                input_moment: MOMENT,
                ..LinearConfig::new(inputs, outputs)
            };
            let hidden_type = FeatureType::scalars(scalars);
            Ok(DiffusionBlock {
                diffusion,
                lift,
                product,
                scalars: equivariant(&both, &hidden_type, true).init("scalars", builder)?,
                invariants: linear(invariants, scalars, false).init("invariants", builder)?,
                hidden: linear(scalars, scalars, true).init("hidden", builder)?,
                update: linear(scalars, scalars + gates, true).init("update", builder)?,
                gate: Arc::new(GatedNonlinearity { output: features.clone(), activation: Activation::Identity }),
                dropout: irrep_dropout(hidden_type, self.dropout)?,
                irrep_dropout: irrep_dropout(lifted, self.irrep_dropout)?,
                stochastic_depth: depth,
                features: features.clone(),
            })
        })
    }
}

/// Dropout of whole irreps; `None` for probability 0.
fn irrep_dropout(kind: FeatureType, probability: f64) -> Result<Option<Arc<Dropout>>> {
    let dropout = Dropout { kind, probability, unit: DropoutUnit::Irrep };
    dropout.units()?;
    Ok((probability > 0.0).then(|| Arc::new(dropout)))
}

/// Diffusion in eigenbases, or by implicit solves.
#[derive(Debug, Clone)]
enum Diffuser {
    Spectral(Diffusion),
    Implicit(ImplicitDiffusion),
}

impl Diffuser {
    fn module<T: Real>(&self) -> &dyn Module<T> {
        match self {
            Self::Spectral(diffusion) => diffusion,
            Self::Implicit(diffusion) => diffusion,
        }
    }
}

/// The matrix `B` of the invariants.
#[derive(Debug, Clone)]
enum Product {
    /// A complex matrix.
    Oriented(EquivariantLinear),
    /// A real matrix, for vectors: it commutes with reflections of the frames too.
    Mirrored(Linear),
}

impl Product {
    fn forward<'a, T: Real>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, z: Var<T>) -> Result<Var<T>> {
        match self {
            Self::Oriented(map) => map.forward(tape, levels, z),
            Self::Mirrored(map) => {
                // Both components of the vectors of a vertex, one after the other.
                let (kind, rows) = (z.kind().clone(), z.rows());
                let mapped = map.forward(tape, levels, z.into_scalars().with_rows(2 * rows)?)?;
                mapped.with_rows(rows)?.with_kind(kind)
            }
        }
    }
}

/// Fields of order above 0 whose invariants enter the perceptron.
#[derive(Debug, Clone)]
enum Lift {
    /// The gradients of the diffused scalars: the block has no such fields of its own.
    Gradients(Arc<Slice>),
    /// A linear map of the fields, the diffused fields and the gradients.
    Linear(EquivariantLinear),
}

/// Residual block on surfaces. With `d` the diffused features and the gradients of the diffused scalars,
///
/// ```text
/// z = lift(x, d)                  fields of order above 0
/// p = tanh(<z, B z>)              one invariant for each irrep of z
/// h = perceptron(x_0, d_0, p)     for each vertex
/// y_0 = x_0 + h_0,    y_m = x_m + sigmoid(gate) z_m
/// ```
///
/// `B` is a complex matrix that commutes with rotations of the frames; it is real in blocks that are not oriented. In training, irreps of `z` and the updates
/// of whole meshes can be dropped. With scalars alone, `z` are the gradients, and
/// this is the block of DiffusionNet (Sharp, Attaiki, Crane and Ovsjanikov 2022).
#[derive(Debug, Clone)]
pub struct DiffusionBlock {
    diffusion: Diffuser,
    lift: Lift,
    product: Product,
    scalars: EquivariantLinear,
    invariants: Linear,
    hidden: Linear,
    update: Linear,
    gate: Arc<GatedNonlinearity>,
    dropout: Option<Arc<Dropout>>,
    irrep_dropout: Option<Arc<Dropout>>,
    stochastic_depth: f64,
    features: FeatureType,
}

fn dropped<T: Real>(tape: &mut Tape<'_, T>, dropout: &Option<Arc<Dropout>>, x: Var<T>) -> Result<Var<T>> {
    match dropout {
        Some(dropout) => tape.dropout(dropout, x),
        None => Ok(x),
    }
}

impl DiffusionBlock {
    /// The parameters of a block of scalars that drops neither gradients nor meshes: DiffusionNet in its published
    /// form.
    fn scalar_weights(&self) -> Option<Weights<ParameterId>> {
        let (Diffuser::Spectral(diffusion), Lift::Gradients(_), Product::Oriented(product)) =
            (&self.diffusion, &self.lift, &self.product)
        else {
            return None;
        };
        if self.irrep_dropout.is_some() || self.stochastic_depth > 0.0 {
            return None;
        }
        let DiffusionWeights { log_times, bands } = diffusion.weights();
        let [scalars, hidden, update] = [self.scalars.weights(), self.hidden.weights(), self.update.weights()];
        Some(Weights {
            log_times,
            bands,
            product: product.weights().weight,
            scalars: scalars.weight,
            scalars_bias: scalars.bias?,
            invariants: self.invariants.weights().weight,
            hidden: hidden.weight,
            hidden_bias: hidden.bias?,
            update: update.weight,
            update_bias: update.bias?,
        })
    }
}

impl<T: Real> Module<T> for DiffusionBlock {
    signature!(this: this.features => this.features);

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>> {
        if let Some(weights) = self.scalar_weights() {
            let dropout = self.dropout.as_ref().map_or(0.0, |dropout| dropout.probability);
            x.expect_kind("input of a diffusion block", &self.features)?;
            let y = tape.diffusion_net_block(levels.get()?, weights, dropout, x.clone())?;
            if let Some(y) = y {
                return Ok(y);
            }
        }
        let diffusion = self.diffusion.module();
        let diffused = diffusion.forward(tape, levels, x.clone())?;
        let both = tape.concatenate(x.clone(), diffused)?;
        let z = match &self.lift {
            Lift::Gradients(slice) => tape.slice(slice, both.clone())?,
            Lift::Linear(map) => map.forward(tape, levels, both.clone())?,
        };
        let z = dropped(tape, &self.irrep_dropout, z)?;
        let mapped = self.product.forward(tape, levels, z.clone())?;
        let products = tape.irrep_dot(Grouping::Irreps, z.clone(), mapped)?;
        let products = tape.activation(&Activation::Tanh, products)?;
        let invariants = self.invariants.forward(tape, levels, products)?;
        let scalars = self.scalars.forward(tape, levels, both)?;
        let h = tape.add(scalars, invariants)?;
        let h = tape.activation(&Activation::Relu, h)?;
        let h = dropped(tape, &self.dropout, h)?;
        let h = self.hidden.forward(tape, levels, h)?;
        let h = tape.activation(&Activation::Relu, h)?;
        let h = dropped(tape, &self.dropout, h)?;
        let h = self.update.forward(tape, levels, h)?;
        let update = match &self.lift {
            Lift::Gradients(_) => h,
            Lift::Linear(_) => {
                let gated = tape.concatenate(h, z)?;
                tape.gated_nonlinearity(&self.gate, gated)?
            }
        };
        let update = match self.stochastic_depth {
            0.0 => update,
            probability => tape.drop_meshes(levels.graph()?, probability, update)?,
        };
        tape.add(x, update)
    }
}
