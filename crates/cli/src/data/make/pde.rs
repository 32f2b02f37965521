//! `gemcnn data make pde`: solutions of equations on surfaces.

use super::Unfinished;
use crate::failure::Failure;
use crate::output::{count, print};
use crate::progress;
use clap::Args;
use gemcnn_experiments::pde::{DataSettings, Equation, make};
use std::path::PathBuf;

/// Solutions of time-dependent equations on closed and open surfaces, like those of `gemcnn experiment pde`.
///
/// Makes one data set per equation, DIR/EQUATION, with one PLY file per trajectory. The vertex values u000, u001 and so
/// on are its states.
#[derive(Args)]
pub struct Pde {
    /// Folder for the data sets: new, empty, or with the unfinished output of the same command.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Equations, comma-separated: heat, wave, cahn-hilliard, vector-heat [default: all]
    #[arg(long, value_name = "EQUATIONS", value_delimiter = ',')]
    equations: Option<Vec<Equation>>,

    #[command(flatten)]
    trajectories: TrajectoryArgs,

    /// Seed of meshes and initial states [default: 1]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
}

/// Settings of trajectories.
#[derive(Args)]
pub struct TrajectoryArgs {
    /// Mean number of vertices of a mesh [default: 600]
    #[arg(long, value_name = "N")]
    vertices: Option<usize>,

    /// Trajectories per mesh, each from another initial state. On the training meshes, 70 % of them are for training
    /// [default: 5]
    #[arg(long, value_name = "N")]
    trajectories: Option<usize>,

    /// Time steps of each trajectory [default: 100]
    #[arg(long, value_name = "N")]
    steps: Option<usize>,
}

impl TrajectoryArgs {
    /// The settings, with default values for what the user did not give.
    pub fn settings(&self, seed: Option<u64>) -> DataSettings {
        let default = DataSettings::default();
        DataSettings {
            vertices: self.vertices.unwrap_or(default.vertices),
            trajectories: self.trajectories.unwrap_or(default.trajectories),
            steps: self.steps.unwrap_or(default.steps),
            seed: seed.unwrap_or(default.seed),
        }
    }
}

impl Pde {
    pub fn run(self) -> Result<(), Failure> {
        let settings = self.trajectories.settings(self.seed);
        settings.check().map_err(Failure::usage)?;
        let equations = self.equations.unwrap_or(Equation::ALL.to_vec());
        let words: Vec<&str> = equations.iter().map(|equation| equation.name()).collect();
        let command = format!("--equations {} {}", words.join(","), settings.command());
        let unfinished = Unfinished::new(&self.folder, command)?;
        let mark = unfinished.begin()?;
        for &equation in &equations {
            let folder = self.folder.join(equation.name());
            let what = format!("solving the {equation} equation");
            progress::during(&what, || make(equation, &settings, &folder, mark)).map_err(Failure::input)?;
        }
        unfinished.finish()?;
        print(&format!(
            "{}: {} with {} on each of 9 meshes\n",
            self.folder.display(),
            count(equations.len(), "equation", "equations"),
            count(settings.trajectories, "trajectory", "trajectories"),
        ))
    }
}
