//! The command `gemcnn`, with the feature and the model of this crate:
//! `cargo run --release -p gemcnn-extending -- train segmentation --data DIR --features angle_defect --model branches`.

use std::process::ExitCode;

fn main() -> ExitCode {
    gemcnn_extending::register();
    gemcnn::main()
}
