//! What can be wrong with a data set.

use crate::Task;
use std::fmt;
use std::path::PathBuf;

/// How many of many problems a message shows.
const SHOWN: usize = 10;

/// Why a data set cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A `dataset.toml` that does not say what it should.
    #[error("{path}: {problem}")]
    Description {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what is allowed.
        problem: String,
    },
    /// A folder where no mesh was found.
    #[error(
        "{folder}: no mesh matches `{pattern}`; meshes are .ply, .obj, .off and .stl files, and `meshes` in dataset.toml says where they are"
    )]
    NoMeshes {
        /// The folder of the data set.
        folder: PathBuf,
        /// Where meshes were looked for.
        pattern: String,
    },
    /// A folder without a description where nothing looks like a target.
    #[error(
        "{folder}: there is no dataset.toml, and {found}; say what is to be learned in {folder}/dataset.toml, for example\n\n{example}"
    )]
    NothingToLearn {
        /// The folder.
        folder: PathBuf,
        /// What was looked at.
        found: String,
        /// A description to start from.
        example: String,
    },
    /// A folder without a description where several things look like targets.
    #[error(
        "{folder}: there is no dataset.toml, and several things could be learned: {}; choose one in {folder}/dataset.toml, for example\n\n{example}",
        candidates.join(", ")
    )]
    Ambiguous {
        /// The folder.
        folder: PathBuf,
        /// What could be meant.
        candidates: Vec<String>,
        /// A description that chooses the first.
        example: String,
    },
    /// A folder without a description with meshes in two places.
    #[error(
        "{folder}: there is no dataset.toml, and meshes are both in the folder itself ({top}) and in folders below it ({below}); choose in {folder}/dataset.toml, for example\n\n{top_example}\nfor those in the folder itself, or for those below\n\n{below_example}"
    )]
    TwoPlaces {
        /// The folder.
        folder: PathBuf,
        /// How many meshes are in the folder itself.
        top: usize,
        /// How many are in folders below.
        below: usize,
        /// A description that chooses those in the folder itself.
        top_example: String,
        /// A description that chooses those below.
        below_example: String,
    },
    /// A data set made for something else.
    #[error("{folder}: this data set is for {found}, not for {wanted}")]
    OtherTask {
        /// The folder.
        folder: PathBuf,
        /// What it is for.
        found: Task,
        /// What was asked of it.
        wanted: Task,
    },
    /// A file of targets, classes or parts that cannot be read.
    #[error("{path}{}: {problem}", line.map(|line| format!(":{line}")).unwrap_or_default())]
    Table {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1, where there are lines.
        line: Option<usize>,
        /// What is wrong with it.
        problem: String,
    },
    /// A mesh and its target that do not fit.
    #[error("{mesh}: {problem}")]
    Target {
        /// The mesh.
        mesh: String,
        /// What is wrong.
        problem: String,
    },
    /// FAUST registrations that are not all there or not what they should be.
    #[error("{folder}: {problem}")]
    Faust {
        /// The folder that was given.
        folder: PathBuf,
        /// What is missing and where it was looked for.
        problem: String,
    },
    /// Several problems of one data set.
    #[error("{}", Listed(problems))]
    Many {
        /// All of them; at least two.
        problems: Vec<String>,
    },
}

impl DataError {
    pub(crate) fn target(mesh: &str, problem: impl Into<String>) -> Self {
        Self::Target {
            mesh: mesh.into(),
            problem: problem.into(),
        }
    }

    pub(crate) fn table(
        path: impl Into<PathBuf>,
        line: Option<usize>,
        problem: impl Into<String>,
    ) -> Self {
        Self::Table {
            path: path.into(),
            line,
            problem: problem.into(),
        }
    }
}

/// The first few of many lines.
struct Listed<'a>(&'a [String]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} problems:", self.0.len())?;
        for problem in self.0.iter().take(SHOWN) {
            write!(f, "\n  {problem}")?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more: `gemcnn data check` shows them all"),
        }
    }
}
