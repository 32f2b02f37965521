//! `gemcnn train`: training of a model.

mod matching;
mod several;
mod tuning;

use crate::data::CacheArgs;
use crate::device::DeviceArgs;
use crate::failure::Failure;
use crate::kinds::{self, AXES, parsed, word};
use crate::output::{print, say};
use crate::train_progress::TrainProgress;
use crate::view::{LiveView, WithLiveView};
use clap::Args;
use gemcnn_nn::Device;
use gemcnn_tasks::data::{Cache, DataConfig};
use gemcnn_tasks::features::Feature;
use gemcnn_tasks::models::{Model, Preset};
use gemcnn_tasks::run::train;
use gemcnn_tasks::train::{BatchSize, Checked, Outcome, RunConfig, RunDirectory, StopFlag};
use gemcnn_tasks::{FeatureConfig, ModelConfig, Task, TaskError};
use gemcnn_view::render::Up;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Default directory of runs.
const RUNS: &str = "runs";

/// Options of `gemcnn train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    #[arg(
        value_name = "TASK or CONFIG.toml",
        required_unless_present = "resume",
        help = format!(
            "Task ({}), matching for a model of `gemcnn match`, or a TOML configuration file (see docs/training.md)",
            kinds::tasks()
        ),
    )]
    what: Option<String>,

    /// Folder of meshes with targets [default: synthetic bodies, for correspondence only]. With --resume: new location
    /// of the data.
    #[arg(long, value_name = "DIR", help_heading = "Data")]
    data: Option<PathBuf>,

    #[arg(
        long,
        value_name = "KIND",
        help_heading = "Data",
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
        help_heading = "Training",
        value_parser = ModelConfig::of_kind,
        help = kinds::listed::<dyn Model>("Model, with its default settings [default: gem for correspondence, surface for values, otherwise diffusion]"),
    )]
    model: Option<ModelConfig>,

    /// Size of the model, number of epochs and amount of augmentation: small, default or large.
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parsed::<Preset>,
        conflicts_with_all = ["model", "resume"],
        help_heading = "Training"
    )]
    preset: Option<Preset>,

    /// First choose features, width, learning rate and augmentation by short trial runs, each a tenth of the epochs,
    /// scored on the validation split. With --run-dir DIR, the runs are DIR/trial-N and DIR/chosen; repeat the command
    /// to continue after an interruption.
    #[arg(long, conflicts_with_all = ["resume", "seeds"], help_heading = "Training")]
    tune: bool,

    /// Passes over the training split [default: 100]. With --resume: new total number of epochs.
    #[arg(long, value_name = "N", help_heading = "Training")]
    epochs: Option<u64>,

    /// Meshes per step, or vertices per step, as in "60000 vertices" [default: 1 or 4 meshes, depending on the model]
    #[arg(long, value_name = "N", help_heading = "Training")]
    batch: Option<BatchSize>,

    /// Base learning rate [default: 0.001 to 0.01, depending on the model]
    #[arg(long, value_name = "R", help_heading = "Training")]
    rate: Option<f64>,

    /// Seed of initialisation, data order and dropout [default: 1]
    #[arg(long, value_name = "S", help_heading = "Training")]
    seed: Option<u64>,

    /// Start from the weights of a run, a model file or a bundled model, except those of the last layer [default: random
    /// weights]. For matching without known correspondences also `spectrum` [default: bodies-match if it fits, otherwise spectrum].
    #[arg(long, value_name = "MODEL", conflicts_with = "resume", help_heading = "Training")]
    start: Option<PathBuf>,

    /// Matching: find the correspondences of the meshes, also where they are known, which then only judge the result.
    #[arg(long, conflicts_with = "resume", help_heading = "Training")]
    unsupervised: bool,

    /// Matching without known correspondences: rounds of finding them and training on them [default: 3]
    #[arg(long, value_name = "N", conflicts_with = "resume", help_heading = "Training")]
    rounds: Option<usize>,

    /// Stop with an error if a mesh cannot be used, instead of skipping it.
    #[arg(long, help_heading = "Data")]
    strict: bool,

    /// Axis that points up in the pictures of predictions [default: inferred from each mesh]
    #[arg(long, value_parser = word::<Up>(AXES), help_heading = "Training")]
    up: Option<Up>,

    /// Train with N consecutive seeds, and print the mean and standard error of the test scores. With --run-dir DIR,
    /// the runs are DIR/seed-S; repeat the command to continue after an interruption.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=1000),
        conflicts_with_all = ["resume", "view"],
        help_heading = "Training"
    )]
    seeds: Option<u64>,

    /// Train one run for each group of meshes, which is then the test split, and print the mean and spread of the test
    /// scores. With --run-dir DIR, the runs are DIR/fold-K; repeat the command to continue after an interruption.
    #[arg(long, conflicts_with_all = ["resume", "view", "seeds", "tune"], help_heading = "Training")]
    folds: bool,

    /// Short trial: 12 epochs. Without --data, bodies of 1,500 vertices, which takes about a minute on two cores.
    #[arg(long, help_heading = "Training")]
    quick: bool,

    /// New or empty directory for the run [default: the next free runs/NAME-N]
    #[arg(long, value_name = "DIR", conflicts_with = "resume", help_heading = "Run")]
    run_dir: Option<PathBuf>,

    /// Continue a stopped or killed run from its last checkpoint.
    #[arg(long, value_name = "RUN", help_heading = "Run")]
    resume: Option<PathBuf>,

    /// Show learning curves and predictions for held-out meshes in the browser during training. The page is served to
    /// this machine only, until the run ends.
    #[arg(long, help_heading = "Run")]
    view: bool,

    /// Print only errors.
    #[arg(long, short, help_heading = "Run")]
    quiet: bool,

    #[command(flatten)]
    cache: CacheArgs,

    #[command(flatten)]
    device: DeviceArgs,
}

