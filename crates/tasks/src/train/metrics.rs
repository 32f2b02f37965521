//! Scores, and the metrics file with one JSON object for each epoch.

use super::run_directory::RunDirectory;
use crate::{Result, TaskError};
use gemcnn_mesh::write_atomically;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Scores of a model on some samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Mean loss, weighted by the class weights if there are any. In regression, the loss of the scaled targets.
    pub loss: f64,
    /// Fraction of correct predictions; `None` in regression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Root mean squared length of the difference, in units of the targets; only in evaluations of regression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Number of vertices or meshes with a known target.
    pub counted: u64,
}

impl Scores {
    /// What evaluations are compared by: the fraction of wrong predictions, or the error.
    pub(crate) fn selection_error(&self) -> f64 {
        match self.accuracy {
            Some(accuracy) => 1.0 - accuracy,
            None => self.error.unwrap_or(self.loss),
        }
    }
}

impl Record {
    /// What evaluations are compared by, the smaller the better: that of changed copies if there are any; `None` without
    /// an evaluation.
    pub(crate) fn selection_error(&self) -> Option<f64> {
        self.robust.or(self.held_out).map(|scores| scores.selection_error())
    }
}

/// Number of evaluations after the best one, the first of equal ones.
pub(super) fn evaluations_since_best(records: &[Record]) -> u64 {
    let (mut least, mut since) = (f64::INFINITY, 0);
    for error in records.iter().filter_map(|record| record.selection_error()) {
        if error < least { (least, since) = (error, 0) } else { since += 1 }
    }
    since
}

/// Sums over batches for [`Scores`].
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Sum of the losses of batches times their weights.
    loss: f64,
    weight: f64,
    squares: Option<f64>,
    correct: Option<u64>,
    counted: u64,
}

/// Scores of one batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BatchScores {
    /// Mean loss, weighted by class weights.
    pub loss: f64,
    /// Sum of the weights.
    pub weight: f64,
    /// Mean squared length of the difference, in evaluations of regression.
    pub mean_square: Option<f64>,
    /// Number of correct predictions, for classes.
    pub correct: Option<u64>,
    /// Number of vertices or meshes with a known target.
    pub counted: u64,
}

impl Tally {
    pub fn add(&mut self, batch: BatchScores) {
        self.loss += batch.loss * batch.weight;
        self.weight += batch.weight;
        self.counted += batch.counted;
        if let Some(mean_square) = batch.mean_square {
            *self.squares.get_or_insert(0.0) += mean_square * batch.counted as f64;
        }
        if let Some(correct) = batch.correct {
            *self.correct.get_or_insert(0) += correct;
        }
    }

    /// The scores; `None` if no target was known.
    pub fn scores(&self) -> Option<Scores> {
        let count = self.counted as f64;
        (self.counted > 0).then(|| Scores {
            // Without weight, the loss is 0.
            loss: self.loss / self.weight.max(f64::MIN_POSITIVE),
            accuracy: self.correct.map(|correct| correct as f64 / count),
            error: self.squares.map(|squares| (squares / count).sqrt()),
            counted: self.counted,
        })
    }
}

/// A line of `metrics.jsonl`: the record of an epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The epoch, from 1.
    pub epoch: u64,
    /// Steps since the start of the run.
    pub step: u64,
    /// Learning rate of the last step.
    pub rate: f64,
    /// Training scores, with dropout and with weights that change from step to step.
    pub training: Option<Scores>,
    /// Scores on held-out meshes after the epoch, if it was evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out: Option<Scores>,
    /// Scores on changed copies of the held-out meshes, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub robust: Option<Scores>,
    /// True if this model became `best.safetensors`, which `keep_best` asks for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub best: bool,
    /// Seconds of training since the start of the run, without evaluations and checkpoints.
    pub seconds: f64,
    /// Meshes per second in this epoch.
    pub meshes_per_second: f64,
}

/// The open `metrics.jsonl` of a run.
#[derive(Debug)]
pub(super) struct MetricsLog {
    path: PathBuf,
    file: File,
}

impl MetricsLog {
    /// Rewrites the file with the records of a checkpoint. Later records and an incomplete last line of a
    /// killed process are dropped.
    pub fn rewrite(path: &Path, records: &[Record]) -> Result<Self> {
        let mut text = String::new();
        for record in records {
            text.push_str(&line(record)?);
        }
        let file = write_atomically(path, |file| file.write_all(text.as_bytes()))
            .and_then(|()| OpenOptions::new().append(true).open(path))
            .map_err(TaskError::file(path))?;
        Ok(Self { path: path.into(), file })
    }

