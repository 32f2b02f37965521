//! Damaged models, checkpoints and cache entries: an error or the same result, never another one.

use gemcnn_mesh::{Mesh, shapes};
use gemcnn_nn::{Archive, Device, NnError, Workspace};
use gemcnn_tasks::data::{Cache, DataConfig, Dataset, Split};
use gemcnn_tasks::models::GemModel;
use gemcnn_tasks::predict::Prediction;
use gemcnn_tasks::run::train;
use gemcnn_tasks::train::{RunConfig, RunDirectory, Silent, StopFlag, TrainedModel};
use gemcnn_tasks::{SampleSource, Task, TaskError};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Mutations of each file.
const MUTATIONS: usize = 500;

/// A finished run on small spheres, labelled by halves, with a validation split.
struct Finished {
    folder: tempfile::TempDir,
    config: RunConfig,
}

impl Finished {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("spheres");
        fs::create_dir(&data).unwrap();
        for index in 0..8 {
            let mesh = shapes::icosphere(1).unwrap();
            let mesh = (mesh.map_vertices(|p| p + 0.02 * f64::from(index) * p.z)).unwrap();
            let half = |p: &gemcnn_mesh::DVec3| if p.z > 0.1 { "1\n" } else { "0\n" };
            let labels: String = mesh.vertices().iter().map(half).collect();
            mesh.write(data.join(format!("{index}.ply"))).unwrap();
            fs::write(data.join(format!("{index}.txt")), labels).unwrap();
        }
        let model = GemModel { channels: 2, scalars: 4, head: 8, ..GemModel::default() };
        let mut config = RunConfig::for_model(Task::Segmentation, model.into());
        config.data = DataConfig::Folder(data);
        config.training.epochs = 2;
        config.training.keep_best = true;
        config.training.validation = 0.25;
        let finished = Self { folder, config };
        finished.train().unwrap();
        finished
    }

    fn run(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    /// Trains, or goes on with the run.
    fn train(&self) -> Result<(), TaskError> {
        let run = RunDirectory::open_or_create(&self.run())?;
        let (cache, stop) = (Cache::none(), StopFlag::new());
        train(&self.config.clone().checked()?, &run, &cache, &Device::Cpu, &mut Silent, &stop).map(drop)
    }
}

/// Labels that a model predicts for a mesh.
fn predict(model: &TrainedModel, mesh: &Mesh) -> Result<Prediction, TaskError> {
    let sample = model.sample("sphere", mesh)?;
    model.predict(&mut Workspace::new(Device::Cpu), &sample)
}

/// The bytes with one fault: flipped, overwritten, cut, doubled, removed or moved.
fn mutated(bytes: &[u8], random: &mut ChaCha8Rng) -> Vec<u8> {
    let mut bad = bytes.to_vec();
    // Every other fault is in the header, where the settings are.
    let header = bytes.len().min(8 + 4096);
    let end = [bytes.len(), header][random.random_range(0..2)];
    let at = random.random_range(0..end);
    let many = random.random_range(1..64).min(bytes.len() - at);
    match random.random_range(0..7) {
        0 | 1 => bad[at] ^= 1 << random.random_range(0..8),
        2 => bad[at..at + many].fill(random.random()),
        3 => bad.truncate(at),
        4 => bad.splice(at..at, bytes[at..at + many].to_vec()).for_each(drop),
        5 => bad.drain(at..at + many).for_each(drop),
        _ => {
            let other = random.random_range(0..bytes.len());
            bad.swap(at, other);
        }
    }
    bad
}

