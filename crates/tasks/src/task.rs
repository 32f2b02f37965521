//! Tasks.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What a model predicts for a mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// A class for each vertex.
    Segmentation,
    /// The corresponding template vertex for each vertex. The classes are the vertices of the template.
    Correspondence,
    /// One class for the whole mesh.
    Classification,
    /// Scalars or tangent vectors for each vertex.
    Regression,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Segmentation => "segmentation",
            Self::Correspondence => "correspondence",
            Self::Classification => "classification",
            Self::Regression => "regression",
        })
    }
}
