//! `gemcnn experiment equivariance`, `matching`, `nonlinearity-cost` and `operators`: measurements in one go.

use super::{directory, finish};
use crate::device::DeviceArgs;
use crate::failure::Failure;
use crate::progress;
use clap::Args;
use gemcnn_experiments::{Report, equivariance, matching, nonlinearity_cost, operators};
use gemcnn_nn::ProductMode;
use gemcnn_tasks::TaskError;
use std::path::{Path, PathBuf};

/// Size and place of an experiment.
#[derive(Args)]
struct OutputArgs {
    /// Directory for results and figures [default: runs/NAME; with --quick runs/NAME-quick]
    #[arg(long, short, value_name = "OUT")]
    out: Option<PathBuf>,

    /// Run a short trial, with fewer and smaller cases.
    #[arg(long)]
    quick: bool,
}

impl OutputArgs {
    /// Creates the directory for the results of an experiment.
    fn create(self, name: &str) -> Result<PathBuf, Failure> {
        let directory = directory(self.out, name, self.quick);
        std::fs::create_dir_all(&directory).map_err(Failure::at(&directory))?;
        Ok(directory)
    }
}

/// Runs an experiment, and writes and prints its results.
fn measure<R: Report>(directory: &Path, run: impl FnOnce() -> Result<R, TaskError>) -> Result<(), Failure> {
    finish(&progress::during("measuring", run).map_err(Failure::input)?, directory)
}

/// Measure equivariance errors: the paper's appendix on equivariance.
///
/// Runs networks with random weights on the icosahedron and on a deformed icosahedron, and changes frames,
/// pose (rotation and translation) and vertices (the 60 symmetries of the icosahedron). Varies the depth and
/// the number of samples of the regular nonlinearity, in f32 and f64. Writes table.md, results.json and figures to OUT.
#[derive(Args)]
pub struct EquivarianceCommand {
    #[command(flatten)]
    output: OutputArgs,

    /// Seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl EquivarianceCommand {
    pub fn run(self) -> Result<(), Failure> {
        use equivariance::Settings;
        let settings = if self.output.quick { Settings::quick() } else { Settings::default() };
        measure(&self.output.create("equivariance")?, || equivariance::run(&Settings { seed: self.seed, ..settings }))
    }
}

/// Match pairs of synthetic bodies, each in another meshing, and measure the errors of the maps.
///
/// Compares the bundled model, other models, and descriptors without a network, all with the same refinement. Writes
/// table.md and results.json to OUT.
#[derive(Args)]
pub struct MatchingCommand {
    #[command(flatten)]
    output: OutputArgs,

    /// Number of pairs [default: 100; with --quick 2]
    #[arg(long, value_name = "N")]
    pairs: Option<usize>,

    /// Number of vertices of the bodies before they are remeshed [default: 5000; with --quick 1500]
    #[arg(long, value_name = "N")]
    vertices: Option<usize>,

    /// Seed of the bodies.
    #[arg(long, value_name = "N", default_value_t = 77)]
    seed: u64,

    /// Further variety of the bodies, from 0 to 1.
    #[arg(long, value_name = "V", default_value_t = 0.5)]
    variety: f64,

    /// Number of pairs with troubles, such as holes, and with other shapes: what the program says of them [default: 3; with
    /// --quick 1]
    #[arg(long, value_name = "N")]
    troubled: Option<usize>,

    /// Another model to compare: a run directory, or a model file.
    #[arg(long = "model", value_name = "RUN")]
    models: Vec<PathBuf>,

    #[command(flatten)]
    device: DeviceArgs,
}

impl MatchingCommand {
    pub fn run(self) -> Result<(), Failure> {
        let [pairs, vertices, troubled] = if self.output.quick { [2, 1500, 1] } else { [100, 5000, 3] };
        let settings = matching::Settings {
            pairs: self.pairs.unwrap_or(pairs),
            vertices: self.vertices.unwrap_or(vertices),
            seed: self.seed,
            variety: self.variety,
            troubled: self.troubled.unwrap_or(troubled),
            models: self.models,
        };
        let directory = self.output.create("matching")?;
        let device = self.device.open(ProductMode::default())?;
        measure(&directory, || matching::run(&settings, &device))
    }
}

/// Measure the cost of the regular nonlinearity: the paper's table of time and memory.
///
/// Trains the correspondence network for a few steps with a batch of one mesh, without the nonlinearity and with several
/// numbers of samples. Writes table.md, results.json and figures to OUT.
#[derive(Args)]
pub struct NonlinearityCostCommand {
    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    device: DeviceArgs,
}

impl NonlinearityCostCommand {
    pub fn run(self) -> Result<(), Failure> {
        use nonlinearity_cost::Settings;
        let settings = if self.output.quick { Settings::quick() } else { Settings::default() };
        let directory = self.output.create("nonlinearity-cost")?;
        let device = self.device.open(ProductMode::F32)?;
        measure(&directory, || nonlinearity_cost::run(&settings, &device))
    }
}

/// Compare surface operators between meshings of the same smooth surfaces.
///
/// Meshes a bumpy sphere, an ellipsoid and a torus in a regular and in two other ways, at several resolutions, and
/// applies Laplacians, eigenpairs, diffusion, derivatives, curvature and geodesic distances to the same smooth fields.
/// Writes table.md, results.json and the figure operators.svg with the differences to OUT.
#[derive(Args)]
pub struct OperatorsCommand {
    #[command(flatten)]
    output: OutputArgs,

    /// Seed of the remeshing.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl OperatorsCommand {
    pub fn run(self) -> Result<(), Failure> {
        use operators::Settings;
        let settings = if self.output.quick { Settings::quick() } else { Settings::default() };
        measure(&self.output.create("operators")?, || operators::run(&Settings { seed: self.seed, ..settings }))
    }
}