/// Runs `gemcnn train`.
pub fn run(args: TrainArgs) -> Result<(), Failure> {
    if !args.is_matching() && (args.unsupervised || args.rounds.is_some()) {
        return Err(Failure::usage("--unsupervised and --rounds are for `gemcnn train matching`"));
    }
    let config = args.config()?.checked().map_err(Failure::usage)?;
    let stop = stop_on_signals()?;
    let products = config.training.precision.into();
    let device = if args.quiet { args.device.open_quietly(products) } else { args.device.open(products) }?;
    if args.is_matching() {
        return matching::train_matcher(&args, config, &device, &stop);
    }
    if args.folds {
        return several::run_folds(&args, config, &device, &stop);
    }
    if let Some(seeds) = args.seeds {
        return several::run_seeds(&args, config, seeds, &device, &stop);
    }
    if args.tune {
        return tuning::tune_and_train(&args, config, &device, &stop);
    }
    let cache = args.cache.open()?;
    let run = match (&args.resume, &args.run_dir) {
        (Some(path), _) => RunDirectory::open(path),
        (None, Some(path)) => RunDirectory::create(path),
        (None, None) => RunDirectory::create_next(Path::new(RUNS), &config.name()),
    };
    let run = run.map_err(Failure::input)?;
    train_in(&args, &config, run, &cache, &device, &stop)
}

/// Trains in a run directory, and prints where the results are.
fn train_in(
    args: &TrainArgs,
    config: &Checked<RunConfig>,
    run: RunDirectory,
    cache: &Cache,
    device: &Device,
    stop: &StopFlag,
) -> Result<(), Failure> {
    let live = if args.view { Some(LiveView::start(run.path(), cache.clone())?) } else { None };
    if let Some(live) = &live {
        say(format_args!("live view at {}", live.address()));
    }
    let mut observer = WithLiveView { inner: TrainProgress::new(args.quiet), live };
    let outcome = train(config, &run, cache, device, &mut observer, stop);
    let WithLiveView { inner, live } = observer;
    drop(inner);
    if let Some(live) = live {
        live.end(match &outcome {
            Ok(Outcome::Finished { .. }) => "training has ended",
            Ok(Outcome::Stopped { .. }) => "training was stopped",
            Err(_) => "training has failed",
        });
    }
    match outcome {
        Ok(Outcome::Finished { .. }) => print(&paths_of(&run)),
        Ok(Outcome::Stopped { epoch, step }) => Err(Failure::Interrupted(format!(
            "stopped in epoch {} after {step} steps; the state is saved\n{}{}",
            epoch + 1,
            model_so_far(&run),
            how_to_resume(&run)
        ))),
        Err(error) => Err(Failure::Input(failure_message(error, run))),
    }
}

impl TrainArgs {
    /// True for a model of `gemcnn match` instead of a task.
    fn is_matching(&self) -> bool {
        self.what.as_deref() == Some(matching::NAME)
    }

