//! Training through the public API, on small spheres: learning, stopping and resuming to the same bits,
//! and what happens when something goes wrong.

use crate::spheres::{Run, Spheres, StopAfter, hidden_layers, timeless};
use gemcnn_nn::layers::GlobalPool;
use gemcnn_nn::{Device, FeatureType, Network, Target};
use gemcnn_tasks::data::{BodiesConfig, Cache, DataConfig};
use gemcnn_tasks::run::train;
use gemcnn_tasks::train::{
    BatchSize, BundledModel, Checked, ClassWeights, Interval, OptimiserConfig, Outcome, PenaltyChoice, RunConfig,
    RunDirectory, ScheduleConfig, Silent, StopFlag, TrainedModel, read_metrics,
};
use gemcnn_tasks::{Task, TaskError};
use serde_json::json;
use std::path::Path;

#[test]
fn halves_are_learned() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new();
    run.config.epochs = 40;
    run.config.evaluate_every = 20;
    let last = run.whole(&folder.path().join("run"));
    let scores = last.held_out.unwrap();
    assert!(scores.accuracy.unwrap() > 0.95, "{scores:?}");
    assert_eq!(scores.counted, 42 + 162 + 42 - 3);
    let records = read_metrics(&folder.path().join("run/metrics.jsonl")).unwrap();
    assert!(records.iter().map(|r| r.epoch).eq(1..=40));
    let evaluated = records.iter().filter(|r| r.held_out.is_some());
    assert!(evaluated.map(|r| r.epoch).eq([20, 40]));
    assert!(records[0].training.unwrap().loss > records[39].training.unwrap().loss);
    assert!(records[0].rate > 0.0099 && records[39].rate < 0.0001);
}

#[test]
fn meshes_are_classified() {
    let folder = tempfile::tempdir().unwrap();
    let size = |features: &[f32]| Target::Classes(vec![u32::from(features.len() > 200)]);
    let mut run = Run::new();
    run.training = Spheres::new(6, size);
    run.held_out = Spheres::new(4, size);
    run.network = hidden_layers().global_pool(GlobalPool::Mean).head(8, 2);
    let scores = run.whole(&folder.path().join("run")).held_out.unwrap();
    assert_eq!(scores.counted, 4);
    assert!(scores.accuracy.is_some());
}

#[test]
fn values_are_regressed_where_they_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let height = |features: &[f32]| {
        let mut values: Vec<f32> = features.chunks(3).map(|row| 2.0 * row[2]).collect();
        values[5] = f32::NAN;
        Target::Values(values)
    };
    let mut run = Run::new();
    run.training = Spheres::new(6, height);
    run.held_out = Spheres::new(2, height);
    run.network = hidden_layers().head(8, 1);
    run.config.epochs = 40;
    run.learned = Target::Values(FeatureType::scalars(1));
    for penalty in [PenaltyChoice::MeanSquare, PenaltyChoice::L1] {
        run.config.penalty = penalty;
        let path = folder.path().join(format!("{penalty:?}"));
        let scores = run.whole(&path).held_out.unwrap();
        assert_eq!(scores.counted, 42 + 162 - 2);
        // Values are spread by more than 1.1 about their mean.
        assert!(scores.error.unwrap() < 0.5, "{penalty:?}: {scores:?}");
    }
}

#[test]
fn values_are_learned_in_any_units() {
    let folder = tempfile::tempdir().unwrap();
    // Pressures of the air: large, and little spread about their mean.
    let pressure = |features: &[f32]| {
        let rows = features.chunks(3);
        Target::Values(rows.map(|row| 101_325.0 + 1000.0 * row[2]).collect())
    };
    let mut run = Run::new();
    run.training = Spheres::new(6, pressure);
    run.held_out = Spheres::new(2, pressure);
    run.network = hidden_layers().head(8, 1);
    run.config.epochs = 40;
    run.learned = Target::Values(FeatureType::scalars(1));
    let scores = run.whole(&folder.path().join("scaled")).held_out.unwrap();
    // Values are spread by more than 550; the loss is in units of that.
    assert!(scores.error.unwrap() < 250.0, "{scores:?}");
    assert!(scores.loss < 0.2, "{scores:?}");
    run.config.scale_targets = false;
    let scores = run.whole(&folder.path().join("plain")).held_out.unwrap();
    assert!(scores.error.unwrap() > 1000.0, "{scores:?}");
    let relative = scores.error.unwrap().powi(2) / scores.loss;
    assert!((relative - 1.0).abs() < 1e-3, "{scores:?}");
}

#[test]
fn models_are_kept_from_when_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut run = Run::new();
    // Nothing changes, so that no epoch is better than the first.
    run.network = Network::builder(FeatureType::scalars(3)).linear(2);
    run.config.rate = 1e-30;
    let stop = StopFlag::new();
    let mut observer = StopAfter { steps: 5, stop: stop.clone() };
    run.train(&path, &mut observer, &stop).unwrap();
    assert!(!path.join("best.safetensors").exists());
    run.config.keep_best = true;
    run.whole(&path);
    assert!(path.join("best.safetensors").exists());
}

