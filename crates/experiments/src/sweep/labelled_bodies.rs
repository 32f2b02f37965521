//! Data sets of synthetic bodies with labelled parts, in several densities and conditions.

use crate::output::{invalid, open_shared};
use gemcnn_mesh::remesh::{MeshSize, Simplify, carry_labels, remesh};
use gemcnn_mesh::shapes::{BodyFamily, BodyOptions};
use gemcnn_mesh::{AttributeValues, DVec3, Mesh, VertexAttribute, WriteOptions, write_mesh};
use gemcnn_tasks::data::{BodiesConfig, DESCRIPTION_FILE, DataConfig, Description, OneOrMany};
use gemcnn_tasks::{Task, TaskError};
use rayon::prelude::*;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::path::Path;

/// Name of the labels in the files.
const PROPERTY: &str = "part";

/// Vertices of the densest bodies, relative to those of training.
const DENSEST: usize = 50;

/// Synthetic bodies with labelled parts: 64 % for training, 16 % for validation, 20 % for testing.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LabelledBodies {
    /// Number of bodies (default 100).
    pub count: usize,
    /// Vertices of the training bodies (default 1,000).
    pub vertices: usize,
    /// Gives each body a mesh of its own (default false). All densities then show the same surface with the same borders
    /// of classes; otherwise the bodies of a density share one mesh and its labels.
    pub own_meshes: bool,
}

impl Default for LabelledBodies {
    fn default() -> Self {
        Self { count: 100, vertices: 1000, own_meshes: false }
    }
}

/// How bodies of a test differ from those of training.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BodyChange {
    /// Number of vertices, relative to training (default 1).
    pub vertices: f64,
    /// Factor of all coordinates (default 1).
    pub scale: f64,
    /// Translation after the scaling (default none).
    pub shift: [f64; 3],
    /// Pulls one vertex out by the height of the body (default false).
    pub outlier: bool,
}

impl Default for BodyChange {
    fn default() -> Self {
        Self { vertices: 1.0, scale: 1.0, shift: [0.0; 3], outlier: false }
    }
}

impl BodyChange {
    fn apply(self, body: Mesh) -> Result<Mesh, TaskError> {
        let shift = DVec3::from_array(self.shift);
        let body = match (self.scale, shift) == (1.0, DVec3::ZERO) {
            true => body,
            false => body.map_vertices(|point| self.scale * point + shift).map_err(invalid("body"))?,
        };
        if !self.outlier {
            return Ok(body);
        }
        let [low, high] = body.bounds().unwrap_or_default();
        let height = (high - low).max_element();
        let (mut vertices, faces) = body.into_parts();
        let chosen = vertices.len() / 3;
        vertices[chosen] += DVec3::new(0.3, 0.2, 0.93).normalize() * height;
        Mesh::new(vertices, faces).map_err(invalid("body"))
    }
}

/// Writes data sets in a directory. Those that are there already are kept.
pub(super) struct Writer<'a> {
    bodies: &'a LabelledBodies,
    directory: &'a Path,
    /// Numbers of the bodies for training, validation and testing.
    splits: [Range<usize>; 3],
    /// Families made before, by their numbers of vertices.
    families: BTreeMap<usize, BodyFamily>,
}

impl<'a> Writer<'a> {
    pub fn new(bodies: &'a LabelledBodies, directory: &'a Path) -> Result<Self, TaskError> {
        let count = bodies.count;
        let (training, validation) = (count.saturating_mul(64) / 100, count.saturating_mul(80) / 100);
        let is_sound = BodiesConfig::sound_count(count).is_ok();
        if !is_sound || training == 0 || validation == training || validation == count {
            let problem = format!("{count} bodies are too few or too many: from 3 to 100,000");
            return Err(TaskError::setting("bodies", problem));
        }
        let splits = [0..training, training..validation, validation..count];
        Ok(Self { bodies, directory, splits, families: BTreeMap::new() })
    }

    /// The bodies of training, in all splits.
    pub fn training(&mut self, name: &str) -> Result<DataConfig, TaskError> {
        self.write(name, BodyChange::default(), self.splits.clone())
    }

    /// The test bodies, changed.
    pub fn changed(&mut self, name: &str, change: BodyChange) -> Result<DataConfig, TaskError> {
        self.write(name, change, [0..0, 0..0, self.splits[2].clone()])
    }

