//! Data sets of synthetic bodies with parts, in several densities and conditions.

use super::{SEED, Settings};
use crate::runs::{TestSet, hold};
use gemcnn_mesh::remesh::{Isotropic, MeshSize, RemeshKind, Resample, Simplify, carry_labels, remesh};
use gemcnn_mesh::shapes::{BodyFamily, BodyOptions};
use gemcnn_mesh::{AttributeValues, DVec3, Mesh, VertexAttribute, WriteOptions, write_atomically, write_mesh};
use gemcnn_tasks::data::{
    BodiesConfig, DESCRIPTION_FILE, DataConfig, Dataset, Description, OneOrMany, PerSplit, Split,
};
use gemcnn_tasks::evaluation::EvaluationOptions;
use gemcnn_tasks::{Task, TaskError};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::path::{Path, PathBuf};

/// Name of the labels in the files.
const PROPERTY: &str = "part";

/// Vertices of the densest bodies, relative to those of training.
const DENSEST: usize = 50;

/// A condition under which models are tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Other bodies of the density and meshing of the training bodies.
    AsTrained,
    /// The same bodies with half of the vertices.
    Half,
    /// The same bodies with seven times the vertices.
    Sevenfold,
    /// The same bodies with fifty times the vertices.
    Fiftyfold,
    /// Rotated at random.
    Rotated,
    /// In units a thousand times smaller, and away from the origin.
    Units,
    /// With one vertex pulled out by the height of the body.
    Outlier,
    /// Remeshed isotropically, with twice the vertices.
    Isotropic,
    /// Marched on a lattice, with slivers and coincident vertices.
    Marched,
}

impl Condition {
    /// All conditions, in the order of the table.
    pub const ALL: [Self; 9] = [
        Self::AsTrained,
        Self::Half,
        Self::Sevenfold,
        Self::Fiftyfold,
        Self::Rotated,
        Self::Units,
        Self::Outlier,
        Self::Isotropic,
        Self::Marched,
    ];

