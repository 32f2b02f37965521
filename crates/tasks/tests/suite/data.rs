//! Data sets as a user has them: real files in real folders.

use gemcnn_mesh::{
    AttributeValues, DVec3, Faces, Mesh, PlyEncoding, VertexAttribute, WriteOptions, shapes,
    shapes::{BodyFamily, BodyOptions, Cells},
    write_mesh,
};
use gemcnn_nn::{FeatureType, IGNORE, Target};
use gemcnn_tasks::data::{
    Augmentation, BodiesConfig, Cache, DataConfig, Dataset, Eigenvectors, HierarchySettings, Preparation, Split,
    SurfaceFile, check, npy_f32, npy_i64, vectors,
};
use gemcnn_tasks::train::RunConfig;
use gemcnn_tasks::{DataError, Element, FeatureConfig, Sample, SampleSource, Task, TaskError};
use std::fs;
use std::path::Path;
use tempfile::{TempDir, tempdir};

pub fn sphere(seed: u64) -> Mesh {
    let bump = |p: DVec3| p * (1.0 + 0.1 * (seed as f64 + 3.0 * p.x + 2.0 * p.y * p.z).sin());
    shapes::icosphere(2).unwrap().map_vertices(bump).unwrap()
}

fn write(path: &Path, mesh: &Mesh, attributes: &[(&str, AttributeValues)]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let attributes: Vec<VertexAttribute> =
        attributes.iter().map(|(name, values)| VertexAttribute::new(*name, values.clone())).collect();
    write_mesh(path, mesh, &attributes, &WriteOptions::default()).unwrap();
}

fn write_labelled(path: &Path, mesh: &Mesh) {
    write(path, mesh, &[("label", AttributeValues::I32(labels(mesh)))]);
}

/// A file of a vector for each vertex.
fn write_vectors(path: &Path, mesh: &Mesh, vector: impl Fn(&DVec3) -> [f64; 3]) {
    let vectors: Vec<f32> = mesh.vertices().iter().flat_map(vector).map(|value| value as f32).collect();
    fs::write(path, npy_f32(&vectors, Some(3))).unwrap();
}

/// Labels that are 3 above the equator, 5 below it, and unknown at vertex 7.
fn labels(mesh: &Mesh) -> Vec<i32> {
    let mut labels: Vec<i32> = mesh.vertices().iter().map(|p| if p.z > 0.0 { 3 } else { 5 }).collect();
    labels[7] = -1;
    labels
}

fn classes(mesh: &Mesh) -> Vec<u32> {
    let class = |label| match label {
        3 => 0,
        5 => 1,
        _ => IGNORE,
    };
    labels(mesh).into_iter().map(class).collect()
}

/// `count` spheres `s0.ply`, `s1.ply`, ... with labels.
pub fn labelled(count: u64) -> TempDir {
    let folder = tempdir().unwrap();
    for number in 0..count {
        write_labelled(&folder.path().join(format!("s{number}.ply")), &sphere(number));
    }
    folder
}

/// `count` spheres without targets.
fn plain(count: u64) -> TempDir {
    let folder = tempdir().unwrap();
    for number in 0..count {
        write(&folder.path().join(format!("s{number}.ply")), &sphere(number), &[]);
    }
    folder
}

fn describe(folder: &TempDir, text: &str) {
    fs::write(folder.path().join("dataset.toml"), text).unwrap();
}

fn config(folder: &TempDir) -> DataConfig {
    DataConfig::Folder(folder.path().into())
}

fn open(folder: &TempDir) -> Result<Dataset, TaskError> {
    Dataset::open(&config(folder))
}

#[track_caller]
fn refusal<T>(result: Result<T, TaskError>) -> String {
    match result {
        Ok(_) => panic!("this should have been refused"),
        Err(error) => error.to_string(),
    }
}

/// Names and numbers that a message has to mention.
#[track_caller]
fn assert_mentions(said: &str, splits: &[&str]) {
    for split in splits {
        assert!(said.contains(split), "no `{split}` in: {said}");
    }
}

/// True if one of many problems mentions all of these.
fn one_mentions(problems: &[String], splits: &[&str]) -> bool {
    (problems.iter()).any(|problem| splits.iter().all(|split| problem.contains(split)))
}

fn samples(dataset: &Dataset, split: Split) -> Vec<Sample> {
    let split = dataset.split(split, &Preparation::default(), &Cache::none()).unwrap();
    (0..split.len()).map(|n| split.load(n).unwrap()).collect()
}

fn all_samples(dataset: &Dataset) -> Vec<Sample> {
    let mut all: Vec<Sample> = Split::ALL.iter().flat_map(|&split| samples(dataset, split)).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

#[track_caller]
fn assert_labelled_spheres(dataset: &Dataset, count: usize) {
    assert_eq!(dataset.task(), Task::Segmentation);
    let all = all_samples(dataset);
    assert_eq!(all.len(), count);
    for (number, sample) in all.iter().enumerate() {
        let expected = classes(&sphere(number as u64));
        assert_eq!(sample.target, Target::Classes(expected), "{}", sample.name);
        assert_eq!(sample.features.len(), 3 * sample.graph().vertex_count());
    }
}

#[test]
fn a_plain_folder_with_one_integer_property_needs_no_words() {
    let folder = labelled(10);
    let dataset = open(&folder).unwrap();
    assert_labelled_spheres(&dataset, 10);
    let classes = dataset.classes().unwrap();
    assert_eq!((classes.count(), classes.label(1)), (2, 5));
    assert_eq!(dataset.outputs(), FeatureType::scalars(2));
    assert_eq!((dataset.len(Split::Train), dataset.len(Split::Test)), (8, 2));
    let notes = dataset.notes().join("\n");
    assert!(notes.contains("`label`") && notes.contains("3, 5"), "{notes}");
    let again = open(&folder).unwrap();
    let names = |d: &Dataset| samples(d, Split::Test).into_iter().map(|s| s.name).collect::<Vec<_>>();
    assert_eq!(names(&dataset), names(&again));
    let numbers = Dataset::open_for(&config(&folder), Task::Regression).unwrap();
    assert_eq!(numbers.outputs(), FeatureType::scalars(1));
}

#[test]
fn ambiguous_targets_come_with_an_example() {
    let folder = tempdir().unwrap();
    for number in 0..4 {
        let mesh = sphere(number);
        let zeros = vec![0u8; mesh.vertex_count()];
        write(
            &folder.path().join(format!("s{number}.ply")),
            &mesh,
            &[
                ("red", AttributeValues::U8(zeros.clone())),
                ("label", AttributeValues::I32(labels(&mesh))),
                ("patch", AttributeValues::U8(zeros)),
            ],
        );
    }
    let error = Dataset::open_for(&config(&folder), Task::Segmentation).unwrap_err();
    let said = error.to_string();
    assert_mentions(&said, &["`label`", "`patch`", "dataset.toml"]);
    assert!(!said.contains("`red`"), "colours are no targets: {said}");
    let TaskError::Data(DataError::Ambiguous { example, .. }) = error else { panic!("{error}") };
    assert!(said.contains(&example), "{said}");
    describe(&folder, &example);
    assert_labelled_spheres(&open(&folder).unwrap(), 4);
}

#[test]
fn a_folder_without_targets_says_what_was_looked_for() {
    let folder = plain(2);
    for task in [Task::Segmentation, Task::Regression, Task::Classification] {
        let error = Dataset::open_for(&config(&folder), task).unwrap_err();
        let TaskError::Data(DataError::NothingToLearn { found, example, .. }) = error else { panic!("{error}") };
        let looked_for = match task {
            Task::Classification => "classes.csv",
            _ => "properties",
        };
        assert_mentions(&found, &[looked_for]);
        assert_mentions(&example, &[&format!("task = \"{task}\"")]);
    }
    let empty = tempdir().unwrap();
    let error = open(&empty).unwrap_err();
    assert!(matches!(error, TaskError::Data(DataError::NoMeshes { .. })));
    assert!(refusal(Dataset::open(&DataConfig::Folder("/no/such/folder".into()))).contains("/no/such"));
}

#[test]
fn labels_in_files_of_every_kind_are_the_same() {
    let text = |mesh: &Mesh, between: &str| -> String {
        labels(mesh).iter().map(|label| format!("{between}{label}\n")).collect()
    };
    type Content<'a> = &'a dyn Fn(&Mesh) -> Vec<u8>;
    let npy = |mesh: &Mesh| npy_i64(&labels(mesh).iter().map(|&l| l.into()).collect::<Vec<_>>());
    let txt = |mesh: &Mesh| text(mesh, "").into_bytes();
    let csv = |mesh: &Mesh| format!("vertex,label\n{}", text(mesh, "0,")).into_bytes();
    let empty = |mesh: &Mesh| text(mesh, "").replace("-1", "").into_bytes();
    let gii = |mesh: &Mesh| {
        format!(
            "<GIFTI><DataArray Intent=\"NIFTI_INTENT_LABEL\" DataType=\"NIFTI_TYPE_INT32\" Dimensionality=\"1\" \
             Dim0=\"{}\" Encoding=\"ASCII\"><Data>{}</Data></DataArray></GIFTI>",
            mesh.vertex_count(),
            text(mesh, " ")
        )
        .into_bytes()
    };
    let kinds: [(&str, &str, Content); 5] = [
        ("labels/{stem}.npy", "", &npy),
        ("{name}.txt", "", &txt),
        ("{name}.csv", "column = 'label'", &csv),
        ("{stem}.seg", "per = 'vertex'", &empty),
        ("{name}.label.gii", "per = 'vertex'", &gii),
    ];
    for (pattern, more, content) in kinds {
        let folder = plain(5);
        for number in 0..5 {
            let stem = format!("s{number}");
            let name = pattern.replace("{stem}", &stem).replace("{name}", &stem);
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content(&sphere(number))).unwrap();
        }
        if more.is_empty() {
            assert_labelled_spheres(&open(&folder).unwrap(), 5);
        }
        let toml = format!("task = 'segmentation'\n[target]\nfiles = '{pattern}'\n{more}");
        describe(&folder, &toml);
        assert_labelled_spheres(&open(&folder).unwrap(), 5);
    }
}

