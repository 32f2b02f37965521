//! `gemcnn data`: data sets.

mod cache;
mod check;
mod fetch;
mod make;
mod prepare;

pub use make::TrajectoryArgs;

use crate::failure::Failure;
use clap::{Args, Subcommand};
use gemcnn_tasks::data::Cache;
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
}

impl CacheArgs {
    pub fn open(&self) -> Cache {
        match &self.cache {
            _ if self.no_cache => Cache::none(),
            Some(folder) => Cache::new(folder),
            None => Cache::of_user(),
        }
    }
}
