//! `gemcnn data fetch`: downloads of public data sets.

use crate::failure::Failure;
use crate::output;
use clap::{Args, Subcommand};
use gemcnn_experiments::digits::{self, Download};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::path::PathBuf;

/// Download a public data set.
#[derive(Args)]
pub struct Fetch {
    #[command(subcommand)]
    set: Set,
}

#[derive(Subcommand)]
enum Set {
    /// The MNIST digits: four files, 11 MB.
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
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}") {
            bar.set_style(style);
        }
        let say = |line: String| bar.suspend(|| output::say(line));
        let result = digits::fetch(&directory, &base_url, &mut |download| match download {
            Download::Present { path } => say(format!("{}: exists", path.display())),
            Download::Done { path } => say(format!("{}: downloaded, checksum matches", path.display())),
            Download::Again { name, problem } => {
                say(format!("{name}: retrying after {problem}"));
            }
            Download::Progress { name, received, total } => {
                bar.set_message(name.to_owned());
                if let Some(total) = total {
                    bar.set_length(total);
                }
                bar.set_position(received);
            }
        });
        bar.finish_and_clear();
        result.map_err(Failure::input)
    }
}