#[test]
fn names_of_classes_may_stand_for_labels() {
    let folder = plain(3);
    for number in 0..3 {
        let word = |label| match label {
            3 => "north\n",
            5 => "south\n",
            _ => "\n",
        };
        let text: String = labels(&sphere(number)).into_iter().map(word).collect();
        fs::write(folder.path().join(format!("s{number}.txt")), text).unwrap();
    }
    describe(&folder, "task = 'segmentation'\nclasses = ['north', 'south']\ntarget.files = '{name}.txt'");
    let dataset = open(&folder).unwrap();
    assert_labelled_spheres(&dataset, 3);
    assert_eq!(dataset.classes().unwrap().name(1), "south");
}

#[test]
fn as_many_faces_as_vertices_need_a_word() {
    let folder = tempdir().unwrap();
    let mesh = shapes::torus(8, 6, 2.0, 0.5, Cells::Quads).unwrap();
    assert_eq!(mesh.vertex_count(), mesh.face_count());
    write(&folder.path().join("a.ply"), &mesh, &[]);
    fs::write(folder.path().join("a.seg"), "1\n".repeat(48)).unwrap();
    let toml = "task = 'segmentation'\nsplit.fractions.train = 1.0\n[target]\nfiles = '{name}.seg'\n";
    describe(&folder, toml);
    let said = refusal(open(&folder));
    assert!(said.contains("target.per") && said.contains("a.seg"), "{said}");
    describe(&folder, &format!("{toml}per = 'face'"));
    let all = all_samples(&open(&folder).unwrap());
    assert_eq!(all[0].target, Target::Classes(vec![0; 48]));
    // Another mesh decides.
    describe(&folder, toml);
    write(&folder.path().join("b.ply"), &shapes::icosphere(0).unwrap(), &[]);
    fs::write(folder.path().join("b.seg"), "1\n".repeat(20)).unwrap();
    assert_eq!(open(&folder).unwrap().per(), Element::Face);
    for other in ["b.ply", "b.seg"] {
        fs::remove_file(folder.path().join(other)).unwrap();
    }
    fs::remove_file(folder.path().join("dataset.toml")).unwrap();
    for said in [
        refusal(open(&folder)),
        refusal(Dataset::open_for(&config(&folder), Task::Segmentation)),
        refusal(Dataset::open_for(&config(&folder), Task::Regression)),
    ] {
        assert!(said.contains("target.per"), "{said}");
    }
}

#[test]
fn every_problem_is_told_at_once_with_its_file() {
    let folder = labelled(5);
    fs::write(folder.path().join("s1.ply"), "ply\nnonsense").unwrap();
    let mesh = sphere(2);
    write(&folder.path().join("s2.ply"), &mesh, &[("other", AttributeValues::I32(labels(&mesh)))]);
    fs::copy(folder.path().join("s3.ply"), folder.path().join("s4.ply")).unwrap();
    let mut high = labels(&sphere(0));
    high[3] = 9;
    write(&folder.path().join("s0.ply"), &sphere(0), &[("label", AttributeValues::I32(high))]);
    fs::write(folder.path().join("train.txt"), "s0\ns1\ns2\ns3\nmissing\n").unwrap();
    fs::write(folder.path().join("test.txt"), "s4.ply\ns3\n").unwrap();
    describe(
        &folder,
        "task = 'segmentation'\nlabels = [3, 5]\ntarget.property = 'label'\n\
         split.files = { train = 'train.txt', test = 'test.txt' }",
    );
    let report = check(&config(&folder), None);
    for splits in [
        &["train.txt:5: ", "`missing`"][..],
        &["test.txt:2: ", "`s3.ply`", "train", "test"],
        &["s0.ply: vertex 3: ", "9", "3, 5"],
        &["s1.ply:2:"],
        &["s2.ply: ", "`label`", "other"],
    ] {
        let found = one_mentions(&report.problems, splits);
        assert!(found, "{splits:?}: {:#?}", report.problems);
    }
    assert_eq!(report, check(&config(&folder), None), "the order is stable");
    match open(&folder).unwrap_err() {
        TaskError::Data(DataError::Many { problems }) => assert_eq!(problems.len(), 2),
        other => panic!("{other}"),
    }
    // The same mesh under two names, in two splits.
    fs::write(folder.path().join("train.txt"), "s0\ns1\ns2\ns3\n").unwrap();
    fs::write(folder.path().join("test.txt"), "s4.ply\n").unwrap();
    let report = check(&config(&folder), None);
    let twins = ["s4.ply in test", "s3.ply in train"];
    assert!(one_mentions(&report.problems, &twins), "{:#?}", report.problems);
}

#[test]
fn counts_of_a_sound_data_set_are_right() {
    let folder = labelled(4);
    let report = check(&config(&folder), None);
    assert_eq!(report.problems, [""; 0]);
    let vertices = sphere(0).vertex_count();
    let train = report.splits[0];
    assert_eq!((train.meshes, train.vertices, train.known), (3, 3 * vertices, 3 * vertices - 3));
    let total: usize = report.classes.iter().map(|c| c.vertices.iter().sum::<usize>()).sum();
    assert_eq!(total, 4 * vertices - 4);
    assert_eq!(report.classes[1].meshes, [3, 0, 1]);
    assert_eq!((report.classes[1].name.as_str(), report.classes[1].label), ("5", 5));
}

#[test]
fn meshes_without_geometry_are_named() {
    let folder = labelled(2);
    let points = Mesh::new(vec![DVec3::X, DVec3::Y], Faces::new()).unwrap();
    write(&folder.path().join("points.ply"), &points, &[("label", AttributeValues::I32(vec![3, 5]))]);
    let report = check(&config(&folder), None);
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    assert_mentions(&report.problems[0], &["points.ply: ", "faces"]);
}

fn with_winds(count: u64) -> TempDir {
    let folder = tempdir().unwrap();
    for number in 0..count {
        let mesh = sphere(number);
        let axis = |place: usize| AttributeValues::F64(mesh.vertices().iter().map(|p| wind(*p)[place]).collect());
        write(
            &folder.path().join(format!("s{number}.ply")),
            &mesh,
            &[("vx", axis(0)), ("vy", axis(1)), ("vz", axis(2))],
        );
    }
    folder
}

fn wind(p: DVec3) -> DVec3 {
    DVec3::new(1.0, 2.0, 3.0).cross(p)
}

