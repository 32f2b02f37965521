//! `gemcnn data prepare`: geometry and features before training.

use super::CacheArgs;
use crate::failure::Failure;
use crate::kinds;
use crate::output::{count, print, say};
use crate::train_progress::TrainProgress;
use clap::Args;
use gemcnn_tasks::data::{DataConfig, Dataset, Split};
use gemcnn_tasks::features::Feature;
use gemcnn_tasks::models::Model;
use gemcnn_tasks::train::{Preparing, RunConfig};
use gemcnn_tasks::{FeatureConfig, ModelConfig, Sample, SampleSource, Task, summed_up};
use std::path::PathBuf;

/// Compute the geometry and features of all meshes, and store them in the cache.
///
/// Training does the same. Use this command to fill the cache beforehand, or from another machine that shares the cache
/// folder. It prepares the versions of the training meshes that the default augmentation of the model asks for.
#[derive(Args)]
pub struct Prepare {
    /// Folder of the data set.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Task, if there is no dataset.toml.
    #[arg(long, value_parser = kinds::task())]
    task: Option<Task>,

    #[arg(
        long,
        value_name = "KIND",
        value_parser = FeatureConfig::of_kinds,
        help = kinds::listed::<dyn Feature>(
            "Input features, separated by commas; field and vector need a name, as in field:thickness [default: depends on the \
             model]",
        ),
    )]
    features: Option<FeatureConfig>,

    #[arg(
        long,
        value_name = "KIND",
        value_parser = ModelConfig::of_kind,
        help = kinds::listed::<dyn Model>(
            "Model to prepare for, with its default settings [default: gem for correspondence, surface for values, otherwise diffusion]",
        ),
    )]
    model: Option<ModelConfig>,

    /// Stop with an error if a mesh cannot be used, instead of skipping it.
    #[arg(long)]
    strict: bool,

    #[command(flatten)]
    cache: CacheArgs,
}

impl Prepare {
    pub fn run(self) -> Result<(), Failure> {
        let cache = self.cache.open()?;
        let config = DataConfig::Folder(self.folder);
        let dataset = Dataset::open_with(&config, self.task, self.strict);
        let dataset = dataset.map_err(Failure::input)?;
        let task = dataset.task();
        let mut config = match self.model {
            Some(model) => RunConfig::for_model(task, model),
            None => RunConfig::new(task),
        };
        config.features = self.features.unwrap_or(config.features);
        let (kind, preparation) = (config.features.name(), config.preparation());
        let mut splits = Vec::new();
        for split in Split::ALL {
            let samples = dataset.split(split, &preparation, &cache);
            let samples = match split {
                Split::Train => samples.and_then(|split| split.augmented(&config.augmentation)),
                _ => samples,
            };
            splits.push(samples.map_err(Failure::input)?.with_memory(0));
        }
        let total = splits.iter().map(SampleSource::len).sum();
        let mut observer = TrainProgress::new(false);
        let progress = Preparing::new((total, total), total, &cache, &mut observer);
        let loaded = |sample: &Sample| progress.loaded(sample);
        let (mut meshes, mut versions) = (0, 0);
        let mut skipped = dataset.skipped().to_vec();
        for samples in &mut splits {
            let unusable = samples.load_usable(&|| true, &loaded).map_err(Failure::input)?;
            samples.prepare_versions(&loaded).map_err(Failure::input)?;
            for (_, problem) in unusable {
                if self.strict { return Err(Failure::input(problem)) } else { skipped.push(problem.to_string()) }
            }
            let visited = samples.len() / samples.versions();
            meshes += visited;
            versions += samples.len() - visited;
        }
        drop(observer);
        for line in summed_up(&skipped) {
            say(format_args!("skipped: {line}"));
        }
        let place = match cache.folder() {
            Some(folder) => format!("in {}", folder.display()),
            None => "and not stored".into(),
        };
        print(&format!(
            "{} and {} prepared with {kind} features, {place}\n",
            count(meshes, "mesh", "meshes"),
            count(versions, "version", "versions"),
        ))
    }
}
