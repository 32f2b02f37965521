//! `gemcnn experiment mnist`: digits on flat, bent and rough grids.

use super::files::directory;
use crate::device::DeviceArgs;
use crate::failure::Failure;
use crate::output::{grouped, print, say};
use clap::Args;
use gemcnn_experiments::digits::Mnist;
use gemcnn_experiments::mnist::{Event, Experiment, Model, RateRule, Report, RunResult, RunSettings, Surface};
use gemcnn_nn::ProductMode;
use gemcnn_tasks::train::Record;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::PathBuf;

/// Train on digits on grids of one geometry and test on grids of others: the paper's first experiment.
///
/// Each run (training geometry, model, seed) has its own directory in OUT and writes a checkpoint after
/// every epoch. The command can be repeated at any time: finished runs are skipped and interrupted runs
/// resume. At the end OUT holds results.json, a table, the figure and pictures of the grids, made from
/// all finished runs in it.
#[derive(Args)]
pub struct MnistCommand {
    /// Directory with the four IDX files, gzipped or not (see `gemcnn data fetch mnist`).
    #[arg(long, value_name = "DIR", default_value = "mnist", conflicts_with = "quick")]
    data: PathBuf,

    /// Directory for runs, results and figures [default: runs/mnist; with --quick runs/mnist-quick]
    #[arg(long, value_name = "OUT")]
    out: Option<PathBuf>,

    /// Run a trial of less than a minute with the 800 digits that come with the program.
    #[arg(long)]
    quick: bool,

    /// Training geometries: flat, isometric, or a roughness of at least 0 and below 3 [default: the paper's,
    /// flat,1,1.5,2,2.25,2.5]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    train: Vec<Surface>,

    /// Test geometries [default: the paper's, flat,isometric,0.5,1,1.25,1.5,1.75,2,2.25,2.5]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    test: Vec<Surface>,

    /// Networks: paper-types (the paper's feature types, 99,978 parameters), paper-size (1.3 times as many
    /// channels, 162,705 parameters), graph (isotropic, 163,033 parameters) [default: paper-types]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    model: Vec<Model>,

    /// Number of seeds for each network and geometry [default: 3; with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,

    /// First seed.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    first_seed: u64,

    /// Number of epochs [default: 20; with --quick 3]
    #[arg(long, value_name = "N")]
    epochs: Option<usize>,

    /// Digits in a batch [default: 128; with --quick 25]
    #[arg(long, value_name = "N")]
    batch: Option<usize>,

    /// Base learning rate [default: 0.01]
    #[arg(long, value_name = "RATE")]
    rate: Option<f64>,

    /// Schedule of the learning rate: plateau (the paper's: halved when the validation loss has not
    /// improved for 3 epochs), one-cycle, cosine [default: one-cycle; with --quick plateau]
    #[arg(long, value_name = "RULE")]
    schedule: Option<RateRule>,

    /// Split each cell of the grids into two triangles: six neighbours instead of four.
    #[arg(long)]
    triangles: bool,

    /// Largest displacement of the vertices of rough grids before smoothing, in pixels [default: 5]
    #[arg(long, value_name = "PIXELS")]
    amplitude: Option<f64>,

    /// Number of training digits, the first ones of the data set [default: all but the validation digits]
    #[arg(long, value_name = "N")]
    training_digits: Option<usize>,

    /// Number of validation digits, which follow the training digits [default: 5000; with --quick 100]
    #[arg(long, value_name = "N")]
    validation_digits: Option<usize>,

    /// Number of test digits, the first ones of the test set [default: all]
    #[arg(long, value_name = "N")]
    test_digits: Option<usize>,

    #[command(flatten)]
    device: DeviceArgs,
}

impl MnistCommand {
    pub fn run(self) -> Result<(), Failure> {
        let experiment = self.experiment();
        let data = match self.quick {
            true => Mnist::few(),
            false => Mnist::open(&self.data),
        };
        let data = data.map_err(Failure::input)?;
        let out = directory(self.out, "mnist", self.quick);
        let device = self.device.open(ProductMode::Tf32)?;
        let mut watcher = Watcher::new();
        experiment.run(&data, &out, &device, &mut |event| watcher.event(&event)).map_err(Failure::input)?;
        let report = Report::read(&out).map_err(Failure::input)?;
        report.write(&out).map_err(Failure::input)?;
        print(&report.to_string())
    }