#[test]
fn a_request_to_stop_is_heard_while_meshes_are_prepared() {
    let folder = tempfile::tempdir().unwrap();
    let bodies = BodiesConfig { count: 5, vertices: 500, ..Default::default() };
    let mut config = RunConfig::new(Task::Correspondence);
    config.data = DataConfig::Bodies(bodies);
    config.training.epochs = 1;
    let config = config.checked().unwrap();
    let run = RunDirectory::create(&folder.path().join("run")).unwrap();
    let stop = StopFlag::new();
    stop.request();
    let go = |stop: &StopFlag| {
        let cache = Cache::none();
        train(&config, &run, &cache, &Device::Cpu, &mut Silent, stop).unwrap()
    };
    assert_eq!(go(&stop), Outcome::Stopped { epoch: 0, step: 0 });
    assert!(run.config().exists() && !run.checkpoint().exists());
    assert!(matches!(go(&StopFlag::new()), Outcome::Finished { .. }));
}

#[test]
fn a_run_stopped_anywhere_ends_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    let mut run = Run::new();
    run.config.schedule = ScheduleConfig::Plateau { factor: 0.5, patience: 0, threshold: 0.2, held_out: false };
    run.config.class_weights = ClassWeights::Balanced;
    run.config.calibrate = true;
    run.config.smoothing = 0.1;
    run.config.average = 0.9;
    run.whole(&whole);
    // Checkpoints do not change what is learned.
    run.config.checkpoint = Interval::Steps(3);
    let mut stops = 0;
    loop {
        let stop = StopFlag::new();
        let mut observer = StopAfter { steps: 1 + stops % 2, stop: stop.clone() };
        match run.train(&parts, &mut observer, &stop).unwrap() {
            Outcome::Finished { .. } => break,
            Outcome::Stopped { .. } => stops += 1,
        }
    }
    assert!(stops >= 5, "{stops}");
    assert_eq!(timeless(&whole), timeless(&parts));
    let records = |path: &Path| {
        let mut records = read_metrics(&path.join("metrics.jsonl")).unwrap();
        for record in &mut records {
            (record.seconds, record.meshes_per_second) = (0.0, 0.0);
        }
        records
    };
    assert_eq!(records(&whole), records(&parts));
    let rates: Vec<f64> = records(&whole).iter().map(|r| r.rate).collect();
    assert!(rates[4] < rates[0], "the plateau rule acted: {rates:?}");
    // Once more: there is nothing left to do.
    let before = std::fs::read(parts.join("checkpoint.safetensors")).unwrap();
    run.whole(&parts);
    let after = std::fs::read(parts.join("checkpoint.safetensors")).unwrap();
    assert!(before == after);
}

#[test]
fn augmented_runs_stopped_anywhere_end_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path().join("cache"));
    let surface = "task = 'correspondence'
        features = 'xyz'
        model = { kind = 'surface', blocks = 1, channels = [8, 4, 2], eigenvectors = [16, 8, 8] }
        [augmentation]
        versions = 1
        remeshers = [{ kind = 'jitter', amount = 0.5 }]
        stretch = 0.1
        resample = 0.7";
    let gem = "task = 'correspondence'
        model = { kind = 'gem', blocks = 1, channels = 4 }
        [augmentation]
        every_epoch = true
        remesh = false
        rotate = 'all'
        bend = 0.05";
    let batches = [BatchSize::Meshes(1), BatchSize::Vertices(1000)];
    for ((name, text), batch) in [("surface", surface), ("gem", gem)].into_iter().zip(batches) {
        let mut config = RunConfig::parse(text).unwrap();
        config.data = DataConfig::Bodies(BodiesConfig { count: 5, vertices: 500, ..Default::default() });
        config.training.epochs = 3;
        config.training.batch = batch;
        let config = config.checked().unwrap();
        let go = |config: &Checked<RunConfig>, path: &Path, steps: Option<u64>| {
            let run = match path.exists() {
                true => RunDirectory::open(path).unwrap(),
                false => RunDirectory::create(path).unwrap(),
            };
            let stop = StopFlag::new();
            let mut observer = StopAfter { steps: steps.unwrap_or(u64::MAX), stop: stop.clone() };
            train(config, &run, &cache, &Device::Cpu, &mut observer, &stop).unwrap()
        };
        let path = |kind: &str| folder.path().join(format!("{name}-{kind}"));
        go(&config, &path("whole"), None);
        while let Outcome::Stopped { .. } = go(&config, &path("parts"), Some(5)) {}
        let (whole, parts) = (timeless(&path("whole")), timeless(&path("parts")));
        assert!(whole == parts, "{name}");
    }
}

