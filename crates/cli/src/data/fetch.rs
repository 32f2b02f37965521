//! `gemcnn data fetch`: public data sets from the net.

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
    /// An interrupted download goes on where it was when the command is given again. Files that are there
    /// are checked and left alone.
    Mnist {
        /// Where to put the files.
        #[arg(value_name = "DIR", default_value = "mnist")]
        directory: PathBuf,
        /// Address that the names of the files are put after.
        #[arg(long, value_name = "URL", default_value = digits::BASE_URL)]
        base_url: String,
    },
}

impl Fetch {
    pub fn run(self) -> Result<(), Failure> {
        let Set::Mnist {
            directory,
            base_url,
        } = self.set;
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) =
            ProgressStyle::with_template("{msg} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}")
        {
            bar.set_style(style);
        }
        let say = |line: String| bar.suspend(|| output::say(line));
        let result = digits::fetch(&directory, &base_url, &mut |download| match download {
            Download::Present { path } => say(format!("{}: is there", path.display())),
            Download::Done { path } => say(format!("{}: fetched and right", path.display())),
            Download::Again { name, problem } => {
                say(format!("{name}: once more, because of {problem}"));
            }
            Download::Progress {
                name,
                received,
                total,
            } => {
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