    fn experiment(&self) -> Experiment {
        let mut experiment = match self.quick {
            true => Experiment::quick(),
            false => Experiment::default(),
        };
        let replace = |list: &mut Vec<Surface>, given: &[Surface]| {
            if !given.is_empty() {
                *list = given.to_vec();
            }
        };
        replace(&mut experiment.train, &self.train);
        replace(&mut experiment.test, &self.test);
        if !self.model.is_empty() {
            experiment.models = self.model.clone();
        }
        let seeds = self.seeds.unwrap_or(experiment.seeds.len() as u64);
        experiment.seeds = (0..seeds).map(|i| self.first_seed.wrapping_add(i)).collect();
        experiment.epochs = self.epochs.unwrap_or(experiment.epochs);
        experiment.batch = self.batch.unwrap_or(experiment.batch);
        experiment.rate = self.rate.unwrap_or(experiment.rate);
        experiment.schedule = self.schedule.unwrap_or(experiment.schedule);
        experiment.grids.triangles = self.triangles;
        experiment.grids.amplitude = self.amplitude.unwrap_or(experiment.grids.amplitude);
        experiment.training_digits = self.training_digits;
        let validation = self.validation_digits;
        experiment.validation_digits = validation.unwrap_or(experiment.validation_digits);
        experiment.test_digits = self.test_digits;
        experiment
    }
}

/// Shows progress on standard error: a line for each epoch and test, and on a terminal a bar for the steps
/// of an epoch.
struct Watcher {
    bar: Option<ProgressBar>,
}

impl Watcher {
    fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{msg} {bar:30} step {pos} of {len}");
            ProgressBar::hidden().with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { bar }
    }

    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Started { settings, epochs } => {
                let of = settings.epochs;
                self.say(&match epochs {
                    0 => format!("{}: {of} epochs", title(settings)),
                    _ => format!("{}: resuming after {epochs} of {of} epochs", title(settings)),
                });
            }
            Event::Skipped { settings } => {
                self.say(&format!("{}: already finished", title(settings)));
            }
            Event::Step { settings, report } => {
                if let Some(bar) = &self.bar {
                    if report.step == 1 {
                        bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
                        bar.set_length(report.steps);
                        let (epoch, epochs) = (report.epoch, settings.epochs);
                        bar.set_message(format!("  epoch {epoch} of {epochs}"));
                    }
                    bar.set_position(report.step);
                }
            }
            Event::Epoch { settings, record } => self.epoch(settings, record),
            Event::Test { test } => {
                self.say(&format!(
                    "  tested on {}: {} of {} wrong, {:.2} %",
                    test.surface,
                    grouped(test.wrong),
                    grouped(test.digits),
                    100.0 * test.error()
                ));
            }
            Event::Finished { result } => self.finished(result),
        }
    }

    fn epoch(&self, settings: &RunSettings, record: &Record) {
        let [training, validation] = [record.training, record.held_out].map(|scores| {
            scores.map_or((f64::NAN, f64::NAN), |scores| {
                let accuracy = scores.accuracy.unwrap_or(f64::NAN);
                (scores.loss, 100.0 * (1.0 - accuracy))
            })
        });
        self.say(&format!(
            "  epoch {:>2} of {}: loss {:.4}, validation loss {:.4}, error {:.2} %, rate {:.2e}, {:.1} s",
            record.epoch,
            settings.epochs,
            training.0,
            validation.0,
            validation.1,
            record.rate,
            settings.training_digits as f64 / record.meshes_per_second
        ));
    }

    fn finished(&self, result: &RunResult) {
        if let Some(isometry) = &result.isometry {
            self.say(&format!(
                "  flat and isometric: {} of {} predictions differ; logits (up to {:.1}) differ by at most {:.1e}",
                isometry.different_answers,
                grouped(isometry.digits),
                isometry.largest_logit,
                isometry.largest_difference
            ));
        }
    }

    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say(line)),
            None => say(line),
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn title(settings: &RunSettings) -> String {
    format!("trained on {}, {}, seed {}", settings.train, settings.model, settings.seed)
}
