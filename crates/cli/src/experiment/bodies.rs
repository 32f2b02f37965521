//! `gemcnn experiment bodies`: the paper's table of shape correspondence.

use super::files::{BodiesArgs, SeedArgs, run_table};
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
        let settings = self.settings();
        let name = if self.quick { "bodies-quick" } else { "bodies" };
        let directory = self.out.unwrap_or_else(|| PathBuf::from("runs").join(name));
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

    fn settings(&self) -> Settings {
        let mut settings = match self.quick {
            true => Settings::quick(),
            false => Settings::default(),
        };
        settings.data = match &self.data {
            Some(folder) if folder.join(DESCRIPTION_FILE).exists() => {
                DataConfig::Folder(folder.clone())
            }
            Some(folder) => DataConfig::Faust(folder.clone()),
            None => self.bodies.config(),
        };
        if let Some(rows) = &self.rows {
            settings.rows.clone_from(rows);
        }
        settings.seeds = self.seeds.or(settings.seeds);
        settings.epochs = self.epochs.unwrap_or(settings.epochs);
        if let Some(products) = self.device.products() {
            settings.precision = products.into();
        }
        settings
    }
}
