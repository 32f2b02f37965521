//! Label smoothing, averaged weights, early stopping and the selection of a model.

use crate::spheres::{Run, Spheres, StopAfter, tensors, timeless};
use gemcnn_nn::{Archive, Device, FeatureType, Network};
use gemcnn_tasks::Task;
use gemcnn_tasks::data::{BodiesConfig, Cache, DataConfig};
use gemcnn_tasks::run::train;
use gemcnn_tasks::train::{
    Event, Interval, Observer, Outcome, RunConfig, RunDirectory, ScheduleConfig, Scores, Silent, StopFlag, read_metrics,
};
use std::collections::HashMap;
use std::path::Path;

#[test]
fn losses_are_smoothed_in_training_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new();
    run.network = Network::builder(FeatureType::scalars(3)).linear(2);
    run.held_out = Spheres::halves(6);
    // Weights stay as they are.
    run.config.rate = 1e-30;
    run.config.epochs = 1;
    let mut losses = |smoothing: f64| {
        run.config.smoothing = smoothing;
        let last = run.whole(&folder.path().join(format!("{smoothing}")));
        let loss = |scores: Option<Scores>| scores.unwrap().loss;
        (loss(last.training), loss(last.held_out))
    };
    let (plain, smoothed) = (losses(0.0), losses(0.5));
    assert_eq!(plain.1, smoothed.1);
    assert!((plain.0 - plain.1).abs() < 1e-6);
    assert!((smoothed.0 - smoothed.1).abs() > 1e-3, "{smoothed:?}");
}

#[test]
fn models_have_averaged_weights_and_the_statistics_of_training() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut run = Run::new();
    run.config.average = 0.9;
    run.config.keep_best = true;
    let averaged = run.whole(&path);
    let checkpoint = Archive::read(path.join("checkpoint.safetensors")).unwrap();
    let averages: HashMap<_, _> = tensors(&checkpoint, "optimiser/average/").into_iter().collect();
    let model: HashMap<_, _> = tensors(&run.final_model(&path), "weights/").into_iter().collect();
    let mut statistics = 0;
    for (name, weights) in tensors(&checkpoint, "weights/") {
        match averages.get(&name) {
            Some(average) => {
                assert_eq!(model[&name], *average, "{name}");
                assert_ne!(model[&name], weights, "{name}");
            }
            None => {
                assert_eq!(model[&name], weights, "{name}");
                statistics += 1;
            }
        }
    }
    assert!(statistics > 0 && averages.len() > statistics);
    // The average does not change what is trained, but what is evaluated.
    run.config.average = 0.0;
    let plain = run.whole(&folder.path().join("plain"));
    assert_eq!(plain.training, averaged.training);
    assert_ne!(plain.held_out, averaged.held_out);
}

/// A run that reaches its best accuracy after some epochs, and ends.
fn early() -> Run {
    let mut run = Run::new();
    run.network = Network::builder(FeatureType::scalars(3)).linear(2);
    run.validates = true;
    run.config.schedule = ScheduleConfig::Constant {};
    run.config.epochs = 80;
    run.config.patience = 3;
    run.config.evaluate_every = 2;
    run.config.keep_best = true;
    run.config.average = 0.8;
    run
}

