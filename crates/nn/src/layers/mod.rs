//! Layers, one file each: settings with their defaults, initialisation, forward pass.
//!
//! The `init(name, builder)` of a configuration adds the parameters of the layer in the scope `name` and returns
//! the layer, a [`Module`](crate::Module) that holds the ids of its parameters.

mod angular_conv;
mod attention;
mod convolution;
mod diffusion;
mod diffusion_block;
mod element_mean;
mod equivariant_dropout;
mod equivariant_linear;
mod equivariant_norm;
mod gated_nonlinearity;
mod gem_conv;
mod global_pool;
mod identity;
mod implicit_diffusion;
mod linear;
mod message_block;
mod nonlinearity;
mod norm_nonlinearity;
mod regular_nonlinearity;
mod residual_block;
mod scalars;

pub use angular_conv::{AngularConv, AngularConvConfig};
pub use attention::{Attention, AttentionConv, AttentionConvConfig};
pub use convolution::{Angular, ConvConfig, Gauge, Isotropic, Kernel};
pub use diffusion::{Diffusion, DiffusionConfig};
pub use diffusion_block::{DiffusionBlock, DiffusionBlockConfig};
pub use element_mean::ElementMean;
pub use equivariant_dropout::{EquivariantDropout, EquivariantDropoutConfig};
pub use equivariant_linear::{EquivariantLinear, EquivariantLinearConfig};
pub use equivariant_norm::{EquivariantNorm, EquivariantNormConfig};
pub use gated_nonlinearity::Gates;
pub use gem_conv::{GemConv, GemConvConfig};
pub use global_pool::{GlobalPool, GlobalPooling};
pub use identity::Identity;
pub use implicit_diffusion::{ImplicitDiffusion, ImplicitDiffusionConfig};
pub use linear::{Linear, LinearConfig};
pub use message_block::{MessageBlock, MessageBlockConfig};
pub use nonlinearity::Nonlinearity;
pub use norm_nonlinearity::Norms;
pub use regular_nonlinearity::Regular;
pub use residual_block::{ResidualBlock, ResidualBlockConfig};
pub use scalars::{ActivationLayer, BreakSymmetry};
