//! Errors of data, training and evaluation.

mod data;
mod summary;

pub use data::DataError;
pub use summary::summed_up;

use gemcnn_mesh::surface::SurfaceError;
use gemcnn_mesh::{FileError, GeometryError, HierarchyError};
use gemcnn_nn::NnError;
use gemcnn_view::plot::WriteError;
use std::path::{Path, PathBuf};

/// The result of functions that fail with a [`TaskError`].
pub type Result<T, E = TaskError> = std::result::Result<T, E>;

/// An error of a data set, a run or an evaluation.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// An unreadable mesh file.
    #[error(transparent)]
    Mesh(#[from] FileError),
    /// Geometry that cannot be computed.
    #[error("{name}: {source}")]
    Geometry {
        /// The mesh.
        name: String,
        /// The cause.
        source: GeometryError,
    },
    /// Features that cannot be computed.
    #[error("{name}: features `{kind}`: {source}")]
    Features {
        /// The mesh.
        name: String,
        /// Kind of the features.
        kind: &'static str,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Coarser levels that cannot be computed.
    #[error("{name}: {source}")]
    Hierarchy {
        /// The mesh.
        name: String,
        /// The cause.
        source: HierarchyError,
    },
    /// Operators of a surface that cannot be computed.
    #[error("{name}: {source}")]
    Surface {
        /// The mesh.
        name: String,
        /// The cause.
        source: SurfaceError,
    },
    /// A mesh that needs more memory than there is.
    #[error(
        "{name}: {vertices} vertices need about {:.1} GB of memory, but only {:.1} GB are free; simplify the mesh \
         (`gemcnn mesh simplify`), or use a machine with more memory",
        *.needed as f64 / 1e9, *.free as f64 / 1e9
    )]
    TooLarge {
        /// The mesh.
        name: String,
        /// Its number of vertices.
        vertices: usize,
        /// Estimate of the bytes that it needs.
        needed: u64,
        /// Free bytes.
        free: u64,
    },
    /// An invalid setting, sample or file.
    #[error("{what}: {problem}")]
    Setting {
        /// The setting, sample or file.
        what: String,
        /// The problem, and what is allowed.
        problem: String,
    },
    /// A file that cannot be read or written.
    #[error("{path}: {source}{}", remedy(source))]
    File {
        /// The file.
        path: PathBuf,
        /// The system error.
        source: std::io::Error,
    },
    /// An unreadable checkpoint.
    #[error(
        "{path}: the checkpoint is damaged or from another version: {source}; restore a \
         copy of the file, or remove it to restart the run"
    )]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Box<NnError>,
    },
    /// A model file that cannot be used.
    #[error(
        "{path}: the model is damaged or from another version: {source}; restore a copy of the file, or resume \
         the run from its checkpoint"
    )]
    Model {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Box<TaskError>,
    },
    /// A checkpoint of a run with other settings or data.
    #[error(
        "{path}: the run cannot be resumed, because its settings or data have changed:\n  {}\n\
         undo the changes, or start a new run",
        .differences.join("\n  ")
    )]
    OtherRun {
        /// The checkpoint.
        path: PathBuf,
        /// All differences, one line each.
        differences: Vec<String>,
    },
    /// A loss or weight that is NaN or infinite.
    #[error(
        "epoch {epoch}, step {step}: {what} is not finite after the batch of {samples}; start a new \
         run with a lower `rate` or with `clip`, and check these meshes"
    )]
    Diverged {
        /// The loss, or the name of the weight.
        what: String,
        /// The epoch, from 1.
        epoch: u64,
        /// The step within the epoch, from 1.
        step: u64,
        /// Names of the meshes of the batch.
        samples: String,
    },
    /// An invalid data set.
    #[error(transparent)]
    Data(#[from] DataError),
    /// An error of the network.
    #[error(transparent)]
    Network(#[from] NnError),
}

/// What to do about an error of the operating system.
fn remedy(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind::{AlreadyExists, IsADirectory, NotADirectory, NotFound, PermissionDenied};
    match error.kind() {
        NotFound => "; check the path",
        NotADirectory => "; give a folder",
        IsADirectory => "; give a file",
        AlreadyExists => "; choose another name",
        PermissionDenied => "; check the permissions",
        _ => "",
    }
}

impl TaskError {
    /// An invalid setting, sample or file.
    pub fn setting(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Setting { what: what.into(), problem: problem.into() }
    }

    /// Invalid contents of a file or folder.
    pub fn at(path: &Path, problem: impl Into<String>) -> Self {
        Self::setting(path.display().to_string(), problem)
    }

    /// True for problems of a single mesh: a file that is not a mesh, a target that does not fit it, or geometry and
    /// features that cannot be computed. Data sets can do without such a mesh.
    pub fn is_of_mesh(&self) -> bool {
        matches!(
            self,
            Self::Mesh(_)
                | Self::Geometry { .. }
                | Self::Features { .. }
                | Self::Hierarchy { .. }
                | Self::Surface { .. }
                | Self::TooLarge { .. }
                | Self::Data(DataError::Target { .. } | DataError::Table { .. })
        )
    }

    /// Adds the path to a system error, for `map_err`.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        |source| Self::File { path, source }
    }
}

impl From<WriteError> for TaskError {
    fn from(WriteError { path, source }: WriteError) -> Self {
        Self::File { path, source }
    }
}
