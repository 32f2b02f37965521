//! What can go wrong between a folder of meshes and a trained model.

use crate::data::DataError;
use gemcnn_mesh::{FileError, GeometryError, HierarchyError};
use gemcnn_nn::NnError;
use gemcnn_view::plot::WriteError;
use std::path::PathBuf;

/// Why a data set, a run or an experiment cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// A mesh file that cannot be read.
    #[error(transparent)]
    Mesh(#[from] FileError),
    /// A mesh without usable geometry.
    #[error("{name}: {source}")]
    Geometry {
        /// The mesh.
        name: String,
        /// What is wrong with it.
        source: GeometryError,
    },
    /// A mesh without the coarser levels that a model needs.
    #[error("{name}: {source}")]
    Hierarchy {
        /// The mesh.
        name: String,
        /// What is wrong with it.
        source: HierarchyError,
    },
    /// A setting that makes no sense.
    #[error("{what}: {problem}")]
    Setting {
        /// Which setting.
        what: String,
        /// What is wrong with it, and what is allowed.
        problem: String,
    },
    /// A file that cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A checkpoint that cannot be read.
    #[error(
        "{path}: this checkpoint is damaged or was not made by this version: {source}; put back a \
         copy of the file, or remove it to begin this run anew"
    )]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<NnError>,
    },
    /// A checkpoint of a run that was made from something else.
    #[error(
        "{path}: the run cannot go on, because it is not the one that was begun:\n  {}\n\
         undo this, or begin a new run",
        .differences.join("\n  ")
    )]
    OtherRun {
        /// The checkpoint.
        path: PathBuf,
        /// Everything that differs, one line each.
        differences: Vec<String>,
    },
    /// Numbers that are NaN or infinite, with which training cannot go on.
    #[error(
        "epoch {epoch}, step {step}: {what} is not finite after the batch of {samples}; begin a new \
         run with a lower `rate` or with `clip`, and look at these meshes"
    )]
    Diverged {
        /// What is not finite.
        what: String,
        /// The epoch, from 1.
        epoch: u64,
        /// The step in it, from 1.
        step: u64,
        /// Names of the meshes of the step.
        samples: String,
    },
    /// A data set that is not as it should be.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A network that refuses something.
    #[error(transparent)]
    Network(#[from] NnError),
}

impl TaskError {
    /// A setting that makes no sense.
    pub fn setting(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Setting {
            what: what.into(),
            problem: problem.into(),
        }
    }

    /// For `map_err` on what the system says of a file.
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
