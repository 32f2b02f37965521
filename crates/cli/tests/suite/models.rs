//! `gemcnn eval` and `gemcnn predict` as a user runs them, on models trained a moment before.

use crate::folder::Folder;
use gemcnn_mesh::shapes::{self, BodyFamily, BodyOptions, Cells};
use gemcnn_mesh::{AttributeValues, DVec3, Mesh, MeshFile, VertexAttribute, WriteOptions};
use gemcnn_mesh::{read_mesh, write_mesh};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Stdio;

const SMALL: &str = "[model]\nkind = 'gem'\nblocks = 2\nchannels = 3\nscalars = 8\nhead = 16\n";

/// Trains a small network in `runs/NAME`.
#[track_caller]
fn train(project: &Folder, name: &str, config: &str) -> String {
    fs::write(project.path(&format!("{name}.toml")), config).unwrap();
    let run = format!("runs/{name}");
    project.succeed(&["train", &format!("{name}.toml"), "--run-dir", &run, "-q"])
}

fn column<'a>(file: &'a MeshFile, name: &str) -> &'a AttributeValues {
    let found = file.attributes.iter().find(|a| a.name == name);
    &found.unwrap_or_else(|| panic!("no column {name}")).values
}

/// Numbers of a `.npy` file with a header of the first version.
fn array<T>(path: &Path, descr: &str, number: fn([u8; 8]) -> T) -> Vec<T> {
    let bytes = fs::read(path).unwrap();
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = String::from_utf8(bytes[10..10 + length].to_vec()).unwrap();
    assert!(header.contains(descr), "{header}");
    let numbers = bytes[10 + length..].as_chunks::<8>().0;
    numbers.iter().map(|&bytes| number(bytes)).collect()
}

/// Names of the files in a folder that are not hidden, sorted.
fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = (fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    names
}

fn is_png(path: &Path) -> bool {
    fs::read(path).unwrap()[1..4] == *b"PNG"
}

fn write_labelled(path: &Path, mesh: &Mesh, labels: Vec<i32>) {
    let label = VertexAttribute::new("label", AttributeValues::I32(labels));
    write_mesh(path, mesh, &[label], &WriteOptions::default()).unwrap();
}

fn ellipsoid(index: i32) -> Mesh {
    let stretch = DVec3::new(1.0, 1.0 + 0.05 * f64::from(index), 1.0);
    let sphere = shapes::icosphere(2).unwrap();
    sphere.map_vertices(|p| p * stretch).unwrap()
}

/// Ellipsoids in a folder `jaws`, their upper half labelled 11 and the lower one 3.
fn jaws(project: &Folder) {
    fs::create_dir(project.path("jaws")).unwrap();
    for index in 0..10 {
        let mesh = ellipsoid(index);
        let label = |p: &DVec3| if p.z > 0.0 { 11 } else { 3 };
        let labels = mesh.vertices().iter().map(label).collect();
        write_labelled(&project.path(&format!("jaws/jaw{index}.ply")), &mesh, labels);
    }
}