    /// The configuration of the command line: a file or a task, overridden by options.
    fn config(&self) -> Result<RunConfig, Failure> {
        let mut config = match (&self.what, &self.resume) {
            (Some(_), None) if self.is_matching() => matching::config(self)?,
            (Some(what), resume) => match parsed(what) {
                Ok::<Task, _>(_) if resume.is_some() => {
                    let problem = format!("a resumed run has its own task: remove `{what}`");
                    return Err(Failure::Usage(problem));
                }
                Ok(task) => match &self.model {
                    Some(model) => RunConfig::for_model(task, model.clone()),
                    None => RunConfig::for_preset(task, self.preset.unwrap_or_default()),
                },
                Err(_) if self.preset.is_some() => {
                    let problem = "--preset is for a task; in a configuration file, set `preset`";
                    return Err(Failure::Usage(problem.into()));
                }
                Err(_) if Path::new(what).is_file() => RunConfig::read(Path::new(what)).map_err(Failure::input)?,
                Err(_) => {
                    let tasks = kinds::tasks();
                    let problem = match Path::new(what).is_dir() {
                        true => format!("`{what}` is a folder; give the task ({tasks}) first, then --data {what}"),
                        false => format!(
                            "`{what}` is neither a file nor a task; correct the path, or give a task: {tasks}, {}",
                            matching::NAME
                        ),
                    };
                    return Err(Failure::Usage(problem));
                }
            },
            (None, Some(run)) => RunConfig::read(&run.join("config.toml")).map_err(|error| match error {
                TaskError::File { .. } => Failure::Input(format!("{}: no run to resume: {error}", run.display())),
                other => Failure::input(other),
            })?,
            (None, None) => {
                return Err(Failure::Usage("give a task or a configuration file".into()));
            }
        };
        if self.quick {
            make_quick(&mut config);
        }
        if let Some(folder) = &self.data {
            config.data = match config.data {
                // The data of the run have moved.
                DataConfig::Faust(_) if self.resume.is_some() => DataConfig::Faust(folder.clone()),
                _ => DataConfig::Folder(folder.clone()),
            };
        }
        if let Some(features) = &self.features {
            config.features = features.clone();
        }
        if let Some(model) = &self.model {
            config.model = model.clone();
        }
        let training = &mut config.training;
        training.epochs = self.epochs.unwrap_or(training.epochs);
        training.batch = self.batch.unwrap_or(training.batch);
        training.rate = self.rate.unwrap_or(training.rate);
        training.seed = self.seed.unwrap_or(training.seed);
        training.start = self.start.clone().or(training.start.take());
        training.strict |= self.strict;
        training.up = self.up.or(training.up);
        if let Some(products) = self.device.products() {
            training.precision = products.into();
        }
        Ok(config)
    }
}

/// Applies `--quick`: few epochs, and small bodies.
fn make_quick(config: &mut RunConfig) {
    config.training.epochs = 12;
    if let DataConfig::Bodies(bodies) = &mut config.data {
        bodies.vertices = 1500;
    }
}

/// Signals within this time are one request.
const SAME_REQUEST: Duration = Duration::from_millis(500);

/// A flag that the first Ctrl-C or termination signal sets, to save and stop. A later one stops at once. A second
/// signal right after the first is the same request: `timeout` and schedulers send theirs to the process and to its
/// group.
pub fn stop_on_signals() -> Result<StopFlag, Failure> {
    let stop = StopFlag::new();
    let requested = stop.clone();
    let mut first = None;
    let handler = move || {
        if requested.request() {
            if first.is_none_or(|first: Instant| first.elapsed() > SAME_REQUEST) {
                std::process::exit(Failure::INTERRUPTED.into());
            }
            return;
        }
        first = Some(Instant::now());
        say("\nsaving and stopping after this step; repeat to stop at once");
    };
    ctrlc::set_handler(handler).map_err(|error| Failure::input(format!("cannot listen for Ctrl-C: {error}")))?;
    Ok(stop)
}

/// A line with the model of a stopped run, if there is one.
fn model_so_far(run: &RunDirectory) -> String {
    if run.model().exists() { format!("the model so far is {}\n", run.model().display()) } else { String::new() }
}

fn how_to_resume(run: &RunDirectory) -> String {
    format!("continue with: gemcnn train --resume {}", run.path().display())
}

/// The error message, with the checkpoint and how to resume.
fn failure_message(error: TaskError, run: RunDirectory) -> String {
    let saved = run.checkpoint().exists();
    match error {
        error if !run.config().exists() => {
            run.discard();
            error.to_string()
        }
        TaskError::Diverged { .. } if saved => {
            format!("{error}\nthe last good checkpoint is {}", run.checkpoint().display())
        }
        TaskError::Checkpoint { .. } | TaskError::OtherRun { .. } => error.to_string(),
        error if saved => {
            format!("{error}\nthe last checkpoint is intact; fix the problem, then {}", how_to_resume(&run))
        }
        error => format!("{error}\nfix the problem, then {}", how_to_resume(&run)),
    }
}

/// Paths of the results of a run, and the next commands.
fn paths_of(run: &RunDirectory) -> String {
    let path = run.path().display();
    format!(
        "model        {}\nmetrics      {}\ncurve        {}.png, {2}.svg\n{}\
         next         gemcnn eval {path}\n             gemcnn predict {path} MESH... -o DIR\n",
        run.model().display(),
        run.metrics().display(),
        run.curve().display(),
        predictions(&run.predictions()),
    )
}

/// Lines with the paths of the example predictions, if there are any.
fn predictions(folder: &Path) -> String {
    let Ok(entries) = std::fs::read_dir(folder) else { return String::new() };
    let mut pictures: Vec<String> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "png"))
        .map(|path| path.display().to_string())
        .collect();
    pictures.sort();
    format!(
        "predictions  {} (meshes and arrays)\npictures     {}\n",
        folder.display(),
        pictures.join("\n             ")
    )
}
