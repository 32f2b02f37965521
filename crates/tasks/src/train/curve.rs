//! The learning curve of a run.

use super::metrics::{Record, Scores};
use crate::Result;
use gemcnn_view::plot::{Axis, Chart, Panel, Series};
use std::path::{Path, PathBuf};

/// Plots the loss, and the error rate or the regression error, over epochs. Writes `stem.png` and `stem.svg`
/// and returns their paths.
pub fn draw_curve(title: &str, records: &[Record], stem: &Path) -> Result<[PathBuf; 2]> {
    let epochs = records.last().map_or(1.0, |record| record.epoch as f64);
    let panel = |name: &str, axis: &str, value: fn(Scores) -> Option<f64>| {
        let series = |name: &str, scores: fn(&Record) -> Option<Scores>| {
            let point = |record: &Record| {
                let value = scores(record).and_then(value).filter(|&value| value > 0.0)?;
                Some((record.epoch as f64, value))
            };
            Series::new(name, records.iter().filter_map(point))
        };
        let epoch = Axis::linear("epoch").limits(0.0, epochs);
        Panel::new(name, epoch, Axis::log(axis))
            .series(series("training", |record| record.training))
            .series(series("held out", |record| record.held_out))
    };
    let chart = Chart::new(title).panel(panel("Loss", "loss", |scores| Some(scores.loss)));
    let classifies = (records.iter()).any(|r| r.training.is_some_and(|s| s.accuracy.is_some()));
    let chart = match classifies {
        true => {
            chart.panel(panel("Error rate", "fraction wrong", |scores| scores.accuracy.map(|accuracy| 1.0 - accuracy)))
        }
        false => chart.panel(panel("Error", "root mean square", |scores| scores.error)),
    };
    Ok(chart.write(stem)?)
}
