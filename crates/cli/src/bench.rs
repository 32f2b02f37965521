//! `gemcnn bench`: speed, compared with the limits of the machine.

use crate::device::DeviceArgs;
use crate::failure::Failure;
use crate::output::{self, grouped, print};
use crate::progress;
use clap::Args;
use gemcnn_experiments::bench::{self, Extent, Limits, Machine, Report, Row};
use gemcnn_nn::ProductMode;
use std::fmt::Write;
use std::io::{stdin, stdout};
use std::path::PathBuf;

/// Options of `gemcnn bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Measure only work whose name begins with this, such as `training_step`, or work that is measured on request only:
    /// `geometry_`, `features_`, `geodesic_`, `remesh_`, `surface_`, `nonlinearity_`, `classifier_`.
    work: Vec<String>,

    /// Measure one mesh with few repeats, which takes seconds instead of about a minute.
    #[arg(long)]
    quick: bool,

    /// Also measure meshes of 1e3 to 1e6 vertices, and of 1e7 on a GPU, which needs at least 20 GB of main
    /// memory.
    #[arg(long, conflicts_with = "quick")]
    large: bool,

    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,

    /// Plot the time per vertex against the number of vertices, to STEM.png and STEM.svg.
    #[arg(long, value_name = "STEM")]
    figure: Option<PathBuf>,

    /// Do pieces of work on request: our side of bench/compare.
    #[arg(long, hide = true)]
    worker: bool,

    #[command(flatten)]
    device: DeviceArgs,
}

/// Runs `gemcnn bench`.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    let device = args.device.open(ProductMode::default())?;
    if args.worker {
        return device.run(|| bench::serve(&device, stdin().lock(), stdout())).map_err(Failure::input);
    }
    let products = args.device.products().unwrap_or_default();
    let extent = match (args.quick, args.large) {
        (true, _) => Extent::Quick,
        (false, true) => Extent::Large,
        (false, false) => Extent::Standard,
    };
    let report = progress::during("measuring", || bench::run(&device, products, extent, &args.work));
    let report = report.map_err(Failure::input)?;
    print(&if args.json { output::json_line(&report)? } else { table(&report) })?;
    if let Some(stem) = &args.figure {
        report.figure().write(stem).map_err(Failure::input)?;
    }
    Ok(())
}

fn table(report: &Report) -> String {
    let mut text = format!("gemcnn {}\n", report.version);
    text += &machine(&report.machine);
    for limits in &report.limits {
        text += &limit_line(limits);
    }
    text.push('\n');
    let lines = std::iter::once(HEADER.map(String::from).into()).chain(report.rows.iter().map(cells));
    text + &output::table(&lines.collect::<Vec<_>>())
}

fn machine(machine: &Machine) -> String {
    let cpu = machine.cpu.as_deref().unwrap_or("unknown processor");
    let (cores, threads) = (machine.cores, machine.threads);
    let mut text = format!("  CPU    {cpu}, {cores} cores, {threads} threads\n");
    if let Some(gpu) = &machine.gpu {
        let _ = write!(text, "  GPU    {}, CUDA {}", gpu.name, gpu.cuda);
        if let Some(driver) = &gpu.driver {
            let _ = write!(text, ", driver {driver}");
        }
        text.push('\n');
    }
    text
}

fn limit_line(limits: &Limits) -> String {
    format!(
        "  limit  {}: copy {} GB/s, {} product {} GFLOP/s\n",
        limits.device,
        short(limits.copy_bytes_per_s / 1e9),
        limits.matmul,
        short(limits.product_flops_per_s / 1e9)
    )
}

const HEADER: [&str; 10] =
    ["work", "device", "vertices", "median ms", "minimum ms", "ns/vertex", "GB/s", "GFLOP/s", "of limit", "peak MB"];

fn cells(row: &Row) -> Vec<String> {
    vec![
        row.work.replace('_', " "),
        row.device.clone(),
        grouped(row.vertices),
        short(row.median_ms),
        short(row.minimum_ms),
        short(row.ns_per_vertex),
        counted(row.bytes, short(row.bytes_per_s / 1e9)),
        counted(row.flops, short(row.flops_per_s / 1e9)),
        counted(row.bytes, format!("{:.0} %", 100.0 * row.limit_fraction)),
        (row.peak_bytes).map_or_else(String::new, |bytes| short(bytes as f64 / 1e6)),
    ]
}

/// A rate, or nothing if the amount behind it is not counted.
fn counted(amount: u64, rate: String) -> String {
    match amount {
        0 => String::new(),
        _ => rate,
    }
}

/// A positive number to about three digits, with separators of thousands.
fn short(value: f64) -> String {
    match value {
        100.0.. => grouped(value.round() as usize),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_about_three_digits() {
        for (value, text) in [(0.0912, "0.0912"), (1.854, "1.85"), (46.26, "46.3"), (343_671.2, "343,671")] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn the_table_has_a_line_for_every_row() {
        let row = |work: &str, bytes| Row {
            work: work.into(),
            device: "cpu".into(),
            vertices: 6890,
            repeats: 3,
            median_ms: 2.0,
            minimum_ms: 1.5,
            ns_per_vertex: 290.0,
            bytes,
            flops: bytes,
            bytes_per_s: 4e9,
            flops_per_s: 8e9,
            limit_fraction: 0.25,
            peak_bytes: None,
        };
        let text = table(&Report {
            version: "1",
            machine: Machine { cpu: None, cores: 2, threads: 1, gpu: None },
            limits: vec![Limits {
                device: "cpu".into(),
                matmul: "f32",
                copy_bytes_per_s: 1e10,
                product_flops_per_s: 1e11,
            }],
            rows: vec![row("geometry", 100), row("training_step", 0)],
        });
        let lines: Vec<Vec<&str>> = (text.lines()).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 7);
        let numbers = ["cpu", "6,890", "2.00", "1.50", "290", "4.00", "8.00", "25", "%"];
        assert_eq!(lines[5][1..], numbers);
        // What is not counted has no rates.
        assert_eq!(lines[6][2..], numbers[..5]);
    }
}
