//! Where the meshes of a run come from.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A source of meshes, as the `[data]` table of a run says it: one of
///
/// ```toml
/// folder = "teeth/"                                       # a folder of meshes, see `Description`
/// faust = "MPI-FAUST/"                                    # the FAUST registrations
/// bodies = { count = 100, vertices = 6890, seed = 1 }     # synthetic bodies
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataConfig {
    /// A folder of meshes, described by its `dataset.toml` or plain enough to need none. A folder with
    /// FAUST registrations is taken as [`Faust`](Self::Faust).
    Folder(PathBuf),
    /// A folder with the 100 registrations of FAUST.
    Faust(PathBuf),
    /// Bodies made here.
    Bodies(BodiesConfig),
}

impl Default for DataConfig {
    fn default() -> Self {
        Self::Bodies(BodiesConfig::default())
    }
}

/// A family of synthetic bodies in correspondence: the first 80 % are for training, the others for
/// testing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BodiesConfig {
    /// How many bodies, from 1 to 100,000.
    pub count: usize,
    /// About how many vertices each has.
    pub vertices: usize,
    /// Another seed, other bodies.
    pub seed: u64,
}

impl BodiesConfig {
    /// The number of bodies, if there may be so many; else what is wrong with it.
    ///
    /// # Errors
    /// Another number than from 1 to 100,000.
    pub fn sound_count(count: usize) -> Result<usize, String> {
        match (1..=100_000).contains(&count) {
            true => Ok(count),
            false => Err("must be from 1 to 100,000".into()),
        }
    }

    /// What a body is called.
    pub fn body_name(number: usize) -> String {
        format!("body_{number:03}")
    }

    /// How many bodies are for training; there is one for testing if there are two.
    pub fn training(&self) -> usize {
        let share = self.count - self.count / 5;
        share.min(self.count.saturating_sub(1)).max(1)
    }
}

impl Default for BodiesConfig {
    fn default() -> Self {
        Self {
            count: 100,
            vertices: 6890,
            seed: 1,
        }
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
        let bodies = BodiesConfig {
            count: 10,
            ..Default::default()
        };
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
        for bad in ["data.bodies.size = 3", "data.fausst = 'F'"] {
            assert!(toml::from_str::<Run>(bad).is_err(), "{bad}");
        }
    }
}
