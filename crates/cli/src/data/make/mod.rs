//! `gemcnn data make`: synthetic data sets.

mod bodies;
mod pde;

pub use pde::TrajectoryArgs;

use crate::failure::Failure;
use crate::output::write_file;
use clap::{Args, Subcommand};
use gemcnn_mesh::is_leftover;
use std::path::{Path, PathBuf};

/// Generate a data set: a folder of meshes with targets.
#[derive(Args)]
pub struct Make {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Subcommand)]
enum Kind {
    Bodies(bodies::Bodies),
    Pde(pde::Pde),
}

impl Make {
    pub fn run(self) -> Result<(), Failure> {
        match self.kind {
            Kind::Bodies(bodies) => bodies.run(),
            Kind::Pde(pde) => pde.run(),
        }
    }
}

/// A folder whose data set is not complete. Until it is, the options of the command that makes it stand in a file: the
/// same command finishes what was cut off.
struct Unfinished {
    folder: PathBuf,
    mark: PathBuf,
    /// The options of the command.
    command: String,
    is_begun: bool,
}

impl Unfinished {
    /// Checks that the folder is empty, or holds what the same command has made before it was cut off.
    fn new(folder: &Path, command: String) -> Result<Self, Failure> {
        let refuse = |problem: String| {
            let folder = folder.display();
            Err(Failure::input(format!("{folder} {problem}")))
        };
        let mark = folder.join(".gemcnn-unfinished");
        let is_begun = match std::fs::read_to_string(&mark) {
            Ok(found) if found.trim_end() == command => true,
            Ok(found) => {
                let found = found.trim_end();
                return refuse(format!(
                    "holds a part of another data set; finish it with `{found}`, or choose a new folder"
                ));
            }
            Err(_) => false,
        };
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        let mut names = entries.flatten().map(|entry| entry.file_name());
        if !is_begun && names.any(|name| !is_leftover(&name.to_string_lossy())) {
            return refuse("is not empty; choose a new folder".into());
        }
        Ok(Self { folder: folder.into(), mark, command, is_begun })
    }

    /// Makes the folder. Returns the file with the command, which processes that write at the same time share as a
    /// lock.
    fn begin(&self) -> Result<&Path, Failure> {
        std::fs::create_dir_all(&self.folder).map_err(Failure::at(&self.folder))?;
        if !self.is_begun {
            write_file(&self.mark, format!("{}\n", self.command).as_bytes())?;
        }
        Ok(&self.mark)
    }

    /// The data set is complete.
    fn finish(self) -> Result<(), Failure> {
        std::fs::remove_file(&self.mark).map_err(Failure::at(&self.mark))
    }
}