    /// Short name.
    pub fn word(self) -> &'static str {
        match self {
            Self::AsTrained => "as-trained",
            Self::Half => "half",
            Self::Sevenfold => "x7",
            Self::Fiftyfold => "x50",
            Self::Rotated => "rotated",
            Self::Units => "units",
            Self::Outlier => "outlier",
            Self::Isotropic => "iso",
            Self::Marched => "mc",
        }
    }

    /// How the test meshes are changed when they are read.
    pub(super) fn options(self, split: Split) -> EvaluationOptions {
        let meshing = match self {
            Self::Isotropic => {
                Some(RemeshKind::Isotropic(Isotropic { size: MeshSize::EdgeLength(0.7), ..Isotropic::default() }))
            }
            Self::Marched => Some(RemeshKind::Resample(Resample { resolution: 26 })),
            _ => None,
        };
        EvaluationOptions {
            split,
            rotation: (self == Self::Rotated).then_some(SEED),
            meshing: meshing.map(|kind| (kind, SEED)),
            ..Default::default()
        }
    }

    /// Vertices of the bodies, if their files differ from those of training.
    fn vertices(self, training: usize) -> Option<usize> {
        match self {
            Self::Half => Some(training / 2),
            Self::Sevenfold => Some(7 * training),
            Self::Fiftyfold => Some(DENSEST * training),
            Self::Units | Self::Outlier => Some(training),
            Self::AsTrained | Self::Rotated | Self::Isotropic | Self::Marched => None,
        }
    }

    /// The body as its file has it.
    fn apply(self, body: Mesh) -> Result<Mesh, TaskError> {
        let refuse = |error: gemcnn_mesh::MeshError| TaskError::setting("body", error.to_string());
        match self {
            Self::Units => {
                let shift = DVec3::new(3000.0, -500.0, 200.0);
                body.map_vertices(|p| 1000.0 * p + shift).map_err(refuse)
            }
            Self::Outlier => {
                let [low, high] = body.bounds().unwrap_or_default();
                let height = (high - low).max_element();
                let (mut vertices, faces) = body.into_parts();
                let chosen = vertices.len() / 3;
                vertices[chosen] += DVec3::new(0.3, 0.2, 0.93).normalize() * height;
                Mesh::new(vertices, faces).map_err(refuse)
            }
            _ => Ok(body),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The training data, and the test sets of all conditions. Files that are there already are kept.
pub(super) fn make(settings: &Settings, directory: &Path) -> Result<(DataConfig, Vec<TestSet<Condition>>), TaskError> {
    let count = settings.bodies;
    let training = count * 64 / 100;
    let validation = count * 80 / 100;
    let sound = BodiesConfig::sound_count(count).ok().filter(|_| training > 0);
    if sound.is_none() || validation == training || validation == count {
        let problem = format!("{count} bodies are too few or too many: from 3 to 100,000");
        return Err(TaskError::setting("bodies", problem));
    }
    let parts = [0..training, training..validation, validation..count];
    let mut families = BTreeMap::new();
    let mut written = |condition, parts: &_| written(settings, directory, condition, parts, &mut families);
    let folder = written(Condition::AsTrained, &parts)?;
    let data = DataConfig::Folder(folder);
    let dataset = Dataset::open_for(&data, Task::Segmentation)?;
    let mut tests = Vec::new();
    for condition in Condition::ALL {
        let dataset = match condition.vertices(settings.vertices) {
            None => dataset.clone(),
            Some(_) => {
                let parts = [0..0, 0..0, validation..count];
                let folder = written(condition, &parts)?;
                Dataset::open_for(&DataConfig::Folder(folder), Task::Segmentation)?
            }
        };
        tests.push(TestSet { condition, dataset, options: condition.options(Split::Test) });
    }
    Ok((data, tests))
}

/// Writes the bodies of a condition as a data set, unless it is there. Returns its folder. `families` are those made
/// before, by their numbers of vertices.
fn written(
    settings: &Settings,
    directory: &Path,
    condition: Condition,
    parts: &[std::ops::Range<usize>; 3],
    families: &mut BTreeMap<usize, BodyFamily>,
) -> Result<PathBuf, TaskError> {
    let vertices = condition.vertices(settings.vertices).unwrap_or(settings.vertices);
    // Bodies without a common mesh are simplified, each for itself, from the densest ones.
    let (of_family, suffix) = match settings.is_registered {
        true => (vertices, ""),
        false => (DENSEST * settings.vertices, "-own"),
    };
    let word = condition.word();
    let name = format!("{word}-{}-{vertices}{suffix}", settings.bodies);
    let folder = directory.join(name);
    let description = folder.join(DESCRIPTION_FILE);
    if description.exists() {
        return Ok(folder);
    }
    let family = match families.entry(of_family) {
        Entry::Occupied(made) => made.into_mut(),
        Entry::Vacant(place) => {
            let options = BodyOptions { vertices: of_family, ..Default::default() };
            let family = BodyFamily::new(&options).map_err(|error| TaskError::setting("bodies", error.to_string()))?;
            place.insert(family)
        }
    };
    let meshes = folder.join("meshes");
    std::fs::create_dir_all(&meshes).map_err(TaskError::file(&meshes))?;
    let _held = (hold(&folder)?, hold(&meshes)?);
    let labels: Vec<u8> = family.segments().iter().map(|part| part.label()).collect();
    let numbers: Vec<usize> = parts.iter().cloned().flatten().collect();
    numbers.into_par_iter().try_for_each(|number| {
        let path = meshes.join(BodiesConfig::body_name(number) + ".ply");
        let body = family.body(number as u64);
        let (body, labels) = match vertices < of_family {
            true => {
                let fewer = remesh(&body, &Simplify { size: MeshSize::Vertices(vertices) }, 0)
                    .map_err(|error| TaskError::setting("bodies", error.to_string()))?;
                let labels = carry_labels(&fewer.sources, &labels);
                (fewer.mesh, labels)
            }
            false => (body, labels.clone()),
        };
        let labels = VertexAttribute::new(PROPERTY, AttributeValues::U8(labels));
        let mesh = condition.apply(body)?;
        Ok::<_, TaskError>(write_mesh(&path, &mesh, &[labels], &WriteOptions::default())?)
    })?;
    let write = |path: &Path, text: String| {
        write_atomically(path, |file| file.write_all(text.as_bytes())).map_err(TaskError::file(path))
    };
    let mut lists = [None, None, None];
    for ((part, numbers), list) in Split::ALL.into_iter().zip(parts).zip(&mut lists) {
        if !numbers.is_empty() {
            let file = PathBuf::from(format!("{part}.txt"));
            let names = numbers.clone().map(|n| BodiesConfig::body_name(n) + "\n");
            write(&folder.join(&file), names.collect())?;
            *list = Some(file);
        }
    }
    let [train, validation, test] = lists;
    let mut described = Description::new(Task::Segmentation);
    described.meshes = "meshes".into();
    described.target.property = Some(OneOrMany::One(PROPERTY.into()));
    described.split.files = Some(PerSplit { train, validation, test });
    // The description completes the data set.
    write(&description, described.to_toml())?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_mesh::shapes;

    #[test]
    fn conditions_change_units_or_one_vertex() {
        let body = shapes::icosphere(3).unwrap();
        let units = Condition::Units.apply(body.clone()).unwrap();
        let length = |mesh: &Mesh| mesh.vertices()[0].distance(mesh.vertices()[1]);
        assert!((length(&units) / length(&body) - 1000.0).abs() < 1e-6);
        let spiked = Condition::Outlier.apply(body.clone()).unwrap();
        let pairs = body.vertices().iter().zip(spiked.vertices());
        let moved: Vec<f64> = pairs.map(|(a, b)| a.distance(*b)).collect();
        assert_eq!(moved.iter().filter(|&&moved| moved > 0.0).count(), 1);
        assert!((moved.iter().sum::<f64>() - 2.0).abs() < 1e-9);
        assert_eq!(Condition::Rotated.apply(body.clone()).unwrap(), body);
    }

    #[test]
    fn data_sets_of_all_conditions_are_written_once() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings { bodies: 7, vertices: 1000, ..Default::default() };
        let mut families = BTreeMap::new();
        let mut write = |settings: &Settings, condition, parts: &_| {
            written(settings, folder.path(), condition, parts, &mut families).unwrap()
        };
        let parts = [0..0, 0..0, 5..7];
        let made = write(&settings, Condition::Half, &parts);
        let dataset = Dataset::open(&DataConfig::Folder(made.clone())).unwrap();
        assert_eq!((dataset.len(Split::Train), dataset.len(Split::Test)), (0, 2));
        assert_eq!(dataset.mesh(Split::Test, 0).unwrap().vertex_count(), 500);
        let file = made.join(DESCRIPTION_FILE);
        let time = std::fs::metadata(&file).unwrap().modified().unwrap();
        write(&settings, Condition::Half, &parts);
        assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), time);
        let own = Settings { is_registered: false, vertices: 500, ..settings.clone() };
        let parts = [0..2, 0..0, 0..0];
        let made = write(&own, Condition::AsTrained, &parts);
        let dataset = Dataset::open(&DataConfig::Folder(made)).unwrap();
        let [first, second] = [0, 1].map(|at| dataset.mesh(Split::Train, at).unwrap());
        assert_eq!([first.vertex_count(), second.vertex_count()], [500, 500]);
        assert_ne!(first.faces(), second.faces());
        let few = Settings { bodies: 2, ..settings };
        assert!(make(&few, folder.path()).is_err());
    }
}
