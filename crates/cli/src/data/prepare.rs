//! `gemcnn data prepare`: geometry and features before training.

use super::{CacheArgs, TaskName};
use crate::failure::Failure;
use crate::kinds;
use crate::output::{count, print};
use crate::progress;
use clap::Args;
use gemcnn_tasks::data::{DataConfig, Dataset, Part, Preparation};
use gemcnn_tasks::features::Feature;
use gemcnn_tasks::models::Model;
use gemcnn_tasks::{FeatureConfig, ModelConfig, SampleSource, Task};
use std::path::PathBuf;

/// Compute geometry and features of all meshes and store them in the cache.
///
/// Training does this too. Use this command to fill the cache beforehand, or on another machine with the same
/// cache folder.
#[derive(Args)]
pub struct Prepare {
    /// Folder of the data set.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Task, if there is no dataset.toml.
    #[arg(long, value_enum)]
    task: Option<TaskName>,

    #[arg(
        long,
        value_name = "KIND",
        default_value = "xyz",
        value_parser = FeatureConfig::of_kind,
        help = kinds::listed::<dyn Feature>("Input features"),
    )]
    features: FeatureConfig,

    #[arg(
        long,
        value_name = "KIND",
        default_value = "gem",
        value_parser = ModelConfig::of_kind,
        help = kinds::listed::<dyn Model>("Model that is trained on them, with its default settings"),
    )]
    model: ModelConfig,

    #[command(flatten)]
    cache: CacheArgs,
}

impl Prepare {
    pub fn run(self) -> Result<(), Failure> {
        let cache = self.cache.open();
        let config = DataConfig::Folder(self.folder);
        let dataset = match self.task {
            Some(task) => Dataset::open_for(&config, Task::from(task)),
            None => Dataset::open(&config),
        };
        let dataset = dataset.map_err(Failure::input)?;
        let kind = self.features.name();
        let preparation = Preparation {
            features: self.features,
            gauge: self.model.gauge(),
            weights: self.model.weights(),
            hierarchy: self.model.hierarchy(),
            eigenvectors: self.model.eigenvectors(),
            implicit: self.model.implicit(),
            ..Default::default()
        };
        let mut meshes = 0;
        for part in Part::ALL {
            let samples = dataset
                .part(part, &preparation, &cache)
                .map_err(Failure::input)?
                .with_memory(0);
            let what = format!("preparing {}", count(samples.len(), "mesh", "meshes"));
            progress::during(&what, || samples.load_all(&|| true, &|| {}))
                .map_err(Failure::input)?;
            meshes += samples.len();
        }
        let place = match cache.folder() {
            Some(folder) => format!("in {}", folder.display()),
            None => "and not stored".into(),
        };
        print(&format!(
            "{} prepared with {kind} features, {place}\n",
            count(meshes, "mesh", "meshes"),
        ))
    }
}
