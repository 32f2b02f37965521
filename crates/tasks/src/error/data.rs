//! Errors of data sets.

use super::summed_up;
use crate::Task;
use std::fmt;
use std::path::PathBuf;

/// Largest number of problems that a message lists.
const SHOWN: usize = 10;

/// An error of a data set.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// An invalid `dataset.toml`.
    #[error("{path}: {problem}")]
    Description {
        /// The file.
        path: PathBuf,
        /// The problem, and what is allowed.
        problem: String,
    },
    /// No mesh matches.
    #[error(
        "{folder}: no mesh matches `{pattern}`; meshes are {} files; check the path, or set `meshes` in dataset.toml",
        gemcnn_mesh::readable_formats()
    )]
    NoMeshes {
        /// The folder of the data set.
        folder: PathBuf,
        /// Pattern of the meshes.
        pattern: String,
    },
    /// No description, and nothing that looks like a target.
    #[error(
        "{folder}: no dataset.toml, and {found}; describe the data in {folder}/dataset.toml, for example\n\n{example}"
    )]
    NothingToLearn {
        /// The folder.
        folder: PathBuf,
        /// What was found instead.
        found: String,
        /// A description to start with.
        example: String,
    },
    /// No description, and several things that look like targets.
    #[error(
        "{folder}: no dataset.toml, and several possible targets: {}; choose one in {folder}/dataset.toml, for example\n\n{example}",
        candidates.join(", ")
    )]
    Ambiguous {
        /// The folder.
        folder: PathBuf,
        /// The possible targets.
        candidates: Vec<String>,
        /// A description that selects the first.
        example: String,
    },
    /// No description, and meshes both in the folder and below it.
    #[error(
        "{folder}: no dataset.toml, and meshes both in the folder itself ({top}) and in folders below it ({below}); select one in {folder}/dataset.toml, for example\n\n{top_example}\nfor the folder itself, or for the folders below\n\n{below_example}"
    )]
    TwoPlaces {
        /// The folder.
        folder: PathBuf,
        /// Number of meshes in the folder itself.
        top: usize,
        /// Number of meshes in folders below.
        below: usize,
        /// A description that selects the folder itself.
        top_example: String,
        /// A description that selects the folders below.
        below_example: String,
    },
    /// A data set for another task.
    #[error("{folder}: this data set is for {found}, but {wanted} was requested")]
    OtherTask {
        /// The folder.
        folder: PathBuf,
        /// Its task.
        found: Task,
        /// The requested task.
        wanted: Task,
    },
    /// An invalid file of targets, classes or parts.
    #[error("{path}{}: {problem}", line.map(|line| format!(":{line}")).unwrap_or_default())]
    Table {
        /// The file.
        path: PathBuf,
        /// The line, from 1, in text files.
        line: Option<usize>,
        /// The problem.
        problem: String,
    },
    /// A target that does not fit its mesh.
    #[error("{mesh}: {problem}")]
    Target {
        /// The mesh.
        mesh: String,
        /// The problem.
        problem: String,
    },
    /// Missing or wrong FAUST registrations.
    #[error("{folder}: {problem}")]
    Faust {
        /// The given folder.
        folder: PathBuf,
        /// What is missing, and where it should be.
        problem: String,
    },
    /// Several problems.
    #[error("{}", Listed(problems))]
    Many {
        /// All problems; at least two.
        problems: Vec<String>,
    },
}

impl DataError {
    pub(crate) fn target(mesh: &str, problem: impl Into<String>) -> Self {
        Self::Target { mesh: mesh.into(), problem: problem.into() }
    }

    pub(crate) fn table(path: impl Into<PathBuf>, line: Option<usize>, problem: impl Into<String>) -> Self {
        Self::Table { path: path.into(), line, problem: problem.into() }
    }
}

/// Prints the first few kinds of many problems.
struct Listed<'a>(&'a [String]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} problems:", self.0.len())?;
        let lines = summed_up(self.0);
        for problem in lines.iter().take(SHOWN) {
            write!(f, "\n  {problem}")?;
        }
        match lines.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more; `gemcnn data check` lists them"),
        }
    }
}
