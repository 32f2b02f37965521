//! PerSplit of a data set.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A split of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// For training.
    Train,
    /// For choosing settings.
    Validation,
    /// For the final evaluation.
    Test,
}

impl Split {
    /// All splits.
    pub const ALL: [Self; 3] = [Self::Train, Self::Validation, Self::Test];

    /// The split with a name, in upper or lower case.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.to_lowercase().as_str() {
            "train" | "training" => Some(Self::Train),
            "validation" | "val" | "valid" => Some(Self::Validation),
            "test" | "testing" => Some(Self::Test),
            _ => None,
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Test => "test",
        })
    }
}
