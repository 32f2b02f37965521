//! `gemcnn experiment bodies`: the paper's table of shape correspondence.

use super::files::{BodiesArgs, SeedArgs, directory, run_table};
use crate::data::CacheArgs;
use crate::device::DeviceArgs;
use crate::failure::Failure;
use clap::Args;
use gemcnn_experiments::bodies::{Row, Settings, run};
use gemcnn_tasks::data::{DESCRIPTION_FILE, DataConfig};
use std::path::PathBuf;

/// Train the networks of the paper's table of shape correspondence, and test each on bodies in their
/// original pose, randomly rotated, and remeshed.
///
/// Writes table.md, results.json and a directory for each run to OUT. Finished runs are not repeated and
/// interrupted runs resume: after Ctrl-C or a crash, repeat the command.
#[derive(Args)]
pub struct BodiesCommand {
    /// Directory of FAUST, or of other bodies in correspondence with a dataset.toml [default: synthetic
    /// bodies]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["bodies", "vertices", "body_seed"])]
    data: Option<PathBuf>,

    /// Run GEM-CNN on positions once, unless --rows or --seeds are given.
    #[arg(long)]
    quick: bool,

    /// Rows of the table, comma-separated: acnn, geodesic, monet, feast, zernike, spiral, edge, graph-xyz,
    /// graph-shot, angular-xyz, angular-shot, gem, gem-broken, gem-matrix, gem-reltan, attention, hermes [default: all]
    #[arg(long, value_name = "ROWS", value_delimiter = ',')]
    rows: Option<Vec<Row>>,

    #[command(flatten)]
    seeds: SeedArgs,

    /// Number of epochs [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    epochs: Option<u64>,

    #[command(flatten)]
    bodies: BodiesArgs,

    /// Directory for results and runs [default: runs/bodies; with --quick runs/bodies-quick]
    #[arg(long, value_name = "OUT")]
    out: Option<PathBuf>,

    #[command(flatten)]
    cache: CacheArgs,

    #[command(flatten)]
    device: DeviceArgs,
}

impl BodiesCommand {
    pub fn run(self) -> Result<(), Failure> {
        let default = match self.quick {
            true => Settings::quick(),
            false => Settings::default(),
        };
        let settings = Settings {
            data: match self.data {
                Some(folder) if folder.join(DESCRIPTION_FILE).exists() => DataConfig::Folder(folder),
                Some(folder) => DataConfig::Faust(folder),
                None => self.bodies.config(),
            },
            rows: self.rows.unwrap_or(default.rows),
            seeds: self.seeds.or(default.seeds),
            epochs: self.epochs.unwrap_or(default.epochs),
            precision: self.device.products().map_or(default.precision, Into::into),
        };
        let directory = directory(self.out, "bodies", self.quick);
        run_table(
            (&self.device, settings.precision),
            (&directory, &["table.md", "results.json"]),
            |device, progress, stop| {
                let cache = self.cache.open();
                let report = run(&settings, &directory, &cache, device, progress, stop)?;
                Ok(report.map(|report| (report.to_markdown(), report.has_failures())))
            },
        )
    }
}
