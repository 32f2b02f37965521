//! The operators of this crate. Each file ends with the short forms of its operators, as methods of
//! [`Tape`](crate::Tape).

mod activation;
mod aggregate;
mod attention;
mod batch_norm;
mod classifier;
mod combine;
mod cross_entropy;
mod diffusion;
mod diffusion_net;
mod dropout;
mod edges;
mod gauge_conv;
mod implicit;
mod incidence;
mod irrep;
mod mesh_product;
mod messages;
mod norm_gate;
mod pool;
mod regression;
mod regular;
mod rotated_map;
mod row_map;
mod update;
mod weighted_conv;

pub use attention::Attend;
pub use batch_norm::{BatchNormalise, NormWeights};
pub use combine::Add;
pub use cross_entropy::CrossEntropy;
pub(crate) use cross_entropy::send_targets;
pub use diffusion::{Diffuse, DiffusionWeights};
pub use diffusion_net::{DiffusionNetBlock, SavedBlock};
pub use gauge_conv::{ConvWeights, GaugeConvolve};
pub use implicit::DiffuseImplicitly;
pub use messages::{MessageFunction, MessageLayer, SendMessages};
pub use pool::GlobalMax;
pub use regression::RegressionLoss;
pub use regular::RegularActivate;
pub use rotated_map::RotatedMap;
pub use row_map::LinearWeights;
pub use update::{UpdateFunction, UpdateVertices};
