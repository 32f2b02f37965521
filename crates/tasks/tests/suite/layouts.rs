//! Layouts of data sets that people have: folders of labels, label files of several kinds, splits that are drawn.

use gemcnn_mesh::{
    AttributeValues, Faces, Mesh, VertexAttribute, WriteOptions, shapes, write_mesh as write_values,
    write_mesh_with_faces,
};
use gemcnn_nn::Target;
use gemcnn_tasks::data::{Cache, DataConfig, Dataset, Preparation, Split, check};
use gemcnn_tasks::{DataError, Element, SampleSource, Task, TaskError};
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
    let text = if path.extension().is_some_and(|ending| ending == "csv") { format!("label\n{text}") } else { text };
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

/// A text file in a folder that may not exist yet.
fn write_text(path: &Path, text: String) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A line for each row.
fn rows(count: usize, row: impl Fn(usize) -> String) -> String {
    (0..count).map(|number| row(number) + "\n").collect()
}

/// A surface and values of its vertices as GIFTI files in text.
fn gifti(kind: &str, values: &[(&str, [usize; 2], String)]) -> String {
    let arrays: String = values
        .iter()
        .map(|(intent, [rows, columns], data)| {
            let kind = if data.contains('.') { "FLOAT32" } else { "INT32" };
            let second = if *columns > 1 { format!(" Dim1=\"{columns}\"") } else { String::new() };
            let dimensions = if *columns > 1 { 2 } else { 1 };
            format!(
                "<DataArray Intent=\"NIFTI_INTENT_{intent}\" DataType=\"NIFTI_TYPE_{kind}\" \
                 ArrayIndexingOrder=\"RowMajorOrder\" Dimensionality=\"{dimensions}\" Dim0=\"{rows}\"{second} \
                 Encoding=\"ASCII\" Endian=\"LittleEndian\"><Data>{data}</Data></DataArray>"
            )
        })
        .collect();
    let count = values.len();
    format!(
        "<?xml version=\"1.0\"?><GIFTI Version=\"1.0\" NumberOfDataArrays=\"{count}\"><!--{kind}-->{arrays}</GIFTI>"
    )
}

fn gifti_surface(mesh: &Mesh) -> String {
    let points: String = mesh.vertices().iter().map(|p| format!("{:.6} {:.6} {:.6} ", p.x, p.y, p.z)).collect();
    let corners: String = mesh.faces().iter().map(|f| format!("{} {} {} ", f[0], f[1], f[2])).collect();
    let (vertices, faces) = (mesh.vertex_count(), mesh.face_count());
    gifti("surface", &[("POINTSET", [vertices, 3], points), ("TRIANGLE", [faces, 3], corners)])
}