#[test]
fn segmentation_from_training_to_coloured_meshes() {
    let project = Folder::on_cpu();
    jaws(&project);
    let config = format!(
        "task = 'segmentation'\nfeatures = 'xyz'\ngeometry.normalise = false\n[data]\nfolder = 'jaws'\n{SMALL}[training]\nepochs = 20\nbatch = 2\n"
    );
    let text = train(&project, "jaws", &config);
    assert!(text.contains("runs/jaws/predictions"), "{text}");
    assert_eq!(files(&project.path("runs/jaws/predictions")).len(), 2 * 3);

    let remeshed: Value =
        serde_json::from_str(&project.succeed(&["eval", "runs/jaws", "--remesh", "subdivide", "--json"])).unwrap();
    assert_eq!(remeshed["scores"]["counted"], 2 * 642);
    assert!(project.path("runs/jaws/eval-test-subdivide.json").exists());
    project.fail(&["eval", "runs/jaws", "--remesh", "smooth"], 2);
    let text = project.succeed(&["eval", "runs/jaws"]);
    for part in ["test split: 2 meshes", "accuracy", "as 11", "intersection over union"] {
        assert!(text.contains(part), "{text}");
    }
    let report = project.json("runs/jaws/eval-test.json");
    let accuracy = report["scores"]["accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.9, "{report}");
    let confusion = report["classes"]["confusion"].as_array().unwrap();
    let times = |label: usize, found: usize| confusion[label][found].as_u64().unwrap();
    assert_eq!(times(0, 0) + times(0, 1) + times(1, 0) + times(1, 1), 2 * 162);
    assert_eq!((times(0, 0) + times(1, 1)) as f64 / 324.0, accuracy);
    let table = fs::read_to_string(project.path("runs/jaws/eval-test.csv")).unwrap();
    assert!(table.starts_with("class,label,counted,predicted,right\n3,3,"), "{table}");

    // Good and bad meshes, two of the same name, and a folder with results in it.
    fs::create_dir_all(project.path("scans/left")).unwrap();
    ellipsoid(20).write(project.path("scans/jaw.obj")).unwrap();
    ellipsoid(3).write(project.path("scans/left/jaw.off")).unwrap();
    fs::write(project.path("scans/broken.ply"), "ply\nformat ascii 1.0\nelem").unwrap();
    let predict = ["predict", "runs/jaws", "scans", "nowhere.ply", "-o", "scans/results", "--up", "z"];
    for _ in 0..2 {
        let message = project.fail(&predict, 1);
        for part in ["broken.ply", "nowhere.ply"] {
            assert!(message.contains(part), "{message}");
        }
        let names = files(&project.path("scans/results"));
        let wanted = ["jaw-2.npy", "jaw-2.ply", "jaw-2.png", "jaw.npy", "jaw.ply", "jaw.png"];
        assert_eq!(names, wanted);
    }
    for (name, original) in [("jaw", ellipsoid(20)), ("jaw-2", ellipsoid(3))] {
        let result = |ending: &str| project.path(&format!("scans/results/{name}.{ending}"));
        let file = read_mesh(result("ply")).unwrap();
        assert_eq!(file.mesh.vertices(), original.vertices());
        let AttributeValues::I32(labels) = column(&file, "label") else {
            panic!("labels are whole numbers");
        };
        let right = original.vertices().iter().zip(labels);
        let right = right.filter(|(p, label)| **label == if p.z > 0.0 { 11 } else { 3 });
        assert!(right.count() > 130, "{labels:?}");
        let stored: Vec<i64> = labels.iter().map(|&label| label.into()).collect();
        assert_eq!(array(&result("npy"), "'<i8'", i64::from_le_bytes), stored);
        assert_eq!(column(&file, "red").len(), 162);
        assert!(is_png(&result("png")));
    }

    // Several seeds; the second time nothing is trained again.
    let several = ["train", "jaws.toml", "--epochs", "2", "--seeds", "2", "--run-dir", "several"];
    let text = project.succeed(&several);
    for part in ["several/seed-1", "several/seed-2", "mean 0.", " ± "] {
        assert!(text.contains(part), "{text}");
    }
    let times = || {
        [1, 2].map(|seed| {
            let model = project.path(&format!("several/seed-{seed}/model.safetensors"));
            fs::metadata(model).unwrap().modified().unwrap()
        })
    };
    let before = times();
    assert!(project.succeed(&several).contains("mean 0."));
    assert_eq!(times(), before);
    project.fail(&["train", "jaws.toml", "--seeds", "0"], 2);

    // A run for each group, which is its test split.
    let said = project.fail(&["train", "jaws.toml", "--folds"], 1);
    assert!(said.contains("`groups`"), "{said}");
    let group = |index: usize| ["ann", "bob", "cem"][index % 3];
    let people: String = (0..10).map(|index| format!("jaw{index},{}\n", group(index))).collect();
    fs::write(project.path("jaws/people.csv"), people).unwrap();
    let grouped = format!("split.groups = {{ table = 'people.csv' }}\n{config}");
    fs::write(project.path("grouped.toml"), grouped).unwrap();
    let folds = ["train", "grouped.toml", "--epochs", "1", "--folds", "--run-dir", "folds"];
    let text = project.succeed(&folds);
    for part in ["ann", "bob", "cem", "folds/fold-3", "3 folds"] {
        assert!(text.contains(part), "{text}");
    }
    let evaluated: Value = serde_json::from_str(&project.succeed(&["eval", "folds/fold-1", "--json"])).unwrap();
    assert_eq!(evaluated["meshes"], 4);

    // Settings chosen on the validation split; the second time nothing is trained again.
    let tuned = ["train", "jaws.toml", "--epochs", "3", "--tune", "--run-dir", "tuned"];
    project.succeed(&tuned);
    let trials = project.json("tuned/tuning.json");
    let trials = trials.as_array().unwrap();
    assert!(trials.len() >= 6, "{trials:?}");
    let mut least = f64::INFINITY;
    for trial in trials {
        let error = trial["error"].as_f64().unwrap();
        assert!(trial["kept"] == false || error < least, "{trials:?}");
        if trial["kept"] == true {
            least = error;
        }
    }
    let chosen = project.path("tuned/chosen/model.safetensors");
    let before = fs::metadata(&chosen).unwrap().modified().unwrap();
    project.succeed(&tuned);
    assert_eq!(fs::metadata(&chosen).unwrap().modified().unwrap(), before);
    // There is no validation split to choose on.
    let blind = fs::read_to_string(project.path("jaws.toml")).unwrap() + "validation = 0.0\n";
    fs::write(project.path("blind.toml"), blind).unwrap();
    let runs = files(&project.path("runs"));
    project.fail(&["train", "blind.toml", "--tune"], 1);
    assert_eq!(files(&project.path("runs")), runs);
    project.fail(&["train", "jaws.toml", "--preset", "small"], 2);
    project.fail(&["train", "segmentation", "--preset", "tiny"], 2);

    // Probabilities, of a mesh and of the points of a cloud without faces.
    let cloud = gemcnn_mesh::remesh::sample(&ellipsoid(2), 500, 1).unwrap();
    write_mesh(project.path("cloud.ply"), &cloud.mesh, &[], &WriteOptions::default()).unwrap();
    let sure = ["predict", "runs/jaws", "jaws/jaw2.ply", "cloud.ply"];
    let sure = [&sure[..], &["-o", "sure", "--probabilities"]].concat();
    let [_, said] = project.run(&sure, 0);
    assert!(said.contains("cloud.ply"), "{said}");
    for (name, mesh) in [("jaw2", ellipsoid(2)), ("cloud", cloud.mesh)] {
        let file = read_mesh(project.path(&format!("sure/{name}.ply"))).unwrap();
        assert_eq!(file.mesh.vertices(), mesh.vertices());
        let shares = ["probability_3", "probability_11"].map(|name| column(&file, name));
        let (labels, confidence) = (column(&file, "label"), column(&file, "confidence"));
        let mut right = 0;
        for (vertex, p) in mesh.vertices().iter().enumerate() {
            let [lower, upper] = shares.map(|share| share.to_f64(vertex));
            assert!((lower + upper - 1.0).abs() < 1e-5);
            assert_eq!(confidence.to_f64(vertex), lower.max(upper));
            let label = if upper > lower { 11.0 } else { 3.0 };
            assert_eq!(labels.to_f64(vertex), label);
            right += usize::from((p.z > 0.0) == (label == 11.0));
        }
        assert!(right * 10 > mesh.vertex_count() * 8, "{name}: {right}");
        let array = fs::read(project.path(&format!("sure/{name}.probabilities.npy"))).unwrap();
        assert_eq!(array.len() % 64, (8 * mesh.vertex_count()) % 64);
        assert!(is_png(&project.path(&format!("sure/{name}.png"))));
    }

    // Results never lie among meshes, where they could replace labels.
    fs::write(project.path("jaws/jaw1.npy"), "labels").unwrap();
    for meshes in ["jaws", "jaws/jaw1.ply"] {
        let message = project.fail(&["predict", "runs/jaws", meshes, "-o", "jaws"], 2);
        assert!(message.contains("jaws/jaw1.ply") || message.contains("jaws/jaw0.ply"), "{message}");
    }
    let message = project.fail(&["predict", "runs/jaws", "scans", "-o", "jaws"], 1);
    assert!(message.contains("error: jaws: "), "{message}");
    let labels = fs::read_to_string(project.path("jaws/jaw1.npy"));
    assert_eq!(labels.unwrap(), "labels");
    // Nobody reads what is said.
    let unheard = ["predict", "runs/jaws", "jaws", "-o", "unheard", "--no-pictures", "--device", "cpu"];
    let mut child = project.gemcnn(&unheard).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(project.path("unheard/jaw9.ply").exists());
    // Results that cannot be written are shown all the same.
    fs::create_dir(project.path("runs/jaws/eval-train.json")).unwrap();
    // The earlier name of --split.
    let [text, _] = project.run(&["eval", "runs/jaws", "--part", "train"], 1);
    assert!(text.contains("accuracy"), "{text}");
    // Too large for single precision.
    let huge = ellipsoid(1).map_vertices(|p| 1e39 * p).unwrap();
    huge.write(project.path("huge.obj")).unwrap();
    let message = project.fail(&["predict", "runs/jaws", "huge.obj", "-o", "plain"], 1);
    assert!(message.contains("huge.obj: "), "{message}");
    assert!(!project.path("plain/huge.ply").exists());
    project.succeed(&["predict", "runs/jaws", "jaws/jaw1.ply", "-o", "plain", "--no-pictures"]);
    let message = project.fail(&["predict", "jaws/jaw1.ply", "runs/jaws", "-o", "new"], 2);
    assert!(message.contains("jaws/jaw1.ply"), "{message}");
    fs::rename(project.path("jaws"), project.path("moved")).unwrap();
    let message = project.fail(&["eval", "runs/jaws"], 1);
    assert!(message.contains("--data"), "{message}");
    project.succeed(&["eval", "runs/jaws", "--data", "moved"]);
    assert!(!project.path("plain/jaw1.png").exists());
    assert!(project.path("plain/jaw1.ply").exists());
}

#[test]
fn other_data_must_speak_of_the_same_classes() {
    let project = Folder::on_cpu();
    jaws(&project);
    let config = format!("task = 'segmentation'\n[data]\nfolder = 'jaws'\n{SMALL}[training]\nepochs = 1\n");
    train(&project, "jaws", &config);
    // One class of two: labels are matched, not positions.
    fs::create_dir(project.path("upper")).unwrap();
    fs::create_dir(project.path("teeth")).unwrap();
    for index in 0..3 {
        let upper = project.path(&format!("upper/jaw{index}.ply"));
        write_labelled(&upper, &ellipsoid(index), vec![11; 162]);
        let teeth = project.path(&format!("teeth/jaw{index}.ply"));
        write_labelled(&teeth, &ellipsoid(index), (0..162).map(|v| v % 3).collect());
    }
    let eval = ["eval", "runs/jaws", "--data", "upper", "--split", "train", "--json"];
    let report: Value = serde_json::from_str(&project.succeed(&eval)).unwrap();
    let classes = report["classes"]["classes"].as_array().unwrap();
    let counted: Vec<_> = classes.iter().map(|c| (c["label"].as_i64(), c["counted"].as_u64())).collect();
    assert_eq!(counted, [(Some(3), Some(0)), (Some(11), Some(2 * 162))]);
    assert_eq!(project.json("runs/jaws/eval-train-upper.json"), report);
    // All meshes of a folder without parts, but not those that the model was trained on.
    for (folder, part, meshes) in [("upper", &[][..], 3), ("upper", &["--split", "test"], 1), ("jaws", &[], 2)] {
        let eval = ["eval", "runs/jaws", "--data", folder, "--json"];
        let report = project.succeed(&[&eval, part].concat());
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["meshes"], meshes, "{folder} {part:?}");
    }
    let message = project.fail(&["eval", "runs/jaws", "--data", "teeth"], 1);
    assert!(message.contains("`0`"), "{message}");
    let message = project.fail(&["eval", "runs/jaws", "--data", "upper", "--split", "validation"], 1);
    assert!(message.contains("validation") && message.contains("--split"), "{message}");
    let message = project.fail(&["eval", "jaws"], 1);
    assert!(message.contains("model.safetensors"), "{message}");
}

