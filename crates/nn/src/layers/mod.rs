//! Layers: one file each, in the order configuration with its defaults, first values, forward pass.
//!
//! A configuration's `init(name, builder)` adds the parameters of a layer under its name and gives the
//! layer, which holds their ids; `forward` runs it on a [`Tape`](crate::Tape).

mod angular_conv;
mod convolution;
mod equivariant_dropout;
mod equivariant_linear;
mod equivariant_norm;
mod gated_nonlinearity;
mod gem_conv;
mod global_pool;
mod graph_conv;
mod linear;
mod nonlinearity;
mod norm_nonlinearity;
mod regular_nonlinearity;
mod residual_block;
mod transport_pool;

pub use angular_conv::{AngularConv, AngularConvConfig};
pub use convolution::{ConvConfig, Convolution, Kernel};
pub use equivariant_dropout::{EquivariantDropout, EquivariantDropoutConfig};
pub use equivariant_linear::{EquivariantLinear, EquivariantLinearConfig};
pub use equivariant_norm::{EquivariantNorm, EquivariantNormConfig};
pub use gated_nonlinearity::{GatedNonlinearity, GatedNonlinearityConfig};
pub use gem_conv::{GemConv, GemConvConfig};
pub use global_pool::GlobalPool;
pub use graph_conv::{GraphConv, GraphConvConfig};
pub use linear::{Linear, LinearConfig};
pub use nonlinearity::{Nonlinearity, NonlinearityLayer};
pub use norm_nonlinearity::{NormNonlinearity, NormNonlinearityConfig};
pub use regular_nonlinearity::{Regular, RegularNonlinearity};
pub use residual_block::{ResidualBlock, ResidualBlockConfig};
pub use transport_pool::{TransportPool, TransportUnpool};