#[test]
fn vectors_are_tangent_features_that_turn_with_the_mesh() {
    let folder = with_winds(2);
    let dataset = open(&folder).unwrap();
    assert_eq!(dataset.task(), Task::Regression);
    assert_eq!(dataset.outputs().to_string(), "1x1");
    let rotated = Preparation { rotation: Some(4), ..Default::default() };
    for preparation in [Preparation::default(), rotated] {
        let split = dataset.split(Split::Train, &preparation, &Cache::none()).unwrap();
        let sample = split.load(0).unwrap();
        let Target::Values(values) = &sample.target else {
            panic!("{:?}", sample.target);
        };
        assert_eq!(values.len(), 2 * sample.graph().vertex_count());
        let rotation = preparation.rotation_of(&sample.name).unwrap_or_default();
        let mesh = dataset.mesh(Split::Train, 0).unwrap();
        let found = vectors::in_space(sample.graph().frames(), values);
        for ((point, frame), found) in mesh.vertices().iter().zip(sample.graph().frames()).zip(found) {
            let expected = (rotation * wind(*point)).reject_from_normalized(frame.normal);
            assert!((found - expected).length() < 1e-5);
        }
    }
    let scalars = "task = 'regression'\ntarget.property = ['vz', 'vx']";
    describe(&folder, scalars);
    let dataset = open(&folder).unwrap();
    assert_eq!(dataset.outputs().to_string(), "2x0");
    let report = check(&config(&folder), None);
    assert_eq!(report.problems, [""; 0]);
    assert_eq!(report.values[0].name, "vz");
    assert!(report.values[1].min < -3.0 && report.values[1].max > 3.0);
}

#[test]
fn unknown_numbers_are_nan_for_whole_vertices_only() {
    let folder = plain(2);
    let count = sphere(0).vertex_count();
    let mut values = vec![1.0; 2 * count];
    (values[4], values[5]) = (f32::NAN, f32::NAN);
    for number in 0..2 {
        fs::write(folder.path().join(format!("s{number}.npy")), npy_f32(&values, Some(2))).unwrap();
    }
    let dataset = Dataset::open_for(&config(&folder), Task::Regression).unwrap();
    let Target::Values(read) = &all_samples(&dataset)[0].target else {
        panic!("no values");
    };
    assert!(read[4].is_nan() && read[5].is_nan() && read[6] == 1.0);
    values[7] = f32::NAN;
    fs::write(folder.path().join("s1.npy"), npy_f32(&values, Some(2))).unwrap();
    values[7] = f32::INFINITY;
    fs::write(folder.path().join("s0.npy"), npy_f32(&values, Some(2))).unwrap();
    let said = refusal(Dataset::open_for(&config(&folder), Task::Regression));
    assert!(said.contains("s0.npy: vertex 3"), "{said}");
    describe(&folder, "task = 'regression'\ntarget.files = '{name}.npy'");
    let problems = check(&config(&folder), None).problems;
    for splits in [["s1.npy: vertex 3: ", "NaN"], ["s0.npy: vertex 3: ", "inf"]] {
        assert!(one_mentions(&problems, &splits), "{splits:?}: {problems:?}");
    }
}

#[test]
fn numbers_that_32_bits_do_not_hold_are_refused() {
    let folder = plain(1);
    let count = sphere(0).vertex_count();
    let file = folder.path().join("s0.txt");
    describe(&folder, "task = 'regression'\ntarget.files = '{name}.txt'");
    fs::write(&file, format!("{}1e300\n", "1.5\n".repeat(count - 1))).unwrap();
    let place = format!("s0.txt: vertex {}: ", count - 1);
    assert_mentions(&refusal(open(&folder)), &[&place, "1e300"]);
    fs::write(&file, format!("{}1e38\n", "1.5\n".repeat(count - 1))).unwrap();
    open(&folder).unwrap();
}

#[test]
fn unknown_numbers_are_not_learned() {
    let folder = plain(1);
    let count = sphere(0).vertex_count();
    let file = folder.path().join("s0.csv");
    fs::write(&file, "-9999,-9999\n".to_string() + &"1,-1\n".repeat(count - 1)).unwrap();
    describe(&folder, "task = 'regression'\nunknown = [-9999]\ntarget.files = '{name}.csv'");
    let all = all_samples(&open(&folder).unwrap());
    let Target::Values(values) = &all[0].target else {
        panic!("no values");
    };
    assert!(values[0].is_nan() && values[1].is_nan());
    assert_eq!(values[2..4], [1.0, -1.0]);
    let report = check(&config(&folder), None);
    assert_eq!((report.splits[0].known, report.values[0].min), (count - 1, 1.0));
    fs::write(&file, "-9999,3\n".to_string() + &"1,-1\n".repeat(count - 1)).unwrap();
    assert_mentions(&refusal(open(&folder)), &["s0.csv: vertex 0: "]);
}

#[test]
fn vectors_are_counted_as_their_files_have_them() {
    let folder = plain(2);
    let count = sphere(0).vertex_count();
    for (number, columns) in [(0, 3), (1, 6)] {
        let file = folder.path().join(format!("s{number}.npy"));
        fs::write(file, npy_f32(&vec![1.0; columns * count], Some(columns))).unwrap();
    }
    describe(
        &folder,
        "task = 'regression'\ntarget = { files = '{name}.npy', vectors = true }\n\
         split.patterns = { train = 's0', test = 's1' }",
    );
    let problems = check(&config(&folder), None).problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_mentions(&problems[0], &["s1.ply: ", "6", "3"]);
}

#[test]
fn classes_of_meshes_come_from_tables_folders_and_names() {
    let mesh = sphere(0);
    let expected = [("cat", 0), ("dog", 1), ("eel", 2)];
    let by_pattern = tempdir().unwrap();
    let by_folder = tempdir().unwrap();
    let by_table = tempdir().unwrap();
    let nested = tempdir().unwrap();
    let mut table = "mesh,kind\n".to_string();
    for (name, class) in expected {
        for number in 0..3 {
            write(&by_pattern.path().join(format!("{name}-{number}.ply")), &mesh, &[]);
            write(&by_folder.path().join(format!("{name}/{number}.off")), &mesh, &[]);
            write(&by_table.path().join(format!("m{class}{number}.ply")), &mesh, &[]);
            let split = if number == 0 { "test" } else { "train" };
            write(&nested.path().join(format!("{name}/{split}/{number}.off")), &mesh, &[]);
            table += &format!("m{class}{number}.ply,{name}\n");
        }
    }
    fs::write(by_table.path().join("classes.csv"), &table).unwrap();
    describe(&by_pattern, "task = 'classification'\ntarget.pattern = '{class}-*'");
    for folder in [&by_pattern, &by_folder, &by_table, &nested] {
        let dataset = open(folder).unwrap();
        assert_eq!(dataset.task(), Task::Classification);
        assert_eq!(dataset.classes().unwrap().names(), ["cat", "dog", "eel"]);
        let found: Vec<Target> = all_samples(&dataset).into_iter().map(|s| s.target).collect();
        let classes = [0, 0, 0, 1, 1, 1, 2, 2, 2].map(|class| Target::Classes(vec![class]));
        assert_eq!(found, classes);
    }
    let dataset = open(&nested).unwrap();
    assert_eq!((dataset.len(Split::Train), dataset.len(Split::Test)), (6, 3));
    // An unknown class, a mesh that is not there, one without a row.
    let table = table.replace("m00.ply,cat", "m00.ply,-1").replace("m22", "m99");
    fs::write(by_table.path().join("classes.csv"), &table).unwrap();
    let said = refusal(open(&by_table));
    assert_mentions(&said, &["classes.csv:10: ", "`m99.ply`", "m22.ply: "]);
    // A mesh without a row can be left out, but not a row without a mesh.
    assert!(Dataset::open_with(&config(&by_table), None, false).is_err());
    fs::write(by_table.path().join("classes.csv"), table.replace("m99.ply,eel\n", "")).unwrap();
    let dataset = Dataset::open_with(&config(&by_table), None, false).unwrap();
    assert_eq!((dataset.skipped().len(), all_samples(&dataset).len()), (1, 8));
}

#[test]
fn a_held_out_validation_split_has_all_classes() {
    let folder = tempdir().unwrap();
    // 15 cats and 5 dogs.
    for number in 0..20 {
        let name = if number % 4 == 1 { "dog" } else { "cat" };
        let file = folder.path().join(format!("{name}-{number}.ply"));
        write(&file, &sphere(number), &[]);
    }
    let held_out = |seed: u64, split: &str| {
        let text = "task = 'classification'\ntarget.pattern = '{class}-*'";
        describe(&folder, &format!("{text}\n[split]\n{split}\nseed = {seed}"));
        let dataset = open(&folder).unwrap();
        let notes = dataset.notes().len();
        let dataset = dataset.with_validation(0.2).unwrap();
        let name = |index| dataset.mesh_name(Split::Validation, index).to_owned();
        let names: Vec<String> = (0..dataset.len(Split::Validation)).map(name).collect();
        (names, dataset.len(Split::Train), dataset.notes().len() - notes)
    };
    let all = "fractions = { train = 1.0 }";
    let (names, training, notes) = held_out(1, all);
    let dogs = names.iter().filter(|name| name.starts_with("dog")).count();
    assert_eq!((names.len(), dogs, training, notes), (4, 1, 16, 1));
    assert_eq!(held_out(1, all).0, names);
    assert_ne!(held_out(2, all).0, names);
    let (names, training, notes) = held_out(1, "fractions = { train = 0.9, validation = 0.1 }");
    assert_eq!((names.len(), training, notes), (2, 18, 0));
    assert!(open(&folder).unwrap().with_validation(1.0).is_err());
}

