//! Layouts of data sets that people have: folders of labels, label files of several kinds, splits that are drawn.

use gemcnn_mesh::{Faces, Mesh, shapes};
use gemcnn_nn::Target;
use gemcnn_tasks::data::{Cache, DataConfig, Dataset, Preparation, Split, check};
use gemcnn_tasks::{SampleSource, Task, TaskError};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A sphere whose labels tell its number, and these labels.
fn sphere(number: usize) -> (Mesh, Vec<u32>) {
    let mesh = shapes::icosphere(1).unwrap();
    let mesh = mesh.map_vertices(|p| p * (1.0 + 0.1 * number as f64)).unwrap();
    let labels = (0..42).map(|vertex| u32::from(vertex <= number)).collect();
    (mesh, labels)
}

fn write_mesh(path: &Path, number: usize) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    sphere(number).0.write(path).unwrap();
}

fn write_labels(path: &Path, number: usize) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let labels = sphere(number).1;
    let text: String = labels.iter().map(|label| format!("{label}\n")).collect();
    let text = match path.extension().is_some_and(|ending| ending == "csv") {
        true => format!("label\n{text}"),
        false => text,
    };
    fs::write(path, text).unwrap();
}

fn open(folder: &TempDir, task: Task) -> Result<Dataset, TaskError> {
    Dataset::open_for(&DataConfig::Folder(folder.path().into()), task)
}

/// Names and targets of a split.
fn targets(dataset: &Dataset, split: Split) -> Vec<(String, Target)> {
    let samples = dataset.split(split, &Preparation::default(), &Cache::none());
    let samples = samples.unwrap();
    (0..samples.len()).map(|index| (samples.name(index), samples.load(index).unwrap().target)).collect()
}

#[test]
fn labels_may_be_in_folders_like_those_of_the_meshes() {
    for (meshes, labels) in [("meshes/", "labels/"), ("", "labels/")] {
        let folder = TempDir::new().unwrap();
        // The same names in both splits, so that the folder decides.
        for (number, split) in ["train", "train", "train", "test", "test"].iter().enumerate() {
            let name = format!("{split}/scan{}", number % 3);
            write_mesh(&folder.path().join(format!("{meshes}{name}.ply")), number);
            write_labels(&folder.path().join(format!("{labels}{name}.txt")), number);
        }
        let dataset = open(&folder, Task::Segmentation).unwrap();
        let expected = |numbers: &[usize], split: &str| -> Vec<(String, Target)> {
            let one = |&number: &usize| {
                let name = format!("{meshes}{split}/scan{}.ply", number % 3);
                (name, Target::Classes(sphere(number).1))
            };
            numbers.iter().map(one).collect()
        };
        assert_eq!(targets(&dataset, Split::Train), expected(&[0, 1, 2], "train"));
        assert_eq!(targets(&dataset, Split::Test), expected(&[3, 4], "test"));
    }
}

#[test]
fn label_files_may_be_of_several_kinds() {
    let folder = TempDir::new().unwrap();
    for number in 0..6 {
        let ending = ["txt", "csv", "seg"][number % 3];
        write_mesh(&folder.path().join(format!("scan{number}.ply")), number);
        write_labels(&folder.path().join(format!("scan{number}.{ending}")), number);
    }
    let dataset = open(&folder, Task::Segmentation).unwrap().all_for_testing();
    let found = targets(&dataset, Split::Test);
    assert_eq!(found.len(), 6);
    for (number, (_, target)) in found.iter().enumerate() {
        assert_eq!(*target, Target::Classes(sphere(number).1));
    }
    // Which of two files is meant is not guessed.
    let description = "task = 'segmentation'\n[target]\nfiles = '{name}.*'\n";
    fs::write(folder.path().join("dataset.toml"), description).unwrap();
    open(&folder, Task::Segmentation).unwrap();
    write_labels(&folder.path().join("scan1.txt"), 5);
    let problem = open(&folder, Task::Segmentation).unwrap_err().to_string();
    assert!(problem.contains("scan1.ply"), "{problem}");
}

#[test]
fn splits_at_random_have_a_share_of_each_class() {
    let folder = TempDir::new().unwrap();
    for (class, count) in [("bear", 20), ("cat", 10), ("dog", 5)] {
        for number in 0..count {
            let path = folder.path().join(format!("{class}/{class}{number}.ply"));
            write_mesh(&path, number);
        }
    }
    let dataset = open(&folder, Task::Classification).unwrap();
    for (split, expected) in [(Split::Train, [16, 8, 4]), (Split::Test, [4, 2, 1])] {
        let mut counts = [0; 3];
        for index in 0..dataset.len(split) {
            let name = dataset.mesh_name(split, index);
            let classes = ["bear", "cat", "dog"];
            let class = classes.iter().position(|class| name.starts_with(class));
            counts[class.unwrap()] += 1;
        }
        assert_eq!(counts, expected);
    }
    assert!(!dataset.is_for_testing());
    assert!(dataset.all_for_testing().is_for_testing());
}

#[test]
fn one_bad_vertex_does_not_stop_a_data_set() {
    let folder = TempDir::new().unwrap();
    for number in 0..3 {
        write_mesh(&folder.path().join(format!("scan{number}.ply")), number);
        write_labels(&folder.path().join(format!("scan{number}.txt")), number);
    }
    // A vertex whose only face has no area, and one between two faces that cancel.
    let (mesh, labels) = sphere(1);
    let mut vertices = mesh.vertices().to_vec();
    let last = vertices.len() as u32;
    vertices.extend([vertices[0], 3.0 * vertices[5]]);
    let mut faces: Faces = mesh.faces().iter().collect();
    for face in [[0, last, 1], [last + 1, 2, 3], [last + 1, 3, 2]] {
        faces.push(&face);
    }
    let bad = Mesh::new(vertices, faces).unwrap();
    bad.write(folder.path().join("scan1.ply")).unwrap();
    let labels: String = labels.iter().map(|label| format!("{label}\n")).collect();
    fs::write(folder.path().join("scan1.txt"), labels + "0\n1\n").unwrap();
    let report = check(&DataConfig::Folder(folder.path().into()), Some(Task::Segmentation));
    assert_eq!(report.problems, Vec::<String>::new());
    let counted = |note: &String| note.contains(": 2 on 1 of");
    assert!(report.notes.iter().any(counted), "{:?}", report.notes);
    let dataset = open(&folder, Task::Segmentation).unwrap().all_for_testing();
    let samples = dataset.split(Split::Test, &Preparation::default(), &Cache::none());
    let sample = samples.unwrap().load(1).unwrap();
    for frame in sample.graph().frames() {
        assert!((frame.normal.length() - 1.0).abs() < 1e-9);
    }
}