#[test]
fn training_ends_early_with_the_model_of_the_best_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut run = early();
    let outcome = run.train(&path, &mut Silent, &StopFlag::new()).unwrap();
    let Outcome::Finished { last, model } = outcome else { panic!("{outcome:?}") };
    let records = read_metrics(&path.join("metrics.jsonl")).unwrap();
    let accuracies = records.iter().filter_map(|r| Some((r.epoch, r.held_out?.accuracy?)));
    let mut best = (0, 0.0);
    let mut kept = Vec::new();
    for (epoch, accuracy) in accuracies {
        if accuracy > best.1 {
            best = (epoch, accuracy);
            kept.push(epoch);
        }
    }
    assert_eq!(best.0, model);
    assert_eq!(last.epoch, model + 2 * 3, "three evaluations later");
    assert!(model > 2 && last.epoch < 80, "{model}");
    let flagged = records.iter().filter(|r| r.best).map(|r| r.epoch);
    assert_eq!(flagged.collect::<Vec<_>>(), kept);
    // The final model is that of a run that was stopped after the best epoch.
    let found = tensors(&run.final_model(&path), "weights/");
    let stopped = folder.path().join("stopped");
    let stop = StopFlag::new();
    let mut observer = StopAfter { steps: 2 * model, stop: stop.clone() };
    run.train(&stopped, &mut observer, &stop).unwrap();
    let stopped = Archive::read(stopped.join("checkpoint.safetensors")).unwrap();
    assert_eq!(found, tensors(&stopped, "optimiser/average/"));
    let file = Archive::read(path.join("best.safetensors")).unwrap();
    assert_eq!(found, tensors(&file, "weights/"));
    // Without a validation split, the final model is that of the last epoch.
    run.validates = false;
    let checkpoint = Archive::read(path.join("checkpoint.safetensors")).unwrap();
    let last = tensors(&checkpoint, "optimiser/average/");
    assert_eq!(tensors(&run.final_model(&path), "weights/"), last);
    assert_ne!(found, last);
}

#[test]
fn early_stopping_resumes_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    let mut run = early();
    let last = run.whole(&whole);
    run.config.checkpoint = Interval::Steps(5);
    let mut stops = 0;
    let outcome = loop {
        let stop = StopFlag::new();
        let mut observer = StopAfter { steps: 1 + stops % 4, stop: stop.clone() };
        match run.train(&parts, &mut observer, &stop).unwrap() {
            Outcome::Stopped { .. } => stops += 1,
            finished => break finished,
        }
    };
    assert!(stops >= 3, "{stops}");
    assert_eq!(timeless(&whole), timeless(&parts));
    let best = |path: &Path| std::fs::read(path.join("best.safetensors")).unwrap();
    assert!(best(&whole) == best(&parts));
    // It is finished: nothing is trained when it is resumed.
    let before = std::fs::read(parts.join("checkpoint.safetensors")).unwrap();
    let stop = StopFlag::new();
    stop.request();
    assert_eq!(run.train(&parts, &mut Silent, &stop).unwrap(), outcome);
    assert!(before == std::fs::read(parts.join("checkpoint.safetensors")).unwrap());
    let Outcome::Finished { last: again, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!((again.epoch, again.held_out), (last.epoch, last.held_out));
}

/// Keeps all notes.
#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn observe(&mut self, event: Event<'_>) {
        if let Event::Note(note) = event {
            self.0.push(note.into());
        }
    }
}

#[test]
fn a_share_of_the_training_part_selects_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = RunConfig::new(Task::Correspondence);
    config.data = DataConfig::Bodies(BodiesConfig { count: 10, vertices: 500, ..Default::default() });
    config.training.epochs = 3;
    config.training.keep_best = true;
    config.training.validation = 0.25;
    let run = RunDirectory::create(&folder.path().join("run")).unwrap();
    let mut notes = Notes::default();
    let cache = Cache::none();
    let stop = StopFlag::new();
    let outcome = train(&config.checked().unwrap(), &run, &cache, &Device::Cpu, &mut notes, &stop).unwrap();
    let Outcome::Finished { last, model } = outcome else { panic!("{outcome:?}") };
    assert_eq!(last.held_out.unwrap().counted, 2 * 500);
    assert!(notes.0.iter().any(|note| note.starts_with("2 of 8 ")), "{notes:?}", notes = notes.0);
    let best = read_metrics(&run.metrics()).unwrap();
    assert_eq!(best.iter().rfind(|r| r.best).unwrap().epoch, model);
    let bytes = |path| std::fs::read(path).unwrap();
    assert!(bytes(run.model()) == bytes(run.best()));
}