#[test]
fn tables_of_classes_may_have_gaps() {
    let folder = plain(4);
    let table = folder.path().join("classes.csv");
    fs::write(&table, "\nmesh,kind\ns0,cat\n\ns1,NaN\ns2,dog\n,\ns3,\n,\n").unwrap();
    let dataset = open(&folder).unwrap();
    assert_eq!(dataset.classes().unwrap().names(), ["cat", "dog"]);
    let found: Vec<Target> = (all_samples(&dataset).into_iter()).map(|sample| sample.target).collect();
    assert_eq!(found, [0, IGNORE, 1, IGNORE].map(|class| Target::Classes(vec![class])));
    fs::write(&table, "s0,nan\ns1,-1\ns2,\ns3,\n").unwrap();
    match open(&folder).unwrap_err() {
        TaskError::Setting { what, .. } => assert_eq!(what, folder.path().display().to_string()),
        other => panic!("{other}"),
    }
}

#[test]
fn labels_that_are_none_are_told() {
    let folder = plain(2);
    let count = sphere(0).vertex_count();
    describe(&folder, "task = 'segmentation'\ntarget.files = '{name}.txt'");
    let label = |text: &str| {
        for number in 0..2 {
            let file = folder.path().join(format!("s{number}.txt"));
            fs::write(file, format!("{text}\n").repeat(count)).unwrap();
        }
        refusal(open(&folder))
    };
    label("-1");
    let said = label("18446744073709551615");
    assert_mentions(&said, &["s0.txt: row 0: ", "18446744073709552000"]);
    assert_mentions(&label("1.5"), &["s0.txt: row 0: ", "1.5"]);
}

#[test]
fn meshes_do_not_share_a_target() {
    let folder = tempdir().unwrap();
    let labels = npy_i64(&vec![1; sphere(0).vertex_count()]);
    for (number, split) in ["train", "test"].into_iter().enumerate() {
        let path = folder.path().join(format!("{split}/001.ply"));
        write(&path, &sphere(number as u64), &[]);
    }
    fs::create_dir(folder.path().join("labels")).unwrap();
    fs::write(folder.path().join("labels/001.npy"), &labels).unwrap();
    let said = refusal(open(&folder));
    let splits = ["train/001.ply: ", "labels/001.npy", "test/001.ply", "{name}"];
    assert_mentions(&said, &splits);
    let folder = plain(1);
    sphere(1).write(folder.path().join("s0.obj")).unwrap();
    fs::write(folder.path().join("s0.npy"), &labels).unwrap();
    assert_mentions(&refusal(open(&folder)), &["s0.ply: ", "s0.obj", "`meshes`"]);
    // What is in no split has no say.
    fs::write(folder.path().join("split.csv"), "s0.ply,train\n").unwrap();
    describe(&folder, "task = 'segmentation'\ntarget.files = '{name}.npy'\nsplit.table = 'split.csv'");
    assert_eq!(open(&folder).unwrap().len(Split::Train), 1);
}

#[test]
fn registered_meshes_correspond_by_number() {
    let folder = plain(5);
    let dataset = Dataset::open_for(&config(&folder), Task::Correspondence).unwrap();
    let vertices = sphere(0).vertex_count() as u32;
    for sample in all_samples(&dataset) {
        assert_eq!(sample.target, Target::Classes((0..vertices).collect()));
    }
    assert_eq!(dataset.classes().unwrap().count(), vertices as usize);
    assert_eq!(dataset.template().unwrap(), &dataset.mesh(Split::Train, 0).unwrap());
    write(&folder.path().join("s9.ply"), &shapes::icosphere(1).unwrap(), &[]);
    let said = refusal(Dataset::open_for(&config(&folder), Task::Correspondence));
    assert_mentions(&said, &["s9.ply", "42"]);
    describe(&folder, "task = 'correspondence'\nsplit.patterns.test = 's9*'");
    let problems = check(&config(&folder), None).problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_mentions(&problems[0], &["s9.ply: ", "42", "162"]);
}

#[test]
fn vertices_may_name_those_of_a_template() {
    let folder = plain(2);
    write(&folder.path().join("template/t.ply"), &shapes::icosahedron(), &[]);
    for number in 0..2 {
        let text: String = (0..162).map(|n| format!("{}\n", n % 12)).collect();
        fs::write(folder.path().join(format!("s{number}.txt")), text).unwrap();
    }
    describe(
        &folder,
        "task = 'correspondence'\nmeshes = '*.ply'\ntemplate = 'template/t.ply'\ntarget.files = '{name}.txt'",
    );
    let dataset = open(&folder).unwrap();
    assert_eq!(dataset.outputs(), FeatureType::scalars(12));
    let expected = Target::Classes((0..162).map(|n| n % 12).collect());
    assert_eq!(all_samples(&dataset)[1].target, expected);
}

#[test]
fn the_template_is_a_sample_only_where_a_list_says_so() {
    let folder = plain(4);
    write(&folder.path().join("t.ply"), &sphere(9), &[]);
    let text: String = (0..162).map(|n| format!("{n}\n")).collect();
    for number in 0..4 {
        fs::write(folder.path().join(format!("s{number}.txt")), &text).unwrap();
    }
    fs::write(folder.path().join("train.txt"), "s0\ns1\nt.ply\n").unwrap();
    fs::write(folder.path().join("split.csv"), "t,train\ns1,test\n").unwrap();
    fs::write(folder.path().join("test.txt"), "s2\ns3\n").unwrap();
    let base = "task = 'correspondence'\ntemplate = './t.ply'\n";
    for (more, sizes) in [
        ("", [3, 0, 1]),
        ("target.files = '{name}.txt'", [3, 0, 1]),
        ("split.patterns.train = '*'", [4, 0, 0]),
        ("split.patterns.test = 's1'", [3, 0, 1]),
        ("split.files.test = 'test.txt'", [2, 0, 2]),
        ("split.files = { train = 'train.txt', test = 'test.txt' }", [3, 0, 2]),
        ("split.table = 'split.csv'", [1, 0, 1]),
    ] {
        describe(&folder, &format!("{base}{more}"));
        let report = check(&config(&folder), None);
        assert_eq!(report.problems, [""; 0], "{more}");
        let dataset = open(&folder).unwrap();
        assert_eq!(Split::ALL.map(|split| dataset.len(split)), sizes, "{more}");
        let noted = one_mentions(dataset.notes(), &["t.ply", "template", "no split"]);
        let listed = more.contains("train.txt") || more.contains("table");
        assert_eq!(noted, !listed, "{more}");
    }
}

#[test]
fn one_problem_of_a_template_is_told_once() {
    let folder = plain(3);
    describe(&folder, "task = 'correspondence'\ntemplate = 'tepmlate.ply'");
    let problems = check(&config(&folder), None).problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("tepmlate.ply"), "{problems:?}");
    fs::write(folder.path().join("split.csv"), "s0,test\n").unwrap();
    describe(&folder, "task = 'correspondence'\nsplit.table = 'split.csv'");
    let said = refusal(open(&folder));
    assert_mentions(&said, &["train"]);
    assert_eq!(check(&config(&folder), None).problems, [said]);
}

#[test]
fn unknown_and_missing_splits_are_reported() {
    let folder = labelled(4);
    let table = folder.path().join("split.csv");
    fs::write(&table, "s0,trian\ns1,train\ns2,test\n").unwrap();
    let said = refusal(open(&folder));
    assert_mentions(&said, &["split.csv:1: ", "`trian`", "train"]);
    fs::write(&table, "\nmesh,split\n,\ns1,train\ns2,test\n,\n").unwrap();
    let is_noted = |note: &&String| note.contains("2 meshes") && note.contains("no split");
    assert!(open(&folder).unwrap().notes().iter().any(|note| is_noted(&note)));
    let notes = check(&config(&folder), None).notes;
    assert_eq!(notes.iter().filter(is_noted).count(), 1);
}

