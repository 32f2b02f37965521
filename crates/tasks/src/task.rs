//! What is to be learned of a mesh.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What a network is to say of a mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// One of a few classes for each vertex.
    Segmentation,
    /// The vertex of a template for each vertex: a class for each vertex of the template.
    Correspondence,
    /// One class for the whole mesh.
    Classification,
    /// Numbers or tangent vectors for each vertex.
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