#[test]
fn divergence_names_the_batch_and_keeps_the_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut run = Run::new();
    run.network = Network::builder(FeatureType::scalars(3)).linear(2);
    // The largest rate, and features far from unit scale.
    run.config.rate = 10.0;
    run.config.optimiser = OptimiserConfig::Sgd { momentum: 0.9 };
    run.config.scale_features = false;
    for sample in &mut run.training.samples {
        sample.features.iter_mut().for_each(|value| *value *= 3e19);
    }
    run.config.schedule = ScheduleConfig::Constant {};
    run.config.checkpoint = Interval::Steps(1);
    let diverge = || {
        let error = run.train(&path, &mut Silent, &StopFlag::new()).unwrap_err();
        let TaskError::Diverged { samples, .. } = &error else { panic!("{error}") };
        assert!(samples.contains("sphere "), "{samples}");
        timeless(&path).0
    };
    let tensors = diverge();
    let is_finite = |bits: &u32| f32::from_bits(*bits).is_finite();
    assert!(tensors.iter().all(|(_, bits)| bits.iter().all(is_finite)));
    assert_eq!(diverge(), tensors);
}

#[test]
fn a_changed_run_is_not_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut run = Run::new();
    run.whole(&path);
    run.settings = json!({"what": "thirds"});
    run.training = Spheres::halves(5);
    match run.refused(&path) {
        TaskError::OtherRun { path, differences } => {
            assert!(path.ends_with("checkpoint.safetensors"));
            let [settings, training] = &differences[..] else { panic!("{differences:?}") };
            for part in ["what", "\"halves\"", "\"thirds\""] {
                assert!(settings.contains(part), "{settings}");
            }
            assert!(training.contains("training"), "{training}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_damaged_checkpoint_is_named_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let run = Run::new();
    run.whole(&path);
    let file = path.join("checkpoint.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() - 100] ^= 0x40;
    let half = &bytes[..bytes.len() / 2];
    for bad in [half, &[], b"garbage garbage garbage", &flipped] {
        std::fs::write(&file, bad).unwrap();
        match run.refused(&path) {
            TaskError::Checkpoint { path, .. } => assert_eq!(path, file),
            other => panic!("{other}"),
        }
        assert!(std::fs::read(&file).unwrap() == bad);
    }
}

#[test]
fn what_does_not_fit_is_said_before_training() {
    let folder = tempfile::tempdir().unwrap();
    let attempt = |name: &str, change: &dyn Fn(&mut Run)| {
        let mut run = Run::new();
        change(&mut run);
        match run.refused(&folder.path().join(name)) {
            TaskError::Setting { what, problem } => (what, problem),
            other => panic!("{other}"),
        }
    };
    let (what, problem) = attempt("outputs", &|run| run.network = hidden_layers().head(8, 3));
    assert_eq!(what, "network");
    assert!(problem.contains("3x0") && problem.contains("2x0"), "{problem}");
    let (what, problem) = attempt("weights", &|run| {
        let weights = vec![1.0; 3];
        run.config.class_weights = ClassWeights::Given { weights };
    });
    assert_eq!(what, "training.class_weights");
    assert!(problem.contains('3') && problem.contains('2'), "{problem}");
    let (what, _) = attempt("empty", &|run| run.training = Spheres::halves(0));
    assert_eq!(what, "data");
    let (what, _) = attempt("unknown", &|run| run.training.samples[1].target = Target::Unknown);
    assert_eq!(what, "sphere 1");
    let (what, problem) = attempt("label", &|run| {
        run.training.samples[2].target = Target::Classes(vec![7; 42]);
    });
    assert_eq!(what, "sphere 2");
    assert!(problem.contains("label 7"), "{problem}");
}

#[test]
fn training_starts_from_the_weights_of_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let bundled = BundledModel::named("bodies-match").unwrap();
    let mut config = RunConfig::parse(bundled.configuration).unwrap();
    config.data = DataConfig::Bodies(BodiesConfig { count: 2, vertices: 500, ..Default::default() });
    config.augmentation.versions = 0;
    (config.training.epochs, config.training.rate) = (1, 1e-6);
    config.training.start = Some("bodies-match".into());
    let trained = |config: &RunConfig, name: &str| {
        let run = RunDirectory::create(&folder.path().join(name))?;
        train(&config.clone().checked()?, &run, &Cache::none(), &Device::Cpu, &mut Silent, &StopFlag::new())?;
        TrainedModel::read(run.path())
    };
    let (model, start) = (trained(&config, "started").unwrap(), bundled.open().unwrap());
    assert_eq!(model.classes.as_ref().map(|classes| classes.count()), Some(500));
    let (mut same, mut other) = (0, Vec::new());
    for parameter in start.parameters.iter() {
        let found = model.parameters.get(model.parameters.find(parameter.name()).unwrap());
        let is_near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-4;
        match found.shape() == parameter.shape() && found.value().iter().zip(parameter.value()).all(is_near) {
            true => same += 1,
            false => other.push(parameter.name().to_owned()),
        }
    }
    // The last layer has other classes.
    assert!(same > 20 && other.len() == 2, "{same} {other:?}");
    config.model = toml::from_str("kind = 'diffusion'\nchannels = 32\neigenvectors = 96").unwrap();
    let refused = trained(&config, "wide").unwrap_err();
    assert!(matches!(&refused, TaskError::Setting { what, .. } if what.contains("training.start")), "{refused}");
}