/// Files of a few meshes in the layout of a public data set.
type Layout = (&'static str, Task, Element, fn(&Path, usize));

const LAYOUTS: [Layout; 12] = [
    ("COSEG", Task::Segmentation, Element::Face, |folder, number| {
        write_mesh(&folder.join(format!("shapes/{number}.off")), number);
        write_text(&folder.join(format!("gt/{number}.seg")), rows(80, |face| (1 + face % 3).to_string()));
    }),
    ("Princeton", Task::Segmentation, Element::Face, |folder, number| {
        write_mesh(&folder.join(format!("off/{number}.off")), number);
        for person in 0..2 {
            let path = folder.join(format!("seg/Benchmark/{number}/{number}_{person}.seg"));
            write_text(&path, rows(80, |face| (face % 3).to_string()));
        }
    }),
    ("SHREC 2011", Task::Classification, Element::Mesh, |folder, number| {
        write_mesh(&folder.join(format!("T{number}.off")), number);
        let list = "PSB 1\n2 6\n\nant 0 3\n0\n2\n4\n\nbear 0 3\n1\n3\n5\n";
        write_text(&folder.join("test.cla"), list.into());
    }),
    ("SHREC 2016", Task::Classification, Element::Mesh, |folder, number| {
        let split = if number < 4 { "train" } else { "test" };
        write_mesh(&folder.join(format!("{}/{split}/T{number}.obj", ["ant", "bear"][number % 2])), number);
    }),
    ("ModelNet", Task::Classification, Element::Mesh, |folder, number| {
        let class = ["bed", "sofa"][number % 2];
        let split = if number < 4 { "train" } else { "test" };
        write_mesh(&folder.join(format!("{class}/{split}/{class}_{number:04}.off")), number);
    }),
    ("ShapeNetPart", Task::Segmentation, Element::Vertex, |folder, number| {
        let class = ["02691156", "03001627"][number % 2];
        write_mesh(&folder.join(format!("{class}/points/a{number}f.ply")), number);
        write_labels(&folder.join(format!("{class}/points_label/a{number}f.seg")), number);
    }),
    ("PartNet", Task::Segmentation, Element::Vertex, |folder, number| {
        write_mesh(&folder.join(format!("{}/model.obj", 1000 + number)), number);
        let word = |vertex: usize| if vertex <= number { "leg" } else { "seat" }.to_string();
        write_text(&folder.join(format!("{}/labels.txt", 1000 + number)), rows(42, word));
    }),
    ("Teeth3DS", Task::Segmentation, Element::Vertex, |folder, number| {
        let jaw = ["lower", "upper"][number % 2];
        let stem = folder.join(format!("{jaw}/0{number}AB/0{number}AB_{jaw}"));
        write_mesh(&stem.with_extension("obj"), number);
        let labels: Vec<u32> = sphere(number).1.iter().map(|label| 11 * label).collect();
        let text = format!("{{\"id_patient\": \"0{number}AB\", \"jaw\": \"{jaw}\", \"labels\": {labels:?}}}");
        write_text(&stem.with_extension("json"), text);
    }),
    ("Fusion 360", Task::Segmentation, Element::Face, |folder, number| {
        write_mesh(&folder.join(format!("meshes/20440_{number}.obj")), number);
        write_text(&folder.join(format!("seg/20440_{number}.seg")), rows(80, |face| (face % 3).to_string()));
    }),
    ("ABC", Task::Segmentation, Element::Face, |folder, number| {
        let stem = folder.join(format!("{number:08}/{number:08}_ab_trimesh_001"));
        write_mesh(&stem.with_extension("obj"), number);
        let kind = |face: usize| ["Plane", "Cylinder"][usize::from(face > 40)].to_string();
        write_text(&stem.with_extension("txt"), rows(80, kind));
    }),
    ("HCP", Task::Segmentation, Element::Vertex, |folder, number| {
        for (side, number) in [("L", number), ("R", number + 6)] {
            let (mesh, labels) = sphere(number);
            let stem = format!("{}/MNINonLinear/fsaverage_LR32k/{0}.{side}", 100_000 + number % 6);
            let file = |rest: &str| folder.join(format!("{stem}.{rest}.32k_fs_LR"));
            write_text(&file("midthickness").with_added_extension("surf.gii"), gifti_surface(&mesh));
            let text = labels.iter().map(|label| format!("{label} ")).collect();
            let labels = gifti("label", &[("LABEL", [42, 1], text)]);
            write_text(&file("aparc").with_added_extension("label.gii"), labels);
            let thickness = gifti("shape", &[("SHAPE", [42, 1], rows(42, |vertex| format!("{vertex}.5")))]);
            write_text(&file("thickness").with_added_extension("shape.gii"), thickness);
        }
    }),
    ("DrivAerML", Task::Regression, Element::Face, |folder, number| {
        write_mesh(&folder.join(format!("run_{number}/drivaer_{number}.stl")), number);
        let field = |name: &str| VertexAttribute::new(name, AttributeValues::F32(vec![0.5; 80]));
        let path = folder.join(format!("run_{number}/boundary_{number}.vtp"));
        let fields = [field("pMeanTrim"), field("CpMeanTrim")];
        write_mesh_with_faces(&path, &sphere(number).0, &[], &fields, &WriteOptions::default()).unwrap();
    }),
];

#[test]
fn layouts_of_public_data_sets_need_no_or_the_proposed_words() {
    for (name, task, per, write) in LAYOUTS {
        let folder = TempDir::new().unwrap();
        (0..6).for_each(|number| write(folder.path(), number));
        let proposed = match open(&folder, task) {
            Ok(_) => String::new(),
            Err(TaskError::Data(DataError::Ambiguous { example, .. })) => example,
            Err(other) => panic!("{name}: {other}"),
        };
        if !proposed.is_empty() {
            fs::write(folder.path().join("dataset.toml"), &proposed).unwrap();
        }
        println!("{name}: {} lines", proposed.lines().filter(|line| !line.is_empty()).count());
        let asks = ["Princeton", "DrivAerML"].contains(&name);
        assert_eq!(proposed.is_empty(), !asks, "{name}: {proposed}");
        let report = check(&DataConfig::Folder(folder.path().into()), Some(task));
        assert_eq!(report.problems, Vec::<String>::new(), "{name}");
        let meshes: usize = report.splits.iter().map(|split| split.meshes).sum();
        let expected = if name == "HCP" { 12 } else { 6 };
        assert_eq!((report.per, meshes), (per, expected), "{name}");
        let known: usize = report.splits.iter().map(|split| split.known).sum();
        let rows = match per {
            Element::Face => 80,
            Element::Mesh => 1,
            _ => 42,
        };
        assert_eq!(known, expected * rows, "{name}");
        let dataset = open(&folder, task).unwrap();
        assert!(targets(&dataset, Split::Train).len() > 2, "{name}");
    }
}

#[test]
fn words_in_label_files_are_classes() {
    let folder = TempDir::new().unwrap();
    for number in 0..4 {
        write_mesh(&folder.path().join(format!("scan{number}.ply")), number);
        let word = |vertex: usize| match vertex {
            41 => "-1",
            _ if vertex <= number => "tooth",
            _ => "gum",
        };
        let header = if number % 2 == 0 { "" } else { "tooth\n" };
        let from = usize::from(!header.is_empty());
        let words = header.to_string() + &rows(42 - from, |row| word(row + from).into());
        fs::write(folder.path().join(format!("scan{number}.csv")), words).unwrap();
    }
    let dataset = open(&folder, Task::Segmentation).unwrap().all_for_testing();
    assert_eq!(dataset.classes().unwrap().names(), ["gum", "tooth"]);
    for (number, (_, target)) in targets(&dataset, Split::Test).iter().enumerate() {
        let mut expected = sphere(number).1;
        expected[41] = gemcnn_nn::IGNORE;
        assert_eq!(*target, Target::Classes(expected));
    }
    // A first word that all files share and that is nowhere else is a header.
    for number in 0..4 {
        let path = folder.path().join(format!("scan{number}.csv"));
        fs::write(path, "part\n".to_string() + &rows(42, |row| if row > 7 { "gum" } else { "tooth" }.into())).unwrap();
    }
    let dataset = open(&folder, Task::Segmentation).unwrap();
    assert_eq!(dataset.classes().unwrap().names(), ["gum", "tooth"]);
    let notes = || check(&DataConfig::Folder(folder.path().into()), None).notes;
    let suspects = |notes: Vec<String>| notes.iter().filter(|note| note.contains("`tooht` on scan3")).count();
    assert_eq!(suspects(notes()), 0);
    let misspelt = "part\n".to_string() + &rows(42, |row| if row > 7 { "gum" } else { "tooht" }.into());
    fs::write(folder.path().join("scan3.csv"), misspelt).unwrap();
    assert_eq!(suspects(notes()), 1);
    // A word among numbers is a mistake in its file.
    for number in 0..4 {
        write_labels(&folder.path().join(format!("scan{number}.csv")), number);
    }
    let path = folder.path().join("scan2.csv");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.trim_end().strip_suffix('0').unwrap().to_string() + "oops\n").unwrap();
    let config = DataConfig::Folder(folder.path().into());
    let dataset = Dataset::open_with(&config, Some(Task::Segmentation), false).unwrap();
    assert_eq!((dataset.classes().unwrap().count(), dataset.skipped().len()), (2, 1));
}

