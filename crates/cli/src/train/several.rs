//! `gemcnn train --seeds N` and `--folds`: the same training with several seeds, or tested on each group in turn.

use super::{RUNS, TrainArgs, train_in};
use crate::failure::Failure;
use crate::output::{print, say, table};
use crate::progress;
use gemcnn_experiments::Estimate;
use gemcnn_nn::Device;
use gemcnn_tasks::data::{Cache, Split, SplitConfig};
use gemcnn_tasks::evaluation::{EvaluationOptions, evaluate};
use gemcnn_tasks::train::{Checked, RunConfig, RunDirectory, StopFlag, TrainedModel};
use std::path::Path;

/// Trains with consecutive seeds, evaluates each model, and prints the mean of the scores. With `--run-dir DIR` the
/// runs are `DIR/seed-S`; runs that are finished there are not repeated, and stopped ones go on.
pub(super) fn run_seeds(
    args: &TrainArgs,
    config: Checked<RunConfig>,
    seeds: u64,
    device: &Device,
    stop: &StopFlag,
) -> Result<(), Failure> {
    let first = config.training.seed;
    let configs = (first..first.saturating_add(seeds)).map(|seed| {
        let mut config = RunConfig::clone(&config);
        config.training.seed = seed;
        (seed, seed.to_string(), config)
    });
    let runs = Runs { args, device, stop, what: "seed" };
    let (mut text, scores) = runs.table(configs)?;
    if let Some(Estimate { mean, standard_error }) = Estimate::of(&scores) {
        let error = standard_error.map_or(String::new(), |error| format!(" ± {error:.4}"));
        text += &format!("  mean {mean:.4}{error} (standard error, {seeds} seeds)\n");
    }
    print(&text)
}

/// Trains one run for each group of meshes, as its test split, and prints mean and spread of the test scores. With
/// `--run-dir DIR` the runs are `DIR/fold-K`.
pub(super) fn run_folds(
    args: &TrainArgs,
    config: Checked<RunConfig>,
    device: &Device,
    stop: &StopFlag,
) -> Result<(), Failure> {
    let first = RunConfig { split: SplitConfig { fold: Some(1), ..config.split.clone() }, ..RunConfig::clone(&config) };
    let groups = first.dataset().map_err(Failure::input)?.groups().to_vec();
    let configs = groups.iter().enumerate().map(|(place, group)| {
        let split = SplitConfig { fold: Some(place + 1), ..config.split.clone() };
        (place as u64 + 1, group.clone(), RunConfig { split, ..RunConfig::clone(&config) })
    });
    let runs = Runs { args, device, stop, what: "fold" };
    let (mut text, scores) = runs.table(configs)?;
    if let Some(Estimate { mean, standard_error: Some(error) }) = Estimate::of(&scores) {
        let deviation = error * (scores.len() as f64).sqrt();
        text += &format!("  mean {mean:.4} ± {deviation:.4} (standard deviation, {} folds)\n", scores.len());
    }
    print(&text)
}

/// Several runs of one command.
struct Runs<'a> {
    args: &'a TrainArgs,
    device: &'a Device,
    stop: &'a StopFlag,
    /// What differs between them.
    what: &'a str,
}

impl Runs<'_> {
    /// Trains and evaluates all, each with a number and a name, and returns the table of the test scores and the scores.
    fn table(&self, configs: impl Iterator<Item = (u64, String, RunConfig)>) -> Result<(String, Vec<f64>), Failure> {
        let Self { args, device, stop, what } = *self;
        let cache = args.cache.open()?;
        let mut rows = vec![[what, "accuracy", "run"].map(String::from).to_vec()];
        let mut scores = Vec::new();
        for (number, name, config) in configs {
            let config = config.checked().map_err(Failure::input)?;
            let run = match &args.run_dir {
                Some(folder) => RunDirectory::open_or_create(&folder.join(format!("{what}-{number}"))),
                None => RunDirectory::create_next(Path::new(RUNS), &config.name()),
            };
            let run = run.map_err(Failure::input)?;
            let path = run.path().to_path_buf();
            if !args.quiet {
                say(format_args!("{what} {name}: {}", path.display()));
            }
            if !run.is_finished() {
                train_in(args, &config, run, &cache, device, stop)?;
            }
            let evaluated = progress::during("evaluating", || score(&path, &cache, device));
            let Some((measure, value)) = evaluated.map_err(Failure::input)? else {
                return Err(Failure::input(
                    "no mesh is held out, so there is nothing to score; see `[split]` in docs/data.md",
                ));
            };
            rows[0][1] = measure.into();
            let path = path.display().to_string();
            rows.push(vec![name, format!("{value:.4}"), path]);
            scores.push(value);
        }
        Ok((table(&rows), scores))
    }
}

/// Accuracy, or root mean square error, on the test split, or on the validation split if there is none; `None` if no mesh
/// is held out.
fn score(run: &Path, cache: &Cache, device: &Device) -> Result<Option<(&'static str, f64)>, gemcnn_tasks::TaskError> {
    let model = TrainedModel::read(run)?;
    let strict = model.config.training.strict;
    let dataset = model.config.dataset()?;
    let splits = [Split::Test, Split::Validation];
    let Some(split) = splits.into_iter().find(|&split| !dataset.is_empty(split)) else { return Ok(None) };
    let options = EvaluationOptions { split, strict, ..Default::default() };
    let found = evaluate(&model, &dataset, options, cache, device)?;
    Ok(match (found.scores.accuracy, found.regression) {
        (Some(accuracy), _) => Some(("accuracy", accuracy)),
        (None, Some(regression)) => Some(("error", regression.root_mean_square)),
        (None, None) => None,
    })
}