    pub fn append(&mut self, run: &RunDirectory, record: &Record) -> Result<()> {
        let line = line(record)?;
        let write = || {
            let before = self.file.metadata()?.len();
            let written = self.file.write_all(line.as_bytes());
            if written.is_err() {
                // A part of a line may be there.
                self.file.set_len(before)?;
            }
            written
        };
        run.with_reserve(write).map_err(TaskError::file(&self.path))
    }
}

fn line(record: &Record) -> Result<String> {
    let text = serde_json::to_string(record).map_err(|error| TaskError::setting("metrics", error.to_string()))?;
    Ok(text + "\n")
}

/// Reads the `metrics.jsonl` of a run.
///
/// # Errors
/// A file that cannot be read, or an invalid line. An incomplete last line, which a running process may be
/// writing, is skipped.
pub fn read_metrics(path: &Path) -> Result<Vec<Record>> {
    let text = std::fs::read_to_string(path).map_err(TaskError::file(path))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut records = Vec::new();
    for (index, line) in whole.lines().enumerate() {
        records.push(serde_json::from_str(line).map_err(|error| {
            let place = format!("{}, line {}", path.display(), index + 1);
            TaskError::setting(place, error.to_string())
        })?);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(epoch: u64) -> Record {
        Record {
            epoch,
            step: 20 * epoch,
            rate: 0.1 + 0.2,
            training: Some(Scores { loss: 1.0 / 3.0, accuracy: Some(2.0 / 3.0), error: None, counted: 12 }),
            held_out: None,
            robust: None,
            best: false,
            seconds: 0.7,
            meshes_per_second: 11.0,
        }
    }

    #[test]
    fn batches_count_by_their_size() {
        let mut tally = Tally::default();
        assert_eq!(tally.scores(), None);
        let batch = |loss, correct, counted| BatchScores {
            loss,
            weight: counted as f64,
            mean_square: Some(4.0),
            correct: Some(correct),
            counted,
        };
        tally.add(batch(1.0, 0, 1));
        tally.add(batch(2.0, 3, 3));
        tally.add(batch(0.0, 0, 0));
        let scores = tally.scores().unwrap();
        assert_eq!(scores.loss, 1.75);
        assert_eq!((scores.accuracy, scores.error), (Some(0.75), Some(2.0)));
    }

    #[test]
    fn evaluations_are_counted_from_the_first_of_the_best() {
        let evaluated = |accuracy: Option<f64>| Record {
            held_out: accuracy.map(|accuracy| Scores { loss: 1.0, accuracy: Some(accuracy), error: None, counted: 8 }),
            ..record(1)
        };
        let mut records = Vec::new();
        let accuracies = [None, Some(0.5), None, Some(0.75), Some(0.75), None, Some(0.5), Some(0.875)];
        let since = accuracies.map(|accuracy| {
            records.push(evaluated(accuracy));
            evaluations_since_best(&records)
        });
        assert_eq!(since, [0, 0, 0, 0, 1, 1, 2, 0]);
        // The score of changed copies comes first.
        records[1].robust = Some(Scores { loss: 1.0, accuracy: Some(1.0), error: None, counted: 8 });
        assert_eq!(evaluations_since_best(&records), 4);
    }

    #[test]
    fn losses_count_by_the_weights_of_classes() {
        let batch = |loss, weight| BatchScores { loss, weight, mean_square: None, correct: Some(50), counted: 100 };
        let mut tally = Tally::default();
        tally.add(batch(0.0, 0.0));
        assert_eq!(tally.scores().unwrap().loss, 0.0);
        tally.add(batch(1.0, 30.0));
        tally.add(batch(3.0, 10.0));
        let scores = tally.scores().unwrap();
        assert_eq!((scores.loss, scores.accuracy), (1.5, Some(0.5)));
    }

    #[test]
    fn a_log_goes_on_where_a_checkpoint_was() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(&folder.path().join("run")).unwrap();
        let path = run.metrics();
        let mut log = MetricsLog::rewrite(&path, &[]).unwrap();
        log.append(&run, &record(1)).unwrap();
        log.append(&run, &record(2)).unwrap();
        log.file.write_all(b"{\"epoch\":3,\"st").unwrap();
        assert_eq!(read_metrics(&path).unwrap(), [record(1), record(2)]);
        let mut log = MetricsLog::rewrite(&path, &[record(1)]).unwrap();
        log.append(&run, &record(2)).unwrap();
        assert_eq!(read_metrics(&path).unwrap(), [record(1), record(2)]);
        std::fs::write(&path, "{\"epoch\":1}\n").unwrap();
        match read_metrics(&path).unwrap_err() {
            TaskError::Setting { what, .. } => {
                assert!(what.ends_with("metrics.jsonl, line 1"), "{what}");
            }
            other => panic!("{other}"),
        }
    }
}