#[test]
fn mutated_models_are_refused_or_predict_the_same() {
    let finished = Finished::new();
    let mesh = shapes::icosphere(2).unwrap();
    for name in ["model.safetensors", "best.safetensors"] {
        let whole = fs::read(finished.run().join(name)).unwrap();
        let file = finished.folder.path().join("mutated.safetensors");
        let load = |bytes: &[u8]| {
            fs::write(&file, bytes).unwrap();
            TrainedModel::read(&file)
        };
        let expected = predict(&load(&whole).unwrap(), &mesh).unwrap();
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut refused = 0;
        for _ in 0..MUTATIONS {
            let bytes = mutated(&whole, &mut random);
            let loaded = load(&bytes);
            // The same bytes in memory are judged alike.
            assert_eq!(TrainedModel::from_bytes(&bytes).is_ok(), loaded.is_ok());
            match loaded {
                Ok(model) => assert_eq!(predict(&model, &mesh).unwrap(), expected),
                Err(TaskError::Model { path, .. }) => {
                    assert_eq!(path, file);
                    refused += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert!(refused > MUTATIONS * 9 / 10, "{refused}");
    }
}

#[test]
fn mutated_checkpoints_are_refused_or_give_the_same_model() {
    let finished = Finished::new();
    let file = finished.run().join("checkpoint.safetensors");
    let model = fs::read(finished.run().join("model.safetensors")).unwrap();
    let whole = fs::read(&file).unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(2);
    for _ in 0..MUTATIONS {
        fs::write(&file, mutated(&whole, &mut random)).unwrap();
        match finished.train() {
            Ok(()) => {
                let again = fs::read(finished.run().join("model.safetensors")).unwrap();
                assert!(again == model);
            }
            Err(TaskError::Checkpoint { path, .. }) => assert_eq!(path, file),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn mutated_cache_entries_are_computed_again() {
    let finished = Finished::new();
    let model = TrainedModel::read(&finished.run()).unwrap();
    let dataset = Dataset::open_for(&finished.config.data, Task::Segmentation).unwrap();
    let folder = finished.folder.path().join("cache");
    let cache = Cache::new(&folder);
    let load = || {
        let split = dataset.split(Split::Test, &model.preparation(), &cache);
        let sample = split.unwrap().load(0).unwrap();
        let prediction = model.predict(&mut Workspace::new(Device::Cpu), &sample);
        (sample.features, prediction.unwrap())
    };
    let expected = load();
    let entries: Vec<PathBuf> = (fs::read_dir(&folder).unwrap().flatten())
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "prepared"))
        .collect();
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    let whole = fs::read(entry).unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(3);
    for _ in 0..MUTATIONS {
        fs::write(entry, mutated(&whole, &mut random)).unwrap();
        assert!(load() == expected);
    }
    assert!(fs::read(entry).unwrap() == whole, "it was not written again");
}

#[test]
fn models_take_other_weights() {
    let finished = Finished::new();
    let file = finished.folder.path().join("tuned.safetensors");
    let model = TrainedModel::read(&finished.run()).unwrap();
    let weights = || model.parameters.iter();
    let doubled = |value: &[f32]| -> Vec<f32> { value.iter().map(|w| 2.0 * w).collect() };
    let first = weights().next().unwrap();
    let (name, new) = (first.name(), doubled(first.value()));
    TrainedModel::rewrite(&finished.run(), &file, &[(name, &new)]).unwrap();
    let tuned = TrainedModel::read(&file).unwrap();
    assert_eq!(tuned.config, model.config);
    for (old, new) in weights().zip(tuned.parameters.iter()) {
        let expected = if new.name() == name { doubled(old.value()) } else { old.value().to_vec() };
        assert_eq!(new.value(), expected, "{}", new.name());
    }
    let written = fs::read(&file).unwrap();
    for (name, values) in [("block9.conv1.weight", &new[..]), (name, &new[1..]), (name, &vec![f32::NAN; new.len()][..])]
    {
        assert!(TrainedModel::rewrite(&finished.run(), &file, &[(name, values)]).is_err());
    }
    assert!(fs::read(&file).unwrap() == written);
}

/// A model file with other settings or weights, and a seal that fits.
fn altered(whole: &Path, alter: impl FnOnce(&mut Archive)) -> Result<TrainedModel, TaskError> {
    let mut archive = Archive::read(whole).unwrap();
    alter(&mut archive);
    archive.set_json("seal", &"").unwrap();
    let seal = blake3::hash(&archive.to_bytes().unwrap()).to_hex();
    archive.set_json("seal", &seal.to_string()).unwrap();
    let file = whole.with_file_name("altered.safetensors");
    archive.write(&file).unwrap();
    TrainedModel::read(&file)
}

#[test]
fn wrong_sizes_are_refused_before_allocation() {
    let finished = Finished::new();
    let whole = finished.run().join("model.safetensors");
    altered(&whole, |_| ()).unwrap();
    let hks = json!({"kind": "hks", "times": usize::MAX});
    for (table, settings) in [
        ("features", json!({"kind": "hks", "times": 100_000_000_000usize})),
        ("features", json!([hks, hks])),
        ("model", json!({"kind": "gem", "channels": 65_536, "band_limit": 64})),
        ("model", json!({"kind": "gem", "blocks": 1000, "channels": 2})),
        ("model", json!({"kind": "graph", "scalars": 65_536, "head": 65_536})),
        ("model", json!({"kind": "angular", "channels": 65_536})),
        ("model", json!({"kind": "unet", "channels": [65_536, 65_536, 65_536]})),
        ("model", json!({"kind": "surface", "channels": [65_536, 65_536, 65_536]})),
    ] {
        let refused = altered(&whole, |archive| {
            let mut config: Value = archive.json("config").unwrap();
            config[table] = settings.clone();
            archive.set_json("config", &config).unwrap();
        });
        let refused = refused.map(drop).unwrap_err();
        assert!(matches!(refused, TaskError::Model { .. }), "{settings}: {refused}");
    }
    for outputs in ["1048576x0", "100000000000x0", "3x0"] {
        let refused = altered(&whole, |archive| archive.set_json("output", &outputs).unwrap());
        assert!(matches!(refused, Err(TaskError::Model { .. })), "{outputs}");
    }
}

#[test]
fn weights_and_outputs_that_are_not_finite_are_refused() {
    let finished = Finished::new();
    let whole = finished.run().join("model.safetensors");
    let names: Vec<String> = (Archive::read(&whole).unwrap().tensor_names()).map(String::from).collect();
    let with = |name: &str, place: usize, value: f32| {
        altered(&whole, |archive| {
            let shape = archive.shape(name).unwrap().to_vec();
            let mut values = archive.tensor::<f32>(name).unwrap();
            values[place] = value;
            archive.set_tensor(name, &shape, &values).unwrap();
        })
    };
    for name in &names {
        for value in [f32::NAN, f32::INFINITY] {
            let refused = with(name, 0, value);
            assert!(matches!(refused, Err(TaskError::Model { .. })), "{name}");
        }
    }
    let refused = altered(&whole, |archive| {
        let mut scaling: Value = archive.json("scaling").unwrap();
        scaling["scale"][1] = json!(0.0);
        archive.set_json("scaling", &scaling).unwrap();
    });
    assert!(matches!(refused, Err(TaskError::Model { .. })));
    // Finite weights, but the outputs overflow, of either class.
    let last = names.iter().rfind(|name| name.ends_with("linear7.weight"));
    let last = last.unwrap_or_else(|| panic!("{names:?}"));
    let mesh = shapes::icosphere(2).unwrap();
    for place in [0, 8] {
        let huge = altered(&whole, |archive| {
            let shape = archive.shape(last).unwrap().to_vec();
            let mut values = archive.tensor::<f32>(last).unwrap();
            values[place..place + 8].fill(f32::MAX);
            archive.set_tensor(last, &shape, &values).unwrap();
        });
        let found = predict(&huge.unwrap(), &mesh);
        assert!(matches!(found, Err(TaskError::Network(NnError::OutputNotFinite))), "{found:?}");
    }
}