#[test]
fn classes_of_whole_meshes_go_to_a_table() {
    let project = Folder::on_cpu();
    for class in ["ball, round", "ring"] {
        fs::create_dir_all(project.path("things").join(class)).unwrap();
    }
    for index in 0..6 {
        let ring = shapes::torus(16, 8, 2.0 + 0.1 * f64::from(index), 0.7, Cells::Triangles);
        let name = format!("{index}.ply");
        ring.unwrap().write(project.path("things/ring").join(&name)).unwrap();
        ellipsoid(index).write(project.path("things/ball, round").join(&name)).unwrap();
    }
    let config = format!(
        "task = 'classification'\n[data]\nfolder = 'things'\n[features]\nkind = 'matrix'\n{SMALL}\
         [training]\nepochs = 10\nbatch = 2\n"
    );
    let text = train(&project, "things", &config);
    assert!(!text.contains("predictions"), "{text}");
    let text = project.succeed(&["eval", "runs/things"]);
    assert!(text.contains("as ring"), "{text}");
    fs::write(project.path("bad.obj"), "v 1 2\n").unwrap();
    let message = project.fail(&["predict", "runs/things", "bad.obj", "things", "-o", "out"], 1);
    assert!(message.contains("bad.obj"), "{message}");
    let table = fs::read_to_string(project.path("out/classes.csv")).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "mesh,class,\"ball, round\",ring");
    assert_eq!(lines.len(), 1 + 12);
    for line in &lines[1..] {
        let mut cells = line.rsplit(',');
        let mut share = || cells.next().unwrap().parse::<f64>().unwrap();
        assert!((share() + share() - 1.0).abs() < 1e-5, "{line}");
    }
    let rings = lines.iter().filter(|line| line.starts_with("things/ring"));
    assert!(rings.filter(|line| line.contains(".ply,ring,")).count() >= 5, "{table}");
    // A table stays if there is nothing to replace it with, or if it is no result.
    project.fail(&["predict", "runs/things", "bad.obj", "-o", "out"], 1);
    let kept = fs::read_to_string(project.path("out/classes.csv")).unwrap();
    assert_eq!(kept, table);
    fs::write(project.path("things/classes.csv"), "0.ply,ring\n").unwrap();
    let message = project.fail(&["predict", "runs/things", "things", "-o", "things"], 1);
    assert!(message.contains("error: things: "), "{message}");
    let kept = fs::read_to_string(project.path("things/classes.csv")).unwrap();
    assert_eq!(kept, "0.ply,ring\n");
}