    fn write(&mut self, name: &str, change: BodyChange, splits: [Range<usize>; 3]) -> Result<DataConfig, TaskError> {
        let LabelledBodies { count, vertices: training, own_meshes } = *self.bodies;
        let vertices = (change.vertices * training as f64) as usize;
        // Bodies with meshes of their own are simplified, each for itself, from the densest ones.
        let (source_vertices, suffix) = if own_meshes { (DENSEST * training, "-own") } else { (vertices, "") };
        let folder = self.directory.join(format!("{name}-{count}-{vertices}{suffix}"));
        let data = DataConfig::Folder(folder.clone());
        let description = folder.join(DESCRIPTION_FILE);
        if description.exists() {
            return Ok(data);
        }
        let family = match self.families.entry(source_vertices) {
            Entry::Occupied(family) => family.into_mut(),
            Entry::Vacant(place) => {
                let options = BodyOptions { vertices: source_vertices, ..Default::default() };
                place.insert(BodyFamily::new(&options).map_err(invalid("bodies"))?)
            }
        };
        let meshes = folder.join("meshes");
        std::fs::create_dir_all(&meshes).map_err(TaskError::file(&meshes))?;
        let _held = (open_shared(&folder)?, open_shared(&meshes)?);
        let labels: Vec<u8> = family.segments().iter().map(|part| part.label()).collect();
        let numbers: Vec<usize> = splits.iter().cloned().flatten().collect();
        numbers.into_par_iter().try_for_each(|number| {
            let body = family.body(number as u64);
            let (body, labels) = match vertices < source_vertices {
                false => (body, labels.clone()),
                true => {
                    let fewer = remesh(&body, &Simplify { size: MeshSize::Vertices(vertices) }, 0)
                        .map_err(invalid("bodies"))?;
                    let labels = carry_labels(&fewer.sources, &labels);
                    (fewer.mesh, labels)
                }
            };
            let labels = VertexAttribute::new(PROPERTY, AttributeValues::U8(labels));
            let path = meshes.join(BodiesConfig::body_name(number) + ".ply");
            Ok::<_, TaskError>(write_mesh(&path, &change.apply(body)?, &[labels], &WriteOptions::default())?)
        })?;
        let mut described = Description::new(Task::Segmentation);
        described.meshes = "meshes".into();
        described.target.property = Some(OneOrMany::One(PROPERTY.into()));
        // The description completes the data set.
        let names = |numbers: Range<usize>| numbers.map(BodiesConfig::body_name).collect();
        described.write(&folder, splits.map(|numbers| (!numbers.is_empty()).then(|| names(numbers))))?;
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_mesh::shapes;
    use gemcnn_tasks::data::{Dataset, Split};

    #[test]
    fn changes_move_all_vertices_or_one() {
        let body = shapes::icosphere(3).unwrap();
        let change = BodyChange { scale: 1000.0, shift: [3000.0, -500.0, 200.0], ..Default::default() };
        let units = change.apply(body.clone()).unwrap();
        let length = |mesh: &Mesh| mesh.vertices()[0].distance(mesh.vertices()[1]);
        assert!((length(&units) / length(&body) - 1000.0).abs() < 1e-6);
        let spiked = BodyChange { outlier: true, ..Default::default() }.apply(body.clone()).unwrap();
        let pairs = body.vertices().iter().zip(spiked.vertices());
        let moved: Vec<f64> = pairs.map(|(a, b)| a.distance(*b)).collect();
        assert_eq!(moved.iter().filter(|&&moved| moved > 0.0).count(), 1);
        assert!((moved.iter().sum::<f64>() - 2.0).abs() < 1e-9);
        assert_eq!(BodyChange::default().apply(body.clone()).unwrap(), body);
    }

    #[test]
    fn data_sets_are_written_once() {
        let folder = tempfile::tempdir().unwrap();
        let bodies = LabelledBodies { count: 7, ..Default::default() };
        let half = BodyChange { vertices: 0.5, ..Default::default() };
        let write = |bodies: &LabelledBodies| {
            let data = Writer::new(bodies, folder.path()).unwrap().changed("half", half).unwrap();
            let dataset = Dataset::open(&data).unwrap();
            let DataConfig::Folder(folder) = data else { panic!("no folder") };
            (dataset, folder)
        };
        let (dataset, made) = write(&bodies);
        assert_eq!((dataset.len(Split::Train), dataset.len(Split::Test)), (0, 2));
        assert_eq!(dataset.mesh(Split::Test, 0).unwrap().vertex_count(), 500);
        let file = made.join(DESCRIPTION_FILE);
        let time = || std::fs::metadata(&file).unwrap().modified().unwrap();
        let before = time();
        write(&bodies);
        assert_eq!(time(), before);
        let (dataset, _) = write(&LabelledBodies { own_meshes: true, vertices: 500, ..bodies });
        let [first, second] = [0, 1].map(|at| dataset.mesh(Split::Test, at).unwrap());
        assert_eq!([first.vertex_count(), second.vertex_count()], [250, 250]);
        assert_ne!(first.faces(), second.faces());
        let too_few = LabelledBodies { count: 2, ..bodies };
        assert!(Writer::new(&too_few, folder.path()).is_err());
    }
}
