//! `gemcnn models`: the models that are part of the program.

use crate::failure::Failure;
use crate::output::print;
use clap::{Args, Subcommand};
use gemcnn_tasks::train::BundledModel;
use std::path::PathBuf;

/// Options of `gemcnn models`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ModelsArgs {
    /// Print the card of this model: what it was trained on, how good it is, and where it fails.
    #[arg(value_name = "NAME")]
    name: Option<String>,

    #[command(subcommand)]
    command: Option<ModelsCommand>,
}

#[derive(Debug, Subcommand)]
enum ModelsCommand {
    /// Write the model of a run with weights in half precision: a file of half the size, for use in place of the run.
    Pack {
        /// Run directory, or a model file.
        #[arg(value_name = "RUN")]
        run: PathBuf,

        /// Output file.
        #[arg(short, long, value_name = "OUT.safetensors")]
        output: PathBuf,
    },
}

impl ModelsArgs {
    pub fn run(self) -> Result<(), Failure> {
        match (self.command, self.name) {
            (Some(ModelsCommand::Pack { run, output }), _) => {
                BundledModel::pack(&run, &output).map_err(Failure::input)?;
                let size = std::fs::metadata(&output).map_or(0, |metadata| metadata.len());
                print(&format!("{}: {:.0} kB\n", output.display(), size as f64 / 1e3))
            }
            (None, Some(name)) => match BundledModel::named(&name) {
                Some(model) => {
                    let training = format!("\nThe configuration of its training:\n\n{}", model.configuration);
                    print(&(model.card.to_owned() + &training))
                }
                None => {
                    let names: Vec<&str> = BundledModel::ALL.iter().map(|model| model.name).collect();
                    Err(Failure::usage(format!("there is no bundled model `{name}`, only {}", names.join(", "))))
                }
            },
            (None, None) => {
                let line = |model: &BundledModel| {
                    format!("{:14}{:4.0} kB  {}\n", model.name, model.bytes.len() as f64 / 1e3, model.about())
                };
                print(&BundledModel::ALL.iter().map(line).collect::<String>())
            }
        }
    }
}
