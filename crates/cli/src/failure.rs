//! Failures of commands and their exit status.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// The problem of a folder in which a command finds no mesh.
pub const NO_MESHES: &str = "the folder has no meshes; give a mesh or a folder of meshes";

/// A failure of a command.
#[derive(Debug)]
pub enum Failure {
    /// An error in the input or the work: status 1.
    Input(String),
    /// A wrong command line: status 2.
    Usage(String),
    /// All errors are reported already: status 1.
    Reported,
    /// Stopped by the user: status 130, the convention for Ctrl-C.
    Interrupted(String),
    /// Standard output was closed: no message, status 0.
    OutputClosed,
}

impl Failure {
    /// Exit status of a command that the user stopped.
    pub const INTERRUPTED: u8 = 130;

    pub fn input(message: impl Display) -> Self {
        Self::Input(message.to_string())
    }

    /// An error at a file or folder, for `map_err`.
    pub fn at<E: Display>(path: &Path) -> impl FnOnce(E) -> Self {
        move |error| Self::Input(format!("{}: {error}", path.display()))
    }

    pub fn usage(message: impl Display) -> Self {
        Self::Usage(message.to_string())
    }

    /// Prints the message to standard error, unless it was reported already.
    pub fn report(&self) {
        // Errors of standard error are ignored.
        let _ = match self {
            Self::Input(message) | Self::Usage(message) => {
                writeln!(std::io::stderr(), "error: {message}")
            }
            Self::Interrupted(message) => writeln!(std::io::stderr(), "{message}"),
            Self::Reported | Self::OutputClosed => Ok(()),
        };
    }

    /// Exit status of the command.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Input(_) | Self::Reported => ExitCode::from(1),
            Self::Usage(_) => ExitCode::from(2),
            Self::Interrupted(_) => ExitCode::from(Self::INTERRUPTED),
            Self::OutputClosed => ExitCode::SUCCESS,
        }
    }
}
