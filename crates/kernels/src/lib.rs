//! The operators of gauge equivariant mesh networks, forward and backward, on plain buffers.
//!
//! Features of a graph with `V` vertices are `V` rows of [`FeatureType::dimension`] values. An operator is a
//! folder with a fast CPU version, a CUDA version, and tests that compare both with a readable reference version.
//! Every operator checks the sizes of its arguments ([`KernelError`]). On the CPU, work runs on the current
//! rayon pool, and results do not depend on the number of threads.

pub mod activation;
pub mod aggregate;
mod aligned;
pub mod arguments;
pub mod attention;
pub mod batch_norm;
pub mod best_pairs;
mod bf16;
pub mod classifier;
mod complex;
pub mod cross_entropy;
pub mod cuda;
pub mod diffusion;
pub mod diffusion_net;
pub mod dropout;
pub mod edges;
pub mod elementwise;
mod error;
mod feature_type;
pub mod gauge_conv;
mod graph;
pub mod implicit;
pub mod incidence;
pub mod irrep;
pub mod linear;
pub mod machine;
mod matrix;
pub mod mesh_product;
pub mod messages;
mod narrow;
pub mod norm_gate;
mod parallel;
mod partials;
pub mod pool;
pub mod random;
mod real;
pub mod regression;
pub mod regular;
mod rotated_sum;
mod scratch;
pub mod self_map;
mod simd;
mod sources;
#[cfg(test)]
mod testing;
mod view;
pub mod weighted_conv;

pub use activation::Activation;
pub use aggregate::Aggregation;
pub use aligned::Aligned;
pub use arguments::{Anywhere, Gpu, Host};
pub use error::{KernelError, check_length};
pub use feature_type::{FeatureType, ParseTypeError, irrep_dimension};
pub use graph::{EdgePhases, GraphArrays, GraphParts, GraphSlices, GraphView};
pub use matrix::{Destination, Matrix, MatrixMut, product};
#[doc(hidden)]
pub use real::Compiled;
pub use real::Real;
pub use scratch::Scratch;
pub use sources::kernel_sources;
pub use view::{Executor, HostScratch, OnDevice, Resolve, View, ViewMut};
