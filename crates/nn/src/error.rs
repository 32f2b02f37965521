//! Errors of this crate.

use gemcnn_kernels::cuda::CudaError;
use gemcnn_kernels::{FeatureType, KernelError, ParseTypeError};
use gemcnn_mesh::GeometryError;
use std::path::PathBuf;

/// The result of functions that fail with an [`NnError`].
pub type Result<T, E = NnError> = std::result::Result<T, E>;

/// An error of a model, a tape, a device or an archive.
#[derive(Debug, thiserror::Error)]
pub enum NnError {
    /// Features of a type that does not fit.
    #[error("{what}: expected features of type {expected}, found {found}")]
    Type {
        /// The operand.
        what: String,
        /// The expected type.
        expected: FeatureType,
        /// The type that was found.
        found: FeatureType,
    },
    /// A number of rows or values that does not fit.
    #[error("{what}: expected {expected}, found {found}")]
    Size {
        /// What was counted.
        what: String,
        /// The expected number.
        expected: usize,
        /// The number that was found.
        found: usize,
    },
    /// A module that needs more levels than there are.
    #[error(
        "the module needs {needed} levels, but there are {found}; \
         pass a hierarchy of {needed} levels (`Geometry::new`)"
    )]
    Levels {
        /// Number of levels that the module needs.
        needed: usize,
        /// Number of levels that it runs on.
        found: usize,
    },
    /// A module that reads a kind of geometry runs on meshes without it.
    #[error("the module needs the {what} of its meshes, but there are none; add them (`Geometry::with`)")]
    Missing {
        /// What is missing ([`Extra::name`](crate::Extra::name)).
        what: &'static str,
    },
    /// A setting that is out of range or does not fit.
    #[error("{what}: {problem}")]
    Setting {
        /// The setting, or what it belongs to.
        what: String,
        /// The problem, and what is allowed.
        problem: String,
    },
    /// A parameter name that is used twice.
    #[error("two parameters are named `{name}`; give the layers different names")]
    SameName {
        /// The name.
        name: String,
    },
    /// A value that is NaN or infinite, so that training cannot continue.
    #[error("{what} is not finite; lower the learning rate or clip gradients")]
    NotFinite {
        /// The value.
        what: String,
    },
    /// Outputs of a model that are NaN or infinite.
    #[error("the output of the model is not finite")]
    OutputNotFinite,
    /// An error inside a layer.
    #[error("{layer}: {source}")]
    Layer {
        /// Full name of the layer, with the names of the enclosing blocks.
        layer: String,
        /// The error.
        source: Box<NnError>,
    },
    /// Arguments that an operator cannot take.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A GPU that cannot be used, or a failed operation on it.
    #[error(transparent)]
    Cuda(CudaError),
    /// A mesh without usable geometry.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// A text that is not a feature type.
    #[error(transparent)]
    ParseType(#[from] ParseTypeError),
    /// A file that cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// An archive that cannot be read or written.
    #[error("{path}: not a valid archive: {problem}")]
    Archive {
        /// The file, or `bytes`.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// Stored parameters that do not fit the model.
    #[error("the stored parameters do not fit:\n  {}", .differences.join("\n  "))]
    Mismatch {
        /// Everything that differs, one line each.
        differences: Vec<String>,
    },
    /// An operation that needs a training tape.
    #[error("{what} needs a tape made by `Tape::training`")]
    NotTraining {
        /// The operation.
        what: &'static str,
    },
}

impl NnError {
    /// The same error with the name of the layer it occurred in.
    pub fn in_layer(self, layer: &str) -> Self {
        Self::Layer { layer: layer.into(), source: Box::new(self) }
    }

    /// An [`NnError::Setting`].
    pub fn setting(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Setting { what: what.into(), problem: problem.into() }
    }
}

/// Fails for types with orders above 0.
pub(crate) fn expect_scalars(what: &str, found: &FeatureType) -> Result<()> {
    match found.is_scalar() {
        true => Ok(()),
        false => Err(NnError::Type {
            what: what.into(),
            expected: FeatureType::scalars(found.dimension()),
            found: found.clone(),
        }),
    }
}

/// Fails if two numbers differ.
pub(crate) fn check_size(what: impl Into<String>, expected: usize, found: usize) -> Result<()> {
    if expected == found { Ok(()) } else { Err(NnError::Size { what: what.into(), expected, found }) }
}

/// First vertex of each mesh, and the number of all vertices at the end, from the number of vertices of each.
pub(crate) fn mesh_offsets(what: &str, counts: impl Iterator<Item = usize>) -> Result<Vec<u32>> {
    let (mut offsets, mut vertices) = (vec![0], 0);
    for count in counts {
        vertices += count;
        let too_many = |_| NnError::setting(what, "more vertices than 32-bit indices can address");
        offsets.push(u32::try_from(vertices).map_err(too_many)?);
    }
    Ok(offsets)
}
