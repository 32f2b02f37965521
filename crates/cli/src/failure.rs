//! How a command ends badly, and the exit status that says so.

use std::fmt::Display;
use std::process::ExitCode;

/// Why a command stopped.
#[derive(Debug)]
pub enum Failure {
    /// An input was bad: status 1.
    Input(String),
    /// The command was: status 2.
    Usage(String),
    /// Everything was said already, one message for each bad input: status 1.
    Reported,
    /// The user stopped it: status 130, as shells have it for Ctrl-C.
    Interrupted(String),
    /// Whoever read the output has gone: no message, status 0.
    OutputClosed,
}

impl Failure {
    /// Status of a command that the user stopped.
    pub const INTERRUPTED: u8 = 130;

    pub fn input(message: impl Display) -> Self {
        Self::Input(message.to_string())
    }

    pub fn usage(message: impl Display) -> Self {
        Self::Usage(message.to_string())
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