#[test]
fn bad_targets_are_left_out_like_bad_meshes() {
    let folder = TempDir::new().unwrap();
    for number in 0..8 {
        write_mesh(&folder.path().join(format!("scan{number}.ply")), number);
        write_labels(&folder.path().join(format!("scan{number}.txt")), number);
    }
    fs::write(folder.path().join("scan0.ply"), "ply\nnonsense").unwrap();
    fs::write(folder.path().join("scan1.txt"), "0\n1\n").unwrap();
    fs::write(folder.path().join("scan2.txt"), "0.5\n".repeat(42)).unwrap();
    fs::remove_file(folder.path().join("scan3.txt")).unwrap();
    let config = DataConfig::Folder(folder.path().into());
    let dataset = Dataset::open_with(&config, Some(Task::Segmentation), false).unwrap();
    assert_eq!(dataset.skipped().len(), 4, "{:?}", dataset.skipped());
    let meshes: usize = Split::ALL.iter().map(|&split| dataset.len(split)).sum();
    assert_eq!(meshes, 4);
    assert!(Dataset::open_with(&config, Some(Task::Segmentation), true).is_err());
    // Classes that are given are compared when samples are loaded.
    let description = "task = 'segmentation'\nclasses = ['a', 'b']\ntarget.files = '{name}.txt'\n\
                       split.fractions.train = 1.0\n";
    fs::write(folder.path().join("dataset.toml"), description).unwrap();
    fs::write(folder.path().join("scan4.txt"), "7\n".repeat(42)).unwrap();
    let dataset = Dataset::open_with(&config, None, false).unwrap();
    let mut samples = dataset.split(Split::Train, &Preparation::default(), &Cache::none()).unwrap();
    let unusable = samples.load_usable(&|| true, &|_| {}).unwrap();
    assert_eq!((unusable.len(), samples.len()), (5, 3));
}

