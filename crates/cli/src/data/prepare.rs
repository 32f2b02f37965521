//! `gemcnn data prepare`: geometry and features ahead of training.

use super::{CacheArgs, TaskName};
use crate::failure::Failure;
use crate::output::{count, print};
use crate::progress;
use crate::train::model_of_kind;
use clap::Args;
use gemcnn_tasks::data::{DataConfig, Dataset, Part, Preparation};
use gemcnn_tasks::{FeatureConfig, FeatureKind, ModelConfig, SampleSource, Task};
use std::path::PathBuf;

/// Compute geometry and features of all meshes and keep them in the cache.
///
/// Training does so itself; this is for preparing once, on another machine with the same cache folder.
#[derive(Args)]
pub struct Prepare {
    /// Folder of the data set.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// What is to be learned, where the folder does not say.
    #[arg(long, value_enum)]
    task: Option<TaskName>,

    /// Input features: xyz, shot, matrix or reltan.
    #[arg(long, value_name = "KIND", default_value = "xyz")]
    features: FeatureKind,

    /// The network that they are for: gem, graph, angular or unet, with its default settings.
    #[arg(long, value_name = "KIND", default_value = "gem", value_parser = model_of_kind)]
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
        let preparation = Preparation {
            features: FeatureConfig::new(self.features),
            gauge: self.model.gauge(),
            hierarchy: self.model.hierarchy(),
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
            None => "and kept nowhere".into(),
        };
        print(&format!(
            "{} prepared with {} features, {place}\n",
            count(meshes, "mesh", "meshes"),
            self.features
        ))
    }
}
