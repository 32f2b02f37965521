//! `gemcnn train --tune`: settings chosen on the validation split, then a full training.

use super::{RUNS, TrainArgs, train_in};
use crate::failure::Failure;
use crate::output::{print, table};
use crate::train_progress::TrainProgress;
use gemcnn_nn::Device;
use gemcnn_tasks::train::{Checked, RunConfig, RunDirectory, StopFlag};
use gemcnn_tasks::tune::{Trial, tune};
use std::path::Path;

/// Chooses settings, prints the trials, and trains with the chosen settings. With `--run-dir DIR` the runs are
/// `DIR/trial-N` and `DIR/chosen`; finished ones are not repeated, and stopped ones go on.
pub(super) fn tune_and_train(
    args: &TrainArgs,
    config: Checked<RunConfig>,
    device: &Device,
    stop: &StopFlag,
) -> Result<(), Failure> {
    let parent = match &args.run_dir {
        Some(folder) => RunDirectory::open_or_create(folder),
        None => RunDirectory::create_next(Path::new(RUNS), &config.name()),
    };
    let parent = parent.map_err(Failure::input)?;
    let directory = parent.path().to_path_buf();
    let cache = args.cache.open()?;
    let tuned = {
        let mut observer = TrainProgress::new(args.quiet);
        tune(&config, &directory, &cache, device, &mut observer, stop)
    };
    let tuned = match tuned {
        Ok(tuned) => tuned,
        Err(error) => {
            // Stays if there are trials in it.
            parent.discard();
            return Err(Failure::input(error));
        }
    };
    let Some(tuned) = tuned else {
        return Err(Failure::Interrupted(format!(
            "stopped; the same command with --run-dir {} goes on",
            directory.display()
        )));
    };
    print(&shown(&tuned.trials))?;
    let run = RunDirectory::open_or_create(&directory.join("chosen")).map_err(Failure::input)?;
    match run.is_finished() {
        true => Ok(()),
        false => {
            let config = tuned.config.checked().map_err(Failure::input)?;
            train_in(args, &config, run, &cache, device, stop)
        }
    }
}

/// The trials as a table.
fn shown(trials: &[Trial]) -> String {
    let mut rows = vec![["trial", "error", "seconds", ""].map(String::from).to_vec()];
    for trial in trials {
        let error = trial.error.map_or("failed".into(), |error| format!("{error:.4}"));
        let kept = if trial.kept { "kept" } else { "" };
        rows.push(vec![trial.change.clone(), error, format!("{:.1}", trial.seconds), kept.into()]);
    }
    table(&rows)
}
