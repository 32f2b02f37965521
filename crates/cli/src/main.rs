//! The command `gemcnn`.

use std::process::ExitCode;

fn main() -> ExitCode {
    gemcnn::main()
}
