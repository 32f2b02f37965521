//! Models that are part of the program, for use without training.

use super::model::TrainedModel;
use super::seal::{read_sealed, sealed, unsealed};
use crate::{Result, TaskError};
use gemcnn_mesh::write_atomically;
use gemcnn_nn::Archive;
use std::path::Path;

/// A model that is part of the program. Commands and functions take its name in place of a run directory.
#[derive(Debug, Clone, Copy)]
pub struct BundledModel {
    /// Its name.
    pub name: &'static str,
    /// What it was trained on, by which command, how good it is on what, and where it fails, in Markdown. The first line
    /// says what it does.
    pub card: &'static str,
    /// The configuration of its training.
    pub configuration: &'static str,
    /// The model file, in half precision.
    pub bytes: &'static [u8],
}

/// Declares the bundled models: for each name, the files `NAME.safetensors`, `NAME.toml` and `NAME.md` of the folder
/// `models`.
macro_rules! bundled {
    ($($name:literal)*) => {
        impl BundledModel {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self {
                name: $name,
                card: include_str!(concat!("../../models/", $name, ".md")),
                configuration: include_str!(concat!("../../models/", $name, ".toml")),
                bytes: include_bytes!(concat!("../../models/", $name, ".safetensors")),
            }),*];
        }
    };
}

bundled! { "bodies-match" "bodies-parts" }

impl BundledModel {
    /// The bundled model with a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|model| model.name == name)
    }

    /// What it does, in one line.
    pub fn about(&self) -> &'static str {
        self.card.lines().next().unwrap_or_default()
    }

    /// The model.
    ///
    /// # Errors
    /// None in a program that was built without changes.
    pub fn open(&self) -> Result<TrainedModel> {
        TrainedModel::from_bytes(self.bytes)
    }

    /// Writes the model of a run, or a model file, with its weights in half precision.
    ///
    /// # Errors
    /// A run without a model, weights that are too large for half precision, or a file that cannot be written.
    pub fn pack(run: &Path, file: &Path) -> Result<()> {
        let archive = read_sealed(&TrainedModel::file_of(run))?.in_half_precision()?;
        let bytes = sealed(archive)?;
        unsealed(Archive::from_bytes(&bytes)?, file)?;
        write_atomically(file, |out| out.write_all(&bytes)).map_err(TaskError::file(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::RunConfig;

    #[test]
    fn bundled_models_are_small_and_those_of_their_configurations() {
        for bundled in BundledModel::ALL {
            assert!(bundled.bytes.len() <= 1_000_000, "{}", bundled.name);
            assert!(!bundled.about().is_empty() && !bundled.about().starts_with('#'));
            let model = TrainedModel::read(Path::new(bundled.name)).unwrap();
            assert_eq!(model.config, RunConfig::parse(bundled.configuration).unwrap(), "{}", bundled.name);
        }
        assert!(TrainedModel::read(Path::new("bodies")).is_err());
    }
}
