//! `gemcnn data`: data sets.

mod cache;
mod check;
mod fetch;
mod make;
mod prepare;

pub use make::TrajectoryArgs;

use crate::failure::Failure;
use clap::{Args, Subcommand};
use gemcnn_tasks::data::{Cache, CacheLimit};
use std::path::PathBuf;

/// The commands; each is documented where it is defined.
#[derive(Subcommand)]
pub enum DataCommand {
    Check(check::Check),
    Fetch(fetch::Fetch),
    Prepare(prepare::Prepare),
    Make(make::Make),
    Cache(cache::CacheCommand),
}

pub fn run(command: DataCommand) -> Result<(), Failure> {
    match command {
        DataCommand::Check(command) => command.run(),
        DataCommand::Fetch(command) => command.run(),
        DataCommand::Prepare(command) => command.run(),
        DataCommand::Make(command) => command.run(),
        DataCommand::Cache(command) => command.run(),
    }
}

/// Options of every command that prepares meshes.
#[derive(Debug, Args)]
pub struct CacheArgs {
    /// Folder of the cache of prepared meshes [default: GEMCNN_CACHE, or the user's cache folder]
    #[arg(long, value_name = "DIR", help_heading = "Cache")]
    cache: Option<PathBuf>,

    /// Do not use the cache: prepare all meshes again.
    #[arg(long, conflicts_with = "cache", help_heading = "Cache")]
    no_cache: bool,

    /// Largest size of the cache, such as "20 GB". Entries that were not used for longest leave first. A tenth of the
    /// disk always stays free [default: GEMCNN_CACHE_LIMIT, or half of the space that the disk has without the cache]
    #[arg(long, value_name = "SIZE", conflicts_with = "no_cache", help_heading = "Cache")]
    cache_limit: Option<CacheLimit>,
}

impl CacheArgs {
    pub fn open(&self) -> Result<Cache, Failure> {
        let cache = match &self.cache {
            _ if self.no_cache => Cache::none(),
            Some(folder) => Cache::new(folder),
            None => Cache::of_user(),
        };
        cache.limited(self.cache_limit).map_err(Failure::input)
    }
}
