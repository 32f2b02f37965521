//! `gemcnn data check`: contents and problems of a data set.

use crate::failure::Failure;
use crate::kinds;
use crate::output::{count, grouped, json_line, print, say, size, table, time};
use crate::progress;
use clap::Args;
use gemcnn_nn::DeviceChoice;
use gemcnn_tasks::data::{self, ClassCount, DataConfig, Split, SplitCount};
use gemcnn_tasks::{Estimate, Task, estimate, summed_up};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Read a whole data set, and report its contents and all its problems.
///
/// It also prepares a few meshes and makes a few steps of training, to estimate the time, disk and memory that training
/// with the default settings takes on this machine.
///
/// The exit status is 1 if there are problems.
#[derive(Args)]
pub struct Check {
    /// Folder of the data set: with a dataset.toml, with meshes whose targets can be inferred, or with the FAUST
    /// registrations.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Task, if there is no dataset.toml.
    #[arg(long, value_parser = kinds::task())]
    task: Option<Task>,

    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

impl Check {
    pub fn run(self) -> Result<(), Failure> {
        let what = format!("reading {}", self.folder.display());
        let config = DataConfig::Folder(self.folder);
        let check = progress::during(&what, || data::check(&config, self.task));
        let is_trained_on = check.splits.iter().any(|split| split.split == Split::Train && split.meshes > 0);
        let estimate = match is_trained_on {
            true => progress::during("estimating what training takes", || estimated(&config, &check)).ok(),
            false => None,
        };
        print(&match self.json {
            true => json_line(&Report { check: &check, estimate })?,
            false => in_words(&check, estimate),
        })?;
        if !self.json {
            for problem in summed_up(&check.problems) {
                say(format_args!("error: {problem}"));
            }
        }
        if check.problems.is_empty() { Ok(()) } else { Err(Failure::Reported) }
    }
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    check: &'a data::Check,
    estimate: Option<Estimate>,
}

/// An estimate for the device that training would choose.
fn estimated(config: &DataConfig, check: &data::Check) -> Result<Estimate, Failure> {
    let (device, _) = DeviceChoice::default().open().map_err(Failure::input)?;
    estimate(config, check, &device).map_err(Failure::input)
}

fn in_words(check: &data::Check, estimate: Option<Estimate>) -> String {
    let mut text = check.name.clone();
    if let Some(task) = check.task {
        let _ = write!(text, " ({task})");
    }
    text.push('\n');
    for note in &check.notes {
        let _ = writeln!(text, "  note       {note}");
    }
    for split in &check.splits {
        let _ = writeln!(text, "  {:<10} {}", split.split.to_string(), size_of(split, check.task));
    }
    text += &class_table(&check.classes, check.task);
    for range in &check.values {
        let _ =
            writeln!(text, "  value      {}: {:.6} to {:.6}, mean {:.6}", range.name, range.min, range.max, range.mean);
    }
    if let Some(Estimate { preparation, training, epochs, disk, memory }) = estimate {
        let [preparation, training] = [preparation, training].map(|seconds| time(Duration::from_secs_f64(seconds)));
        let (disk, memory) = (size(disk), size(memory));
        let _ = writeln!(
            text,
            "  estimate   training with the default: {preparation} to prepare, {training} for {epochs} epochs on this \
             machine; {disk} of cache, {memory} of memory"
        );
    }
    let verdict = match check.problems.len() {
        0 => "ready to train on".to_string(),
        number => count(number, "problem", "problems"),
    };
    let _ = writeln!(text, "  verdict    {verdict}");
    text
}

fn size_of(split: &SplitCount, task: Option<Task>) -> String {
    if split.meshes == 0 {
        return "no meshes".into();
    }
    let what = match task {
        Some(Task::Classification) => "of unknown class",
        _ => "with unknown target",
    };
    let mut text =
        format!("{}, {}", count(split.meshes, "mesh", "meshes"), count(split.vertices, "vertex", "vertices"));
    let unknown = split.targets.saturating_sub(split.known);
    if unknown > 0 {
        let _ = write!(text, ", {} {what}", grouped(unknown));
    }
    text
}

/// A row for each class: number of vertices and meshes.
fn class_table(classes: &[ClassCount], task: Option<Task>) -> String {
    let cell = |class: &ClassCount, split: Split| {
        let meshes = grouped(class.meshes[split as usize]);
        match task {
            Some(Task::Classification) => meshes,
            _ => format!("{} on {meshes}", grouped(class.vertices[split as usize])),
        }
    };
    let mut rows = vec![vec!["class".to_string(), "label".into()]];
    rows[0].extend(Split::ALL.map(|split| split.to_string()));
    for class in classes {
        let mut row = vec![class.name.clone(), class.label.to_string()];
        row.extend(Split::ALL.map(|split| cell(class, split)));
        rows.push(row);
    }
    if classes.is_empty() {
        return String::new();
    }
    table(&rows)
}
