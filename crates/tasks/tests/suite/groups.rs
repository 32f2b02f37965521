//! Groups of meshes that stay on one side of every split.

use crate::data::sphere;
use gemcnn_mesh::{AttributeValues, VertexAttribute, WriteOptions, write_mesh};
use gemcnn_tasks::data::{
    Cache, DataConfig, Dataset, GroupSource, GroupTable, Preparation, Split, SplitConfig, ValidationUnit, check,
};
use gemcnn_tasks::{SampleSource, Task, TaskError};
use std::collections::BTreeSet;
use std::fs;
use tempfile::{TempDir, tempdir};

/// Labelled spheres with these names.
fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> TempDir {
    let folder = tempdir().unwrap();
    for (number, name) in names.into_iter().enumerate() {
        let mesh = sphere(number as u64);
        let labels = mesh.vertices().iter().map(|p| i32::from(p.z > 0.0)).collect();
        let labels = VertexAttribute::new("label", AttributeValues::I32(labels));
        let path = folder.path().join(format!("{name}.ply"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_mesh(path, &mesh, &[labels], &WriteOptions::default()).unwrap();
    }
    folder
}

fn open(folder: &TempDir, split: &SplitConfig) -> Result<Dataset, TaskError> {
    Dataset::open_split(&DataConfig::Folder(folder.path().into()), split, None, true)
}

fn names(dataset: &Dataset, split: Split) -> BTreeSet<String> {
    (0..dataset.len(split)).map(|index| dataset.mesh_name(split, index).to_owned()).collect()
}

/// The parts of names before `__`, in each split.
fn groups(dataset: &Dataset) -> [BTreeSet<String>; 3] {
    let group = |name: String| name.split("__").next().unwrap_or_default().to_owned();
    Split::ALL.map(|split| names(dataset, split).into_iter().map(group).collect())
}

fn people() -> Vec<String> {
    let sizes = [("ann", 6), ("bob", 3), ("cem", 3), ("dan", 4), ("eva", 4)];
    sizes.iter().flat_map(|(name, size)| (0..*size).map(move |number| format!("{name}__{number}"))).collect()
}

#[test]
fn a_group_is_in_one_split() {
    let people = people();
    let folder = named(people.iter().map(String::as_str));
    let dataset = open(&folder, &SplitConfig::default()).unwrap();
    assert_eq!(dataset.groups(), ["ann", "bob", "cem", "dan", "eva"]);
    let whole = dataset.clone().with_validation(0.1).unwrap();
    for dataset in [&dataset, &whole] {
        let [train, validation, test] = groups(dataset);
        assert!(train.is_disjoint(&test) && train.is_disjoint(&validation) && validation.is_disjoint(&test));
        assert_eq!(train.len() + validation.len() + test.len(), 5);
        // A fifth of 20 meshes.
        assert!((3..=4).contains(&dataset.len(Split::Test)));
    }
    assert_eq!(groups(&whole)[1].len(), 1);
    let report = check(&DataConfig::Folder(folder.path().into()), None);
    assert!(report.notes.iter().any(|note| note.contains("ann 6")), "{:?}", report.notes);
    // Meshes of the groups that are for training.
    let split = SplitConfig { validation: ValidationUnit::Meshes, ..Default::default() };
    let single = open(&folder, &split).unwrap().with_validation(0.2).unwrap();
    assert!(!groups(&single)[0].is_disjoint(&groups(&single)[1]));
    // As before there were groups.
    let none = SplitConfig { groups: Some(GroupSource::Inferred(false)), ..Default::default() };
    let none = open(&folder, &none).unwrap();
    assert_eq!((none.groups().len(), none.len(Split::Test)), (0, 4));
}

#[test]
fn a_fold_tests_on_one_group() {
    let people = people();
    let folder = named(people.iter().map(String::as_str));
    // Also where the data set has splits of its own.
    fs::write(folder.path().join("test.txt"), "ann__0\n").unwrap();
    let mut tested = BTreeSet::new();
    for (place, name) in ["ann", "bob", "cem", "dan", "eva"].into_iter().enumerate() {
        let split = SplitConfig { fold: Some(place + 1), ..Default::default() };
        let dataset = open(&folder, &split).unwrap().with_validation(0.1).unwrap();
        let [train, validation, test] = groups(&dataset);
        assert_eq!(test, BTreeSet::from([name.to_owned()]));
        assert_eq!((train.len(), validation.len()), (3, 1));
        tested.extend(names(&dataset, Split::Test));
    }
    assert_eq!(tested.len(), people.len());
    for fold in [0, 6] {
        assert!(open(&folder, &SplitConfig { fold: Some(fold), ..Default::default() }).is_err());
    }
    let bodies = SplitConfig { fold: Some(1), ..Default::default() };
    assert!(Dataset::open_split(&DataConfig::default(), &bodies, None, true).is_err());
}

#[test]
fn groups_are_inferred_only_where_they_are_obvious() {
    let found = |names: &[&str]| {
        let folder = named(names.iter().copied());
        let data = DataConfig::Folder(folder.path().into());
        Dataset::open_for(&data, Task::Segmentation).unwrap().groups().to_vec()
    };
    assert_eq!(found(&["p/1", "p/2", "q/1", "q/2"]), ["p", "q"]);
    assert_eq!(found(&["m/p_1", "m/p_2", "m/q_1", "m/q_2"]), ["p", "q"]);
    assert_eq!(found(&["a_x__1", "a_x__2", "b_x__1", "b_x__2"]), ["a_x", "b_x"]);
    let none: [String; 0] = [];
    // One group, a group of one mesh, names without groups, folders of splits.
    assert_eq!(found(&["s_1", "s_2", "s_3", "s_4"]), none);
    assert_eq!(found(&["p_1", "p_2", "q_1", "q_2", "r_1"]), none);
    assert_eq!(found(&["p1", "p2", "q1", "q2"]), none);
    assert_eq!(found(&["train/1", "train/2", "test/1", "test/2"]), none);
    // Classes are no groups.
    let folder = named(["cat_1", "cat_2", "dog_1", "dog_2"]);
    fs::write(folder.path().join("dataset.toml"), "task = 'classification'\ntarget.pattern = '{class}_*'").unwrap();
    assert_eq!(open(&folder, &SplitConfig::default()).unwrap().groups(), none);
}

#[test]
fn groups_come_from_a_table_or_a_pattern() {
    let folder = named(["a-1", "a-2", "b-1", "b-2", "c-1", "c-2"]);
    let of = |groups: Option<GroupSource>| {
        let split = SplitConfig { groups, ..Default::default() };
        open(&folder, &split).map(|dataset| dataset.groups().to_vec())
    };
    assert!(of(None).unwrap().is_empty());
    let pattern = |text: &str| Some(GroupSource::Pattern(text.into()));
    assert_eq!(of(pattern("{group}-*")).unwrap(), ["a", "b", "c"]);
    assert_eq!(of(pattern("*-{group}")).unwrap(), ["1", "2"]);
    for wrong in ["a-*", "{group}_*", "?{group}?"] {
        assert!(of(pattern(wrong)).is_err(), "{wrong}");
    }
    let table = "name,age,scanner\na-1,3,x\na-2,4,x\nb-1,5,y\nb-2,4,y\nc-1,3,y\nc-2,4,y\n";
    fs::write(folder.path().join("people.csv"), table).unwrap();
    let table = |column: &str| {
        let column = Some(gemcnn_tasks::data::Column::Name(column.into()));
        Some(GroupSource::Table(GroupTable { table: "people.csv".into(), column }))
    };
    assert_eq!(of(table("scanner")).unwrap(), ["x", "y"]);
    assert!(of(table("height")).is_err());
    // The table with a known name is found, and the description comes before it.
    fs::copy(folder.path().join("people.csv"), folder.path().join("subjects.csv")).unwrap();
    assert!(of(None).unwrap().is_empty(), "a group of one mesh");
    fs::write(folder.path().join("groups.csv"), "a-1,x\na-2,x\nb-1,y\nb-2,y\nc-1,y\nc-2,y\n").unwrap();
    assert_eq!(of(None).unwrap(), ["x", "y"]);
    let text = "task = 'segmentation'\ntarget.property = 'label'\nsplit.groups = '{group}-*'";
    fs::write(folder.path().join("dataset.toml"), text).unwrap();
    assert_eq!(of(None).unwrap(), ["a", "b", "c"]);
}

#[test]
fn copies_are_changed_and_always_the_same() {
    let people = people();
    let folder = named(people.iter().map(String::as_str));
    let dataset = open(&folder, &SplitConfig::default()).unwrap();
    let split = || dataset.split(Split::Train, &Preparation::default(), &Cache::none()).unwrap();
    let (plain, copies) = (split(), split().copies());
    assert!(plain.len() > 10);
    assert!(copies.len() % 5 == 0 && (5 * 6..=5 * 10).contains(&copies.len()), "{}", copies.len());
    let first = plain.load(0).unwrap();
    let again = split().copies();
    for index in 0..5 {
        let copy = copies.load(index).unwrap();
        assert_ne!(copy.features, first.features, "{index}");
        assert_eq!(copy, again.load(index).unwrap());
    }
    // Half the vertices; smoothing, noise and bending keep them.
    let vertices = |index: usize| copies.load(index).unwrap().graph().vertex_count();
    assert!(vertices(1) * 2 <= first.graph().vertex_count() + 2);
    assert_eq!([2, 3, 4].map(vertices), [first.graph().vertex_count(); 3]);
}
