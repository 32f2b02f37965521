//! `gemcnn train --seeds N`: the same training with several seeds.

use super::{RUNS, TrainArgs, train_in};
use crate::failure::Failure;
use crate::output::{print, say, table};
use crate::progress;
use gemcnn_experiments::Estimate;
use gemcnn_nn::Device;
use gemcnn_tasks::data::{Cache, Split};
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
    let cache = args.cache.open()?;
    let first = config.training.seed;
    let mut rows = vec![["seed", "accuracy", "run"].map(String::from).to_vec()];
    let mut scores = Vec::new();
    for seed in first..first.saturating_add(seeds) {
        let mut config = RunConfig::clone(&config);
        config.training.seed = seed;
        let config = config.checked().map_err(Failure::input)?;
        let run = match &args.run_dir {
            Some(folder) => RunDirectory::open_or_create(&folder.join(format!("seed-{seed}"))),
            None => RunDirectory::create_next(Path::new(RUNS), &config.name()),
        };
        let run = run.map_err(Failure::input)?;
        let path = run.path().to_path_buf();
        if !args.quiet {
            say(format_args!("seed {seed}: {}", path.display()));
        }
        if !run.is_finished() {
            train_in(args, &config, run, &cache, device, stop)?;
        }
        let evaluated = progress::during("evaluating", || score(&path, &cache, device));
        let Some((what, value)) = evaluated.map_err(Failure::input)? else {
            return Err(Failure::input(
                "no mesh is held out, so there is nothing to score; see `[split]` in docs/data.md",
            ));
        };
        rows[0][1] = what.into();
        let path = path.display().to_string();
        rows.push(vec![seed.to_string(), format!("{value:.4}"), path]);
        scores.push(value);
    }
    let mut text = table(&rows);
    if let Some(Estimate { mean, standard_error }) = Estimate::of(&scores) {
        let error = standard_error.map_or(String::new(), |error| format!(" ± {error:.4}"));
        text += &format!("  mean {mean:.4}{error} (standard error, {seeds} seeds)\n");
    }
    print(&text)
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