#[test]
fn the_same_files_in_two_splits_are_found() {
    let folder = TempDir::new().unwrap();
    for (number, name) in ["train/a", "train/b", "test/c", "test/d"].iter().enumerate() {
        let (mesh, labels) = sphere(number % 3);
        let label = VertexAttribute::new("label", AttributeValues::U32(labels));
        let path = folder.path().join(format!("{name}.ply"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_values(path, &mesh, &[label], &WriteOptions::default()).unwrap();
    }
    let dataset = open(&folder, Task::Segmentation).unwrap();
    assert_eq!(dataset.in_training(Split::Test, &dataset), ["test/d.ply"]);
    assert!(dataset.in_training(Split::Train, &dataset).is_empty());
    // In another data set, the same name counts too.
    let other = TempDir::new().unwrap();
    write_mesh(&other.path().join("train/b.obj"), 5);
    write_labels(&other.path().join("train/b.txt"), 5);
    let other = open(&other, Task::Segmentation).unwrap();
    assert_eq!(other.in_training(Split::Train, &dataset), ["train/b.obj"]);
}

/// A glTF file with its data in a `.bin` file beside it, and labels.
fn write_gltf(path: &Path, number: usize) {
    let (mesh, labels) = sphere(number);
    let points = mesh.vertices().iter().flat_map(|p| p.to_array()).flat_map(|x| (x as f32).to_le_bytes());
    let corners = mesh.faces().iter().flatten().flat_map(|corner| corner.to_le_bytes());
    let labels = labels.iter().map(|&label| label as u8);
    fs::write(path.with_extension("bin"), points.chain(corners).chain(labels).collect::<Vec<u8>>()).unwrap();
    let stem = path.file_stem().unwrap().to_str().unwrap();
    let text = format!(
        r#"{{"asset":{{"version":"2.0"}},"buffers":[{{"uri":"{stem}.bin","byteLength":1506}}],
"bufferViews":[{{"buffer":0,"byteLength":504}},{{"buffer":0,"byteOffset":504,"byteLength":960}},
{{"buffer":0,"byteOffset":1464,"byteLength":42}}],
"accessors":[{{"bufferView":0,"componentType":5126,"count":42,"type":"VEC3"}},
{{"bufferView":1,"componentType":5125,"count":240,"type":"SCALAR"}},
{{"bufferView":2,"componentType":5121,"count":42,"type":"SCALAR"}}],
"meshes":[{{"primitives":[{{"attributes":{{"POSITION":0,"_label":2}},"indices":1}}]}}]}}"#
    );
    fs::write(path, text).unwrap();
}

#[test]
fn gltf_files_with_their_data_beside_them_are_meshes() {
    let folder = TempDir::new().unwrap();
    (0..4).for_each(|number| write_gltf(&folder.path().join(format!("a{number}.gltf")), number));
    let cache = TempDir::new().unwrap();
    let cache = Cache::new(cache.path());
    let read = || {
        let dataset = open(&folder, Task::Segmentation).unwrap().all_for_testing();
        let samples = dataset.split(Split::Test, &Preparation::default(), &cache).unwrap();
        (samples.load(1).unwrap(), samples.checksum(1).unwrap())
    };
    let (sample, checksum) = read();
    assert_eq!(sample.target, Target::Classes(sphere(1).1));
    // A change of the data is a change of the mesh, although its own file stays the same.
    let text = fs::read(folder.path().join("a1.gltf")).unwrap();
    write_gltf(&folder.path().join("a1.gltf"), 9);
    assert_eq!(fs::read(folder.path().join("a1.gltf")).unwrap(), text);
    let (changed, other) = read();
    assert_ne!(checksum, other);
    assert_ne!(sample.areas, changed.areas);
    fs::remove_file(folder.path().join("a1.bin")).unwrap();
    let config = DataConfig::Folder(folder.path().into());
    let dataset = Dataset::open_with(&config, Some(Task::Segmentation), false).unwrap();
    assert!(dataset.skipped()[0].contains("a1.bin"), "{:?}", dataset.skipped());
}