#[track_caller]
fn assert_nothing_to_learn(folder: &TempDir) {
    match open(folder).unwrap_err() {
        TaskError::Data(DataError::NothingToLearn { .. }) => {}
        other => panic!("{other}"),
    }
}

#[test]
fn folders_of_parts_are_known_by_all_their_names() {
    let places: [(&[&str], [usize; 3], &str); 6] = [
        (&["train", "train", "valid", "test"], [2, 1, 1], ""),
        (&["Training", "Training", "Testing"], [2, 0, 1], ""),
        (&["train", "val", "validation", "test"], [1, 2, 1], ""),
        (&["train", "test", "extra"], [1, 0, 1], "no split"),
        (&["train", "test", "more", "more"], [1, 0, 1], "2 meshes"),
        (&["scans", "scans", "test"], [2, 0, 1], "train"),
    ];
    for (places, sizes, note) in places {
        let folder = tempdir().unwrap();
        let bare = tempdir().unwrap();
        for (number, place) in places.iter().enumerate() {
            let mesh = sphere(number as u64);
            let name = format!("{place}/s{number}.ply");
            write_labelled(&folder.path().join(&name), &mesh);
            write(&bare.path().join(&name), &mesh, &[]);
        }
        let dataset = Dataset::open_for(&config(&folder), Task::Segmentation).unwrap();
        let found = Split::ALL.map(|split| dataset.len(split));
        assert_eq!(found, sizes, "{places:?}");
        let notes = dataset.notes().join("\n");
        assert_mentions(&notes, &[note, "folders"]);
        assert_nothing_to_learn(&bare);
    }
    let nested = tempdir().unwrap();
    for (number, place) in ["cat/Train", "cat/Test", "dog/train", "dog/test"].into_iter().enumerate() {
        let path = nested.path().join(format!("{place}/m.off"));
        write(&path, &sphere(number as u64), &[]);
    }
    let dataset = open(&nested).unwrap();
    assert_eq!(dataset.classes().unwrap().names(), ["cat", "dog"]);
    assert_eq!((dataset.len(Split::Train), dataset.len(Split::Test)), (2, 2));
}

#[test]
fn meshes_at_the_top_and_below_need_a_word() {
    let folder = labelled(3);
    for (number, split) in ["train", "train", "test"].into_iter().enumerate() {
        write_labelled(&folder.path().join(format!("{split}/m{number}.ply")), &sphere(number as u64));
    }
    write(&folder.path().join("train/deep/m3.ply"), &sphere(3), &[]);
    let two_places = || match open(&folder).unwrap_err() {
        TaskError::Data(DataError::TwoPlaces { top, below, top_example, below_example, .. }) => {
            ((top, below), [top_example, below_example])
        }
        other => panic!("{other}"),
    };
    assert_eq!(two_places().0, (3, 4));
    fs::remove_file(folder.path().join("train/deep/m3.ply")).unwrap();
    let said = refusal(open(&folder));
    let (_, [top, below]) = two_places();
    assert_mentions(&said, &[&top, &below]);
    describe(&folder, &top);
    assert_labelled_spheres(&open(&folder).unwrap(), 3);
    describe(&folder, &below);
    let dataset = open(&folder).unwrap();
    assert_eq!(Split::ALL.map(|split| dataset.len(split)), [2, 0, 1]);
    assert_eq!(samples(&dataset, Split::Test)[0].name, "test/m2.ply");
}

#[test]
fn what_was_made_of_meshes_is_no_part_of_them() {
    let folder = labelled(3);
    for (file, content) in [("runs/a-1/config.toml", ""), ("runs/a-1/lock", ""), ("out/.gemcnn-results", "")] {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    for file in ["runs/a-1/predictions/m.ply", "out/m.ply"] {
        write_labelled(&folder.path().join(file), &sphere(7));
    }
    assert_labelled_spheres(&open(&folder).unwrap(), 3);
    let files = gemcnn_tasks::data::mesh_files(folder.path()).unwrap();
    assert_eq!(files.len(), 3, "{files:?}");
    for meshes in ["out", "out/*.ply", "runs/a-1/predictions"] {
        describe(&folder, &format!("task = 'segmentation'\nmeshes = '{meshes}'\ntarget.property = 'label'"));
        assert_eq!(open(&folder).unwrap().len(Split::Train), 1, "{meshes}");
    }
}

#[test]
fn labels_beside_all_meshes_are_those_that_are_meant() {
    let folder = tempdir().unwrap();
    for (number, name) in ["train/00", "train/01", "test/00"].into_iter().enumerate() {
        let mesh = sphere(number as u64);
        write(&folder.path().join(format!("{name}.ply")), &mesh, &[]);
        let text = format!("{number}\n").repeat(mesh.vertex_count());
        fs::write(folder.path().join(format!("{name}.txt")), text).unwrap();
    }
    fs::create_dir(folder.path().join("old")).unwrap();
    fs::copy(folder.path().join("train/00.txt"), folder.path().join("old/00.txt")).unwrap();
    let dataset = open(&folder).unwrap();
    assert_eq!(Split::ALL.map(|split| dataset.len(split)), [2, 0, 1]);
    let found = &samples(&dataset, Split::Test)[0].target;
    assert_eq!(*found, Target::Classes(vec![2; 162]));
    // One slip in the first file does not make numbers of labels.
    let slip = folder.path().join("test/00.txt");
    let text = fs::read_to_string(&slip).unwrap();
    fs::write(&slip, text.replacen('2', "1.5", 1)).unwrap();
    assert_mentions(&refusal(open(&folder)), &["test/00.txt", "1.5"]);
    // Nor does trouble with the first mesh hide that of others.
    fs::write(folder.path().join("test/00.ply"), "ply\nnonsense").unwrap();
    fs::write(folder.path().join("train/01.txt"), "0\n1\n").unwrap();
    let problems = check(&config(&folder), None).problems;
    for splits in [&["test/00.ply"][..], &["train/01.txt: ", "2 rows"]] {
        assert!(one_mentions(&problems, splits), "{splits:?}: {problems:#?}");
    }
}

#[test]
fn results_and_a_single_folder_are_nothing_to_learn() {
    let folder = plain(3);
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    for number in 0..3 {
        let labels = npy_i64(&vec![1; 162]);
        fs::write(out.join(format!("s{number}.npy")), labels).unwrap();
    }
    assert_eq!(open(&folder).unwrap().task(), Task::Segmentation);
    fs::write(out.join(".gemcnn-results"), "").unwrap();
    assert_nothing_to_learn(&folder);
    let folder = tempdir().unwrap();
    for place in ["meshes/train/a.ply", "meshes/test/b.ply"] {
        write(&folder.path().join(place), &sphere(0), &[]);
    }
    assert_nothing_to_learn(&folder);
}

#[test]
fn parts_follow_lists_tables_patterns_and_fractions() {
    let folder = labelled(10);
    let base = "task = 'segmentation'\ntarget.property = 'label'\n";
    fs::write(folder.path().join("split.csv"), "mesh,split\ns1,test\ns2.ply,val\ns3,train\n").unwrap();
    fs::write(folder.path().join("test.txt"), "s7\n\ns8.ply\n").unwrap();
    for (split, sizes, tested) in [
        ("split.table = 'split.csv'", [1, 1, 1], "s1.ply"),
        ("split.files.test = 'test.txt'", [8, 0, 2], "s7.ply"),
        ("split.patterns.test = 's[4-6]'", [7, 0, 3], "s4.ply"),
        ("split.patterns = { test = 's[0]', train = '*' }", [0, 0, 0], ""),
        ("split.patterns = { validation = 's0*', test = 's4*' }", [8, 1, 1], "s4.ply"),
        ("split.fractions = { train = 0.5, validation = 0.2, test = 0.3 }", [5, 2, 3], ""),
        ("split.fractions = { train = 0.34, test = 0.02 }", [3, 0, 1], ""),
    ] {
        describe(&folder, &format!("{base}{split}"));
        let Ok(dataset) = open(&folder) else {
            assert_eq!(sizes, [0, 0, 0], "{split}");
            continue;
        };
        assert_eq!(Split::ALL.map(|split| dataset.len(split)), sizes, "{split}");
        if !tested.is_empty() {
            assert_eq!(samples(&dataset, Split::Test)[0].name, tested, "{split}");
        }
    }
    let names = |seed: u64| {
        describe(&folder, &format!("{base}split = {{ seed = {seed}, fractions = {{ train = 0.5, test = 0.5 }} }}"));
        let tested = samples(&open(&folder).unwrap(), Split::Test);
        tested.into_iter().map(|sample| sample.name).collect::<Vec<_>>()
    };
    assert_eq!(names(1), names(1));
    assert_ne!(names(1), names(2));
}

fn split(folder: &TempDir, preparation: &Preparation, cache: &Cache) -> Vec<Sample> {
    let dataset = open(folder).unwrap();
    let split = dataset.split(Split::Train, preparation, cache).unwrap();
    (0..split.len()).map(|n| split.load(n).unwrap()).collect()
}

#[track_caller]
fn assert_same(a: &[Sample], b: &[Sample]) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert_eq!((&a.name, &a.hierarchy), (&b.name, &b.hierarchy));
        assert_eq!((&a.features, &a.target), (&b.features, &b.target));
    }
}

fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "prepared"))
        .collect();
    files.sort();
    files
}

#[test]
fn the_cache_gives_back_what_was_computed() {
    let folder = labelled(3);
    let place = tempdir().unwrap();
    let cache = Cache::new(place.path().join("deep/er"));
    let with_levels = Preparation {
        features: FeatureConfig::of_kind("matrix").unwrap(),
        hierarchy: Some(HierarchySettings { ratios: vec![0.3, 0.5], radii: vec![3.0, 5.0], neighbour_limit: 30 }),
        rotation: Some(1),
        ..Default::default()
    };
    let mut expected_entries = 0;
    for preparation in [Preparation::default(), with_levels] {
        let computed = split(&folder, &preparation, &Cache::none());
        expected_entries += computed.len();
        for _ in 0..2 {
            assert_same(&computed, &split(&folder, &preparation, &cache));
            assert_eq!(cache.usage().unwrap().entries, expected_entries);
        }
    }
    // Another mesh under an old name has its own entry.
    let name = split(&folder, &Preparation::default(), &cache)[0].name.clone();
    let other = sphere(77);
    write(&folder.path().join(name), &other, &[("label", AttributeValues::I32(labels(&other)))]);
    let changed = split(&folder, &Preparation::default(), &cache);
    assert_same(&changed, &split(&folder, &Preparation::default(), &Cache::none()));
    let removed = cache.clear().unwrap();
    assert_eq!(removed.entries, expected_entries + 1);
    assert_eq!(cache.usage().unwrap().bytes, 0);
}

#[test]
fn damaged_entries_are_made_again() {
    let folder = labelled(3);
    let place = tempdir().unwrap();
    let cache = Cache::new(place.path());
    let computed = split(&folder, &Preparation::default(), &cache);
    let files = entries(place.path());
    assert_eq!(files.len(), 2);
    let whole = fs::read(&files[0]).unwrap();
    // What a killed writer leaves: a temporary file beside the entries.
    fs::write(place.path().join(".gemcnn-1-0.tmp"), &whole[..100]).unwrap();
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 4;
    let other = fs::read(&files[1]).unwrap();
    for damaged in [&whole[..0], &whole[..20], &whole[..whole.len() - 1], &flipped, &other] {
        fs::write(&files[0], damaged).unwrap();
        assert_same(&computed, &split(&folder, &Preparation::default(), &cache));
        assert_eq!(fs::read(&files[0]).unwrap(), whole, "it was repaired");
    }
}

#[test]
fn only_entries_are_removed_from_a_cache() {
    let folder = labelled(3);
    let place = tempdir().unwrap();
    let cache = Cache::new(place.path());
    split(&folder, &Preparation::default(), &cache);
    fs::write(place.path().join("notes.prepared"), "mine").unwrap();
    let hex = "0".repeat(64);
    for name in ["folder.prepared", &format!("{hex}.prepared")] {
        fs::create_dir(place.path().join(name)).unwrap();
    }
    assert_eq!(cache.clear().unwrap().entries, 2);
    assert_eq!(cache.usage().unwrap().bytes, 0);
    assert_eq!(entries(place.path()).len(), 3);
}

#[test]
fn a_cache_that_cannot_be_written_to_does_no_harm() {
    let folder = labelled(3);
    let place = tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "in the way").unwrap();
    let broken = split(&folder, &Preparation::default(), &Cache::new(file.join("cache")));
    assert_same(&broken, &split(&folder, &Preparation::default(), &Cache::none()));
}

#[test]
fn samples_are_the_same_with_and_without_memory() {
    let folder = labelled(6);
    let dataset = open(&folder).unwrap();
    let place = tempdir().unwrap();
    let cache = Cache::new(place.path());
    let load = |memory: usize| {
        let split = dataset.split(Split::Train, &Preparation::default(), &cache).unwrap();
        let mut split = split.with_memory(memory);
        let count = std::sync::atomic::AtomicUsize::new(0);
        let unusable = split.load_usable(&|| true, &|_| {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        });
        assert!(unusable.unwrap().is_empty());
        assert_eq!(count.into_inner(), split.len());
        (split.load(0).unwrap(), split.load(0).unwrap(), split)
    };
    let (a, b, split) = load(usize::MAX);
    assert!(std::sync::Arc::ptr_eq(&a.hierarchy, &b.hierarchy), "kept");
    let (c, d, _) = load(0);
    assert!(!std::sync::Arc::ptr_eq(&c.hierarchy, &d.hierarchy), "read again");
    assert_same(&[a, b], &[c, d]);
    assert!(split.load(99).is_err());
}

#[test]
fn bodies_may_have_a_coarser_template_or_parts() {
    let config = |text: &str| RunConfig::parse(text).unwrap();
    let first = |dataset: &Dataset| {
        let split = dataset.split(Split::Train, &Preparation::default(), &Cache::none()).unwrap();
        split.load(0).unwrap().target
    };
    let coarse = config("task = 'correspondence'\ndata.bodies = { count = 2, vertices = 700, classes = 500 }");
    let dataset = coarse.dataset().unwrap();
    let template = dataset.template().unwrap().vertices();
    assert_eq!((template.len(), dataset.classes().unwrap().count()), (500, 500));
    let family = BodyFamily::new(&BodyOptions { vertices: 700, ..Default::default() }).unwrap();
    let Target::Classes(classes) = first(&dataset) else { panic!("no classes") };
    assert_eq!(classes.len(), 700);
    for (point, class) in family.template().vertices().iter().zip(classes) {
        let nearest = template.iter().map(|other| point.distance(*other)).fold(f64::INFINITY, f64::min);
        assert_eq!(point.distance(template[class as usize]), nearest);
    }

    let parts = config("task = 'segmentation'\ndata.bodies = { count = 2, vertices = 700 }");
    let dataset = parts.clone().checked().unwrap().dataset().unwrap();
    assert_eq!(dataset.classes().unwrap().names()[6], "left hand");
    let labels = family.segments().iter().map(|part| part.label().into());
    assert_eq!(first(&dataset), Target::Classes(labels.collect()));

    // A forgotten folder is an error.
    assert!(config("task = 'segmentation'").checked().is_err());
    assert!(RunConfig { task: Task::Classification, ..parts }.checked().is_err());
}

#[test]
fn bodies_are_registered_and_cached_by_their_settings() {
    let bodies = BodiesConfig { count: 5, vertices: 600, seed: 3, ..Default::default() };
    let dataset = Dataset::open(&DataConfig::Bodies(bodies.clone())).unwrap();
    assert_eq!(Split::ALL.map(|split| dataset.len(split)), [4, 0, 1]);
    assert_eq!(dataset.template().unwrap().vertex_count(), 600);
    let place = tempdir().unwrap();
    let cache = Cache::new(place.path());
    let load = |dataset: &Dataset, index: usize| {
        let split = dataset.split(Split::Train, &Preparation::default(), &cache);
        split.unwrap().load(index).unwrap()
    };
    let (first, second) = (load(&dataset, 0), load(&dataset, 1));
    assert_eq!(first.target, Target::Classes((0..600).collect()));
    assert_ne!(first.features, second.features);
    assert_same(&[first], &[load(&dataset, 0)]);
    assert_eq!(cache.usage().unwrap().entries, 2);
    let others = BodiesConfig { seed: 4, ..bodies };
    load(&Dataset::open(&DataConfig::Bodies(others)).unwrap(), 0);
    assert_eq!(cache.usage().unwrap().entries, 3);
    for (count, vertices) in [(0, 600), (5, 3), (1_000_000, 600)] {
        let bad = DataConfig::Bodies(BodiesConfig { count, vertices, ..Default::default() });
        assert_mentions(&refusal(Dataset::open(&bad)), &["bodies"]);
    }
}

