//! Gauge equivariant networks on meshes: tape and operators, modules and layers, optimisers, checkpoints
//! and the equivariance tester.
//!
//! Everything is open: an [`Operator`] is a differentiable function for [`Tape::apply`], a [`Module`] is a
//! layer or a model for training and testing. `docs/extending.md` walks through both.

mod archive;
mod basis_batch;
mod batch;
mod builder;
mod cell_points;
pub mod columns;
mod device;
pub mod draws;
mod elements;
pub mod equivariance;
mod error;
mod extras;
mod geometry;
mod heat_batch;
mod incidence_batch;
mod initialisation;
pub mod layers;
mod loss;
mod module;
mod network;
mod on_devices;
mod operator;
pub mod operators;
mod optimiser;
mod parameters;
mod patch_batch;
mod pool;
mod record;
mod schedule;
mod spectra_batch;
mod stepper;
mod storage;
mod tape;
mod target;
mod training_batch;
mod var;
mod workspace;

pub use archive::Archive;
pub use basis_batch::{BasisArrays, BasisBatch, BasisParts};
pub use batch::{ClusterBatch, GraphBatch};
pub use builder::Builder;
pub use cell_points::CellPoints;
pub use device::{Device, DeviceChoice};
pub use elements::Elements;
pub use error::{NnError, Result};
pub use extras::{Extra, Extras, SharedExtra};
pub use gemcnn_kernels::batch_norm::NormGroups;
pub use gemcnn_kernels::classifier::Rows;
pub use gemcnn_kernels::cross_entropy::{IGNORE, Score, Targets};
pub use gemcnn_kernels::cuda::{CudaDevice, CudaError, MemoryUse, ProductMode};
pub use gemcnn_kernels::dropout::DropoutUnit;
pub use gemcnn_kernels::edges::{EdgeFrame, Reduce};
pub use gemcnn_kernels::elementwise::Slice;
pub use gemcnn_kernels::incidence::{IncidenceArrays, IncidenceParts};
pub use gemcnn_kernels::irrep::Grouping;
pub use gemcnn_kernels::pool::transport::{ClusterArrays, ClusterParts};
pub use gemcnn_kernels::random::Stream;
pub use gemcnn_kernels::regression::Penalty;
pub use gemcnn_kernels::{Activation, Aggregation, FeatureType, KernelError, ParseTypeError, Real, irrep_dimension};
pub use geometry::{Geometry, Levels};
pub use heat_batch::HeatBatch;
pub use incidence_batch::IncidenceBatch;
pub use loss::{Loss, LossOperator, LossValue};
use module::signature;
pub use module::{Head, Module, Part};
pub use network::{LayerConfig, Network, NetworkConfig, Stage, WeightDecay};
pub use on_devices::{ArraysOn, OnDevices, Upload};
pub use operator::{Context, Operator, RandomStream};
pub use optimiser::{Method, Optimiser};
pub use parameters::{Parameter, ParameterId, Parameters, Role};
pub use patch_batch::{PatchArrays, PatchBatch, SparseMap};
pub use pool::{Buffer, Pool, PoolUsage};
pub use record::{Keep, Recipe};
pub use schedule::{Plateau, Schedule};
pub use spectra_batch::{SpectraArrays, SpectraBatch};
pub use stepper::{StepSettings, Stepper};
pub use storage::Storage;
pub use tape::Tape;
pub use target::{Target, TargetValues};
pub use training_batch::{Objective, TrainingBatch};
pub use var::Var;
pub use workspace::Workspace;

/// Runs the code of the page on networks.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/networks.md")]
struct NetworksPage;
