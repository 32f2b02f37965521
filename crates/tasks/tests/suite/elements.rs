//! Targets of faces, edges and whole meshes, from training to files.

use gemcnn_mesh::remesh::{Jitter, RemeshKind, Subdivide};
use gemcnn_mesh::{AttributeValues, DVec3, Mesh, VertexAttribute, WriteOptions, shapes};
use gemcnn_mesh::{read_mesh, write_mesh_with_faces};
use gemcnn_nn::{Device, Elements, Target, Workspace};
use gemcnn_tasks::data::{Cache, DataConfig, Dataset, Preparation, Split};
use gemcnn_tasks::elements::edges;
use gemcnn_tasks::evaluation::{Evaluation, EvaluationOptions, evaluate};
use gemcnn_tasks::predict::{Prediction, PredictionFiles};
use gemcnn_tasks::run::train;
use gemcnn_tasks::train::{RunConfig, RunDirectory, Silent, StopFlag, TrainedModel};
use gemcnn_tasks::{Element, SampleSource, Task, TaskError};
use std::fs;
use std::path::Path;

/// Spheres of several sizes, each with a bump.
fn sphere(number: usize) -> Mesh {
    let bump = |p: DVec3| p * (1.0 + 0.05 * number as f64 + 0.1 * (3.0 * p.x).sin());
    let sphere = shapes::icosphere(2).unwrap();
    sphere.map_vertices(bump).unwrap()
}

fn middle(mesh: &Mesh, vertices: &[u32]) -> DVec3 {
    let sum: DVec3 = vertices.iter().map(|&v| mesh.vertices()[v as usize]).sum();
    sum / vertices.len() as f64
}

/// 1 above the equator, and 2 below.
fn labels(mesh: &Mesh, per: Element) -> Vec<u32> {
    let label = |vertices: &[u32]| if middle(mesh, vertices).z > 0.0 { 1 } else { 2 };
    match per {
        Element::Face => mesh.faces().iter().map(label).collect(),
        _ => edges(mesh).iter().map(|edge| label(edge)).collect(),
    }
}

fn lines(labels: &[u32]) -> String {
    labels.iter().map(|label| format!("{label}\n")).collect()
}

/// Trains a small network, and returns it with its scores on the test split, and on remeshed meshes.
fn trained(folder: &Path, task: Task) -> (TrainedModel, [Evaluation; 2]) {
    let text = format!(
        "task = '{task}'\nfeatures = 'xyz'\n[data]\nfolder = {folder:?}\n[model]\nkind = 'gem'\nblocks = 1\n\
         channels = 4\nscalars = 8\nhead = 8\ndropout = 0.0\n[geometry]\nnormalise = false\n[augmentation]\nversions = 1\n[training]\nepochs = 30\nrate = 0.02\n"
    );
    let config = RunConfig::parse(&text).unwrap().checked().unwrap();
    let run = RunDirectory::create(&folder.join("run")).unwrap();
    let (cache, device) = (Cache::none(), Device::Cpu);
    train(&config, &run, &cache, &device, &mut Silent, &StopFlag::new()).unwrap();
    let model = TrainedModel::read(run.path()).unwrap();
    let dataset = Dataset::open_for(&config.data, task).unwrap();
    let scores = [
        EvaluationOptions::default(),
        EvaluationOptions { meshing: Some((RemeshKind::Jitter(Jitter { amount: 0.5 }), 1)), ..Default::default() },
    ]
    .map(|options| evaluate(&model, &dataset, options, &cache, &device).unwrap());
    (model, scores)
}

