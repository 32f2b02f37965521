//! `gemcnn experiment nonlinearity-cost`: time and memory over the number of samples.

use super::files;
use crate::device::DeviceArgs;
use crate::failure::Failure;
use crate::output::{count, grouped, print};
use crate::progress;
use clap::Args;
use gemcnn_experiments::nonlinearity_cost::{PAPER, Report, Settings, run};
use gemcnn_nn::ProductMode;
use std::fmt::Write;
use std::path::PathBuf;

/// Measure the cost of the regular nonlinearity: the paper's table of time and memory.
///
/// Trains the correspondence network for a few steps with a batch of one mesh, without the nonlinearity and
/// with several numbers of samples. Then times the nonlinearity alone, by matrices and by Fourier
/// transforms. Writes results.json and figures to OUT.
#[derive(Args)]
pub struct NonlinearityCostCommand {
    /// Directory for results and figures [default: runs/nonlinearity-cost; with --quick
    /// runs/nonlinearity-cost-quick]
    #[arg(long, value_name = "OUT")]
    out: Option<PathBuf>,

    /// Run a trial of a few seconds on a small mesh.
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    device: DeviceArgs,
}

impl NonlinearityCostCommand {
    pub fn run(self) -> Result<(), Failure> {
        let settings = if self.quick { Settings::quick() } else { Settings::default() };
        let directory = files::directory(self.out, "nonlinearity-cost", self.quick);
        files::make(&directory)?;
        let device = self.device.open(ProductMode::F32)?;
        let report = progress::during("measuring", || run(&settings, &device)).map_err(Failure::input)?;
        let written = files::write(&directory, &report, &report.figures())?;
        print(&(tables(&report) + "\n" + &written))
    }
}

fn tables(report: &Report) -> String {
    let mut text = format!(
        "Correspondence network, {} vertices, batch 1, {}, {}\n\n\
         {:>7} {:>9} {:>9} {:>9} {:>8}   {:>13} {:>8}\n",
        grouped(report.vertices),
        report.device,
        count(report.threads, "thread", "threads"),
        "samples",
        "step",
        "forward",
        "epoch",
        "memory",
        "paper: epoch",
        "memory",
    );
    let number = |samples: Option<usize>| samples.map_or("none".into(), |n| n.to_string());
    // Writing to a string does not fail.
    for row in &report.epochs {
        let paper = PAPER.iter().find(|paper| paper.samples == row.samples);
        let _ = writeln!(
            text,
            "{:>7} {:>6.1} ms {:>6.1} ms {:>7.2} s {:>5.1} MB   {:>13} {:>8}",
            number(row.samples),
            1e3 * row.step_seconds,
            1e3 * row.inference_seconds,
            row.epoch_seconds,
            row.memory_bytes as f64 / 1e6,
            paper.map_or(String::new(), |paper| format!("{:.1} s", paper.seconds)),
            paper.map_or(String::new(), |paper| format!("{:.2} GB", paper.gigabytes)),
        );
    }
    text
}
