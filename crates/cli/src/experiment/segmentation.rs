//! `gemcnn experiment segmentation`: the recipe, one step after the other.

use super::files::{SeedArgs, run_table};
use crate::data::CacheArgs;
use crate::device::DeviceArgs;
use crate::failure::Failure;
use clap::Args;
use gemcnn_experiments::segmentation::{Settings, Step, run};
use std::path::PathBuf;

/// Train a segmentation with the steps of the recipe added one by one, and test it on other densities, meshings, units
/// and orientations.
///
/// Without --data, the meshes are synthetic bodies with parts. Writes table.md, results.json and a directory for each
/// run to OUT. Finished runs are not repeated and interrupted runs resume: after Ctrl-C or a crash, repeat the command.
#[derive(Args)]
pub struct SegmentationCommand {
    /// Folder of labelled meshes with a validation split, on which runs are tested [default: synthetic bodies]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["bodies", "vertices", "unregistered"])]
    data: Option<PathBuf>,

    /// Steps, comma-separated: positions, invariant, diffusion, surface, resampled, versions [default: all]
    #[arg(long, value_name = "STEPS", value_delimiter = ',')]
    steps: Option<Vec<Step>>,

    #[command(flatten)]
    seeds: SeedArgs,

    /// Number of epochs [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    epochs: Option<u64>,

    /// Number of synthetic bodies [default: 100]
    #[arg(long, value_name = "N")]
    bodies: Option<usize>,

    /// Vertices of the training bodies [default: 1000]
    #[arg(long, value_name = "N")]
    vertices: Option<usize>,

    /// Give each body its own mesh, simplified from one with 50 times the vertices of training, so that all densities
    /// show the same surfaces and borders. The densest bodies are not simplified and share their connectivity [default:
    /// bodies of the same density share their connectivity]
    #[arg(long)]
    unregistered: bool,

    /// Directory for results and runs
    #[arg(long, value_name = "OUT", default_value = "runs/segmentation")]
    out: PathBuf,

    #[command(flatten)]
    cache: CacheArgs,

    #[command(flatten)]
    device: DeviceArgs,
}

impl SegmentationCommand {
    pub fn run(self) -> Result<(), Failure> {
        let default = Settings::default();
        let settings = Settings {
            folder: self.data,
            bodies: self.bodies.unwrap_or(default.bodies),
            vertices: self.vertices.unwrap_or(default.vertices),
            is_registered: !self.unregistered,
            steps: self.steps.unwrap_or(default.steps),
            seeds: self.seeds.or(default.seeds),
            epochs: self.epochs.unwrap_or(default.epochs),
            precision: self.device.products().map_or(default.precision, Into::into),
        };
        run_table(
            (&self.device, settings.precision),
            (&self.out, &["table.md", "results.json"]),
            |device, progress, stop| {
                let cache = self.cache.open();
                let report = run(&settings, &self.out, &cache, device, progress, stop)?;
                Ok(report.map(|report| (report.to_markdown(), report.has_failures())))
            },
        )
    }
}
