//! Sizes of batches.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Size of a batch: `4` for meshes, or `"60000 vertices"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchSize {
    /// This number of meshes.
    Meshes(usize),
    /// As many meshes as have about this number of vertices together.
    Vertices(usize),
}

impl BatchSize {
    /// The number of meshes or vertices.
    pub fn count(self) -> usize {
        match self {
            Self::Meshes(count) | Self::Vertices(count) => count,
        }
    }
}

impl fmt::Display for BatchSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Meshes(count) => write!(f, "{count}"),
            Self::Vertices(count) => write!(f, "{count} vertices"),
        }
    }
}

impl FromStr for BatchSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = text.split_once(' ').unwrap_or((text, "meshes"));
        match (number.parse(), unit.trim()) {
            (Ok(count), "meshes") => Ok(Self::Meshes(count)),
            (Ok(count), "vertices") => Ok(Self::Vertices(count)),
            _ => Err(format!(
                "`{text}` is not a number of meshes, such as 4, or of vertices, such as \"60000 vertices\""
            )),
        }
    }
}

impl Serialize for BatchSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Meshes(count) => count.serialize(serializer),
            Self::Vertices(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for BatchSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Count(usize),
            Text(String),
        }
        match Raw::deserialize(deserializer) {
            Ok(Raw::Count(count)) => Ok(Self::Meshes(count)),
            Ok(Raw::Text(text)) => text.parse().map_err(D::Error::custom),
            Err(_) => Err(D::Error::custom("must be a number of meshes, or text such as \"60000 vertices\"")),
        }
    }
}
