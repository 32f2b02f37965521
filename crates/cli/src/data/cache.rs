//! `gemcnn data cache`: the cache of prepared meshes.

use crate::failure::Failure;
use crate::output::{count, json_line, print};
use clap::Args;
use gemcnn_tasks::data::{CACHE_VARIABLE, Cache};
use std::path::PathBuf;

/// Print the size of the cache of prepared meshes, or empty it.
#[derive(Args)]
pub struct CacheCommand {
    /// Folder of the cache [default: GEMCNN_CACHE, or the user's cache folder]
    #[arg(long = "cache", value_name = "DIR")]
    folder: Option<PathBuf>,

    /// Remove all entries. Later runs then prepare their meshes again.
    #[arg(long)]
    clear: bool,

    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

impl CacheCommand {
    pub fn run(self) -> Result<(), Failure> {
        let cache = self.folder.map_or_else(Cache::of_user, Cache::new);
        let Some(folder) = cache.folder() else {
            return Err(Failure::input(format!(
                "there is no cache: neither {CACHE_VARIABLE} nor a home folder is set"
            )));
        };
        let usage = if self.clear { cache.clear() } else { cache.usage() };
        let usage = usage.map_err(Failure::input)?;
        if self.json {
            return print(&json_line(&usage)?);
        }
        let mut text = format!(
            "{}: {}{}, {:.1} MB",
            folder.display(),
            if self.clear { "removed " } else { "" },
            count(usage.entries, "prepared mesh", "prepared meshes"),
            usage.bytes as f64 / 1e6
        );
        if usage.leftovers > 0 {
            let files = count(usage.leftovers, "unfinished file", "unfinished files");
            text += &format!(", {files} of killed processes");
        }
        print(&(text + "\n"))
    }
}
