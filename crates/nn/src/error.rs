//! What can go wrong in a network, in the words of its layers.

use gemcnn_kernels::cuda::CudaError;
use gemcnn_kernels::{FeatureType, KernelError, ParseTypeError};
use gemcnn_mesh::GeometryError;
use std::path::PathBuf;

/// Why a network, a tape or a file of weights refuses something.
#[derive(Debug, thiserror::Error)]
pub enum NnError {
    /// Features of another type than a layer was made for.
    #[error("{what}: expected features of type {expected}, found {found}")]
    Type {
        /// Which operand of what.
        what: String,
        /// The type it should have.
        expected: FeatureType,
        /// The type it has.
        found: FeatureType,
    },
    /// Another number of rows or numbers than the rest asks for.
    #[error("{what}: expected {expected}, found {found}")]
    Size {
        /// What was counted.
        what: String,
        /// How many there should be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A network that pools more often than there are coarser graphs.
    #[error(
        "the network pools to {needed} levels, but runs on {found}; \
         give it a hierarchy of {needed} levels (`HierarchyBatch`)"
    )]
    Levels {
        /// Levels that the network needs.
        needed: usize,
        /// Levels that there are.
        found: usize,
    },
    /// A setting that makes no sense.
    #[error("{what}: {problem}")]
    Setting {
        /// Layer, optimiser or schedule.
        what: String,
        /// What is wrong with it, and what is allowed.
        problem: String,
    },
    /// The same parameter name twice.
    #[error("there are two parameters with the name `{name}`; give the layers different names")]
    SameName {
        /// The name.
        name: String,
    },
    /// A number that is NaN or infinite where training cannot go on.
    #[error("{what} is not finite; lower the learning rate or clip gradients")]
    NotFinite {
        /// What is not finite.
        what: String,
    },
    /// An error inside a layer.
    #[error("{layer}: {source}")]
    Layer {
        /// Name of the layer, with the names of the blocks it is in.
        layer: String,
        /// What went wrong in it.
        source: Box<NnError>,
    },
    /// An operator refused its arguments.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A GPU that cannot be used, or work on it that failed.
    #[error(transparent)]
    Cuda(CudaError),
    /// A mesh without usable geometry.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// A text that is no feature type.
    #[error(transparent)]
    ParseType(#[from] ParseTypeError),
    /// A file that cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Bytes that are no archive of ours.
    #[error("{path}: not a file of weights: {problem}")]
    Archive {
        /// The file, or a word for bytes from elsewhere.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Stored weights that do not fit the network.
    #[error("the stored weights do not fit:\n  {}", .differences.join("\n  "))]
    Mismatch {
        /// Everything that differs, one line each.
        differences: Vec<String>,
    },
    /// Something that only a training tape can do.
    #[error("{what} needs a tape made by `Tape::training`")]
    NotTraining {
        /// What was asked for.
        what: &'static str,
    },
}

impl NnError {
    /// The same error, with the name of the layer it happened in.
    pub fn in_layer(self, layer: &str) -> Self {
        Self::Layer {
            layer: layer.into(),
            source: Box::new(self),
        }
    }

    /// A setting that makes no sense.
    pub(crate) fn setting(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Setting {
            what: what.into(),
            problem: problem.into(),
        }
    }
}

/// Fails for types with orders above 0.
pub(crate) fn expect_scalars(what: &str, found: &FeatureType) -> Result<(), NnError> {
    match found.is_scalar() {
        true => Ok(()),
        false => Err(NnError::Type {
            what: what.into(),
            expected: FeatureType::scalars(found.dimension()),
            found: found.clone(),
        }),
    }
}

/// Checks a count.
pub(crate) fn check_size(
    what: impl Into<String>,
    expected: usize,
    found: usize,
) -> Result<(), NnError> {
    if expected == found {
        Ok(())
    } else {
        Err(NnError::Size {
            what: what.into(),
            expected,
            found,
        })
    }
}