/// A closed mesh of the size of the registrations: two poles and 82 rings of 84 vertices.
fn body_sized(seed: u64) -> Mesh {
    let (rings, segments) = (82u32, 84u32);
    let mut vertices = vec![DVec3::Z, DVec3::NEG_Z];
    for ring in 0..rings {
        let (sine, cosine) = (std::f64::consts::PI * f64::from(ring + 1) / f64::from(rings + 1)).sin_cos();
        for segment in 0..segments {
            let (y, x) = (std::f64::consts::TAU * f64::from(segment) / f64::from(segments)).sin_cos();
            vertices.push(DVec3::new(sine * x, sine * y, cosine * (1.0 + seed as f64)));
        }
    }
    let at = |ring: u32, segment: u32| 2 + ring * segments + segment % segments;
    let mut faces = Faces::new();
    for segment in 0..segments {
        faces.push(&[0, at(0, segment), at(0, segment + 1)]);
        faces.push(&[1, at(rings - 1, segment + 1), at(rings - 1, segment)]);
        for ring in 1..rings {
            let (a, b) = (at(ring - 1, segment), at(ring - 1, segment + 1));
            let (c, d) = (at(ring, segment), at(ring, segment + 1));
            faces.push(&[a, c, b]);
            faces.push(&[b, c, d]);
        }
    }
    Mesh::new(vertices, faces).unwrap()
}

#[test]
fn faust_is_found_checked_and_split_as_in_the_paper() {
    let folder = tempdir().unwrap();
    let faust = DataConfig::Faust(folder.path().into());
    let said = refusal(Dataset::open(&faust));
    let splits = ["tr_reg_000.ply", "training/registrations", "registration"];
    assert_mentions(&said, &splits);
    let place = folder.path().join("MPI-FAUST/training/registrations");
    fs::create_dir_all(&place).unwrap();
    let first = place.join("tr_reg_000.ply");
    let options = WriteOptions { ply: PlyEncoding::LittleEndian };
    write_mesh(&first, &body_sized(0), &[], &options).unwrap();
    for number in (1..100).filter(|number| ![3, 41, 42, 43].contains(number)) {
        fs::copy(&first, place.join(format!("tr_reg_{number:03}.ply"))).unwrap();
    }
    let said = refusal(Dataset::open(&faust));
    assert_mentions(&said, &["96", "100", "3, 41-43"]);
    for number in [3, 41, 42, 43] {
        fs::copy(&first, place.join(format!("tr_reg_{number:03}.ply"))).unwrap();
    }
    // A plain folder with registrations is recognised too.
    for config in [faust.clone(), config(&folder)] {
        let dataset = Dataset::open_for(&config, Task::Correspondence).unwrap();
        assert_eq!(Split::ALL.map(|split| dataset.len(split)), [80, 0, 20]);
        assert_eq!(dataset.classes().unwrap().count(), 6890);
        let test = dataset.split(Split::Test, &Preparation::default(), &Cache::none()).unwrap();
        assert_eq!(test.name(0), "tr_reg_080.ply");
        assert_eq!(test.load(19).unwrap().target, Target::Classes((0..6890).collect()));
        assert_eq!(dataset.template().unwrap().face_count(), 13776);
    }
    match Dataset::open_for(&faust, Task::Segmentation).unwrap_err() {
        TaskError::Data(DataError::OtherTask { found, wanted, .. }) => {
            assert_eq!((found, wanted), (Task::Correspondence, Task::Segmentation));
        }
        other => panic!("{other}"),
    }
    let (vertices, _) = body_sized(0).into_parts();
    let (_, faces) = body_sized(0).into_parts();
    let mut turned: Vec<Vec<u32>> = faces.iter().map(<[u32]>::to_vec).collect();
    turned[5].rotate_left(1);
    let turned = Mesh::new(vertices, turned.into_iter().collect()).unwrap();
    write_mesh(place.join("tr_reg_050.ply"), &turned, &[], &options).unwrap();
    write_mesh(place.join("tr_reg_060.ply"), &sphere(0), &[], &options).unwrap();
    let said = refusal(Dataset::open(&faust));
    let wrong = ["tr_reg_050.ply: ", "tr_reg_060.ply: ", "162", "320"];
    assert_mentions(&said, &wrong);
    // Trouble with the first is not trouble with all.
    let other = fs::read(place.join("tr_reg_060.ply")).unwrap();
    for (content, told) in [(&b"ply\nnonsense"[..], 1), (&other, 2)] {
        fs::write(&first, content).unwrap();
        let problems = check(&faust, None).problems;
        let about = |name: &str| problems.iter().filter(|p| p.contains(name)).count();
        assert_eq!(about("tr_reg_000.ply"), told, "{problems:#?}");
        assert_eq!(about("tr_reg_001.ply:"), 0, "{problems:#?}");
    }
}

#[test]
fn bodies_in_other_meshings_have_the_classes_of_the_template() {
    let folder = tempdir().unwrap();
    let bodies = BodiesConfig { count: 5, vertices: 500, ..Default::default() };
    let dataset = Dataset::open(&DataConfig::Bodies(bodies)).unwrap();
    let body = dataset.mesh(Split::Test, 0).unwrap();
    // The layout of the public benchmark: the nearest template vertex of each vertex, one a line.
    let half = gemcnn_mesh::remesh::Simplify { size: gemcnn_mesh::remesh::MeshSize::Ratio(0.5) };
    let coarse = gemcnn_mesh::remesh::remesh(&body, &half, 1).unwrap();
    let numbers: Vec<u32> = (0..body.vertex_count() as u32).collect();
    let labels = gemcnn_mesh::remesh::carry_labels(&coarse.sources, &numbers);
    let place = folder.path().join("data/iso/tr_reg_iso_004");
    write(&place.with_extension("ply"), &coarse.mesh, &[]);
    let text: Vec<String> = labels.iter().map(u32::to_string).collect();
    fs::write(place.with_extension("txt"), text.join("\n")).unwrap();
    // The benchmark itself, and its folder `data`.
    for root in [folder.path().to_path_buf(), folder.path().join("data")] {
        let other = dataset.in_other_meshing(&root, "iso").unwrap();
        assert_eq!((other.len(Split::Train), other.len(Split::Test)), (0, 1));
        assert_eq!(other.template(), dataset.template());
        let split = other.split(Split::Test, &Preparation::default(), &Cache::none());
        let sample = split.unwrap().load(0).unwrap();
        assert_eq!(sample.target, Target::Classes(labels.clone()));
        assert_eq!(sample.graph().vertex_count(), coarse.mesh.vertex_count());
    }
    assert!(dataset.in_other_meshing(folder.path(), "qes").is_err());
    // A label outside the template and a mesh without labels are errors, not scores.
    fs::write(place.with_extension("txt"), "500\n".repeat(labels.len())).unwrap();
    let other = dataset.in_other_meshing(folder.path(), "iso").unwrap();
    let split = other.split(Split::Test, &Preparation::default(), &Cache::none());
    split.unwrap().load(0).unwrap_err();
    fs::remove_file(place.with_extension("txt")).unwrap();
    assert!(dataset.in_other_meshing(folder.path(), "iso").is_err());
}

#[test]
fn a_remeshed_version_is_the_same_from_the_cache() {
    let bodies = BodiesConfig { count: 2, vertices: 500, ..Default::default() };
    let dataset = Dataset::open(&DataConfig::Bodies(bodies)).unwrap();
    let folder = tempdir().unwrap();
    let augmentation = Augmentation { versions: 2, ..Default::default() };
    let load = |cache: &Cache, version: usize| {
        let split = dataset.split(Split::Train, &Preparation::default(), cache);
        let split = split.unwrap().augmented(&augmentation).unwrap();
        split.load(version).unwrap()
    };
    let cache = Cache::new(folder.path());
    for version in 0..3 {
        let made = load(&cache, version);
        let stored = load(&cache, version);
        assert_eq!(stored.hierarchy, made.hierarchy);
        assert_eq!(stored.target, made.target);
        assert_eq!(stored.target, load(&Cache::none(), version).target);
        let Target::Classes(labels) = &stored.target else { panic!("no labels") };
        assert_eq!(labels.len(), stored.graph().vertex_count());
        let own: Vec<u32> = (0..500).collect();
        assert_eq!(*labels == own, version == 0);
    }
}

