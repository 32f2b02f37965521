//! `gemcnn experiment mnist`: digits on flat, bent and rough grids.

use super::{directory, train};
use crate::device::DeviceArgs;
use crate::failure::Failure;
use clap::Args;
use gemcnn_experiments::digits::Mnist;
use gemcnn_experiments::mnist::{Experiment, Model, RateRule, Surface};
use gemcnn_nn::ProductMode;
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
    #[arg(long, short, value_name = "OUT")]
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
        let data = if self.quick { Mnist::sample() } else { Mnist::open(&self.data) };
        let data = data.map_err(Failure::input)?;
        let out = directory(self.out, "mnist", self.quick);
        let device = self.device.open(ProductMode::Tf32)?;
        train(&device, &out, |device, progress, stop| experiment.run(&data, &out, device, progress, stop))
    }

    fn experiment(&self) -> Experiment {
        let mut experiment = if self.quick { Experiment::quick() } else { Experiment::default() };
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
