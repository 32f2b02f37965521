//! The report of a run: curves and facts of its epochs.

use gemcnn_tasks::train::{Record, Scores};
use gemcnn_view::page::{Curve, Report, Series};

/// Curves of the loss, of the error rate or the regression error, and of the learning rate.
pub fn curves(records: &[Record]) -> Vec<Curve> {
    let of_scores = |value: fn(Scores) -> Option<f64>| {
        let series = |name: &str, part: fn(&Record) -> Option<Scores>| {
            let point = |record: &Record| Some([record.epoch as f64, part(record).and_then(value)?]);
            Series { name: name.into(), points: records.iter().filter_map(point).collect() }
        };
        vec![series("training", |record| record.training), series("held out", |record| record.held_out)]
    };
    let curve =
        |name: &str, log: bool, series: Vec<Series>| Curve { name: name.into(), over: "epoch".into(), log, series };
    let rates =
        Series { name: "learning rate".into(), points: records.iter().map(|r| [r.epoch as f64, r.rate]).collect() };
    let scores = records.iter().filter_map(|r| r.training.or(r.held_out));
    let classifies = scores.clone().any(|scores| scores.accuracy.is_some());
    let measures = scores.clone().any(|scores| scores.error.is_some());
    let mut curves = vec![curve("Loss", true, of_scores(|scores| Some(scores.loss)))];
    if classifies {
        let wrong = of_scores(|scores| scores.accuracy.map(|accuracy| 1.0 - accuracy));
        curves.push(curve("Error rate", true, wrong));
    }
    if measures {
        let error = of_scores(|scores| scores.error);
        curves.push(curve("Root mean square error", true, error));
    }
    curves.push(curve("Learning rate", false, vec![rates]));
    curves
}

/// A report of the epochs so far.
pub fn of_records(records: &[Record], configuration: &str) -> Report {
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: String| facts.push((name.into(), value));
    if let Some(last) = records.last() {
        fact("Epochs", last.epoch.to_string());
        fact("Training time", time(last.seconds));
        fact("Meshes per second", format!("{:.1}", last.meshes_per_second));
    }
    let evaluated = || records.iter().filter_map(|r| Some((r.epoch, r.held_out?)));
    let accuracy = evaluated().filter_map(|(epoch, scores)| Some((epoch, scores.accuracy?)));
    if let Some((epoch, best)) = accuracy.max_by(|a, b| a.1.total_cmp(&b.1)) {
        fact("Best accuracy", format!("{:.2} % in epoch {epoch}", 100.0 * best));
    }
    let error = evaluated().filter_map(|(epoch, scores)| Some((epoch, scores.error?)));
    if let Some((epoch, best)) = error.min_by(|a, b| a.1.total_cmp(&b.1)) {
        fact("Least error", format!("{best:.4} in epoch {epoch}"));
    }
    Report { facts, curves: curves(records), configuration: configuration.into(), ..Default::default() }
}

/// A time in the units that fit it.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 60.0 => format!("{s:.1} s"),
        s if s < 3600.0 => format!("{:.1} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}
