//! Progress of a training run: a bar on a terminal, lines elsewhere.

use crate::output::{count, say, size, time};
use gemcnn_tasks::train::{Event, Observer, Record, Scores, StepReport};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Time between lines within an epoch.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Prints the progress of training to standard error.
pub enum TrainProgress {
    /// Prints nothing.
    Quiet,
    /// Prints lines of epochs above a progress bar.
    Bar(ProgressBar),
    /// Prints lines only.
    Lines {
        /// Time of the last line.
        last: Instant,
    },
}

impl TrainProgress {
    pub fn new(quiet: bool) -> Self {
        if quiet {
            Self::Quiet
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new(0);
            if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:24} {pos}/{len}  {msg}") {
                bar.set_style(style);
            }
            Self::Bar(bar)
        } else {
            Self::Lines { last: Instant::now() }
        }
    }

    /// Prints a line.
    fn say(&mut self, line: &str) {
        match self {
            Self::Quiet => {}
            Self::Bar(bar) => bar.suspend(|| say(line)),
            Self::Lines { last } => {
                say(line);
                *last = Instant::now();
            }
        }
    }

    /// Updates the bar, or prints a line from time to time.
    fn show(&mut self, what: &str, done: u64, total: u64, message: impl FnOnce() -> String) {
        match self {
            Self::Quiet => {}
            Self::Bar(bar) => {
                bar.set_prefix(what.to_owned());
                bar.set_length(total);
                bar.set_position(done);
                bar.set_message(message());
            }
            Self::Lines { last } if last.elapsed() < LINE_INTERVAL => {}
            Self::Lines { last } => {
                say(format_args!("{what}: {done} of {total}  {}", message()));
                *last = Instant::now();
            }
        }
    }
}

impl Observer for TrainProgress {
    fn observe(&mut self, event: Event<'_>) {
        match event {
            Event::Note(note) => self.say(note),
            Event::Preparing { done, first, total, bytes, stored, time_left } => {
                let cache = stored.map_or(String::new(), |stored| format!(", {} of cache", size(stored)));
                let estimate = || format!("{} left, {} of memory{cache}", time(time_left), size(bytes as u64));
                self.show("preparing", done as u64, total as u64, estimate);
                if done == first && done < total && time_left > LINE_INTERVAL {
                    let estimate = estimate();
                    self.say(&format!("prepared {done} of {total} meshes, the others in the first epoch: {estimate}"));
                }
            }
            Event::Started { run, network, epochs, steps, training, held_out } => {
                self.say(&format!(
                    "{network}\n{} for training, {held_out} held out; {} of {}; run directory {}",
                    count(training, "mesh", "meshes"),
                    count(epochs as usize, "epoch", "epochs"),
                    count(steps as usize, "step", "steps"),
                    run.display()
                ));
                if let Self::Bar(bar) = self {
                    bar.set_length(steps);
                    bar.set_message("");
                }
            }
            Event::Resumed { checkpoint, epoch, step, other_device } => {
                self.say(&format!("continuing from {} in epoch {epoch} after {step} steps", checkpoint.display()));
                if let Some(device) = other_device {
                    self.say(&format!(
                        "the checkpoint is from another device ({device}): results will not be \
                         bit-identical"
                    ));
                }
            }
            Event::Model(_) => {}
            Event::StepDone(report) => {
                let what = format!("epoch {}", report.epoch);
                self.show(&what, report.step, report.steps, || describe(report));
            }
            Event::EpochDone(record) => self.say(&summarise(record)),
        }
    }
}

impl Drop for TrainProgress {
    fn drop(&mut self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn describe(report: &StepReport) -> String {
    let mut parts = Vec::new();
    parts.extend(report.loss.map(|loss| format!("loss {loss:.4}")));
    parts.extend(report.accuracy.map(percent));
    parts.push(format!("{:.1} meshes/s", report.meshes_per_second));
    parts.push(format!("{} left", time(report.time_left)));
    parts.join("  ")
}

fn summarise(record: &Record) -> String {
    let part = |name: &str, scores: Option<Scores>| {
        scores.map_or(String::new(), |scores| {
            let mut text = format!("  {name}: loss {:.4}", scores.loss);
            text.extend(scores.accuracy.map(|accuracy| format!(", {}", percent(accuracy))));
            text.extend(scores.error.map(|error| format!(", error {error:.4}")));
            text
        })
    };
    format!(
        "epoch {:>3}{}{}  {:.1} meshes/s",
        record.epoch,
        part("training", record.training),
        part("held out", record.held_out) + &part("robust", record.robust),
        record.meshes_per_second
    )
}

fn percent(share: f64) -> String {
    format!("{:.2} % correct", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_one_line() {
        let scores = |loss, accuracy, error| Scores { loss, accuracy, error, counted: 3 };
        let record = Record {
            epoch: 7,
            step: 140,
            rate: 0.01,
            training: Some(scores(0.5, Some(0.875), None)),
            held_out: Some(scores(0.25, None, Some(1.5))),
            robust: None,
            best: false,
            seconds: 3.0,
            meshes_per_second: 12.34,
        };
        assert_eq!(
            summarise(&record),
            "epoch   7  training: loss 0.5000, 87.50 % correct  held out: loss 0.2500, error 1.5000  \
             12.3 meshes/s"
        );
    }
}
