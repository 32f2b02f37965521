//! Output files of experiments.

use crate::failure::Failure;
use crate::output::write_file;
use gemcnn_view::plot::Chart;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The directory given by the user, or `runs/NAME`, with `-quick` appended for a trial.
pub fn directory(asked: Option<PathBuf>, name: &str, quick: bool) -> PathBuf {
    let ending = if quick { "-quick" } else { "" };
    asked.unwrap_or_else(|| PathBuf::from(format!("runs/{name}{ending}")))
}

/// Creates the output directory.
pub fn make(directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory)
        .map_err(|error| Failure::input(format!("{}: {error}", directory.display())))
}

/// Writes the report and the figures. Returns one line for each file.
pub fn write(
    directory: &Path,
    report: &impl Serialize,
    figures: &[(&'static str, Chart)],
) -> Result<String, Failure> {
    let path = directory.join("results.json");
    let json = serde_json::to_string_pretty(report).map_err(Failure::input)?;
    write_file(&path, format!("{json}\n").as_bytes())?;
    let mut lines = format!("{}\n", path.display());
    for (stem, chart) in figures {
        for path in chart.write(&directory.join(stem)).map_err(Failure::input)? {
            lines += &format!("{}\n", path.display());
        }
    }
    Ok(lines)
}