#[test]
fn fields_of_the_files_are_features_that_follow_the_mesh() {
    let folder = tempdir().unwrap();
    let root = folder.path();
    for name in ["a", "b", "c"] {
        let mesh = sphere(name.as_bytes()[0].into());
        let heights = mesh.vertices().iter().map(|p| p.z).collect();
        let splits = mesh.vertices().iter().map(|p| u8::from(p.y > 0.0)).collect();
        let attributes = [("height", AttributeValues::F64(heights)), ("label", AttributeValues::U8(splits))];
        write(&root.join(format!("{name}.ply")), &mesh, &attributes);
        write_vectors(&root.join(format!("{name}.wind.npy")), &mesh, |p| [p.z, 1.0, -p.x]);
    }
    fs::write(root.join("dataset.toml"), "task = 'segmentation'\n[target]\nproperty = 'label'\n").unwrap();
    let dataset = Dataset::open(&DataConfig::Folder(root.into())).unwrap();
    let preparation =
        Preparation { features: FeatureConfig::of_kinds("field:height,vector:wind").unwrap(), ..Default::default() };
    assert_eq!(preparation.features.kind().to_string(), "2x0 + 1x1");
    let augmentation =
        Augmentation { versions: 2, rotate: serde_json::from_str("\"all\"").unwrap(), ..Default::default() };
    let split = dataset.split(Split::Train, &preparation, &Cache::none());
    let split = split.unwrap().augmented(&augmentation).unwrap();
    for version in 0..3 {
        let sample = split.load(version).unwrap();
        let rows = sample.features.chunks_exact(4);
        assert_eq!(rows.len(), sample.graph().vertex_count());
        let mut largest = 0.0f32;
        for row in rows {
            // The height is z, and the wind has the length of (x, 1, z), wherever the mesh is turned to.
            let squared: f32 = row[1..].iter().map(|split| split * split).sum();
            assert!(row[0].abs() < 1.2 && (0.9..2.5).contains(&squared), "{row:?}");
            assert!(squared > row[0] * row[0] + 0.9, "{row:?}");
            largest = largest.max(row[0]);
        }
        assert!(largest > 0.8);
    }
    // Another field gives another entry of the cache.
    let cache = Cache::new(root.join("cache"));
    let load = || {
        let split = dataset.split(Split::Train, &preparation, &cache).unwrap();
        split.load(0).unwrap().features
    };
    let before = load();
    for name in ["a", "b", "c"] {
        let zeros = vec![0.0; 3 * sphere(1).vertex_count()];
        fs::write(root.join(format!("{name}.wind.npy")), npy_f32(&zeros, Some(3))).unwrap();
    }
    let after = load();
    assert!(before.iter().zip(&after).any(|(a, b)| a != b));
    assert!(after.chunks_exact(4).all(|row| row[1..] == [0.0; 3]));
    // What is not there, has no name, or has the wrong size is an error that names it.
    for features in ["field:pressure", "vector:height", "field", "vector:../a"] {
        let preparation = Preparation { features: FeatureConfig::of_kinds(features).unwrap(), ..Default::default() };
        let split = dataset.split(Split::Train, &preparation, &Cache::none());
        assert!(split.unwrap().load(0).is_err(), "{features}");
    }
    for name in ["a", "b", "c"] {
        fs::write(root.join(format!("{name}.wind.npy")), npy_f32(&[1.0; 9], Some(3))).unwrap();
    }
    let split = dataset.split(Split::Train, &preparation, &Cache::none());
    assert!(split.unwrap().load(0).is_err());
}

#[test]
fn clouds_of_points_are_surfaces_too() {
    let folder = tempdir().unwrap();
    let mesh = shapes::icosphere(4).unwrap().map_vertices(|p| DVec3::new(p.x, 0.7 * p.y, 0.5 * p.z)).unwrap();
    let cloud = |name: &str| {
        let seed = name.as_bytes()[0].into();
        gemcnn_mesh::remesh::sample(&mesh, 2500, seed).unwrap()
    };
    for name in ["a", "b", "c"] {
        let cloud = cloud(name);
        let splits: Vec<u8> = (cloud.mesh.vertices().iter()).map(|p| u8::from(p.x > 0.0)).collect();
        let path = folder.path().join(format!("{name}.ply"));
        write(&path, &cloud.mesh, &[("label", AttributeValues::U8(splits))]);
    }
    fs::write(folder.path().join("dataset.toml"), "task = 'segmentation'\n[target]\nproperty = 'label'\n").unwrap();
    let config = DataConfig::Folder(folder.path().into());
    let checked = check(&config, None);
    assert_eq!(checked.problems, Vec::<String>::new());
    assert!(checked.notes.iter().any(|note| note.contains("connected")));
    let preparation = Preparation {
        features: FeatureConfig::of_kind("hks").unwrap(),
        extras: vec![Eigenvectors([30, 10, 0]).into()],
        ..Default::default()
    };
    let dataset = Dataset::open(&config).unwrap();
    let split = dataset.split(Split::Train, &preparation, &Cache::none());
    let sample = split.unwrap().load(0).unwrap();
    assert_eq!(sample.graph().vertex_count(), 2500);
    // Signatures are those of the surface that the points come from.
    let known = preparation.prepare("mesh", &mesh).unwrap().features;
    let known: Vec<f64> = known.iter().map(|&value| value.into()).collect();
    let cloud = cloud(&sample.name);
    let known = gemcnn_mesh::remesh::carry_values(&cloud.sources, 16, &known);
    let pairs = sample.features.iter().zip(&known);
    let error: f64 = pairs.map(|(&a, b)| (f64::from(a) - b).powi(2)).sum();
    let size: f64 = known.iter().map(|b| b * b).sum();
    assert!((error / size).sqrt() < 0.02, "{}", (error / size).sqrt());
    let read = SurfaceFile::read(&folder.path().join("a.ply"), &preparation.features).unwrap();
    assert!(read.mesh.face_count() > 4800 && read.notes.len() == 1);
}

#[test]
fn mirrored_versions_exchange_left_and_right() {
    let folder = tempdir().unwrap();
    let root = folder.path();
    for name in ["a", "b", "c"] {
        let mesh = sphere(name.as_bytes()[0].into());
        let split = |p: &DVec3| match p.x {
            x if x < -0.3 => 1,
            x if x > 0.3 => 2,
            _ => 0,
        };
        let splits = mesh.vertices().iter().map(split).collect();
        write(&root.join(format!("{name}.ply")), &mesh, &[("label", AttributeValues::U8(splits))]);
        write_vectors(&root.join(format!("{name}.wind.npy")), &mesh, |p| [p.z, 1.0 + p.x, -p.x]);
    }
    let text = "task = 'segmentation'\n[target]\nproperty = 'label'\n";
    fs::write(root.join("dataset.toml"), text).unwrap();
    let dataset = Dataset::open(&DataConfig::Folder(root.into())).unwrap();
    let preparation =
        Preparation { features: FeatureConfig::of_kinds("xyz,vector:wind").unwrap(), ..Default::default() };
    let augmentation = |pairs: &str| Augmentation {
        versions: 8,
        remesh: false,
        mirror: serde_json::from_str("\"x\"").unwrap(),
        mirrored_classes: serde_json::from_str(pairs).unwrap(),
        ..Default::default()
    };
    let split = || dataset.split(Split::Train, &preparation, &Cache::none()).unwrap();
    let pairs = r#"[["1", "2"]]"#;
    let samples = split().augmented(&augmentation(pairs)).unwrap();
    let plain = samples.load(0).unwrap();
    let x = |sample: &gemcnn_tasks::Sample| -> Vec<f32> { sample.features.chunks_exact(6).map(|row| row[0]).collect() };
    let mut mirrored = 0;
    for version in 1..9 {
        let sample = samples.load(version).unwrap();
        if x(&sample) == x(&plain) {
            assert_eq!(sample.target, plain.target);
            continue;
        }
        mirrored += 1;
        let Target::Classes(labels) = &sample.target else { panic!("no labels") };
        let rows = sample.features.chunks_exact(6);
        for ((row, label), original) in rows.zip(labels).zip(plain.features.chunks_exact(6)) {
            // Left stays left, the normal split of a vector stays, and so does its length.
            assert_eq!(row[0], -original[0]);
            assert_eq!(*label, if row[0] < -0.3 { 1 } else { 2 * u32::from(row[0] > 0.3) });
            assert!((row[3] - original[3]).abs() < 1e-5);
            let tangent = |row: &[f32]| row[4] * row[4] + row[5] * row[5];
            assert!((tangent(row) - tangent(original)).abs() < 1e-4);
        }
    }
    assert!((1..8).contains(&mirrored));
    assert!(split().augmented(&augmentation(r#"[["1", "7"]]"#)).is_err());
}