#[test]
fn labels_of_faces_are_learned_at_faces() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..5 {
        let mesh = sphere(number);
        let labels = AttributeValues::U8(labels(&mesh, Element::Face).iter().map(|&l| l as u8).collect());
        let labels = [VertexAttribute::new("split", labels)];
        let path = folder.path().join(format!("s{number}.ply"));
        write_mesh_with_faces(&path, &mesh, &[], &labels, &WriteOptions::default()).unwrap();
    }
    let (model, [scores, remeshed]) = trained(folder.path(), Task::Segmentation);
    assert_eq!((model.per, scores.per), (Element::Face, Element::Face));
    assert_eq!(scores.scores.counted, 320);
    let by_area = |scores: &Evaluation| scores.segmentation.as_ref().unwrap().by_area;
    for scores in [&scores, &remeshed] {
        assert!(scores.scores.accuracy.unwrap() > 0.9, "{scores:?}");
        assert!(by_area(scores) > 0.9, "{scores:?}");
    }
    assert_ne!(by_area(&scores), scores.scores.accuracy.unwrap());
    // Predictions are properties of faces, an array, and a picture with a legend.
    let mesh = sphere(7);
    let sample = model.sample("new", &mesh).unwrap();
    let mut workspace = Workspace::new(Device::Cpu);
    let (classes, probabilities) = model.predict_probabilities(&mut workspace, &sample).unwrap();
    let prediction = model.predict(&mut workspace, &sample).unwrap();
    let per = Element::Face;
    assert_eq!(prediction, Prediction::Classes { per, classes: classes.clone() });
    assert_eq!(probabilities.len(), 2 * 320);
    let out = folder.path().join("out");
    let files = PredictionFiles::new(&out, &model, Some(Default::default())).unwrap();
    let frames = sample.graph().frames();
    let paths = files.write("new", &mesh, frames, &prediction, Some(&probabilities)).unwrap();
    assert_eq!(paths.len(), 4);
    let written = read_mesh(out.join("new.ply")).unwrap();
    assert!(written.attributes.is_empty());
    let column = |name: &str| {
        let mut columns = written.face_attributes.iter();
        let column = columns.find(|column| column.name == name).unwrap();
        column.values.iter_f64().collect::<Vec<f64>>()
    };
    let found: Vec<u32> = column("label").iter().map(|&label| label as u32).collect();
    assert!(found.iter().zip(&classes).all(|(label, class)| *label == class + 1));
    let right = found.iter().zip(labels(&mesh, per)).filter(|(a, b)| *a == b).count();
    assert!(right > 280, "{right}");
    assert!(column("confidence").iter().all(|&share| (0.5..=1.0).contains(&share)));
    assert_eq!(column("probability_2").len(), 320);
}

#[test]
fn labels_of_edges_are_learned_at_edges() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["seg", "sseg"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    for number in 0..5 {
        let mesh = sphere(number);
        mesh.write(folder.path().join(format!("s{number}.obj"))).unwrap();
        let path = folder.path().join(format!("seg/s{number}.eseg"));
        let hard = labels(&mesh, Element::Edge);
        fs::write(path, lines(&hard)).unwrap();
        // Every fourth edge may have no class.
        let soft = hard.iter().enumerate().map(|(edge, &label)| {
            let weight = |class| {
                if class == label && edge % 4 > 0 { "0.5" } else { "0" }
            };
            [1, 2].map(weight).join(" ") + "\n"
        });
        let path = folder.path().join(format!("sseg/s{number}.seseg"));
        fs::write(path, soft.collect::<String>()).unwrap();
    }
    let (model, [scores, remeshed]) = trained(folder.path(), Task::Segmentation);
    assert_eq!((model.per, scores.scores.counted), (Element::Edge, 480));
    let [found, of_remeshed] = [&scores, &remeshed].map(|s| s.segmentation.as_ref().unwrap());
    let lost = found.by_area - found.soft_by_area.unwrap();
    assert!((0.15..0.35).contains(&lost), "{found:?}");
    assert_eq!(of_remeshed.soft_by_area, None);
    for scores in [&scores, &remeshed] {
        assert!(scores.scores.accuracy.unwrap() > 0.85, "{scores:?}");
    }
    let mesh = sphere(7);
    let sample = model.sample("new", &mesh).unwrap();
    let prediction = model.predict(&mut Workspace::new(Device::Cpu), &sample).unwrap();
    let out = folder.path().join("out");
    let files = PredictionFiles::new(&out, &model, Some(Default::default())).unwrap();
    let frames = sample.graph().frames();
    files.write("new", &mesh, frames, &prediction, None).unwrap();
    let text = fs::read_to_string(out.join("new.eseg")).unwrap();
    let found: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
    let right = found.iter().zip(labels(&mesh, Element::Edge)).filter(|(a, b)| *a == b).count();
    assert!(right > 400, "{right}");
}

