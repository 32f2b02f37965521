//! `gemcnn data fetch`: downloads of public data sets.

use crate::failure::Failure;
use crate::output::say;
use clap::{Args, Subcommand};
use gemcnn_experiments::digits;
use std::path::PathBuf;

/// Download a public data set.
#[derive(Args)]
pub struct Fetch {
    #[command(subcommand)]
    set: Set,
}

#[derive(Subcommand)]
enum Set {
    /// The MNIST digits: four files, 11 MB, downloaded by the program `curl`.
    ///
    /// Run the command again to continue an interrupted download. Existing files are checked and kept.
    Mnist {
        /// Directory for the files.
        #[arg(value_name = "DIR", default_value = "mnist")]
        directory: PathBuf,
        /// Base URL of the files.
        #[arg(long, value_name = "URL", default_value = digits::BASE_URL)]
        base_url: String,
    },
}

impl Fetch {
    pub fn run(self) -> Result<(), Failure> {
        let Set::Mnist { directory, base_url } = self.set;
        digits::fetch(&directory, &base_url, &mut say).map_err(Failure::input)
    }
}
