//! Sources of meshes.

use crate::registry::is_default;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A source of meshes: the `[data]` table of a configuration. One of
///
/// ```toml
/// folder = "teeth/"                                       # a folder of meshes, see `Description`
/// faust = "MPI-FAUST/"                                    # the FAUST registrations
/// bodies = { count = 100, vertices = 6890, seed = 1 }     # synthetic bodies
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataConfig {
    /// A folder of meshes with a `dataset.toml`, or whose contents need no description. A folder with FAUST
    /// registrations is opened as [`Faust`](Self::Faust).
    Folder(PathBuf),
    /// A folder with the 100 FAUST registrations.
    Faust(PathBuf),
    /// Synthetic bodies.
    Bodies(BodiesConfig),
}

impl Default for DataConfig {
    fn default() -> Self {
        Self::Bodies(BodiesConfig::default())
    }
}

/// A family of synthetic bodies, for correspondence or for segmentation into parts. The first 80 % are for training, the
/// others for testing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BodiesConfig {
    /// Number of bodies, from 1 to 100,000 (default 100).
    pub count: usize,
    /// Approximate number of vertices of each body (default 6890).
    pub vertices: usize,
    /// Seed of the shapes and poses (default 1).
    pub seed: u64,
    /// Correspondence: number of vertices of the template, whose vertices are the classes (default: as many as a body
    /// has).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<usize>,
    /// Further variety of people, clothes and poses, from 0 (default) to 1.
    #[serde(skip_serializing_if = "is_default")]
    pub variety: f64,
}

impl BodiesConfig {
    /// Checks a number of bodies.
    ///
    /// # Errors
    /// A number that is not from 1 to 100,000.
    pub fn sound_count(count: usize) -> Result<usize, String> {
        if (1..=100_000).contains(&count) { Ok(count) } else { Err("must be from 1 to 100,000".into()) }
    }

    /// Name of a body.
    pub fn body_name(number: usize) -> String {
        format!("body_{number:03}")
    }

    /// Number of bodies for training. At least one of two or more is for testing.
    pub fn training(&self) -> usize {
        let share = self.count - self.count / 5;
        share.min(self.count.saturating_sub(1)).max(1)
    }
}

impl Default for BodiesConfig {
    fn default() -> Self {
        Self { count: 100, vertices: 6890, seed: 1, classes: None, variety: 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_toml_of_a_run_names_one_source() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Run {
            data: DataConfig,
        }
        let bodies = BodiesConfig { count: 10, ..Default::default() };
        for (text, data) in [
            ("data.folder = 'teeth'", DataConfig::Folder("teeth".into())),
            ("data.faust = 'F'", DataConfig::Faust("F".into())),
            ("data.bodies.count = 10", DataConfig::Bodies(bodies)),
        ] {
            let run: Run = toml::from_str(text).unwrap();
            assert_eq!(run.data, data);
            let written = toml::to_string(&run).unwrap();
            assert_eq!(toml::from_str::<Run>(&written).unwrap(), run);
        }
        let bodies = |variety| DataConfig::Bodies(BodiesConfig { variety, ..Default::default() });
        let written = |variety| toml::to_string(&Run { data: bodies(variety) }).unwrap();
        assert!(!written(0.0).contains("variety"));
        assert_eq!(toml::from_str::<Run>(&written(0.5)).unwrap().data, bodies(0.5));
        for bad in ["data.bodies.size = 3", "data.fausst = 'F'"] {
            assert!(toml::from_str::<Run>(bad).is_err(), "{bad}");
        }
    }
}