#[test]
fn values_of_whole_meshes_have_errors_by_column() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = String::from("mesh,size,negative\n");
    for number in 0..8 {
        sphere(number).write(folder.path().join(format!("s{number}.ply"))).unwrap();
        table += &format!("s{number},{number},{}\n", -2.0 * number as f64);
    }
    fs::write(folder.path().join("values.csv"), &table).unwrap();
    let (model, [scores, _]) = trained(folder.path(), Task::Regression);
    assert_eq!((model.per, scores.scores.counted), (Element::Mesh, 2));
    let regression = scores.regression.as_ref().unwrap();
    let [size, negative] = &regression.columns[..] else { panic!("{regression:?}") };
    assert_eq!((&*size.name, &*negative.name), ("size", "negative"));
    let data = DataConfig::Folder(folder.path().into());
    let dataset = Dataset::open_for(&data, Task::Regression).unwrap();
    let split = dataset.split(Split::Train, &Preparation::default(), &Cache::none());
    let split = split.unwrap();
    assert_eq!((split.len(), dataset.value_names().len()), (6, 2));
    for index in 0..split.len() {
        let name = split.name(index);
        let number: f32 = name[1..2].parse().unwrap();
        let target = Target::Values(vec![number, -2.0 * number]);
        assert_eq!(split.load(index).unwrap().target, target, "{name}");
    }
    let total = size.root_mean_square.powi(2) + negative.root_mean_square.powi(2);
    assert!((total.sqrt() - regression.root_mean_square).abs() < 1e-9);
    assert_eq!(scores.to_csv().unwrap().lines().count(), 3);
    let sample = model.sample("new", &sphere(3)).unwrap();
    let prediction = model.predict(&mut Workspace::new(Device::Cpu), &sample).unwrap();
    let Prediction::Values { per, values, .. } = prediction else { panic!("{prediction:?}") };
    assert_eq!((per, values.len()), (Element::Mesh, 2));
    a_mesh_beyond_the_memory_is_refused_with_its_size(&model);
    // A row without a mesh, and a mesh without numbers.
    for bad in ["s9,1,2\n", "s8,one,2\n"] {
        sphere(8).write(folder.path().join("s8.ply")).unwrap();
        fs::write(folder.path().join("values.csv"), format!("{table}{bad}")).unwrap();
        let data = DataConfig::Folder(folder.path().into());
        assert!(Dataset::open_for(&data, Task::Regression).is_err(), "{bad}");
    }
}

#[test]
fn labels_of_faces_follow_a_remeshing_to_the_nearest_faces() {
    let folder = tempfile::tempdir().unwrap();
    let mesh = sphere(0);
    mesh.write(folder.path().join("a.ply")).unwrap();
    let numbers: Vec<u32> = (0..320).map(|face| face % 7).collect();
    fs::write(folder.path().join("a.seg"), lines(&numbers)).unwrap();
    let dataset = Dataset::open(&DataConfig::Folder(folder.path().into())).unwrap();
    assert_eq!(dataset.per(), Element::Face);
    let kind = RemeshKind::Subdivide(Subdivide { rounds: 1, rule: Default::default() });
    let cache = Cache::new(folder.path().join("cache"));
    let split = || {
        let preparation = Preparation::default();
        let split = dataset.split(Split::Train, &preparation, &cache).unwrap();
        split.remeshed(kind.clone(), 1).load(0).unwrap()
    };
    let (made, again) = (split(), split());
    assert_eq!(made.target, again.target);
    assert!(made.extras.get::<Elements<f32>>().is_some());
    assert_eq!(made.extras, again.extras);
    let Target::Classes(labels) = made.target else { panic!() };
    assert_eq!(labels.len(), 4 * 320);
    let mut counts = [0; 7];
    labels.iter().for_each(|&label| counts[label as usize] += 1);
    let expected: Vec<usize> = (0..7).map(|n| 4 * numbers.iter().filter(|&&m| m == n).count()).collect();
    assert_eq!(counts.to_vec(), expected);
}

/// A model of any kind knows before it starts that such a mesh does not fit.
fn a_mesh_beyond_the_memory_is_refused_with_its_size(model: &TrainedModel) {
    let few = model.memory_for(1000);
    assert!(few > 500_000 && model.memory_for(2000) > few + few / 2, "{few}");
    model.check_memory("small", 1000).unwrap();
    match model.check_memory("huge", 1 << 45).unwrap_err() {
        TaskError::TooLarge { name, vertices, needed, free } => {
            assert_eq!((name.as_str(), vertices), ("huge", 1 << 45));
            assert!(needed > free && free > 0);
        }
        other => panic!("{other}"),
    }
}
