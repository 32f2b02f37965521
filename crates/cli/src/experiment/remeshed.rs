//! `gemcnn experiment remeshed`: networks on meshings that training never saw.

use super::files::{BodiesArgs, SeedArgs, run_table};
use crate::data::CacheArgs;
use crate::device::DeviceArgs;
use crate::failure::Failure;
use clap::Args;
use gemcnn_experiments::remeshed::{Row, Settings, run};
use gemcnn_tasks::data::DataConfig;
use std::path::PathBuf;

/// Train networks for correspondence on bodies of one meshing, and test them on other bodies in the same and in
/// five other meshings.
///
/// Writes table.md, results.json, errors.svg and a directory for each run to OUT, with a picture of one body in all
/// meshings. Finished runs are not repeated and interrupted runs resume: after Ctrl-C or a crash, repeat the
/// command.
#[derive(Args)]
pub struct RemeshedCommand {
    /// Directory of FAUST [default: synthetic bodies]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["bodies", "vertices", "body_seed"])]
    data: Option<PathBuf>,

    /// Directory of the discretization-robust correspondence benchmark, whose remeshed FAUST bodies are then the
    /// test bodies
    #[arg(long, value_name = "DIR", requires = "data")]
    remeshed: Option<PathBuf>,

    /// Rows of the table, comma-separated: gem, unet, diffusion, diffusion-all, surface, spiral, feast, edge, monet,
    /// geodesic, acnn, zernike; append + to train with all augmentation, +remeshed or +resampled to train with
    /// a part of it [default: gem, unet, diffusion and surface with and without +, and the last seven without]
    #[arg(long, value_name = "ROWS", value_delimiter = ',')]
    rows: Option<Vec<Row>>,

    #[command(flatten)]
    seeds: SeedArgs,

    /// Number of epochs [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    epochs: Option<u64>,

    #[command(flatten)]
    bodies: BodiesArgs,

    /// Directory for results and runs
    #[arg(long, value_name = "OUT", default_value = "runs/remeshed")]
    out: PathBuf,

    #[command(flatten)]
    cache: CacheArgs,

    #[command(flatten)]
    device: DeviceArgs,
}

impl RemeshedCommand {
    pub fn run(self) -> Result<(), Failure> {
        let default = Settings::default();
        let settings = Settings {
            data: match self.data {
                Some(folder) => DataConfig::Faust(folder),
                None => self.bodies.config(),
            },
            remeshed: self.remeshed,
            rows: self.rows.unwrap_or(default.rows),
            seeds: self.seeds.or(default.seeds),
            epochs: self.epochs.unwrap_or(default.epochs),
            precision: self.device.products().map_or(default.precision, Into::into),
        };
        run_table(
            (&self.device, settings.precision),
            (&self.out, &["table.md", "results.json", "errors.svg"]),
            |device, progress, stop| {
                let cache = self.cache.open();
                let report = run(&settings, &self.out, &cache, device, progress, stop)?;
                Ok(report.map(|report| (report.to_markdown(), report.has_failures())))
            },
        )
    }
}
