//! `gemcnn experiment NAME|FILE.toml`: sweeps.

use super::{directory, list, train};
use crate::data::CacheArgs;
use crate::device::DeviceArgs;
use crate::failure::Failure;
use crate::output::print;
use clap::Args;
use gemcnn_experiments::Sweep;
use gemcnn_experiments::sweep::{Choices, RunContext, built_in};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Options of a sweep.
#[derive(Args)]
pub struct SweepArgs {
    /// A sweep that comes with the program (below), or the TOML file of your own: runs of which each is a change of one
    /// configuration [default: list all experiments]
    ///
    /// Writes table.md, results.json, figures and a directory for each run to OUT. Finished runs are not repeated and
    /// interrupted runs resume: after Ctrl-C or a crash, repeat the command.
    #[arg(value_name = "NAME|FILE.toml")]
    sweep: Option<String>,

    /// Folder of meshes in place of the data of the sweep. In place of synthetic bodies in correspondence: FAUST, or
    /// other registered meshes with a dataset.toml. NAME=DIR in place of the folder NAME of a sweep with several worlds;
    /// may be repeated
    #[arg(
        long,
        value_name = "DIR|NAME=DIR",
        action = clap::ArgAction::Append,
        conflicts_with_all = ["bodies", "vertices", "body_seed", "unregistered"],
        help_heading = "Data"
    )]
    data: Vec<String>,

    /// Directory of the discretization-robust correspondence benchmark, whose remeshed FAUST bodies are then the
    /// test bodies
    #[arg(long, value_name = "DIR", requires = "data", help_heading = "Data")]
    remeshed: Option<PathBuf>,

    /// Number of synthetic bodies [default: 100]
    #[arg(long, value_name = "N", help_heading = "Data")]
    bodies: Option<usize>,

    /// Vertices of each synthetic body for training [default: 6890; segmentation: 1000]
    #[arg(long, value_name = "N", help_heading = "Data")]
    vertices: Option<usize>,

    /// Seed of the synthetic bodies [default: 1]. Choose settings on bodies of another seed than the reported ones.
    #[arg(long, value_name = "SEED", help_heading = "Data")]
    body_seed: Option<u64>,

    /// Give each synthetic body its own mesh, simplified from one with 50 times the vertices of training, so that all
    /// densities show the same surfaces and borders. The densest bodies are not simplified and share their connectivity.
    #[arg(long, help_heading = "Data")]
    unregistered: bool,

    /// Run a short trial of the sweep, if it has one.
    #[arg(long)]
    quick: bool,

    /// Rows to run, comma-separated [default: all but those on request]
    #[arg(long, visible_alias = "steps", value_name = "ROWS", value_delimiter = ',')]
    rows: Option<Vec<String>>,

    /// Worlds to run, comma-separated, if the sweep has several [default: all]
    #[arg(long, value_name = "WORLDS", value_delimiter = ',')]
    worlds: Option<Vec<String>>,

    #[command(flatten)]
    seeds: SeedArgs,

    /// Number of epochs of each run [default: as the file says, or 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    epochs: Option<u64>,

    /// Directory for results and runs [default: runs/NAME; with --quick runs/NAME-quick]
    #[arg(long, short, value_name = "OUT")]
    out: Option<PathBuf>,

    #[command(flatten)]
    cache: CacheArgs,

    #[command(flatten)]
    device: DeviceArgs,
}

/// Seeds of the runs of each row.
#[derive(Args)]
pub struct SeedArgs {
    /// Runs of each row, with consecutive seeds [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: Option<u64>,

    /// First seed [default: 1]. Commands with different seeds may run at the same time with the same OUT; a final
    /// command with all seeds makes the whole table.
    #[arg(long, value_name = "SEED")]
    pub first_seed: Option<u64>,
}

/// The sweeps that come with the program, with their rows, for the help text.
pub fn help() -> String {
    let sweeps = built_in().unwrap_or_default();
    let lines = sweeps.iter().map(|(name, sweep)| {
        let rows = sweep.rows.names().join(", ");
        format!("  {name}: {}\n    rows: {rows}\n", sweep.title)
    });
    format!("Sweeps:\n{}", lines.collect::<String>())
}

/// The sweep of a name or file, and its name.
fn find(name: &str) -> Result<(String, Sweep), Failure> {
    let sweeps = built_in().map_err(Failure::input)?;
    let names: Vec<&str> = sweeps.iter().map(|(name, _)| *name).collect();
    if let Some(place) = names.iter().position(|known| *known == name) {
        return Ok((name.to_owned(), sweeps[place].1.clone()));
    }
    let path = Path::new(name);
    if !path.is_file() {
        let names = names.join(", ");
        let problem =
            format!("`{name}` is neither a file nor an experiment; `gemcnn experiment` lists them: {names} ...");
        return Err(Failure::usage(problem));
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok((stem, Sweep::read(path).map_err(Failure::input)?))
}

/// The folder in place of all data, and folders in place of those that a sweep with worlds names.
fn folders(given: &[String], sweep: &Sweep) -> Result<(Option<PathBuf>, BTreeMap<String, PathBuf>), Failure> {
    let named = |text: &String| Some(text.split_once('=').map(|(name, folder)| (name.to_owned(), folder.into())));
    match given {
        [folder] if sweep.worlds.names().is_empty() || !folder.contains('=') => {
            Ok((Some(folder.into()), BTreeMap::new()))
        }
        _ => match given.iter().map(|text| named(text)?).collect::<Option<_>>() {
            Some(folders) => Ok((None, folders)),
            None => Err(Failure::Usage("--data: give one folder, or NAME=DIR for each of several".into())),
        },
    }
}

impl SweepArgs {
    pub fn run(self) -> Result<(), Failure> {
        let Some(name) = &self.sweep else { return print(&list()?) };
        let (name, mut sweep) = find(name)?;
        let (data, folders) = folders(&self.data, &sweep)?;
        sweep
            .choose(Choices {
                quick: self.quick,
                rows: self.rows,
                worlds: self.worlds,
                seeds: self.seeds.seeds,
                first_seed: self.seeds.first_seed,
                epochs: self.epochs,
                precision: self.device.products().map(Into::into),
                data,
                folders,
                benchmark: self.remeshed,
                bodies: self.bodies,
                vertices: self.vertices,
                body_seed: self.body_seed,
                own_meshes: self.unregistered,
            })
            .map_err(Failure::usage)?;
        let directory = directory(self.out, &name, self.quick);
        let first = sweep.config(sweep.world_names()[0], sweep.row_names()[0], 1).map_err(Failure::input)?;
        let (device, cache) = (self.device.open(first.training.precision.into())?, self.cache.open()?);
        train(&device, &directory, |device, progress, stop| {
            sweep.run(RunContext { directory: &directory, cache: &cache, device, stop }, progress)
        })
    }
}