/// In units in which it is strong.
fn wind(p: &DVec3) -> DVec3 {
    500.0 * DVec3::Z.cross(*p)
}

#[test]
fn vectors_come_back_to_space() {
    let project = Folder::on_cpu();
    fs::create_dir(project.path("winds")).unwrap();
    for index in 0..5 {
        let mesh = ellipsoid(index);
        let winds: Vec<DVec3> = mesh.vertices().iter().map(wind).collect();
        let part = |axis: usize| AttributeValues::F32(winds.iter().map(|w| w[axis] as f32).collect());
        let columns = [("wx", 0), ("wy", 1), ("wz", 2)];
        let columns = columns.map(|(name, axis)| VertexAttribute::new(name, part(axis)));
        let path = project.path(&format!("winds/{index}.ply"));
        write_mesh(path, &mesh, &columns, &WriteOptions::default()).unwrap();
    }
    let config = format!("task = 'regression'\n[data]\nfolder = 'winds'\n{SMALL}[training]\nepochs = 30\nbatch = 1\n");
    train(&project, "winds", &config);
    let text = project.succeed(&["eval", "runs/winds"]);
    assert!(text.contains("degrees"), "{text}");
    let report = project.json("runs/winds/eval-test.json");
    let angle = report["regression"]["mean_angle"].as_f64().unwrap();
    assert!(angle < 45.0, "{report}");
    let explained = report["regression"]["explained"].as_f64().unwrap();
    assert!((0.3..1.0).contains(&explained), "{report}");
    let (a, b) = (&report["scores"]["error"], &report["regression"]["root_mean_square"]);
    assert!((a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-9, "{report}");
    project.succeed(&["predict", "runs/winds", "winds/4.ply", "-o", "out"]);
    let file = read_mesh(project.path("out/4.ply")).unwrap();
    let [x, y, z] = ["vx", "vy", "vz"].map(|name| column(&file, name));
    let (mut along, mut all) = (0.0, 0.0);
    for (vertex, p) in file.mesh.vertices().iter().enumerate() {
        let found = DVec3::new(x.to_f64(vertex), y.to_f64(vertex), z.to_f64(vertex));
        along += found.dot(wind(p));
        all += wind(p).length_squared();
    }
    let share = along / all;
    assert!((0.4..1.3).contains(&share), "{share} of the wind was found");
    assert!(is_png(&project.path("out/4.png")));
}

/// Synthetic bodies with features of a kind.
fn correspondence(features: &str, epochs: u64) -> String {
    format!(
        "task = 'correspondence'\n[data]\nbodies = {{ count = 6, vertices = 500, seed = 1 }}\n\
         [features]\nkind = '{features}'\n{SMALL}[training]\nepochs = {epochs}\nbatch = 1\n"
    )
}

#[test]
fn correspondence_is_measured_along_the_template() {
    let project = Folder::on_cpu();
    let text = train(&project, "bodies", &correspondence("xyz", 6));
    assert!(text.contains("predictions/body_005.png"), "{text}");
    assert!(is_png(&project.path("runs/bodies/predictions/body_005.png")));
    let template = read_mesh(project.path("runs/bodies/template.ply")).unwrap();
    let shown = read_mesh(project.path("runs/bodies/predictions/body_005.ply")).unwrap();
    let (labels, red) = (column(&shown, "label"), column(&shown, "red"));
    let template_red = column(&template, "red");
    for vertex in 0..500 {
        let class = labels.to_f64(vertex) as usize;
        assert_eq!(red.to_f64(vertex), template_red.to_f64(class), "{vertex}");
    }
    let text = project.succeed(&["eval", "runs/bodies", "--rotate", "3"]);
    assert!(text.contains("seed 3"), "{text}");
    assert!(text.contains("geodesic") && text.contains("worst"), "{text}");
    for ending in ["csv", "png", "svg"] {
        let file = format!("runs/bodies/eval-test-rotated-3.{ending}");
        assert!(project.path(&file).exists(), "{file}");
    }
    let report = project.json("runs/bodies/eval-test-rotated-3.json");
    let within: Vec<f64> = serde_json::from_value(report["geodesic"]["within"].clone()).unwrap();
    assert!(within.is_sorted(), "{within:?}");
    let accuracy = report["scores"]["accuracy"].as_f64().unwrap();
    assert!((within[0] - accuracy).abs() < 1e-9, "{report}");
    let still: Value = serde_json::from_str(&project.succeed(&["eval", "runs/bodies", "--json"])).unwrap();
    assert!(still["scores"]["accuracy"].as_f64().unwrap() > accuracy, "{still}");
}

#[test]
fn invariant_features_classify_rotated_bodies() {
    let project = Folder::on_cpu();
    let options = BodyOptions { vertices: 500, ..Default::default() };
    let body = BodyFamily::new(&options).unwrap().body(1);
    let turn = |p: DVec3| {
        let (sin, cos) = 2.1f64.sin_cos();
        DVec3::new(p.z + 1.0, cos * p.x - sin * p.y, sin * p.x + cos * p.y)
    };
    body.write(project.path("still.ply")).unwrap();
    body.map_vertices(turn).unwrap().write(project.path("turned.ply")).unwrap();
    let kept = |features: &str| {
        train(&project, features, &correspondence(features, 4));
        let run = format!("runs/{features}");
        project.succeed(&["predict", &run, "still.ply", "turned.ply", "-o", features, "--no-pictures"]);
        let labels = |name: &str| {
            let path = project.path(&format!("{features}/{name}.npy"));
            array(&path, "'<i8'", i64::from_le_bytes)
        };
        let (still, turned) = (labels("still"), labels("turned"));
        still.iter().zip(&turned).filter(|(a, b)| a == b).count()
    };
    assert!(kept("matrix") >= 498);
    assert!(kept("xyz") < 250);
}

#[test]
fn steps_of_the_recipe_are_tested_rotated_and_remeshed() {
    let project = Folder::on_cpu();
    jaws(&project);
    let experiment = ["experiment", "segmentation", "--data", "jaws"];
    let small = ["--seeds", "1", "--epochs", "1", "--out", "out"];
    let steps = ["--steps", "positions,resampled"];
    let command: Vec<&str> = [&experiment[..], &small, &steps].concat();
    let message = project.fail(&command, 1);
    assert!(message.contains("validation"), "{message}");
    let parts = "task = 'segmentation'\ntarget.property = 'label'\n\
                 split.fractions = { train = 0.6, validation = 0.4 }";
    fs::write(project.path("jaws/dataset.toml"), parts).unwrap();
    project.succeed(&command);
    let results = project.json("out/results.json");
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    let accuracy = |run: &Value, test: &str| run["tests"][test]["scores"]["accuracy"].as_f64().unwrap();
    for run in runs {
        let tests = run["tests"].as_object().unwrap();
        assert_eq!(tests.len(), 3, "{run}");
        for test in tests.keys() {
            let accuracy = accuracy(run, test);
            assert!(accuracy > 0.0 && accuracy < 1.0, "{test}: {accuracy}");
        }
    }
    // Invariant features do not change with a rotation.
    assert!((accuracy(&runs[1], "as-trained") - accuracy(&runs[1], "rotated")).abs() < 0.02, "{results}");
    // Finished runs are not repeated.
    let model = project.path("out/resampled-seed1/model.safetensors");
    let written = fs::metadata(&model).unwrap().modified().unwrap();
    project.succeed(&command);
    assert_eq!(fs::metadata(&model).unwrap().modified().unwrap(), written);
    project.fail(&["experiment", "segmentation", "--steps", "leap"], 2);
}
