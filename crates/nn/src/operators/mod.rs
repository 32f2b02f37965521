//! The operators of this crate. Each file ends with the short forms of its operators, as methods of
//! [`Tape`](crate::Tape).

mod activation;
mod aggregate;
mod batch_norm;
mod classifier;
mod combine;
mod cross_entropy;
mod diffusion;
mod dropout;
mod edges;
mod gauge_conv;
mod implicit;
mod incidence;
mod irrep;
mod mesh_product;
mod norm_gate;
mod pool;
mod regression;
mod regular;
mod row_map;
mod softmax;

pub use activation::Pointwise;
pub use aggregate::GaugeAggregate;
pub use batch_norm::{BatchNormalise, NormWeights};
pub(crate) use classifier::AnyTargets;
pub use combine::{Add, Concatenate, Scale, SelectChannels};
pub use cross_entropy::CrossEntropy;
pub(crate) use cross_entropy::single_targets;
pub use diffusion::{Diffuse, DiffusionWeights};
pub use dropout::{DropIrreps, DropMeshes};
pub use edges::{EdgeSoftmax, GatherEdges, ReduceEdges, SpreadEdges};
pub use gauge_conv::{ConvWeights, GaugeConvolve};
pub use implicit::{DiffuseImplicitly, SurfaceGradient};
pub use incidence::{ApplyIncidence, ApplyIncidenceTransposed};
pub use irrep::{IrrepDot, IrrepNorm, IrrepScale};
pub use mesh_product::{Expand, Project};
pub use norm_gate::{Gate, NormActivate};
pub use pool::{GlobalMax, GlobalMean, PoolClusters, UnpoolClusters};
pub(crate) use regression::DeviceValues;
pub use regression::RegressionLoss;
pub use regular::RegularActivate;
pub use row_map::{EquivariantMap, LinearMap, LinearWeights};
pub use softmax::RowSoftmax;
