//! Augmentation of the training meshes.

use super::classes::Classes;
use super::motions::{Mirrors, Rotations};
use crate::features::Fields;
use crate::registry::is_default;
use crate::{Element, Result, Task, TaskError};
use gemcnn_mesh::remesh::{
    Crop, FlipRandomly, Isotropic, Jitter, MeshSize, RefineLocally, RemeshKind, Remeshed, Resample, Sequence, Simplify,
    Subdivide, remesh,
};
use gemcnn_mesh::{Deformation, Mesh, Relief};
use gemcnn_nn::Target;
use glam::DMat3;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// Largest number of versions of a mesh.
const MAX_VERSIONS: usize = 10_000;
/// Largest number of rounds of smoothing.
const MAX_SMOOTH: usize = 1000;
/// Share of the versions that are cut, and largest number of small holes in them.
const CUT_VERSIONS: f64 = 0.5;
const HOLES: usize = 3;

/// Augmentation of the training meshes: the `[augmentation]` table of a configuration.
///
/// Every training mesh has a few versions: the mesh as it is, and versions that are rotated, deformed and remeshed at
/// random, with labels and values carried along. Every epoch visits one version of each mesh, chosen at random.
/// Versions are prepared once and cached, because eigenvectors take longer to compute than a step of training. Without
/// eigenvectors a mesh can have a new version in every epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Augmentation {
    /// Number of changed versions of each training mesh, besides the mesh as it is (default 0).
    pub versions: usize,
    /// Makes a new version of each mesh for every epoch instead (default false).
    pub every_epoch: bool,
    /// Remeshes the versions (default true).
    pub remesh: bool,
    /// Remeshers of the versions, in turn (default: a mixture of all remeshers with random settings).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remeshers: Vec<RemeshKind>,
    /// Random rotations of the versions (default: none).
    pub rotate: Rotations,
    /// Mirrors half of the versions, drawn at random (default: none).
    pub mirror: Mirrors,
    /// Pairs of classes, by name or label, that change places in a mirrored version: left and right (default: none).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mirrored_classes: Vec<[String; 2]>,
    /// Largest relative change of lengths along random axes (default 0).
    pub stretch: f64,
    /// Amplitude of smooth bending, relative to the size of the mesh (default 0).
    pub bend: f64,
    /// Largest amplitude of noise along the normals, relative to the mean edge length (default 0).
    #[serde(skip_serializing_if = "is_default")]
    pub roughen: f64,
    /// Largest number of rounds of smoothing (default 0).
    #[serde(skip_serializing_if = "is_default")]
    pub smooth: usize,
    /// Largest share of the area that is removed from half of the versions, with a few small holes (default 0).
    #[serde(skip_serializing_if = "is_default")]
    pub cut: f64,
    /// Models on surfaces: share of the vertices that each step sees, each moved to a random point of its cell; 0
    /// leaves all vertices in place (default 0).
    pub resample: f64,
}

impl Default for Augmentation {
    fn default() -> Self {
        Self {
            versions: 0,
            every_epoch: false,
            remesh: true,
            remeshers: Vec::new(),
            rotate: Rotations::None,
            mirror: Mirrors::None,
            mirrored_classes: Vec::new(),
            stretch: 0.0,
            bend: 0.0,
            roughen: 0.0,
            smooth: 0,
            cut: 0.0,
            resample: 0.0,
        }
    }
}

impl Augmentation {
    /// Checks all settings.
    ///
    /// # Errors
    /// The first invalid setting, with what is allowed.
    pub fn check(&self) -> Result<()> {
        let refuse = |what: &str, problem: String| Err(TaskError::setting(format!("augmentation.{what}"), problem));
        if self.versions > MAX_VERSIONS {
            return refuse("versions", format!("must be at most {MAX_VERSIONS}"));
        }
        if self.smooth > MAX_SMOOTH {
            return refuse("smooth", format!("must be at most {MAX_SMOOTH}"));
        }
        for (what, value, most) in [
            ("stretch", self.stretch, 0.9),
            ("bend", self.bend, 1.0),
            ("roughen", self.roughen, 1.0),
            ("cut", self.cut, 0.8),
            ("resample", self.resample, 1.0),
        ] {
            if !(0.0..=most).contains(&value) {
                return refuse(what, format!("{value} must be from 0 to {most}"));
            }
        }
        Ok(())
    }

    /// Number of prepared versions of each mesh, with the mesh itself.
    pub fn prepared_versions(&self) -> usize {
        if self.every_epoch { 1 } else { 1 + self.versions }
    }

    /// The change of a version of a mesh. It depends on the name and the number of vertices of the mesh and on the
    /// version. `None` for version 0, the mesh itself.
    pub(super) fn change(&self, name: &str, vertices: usize, version: u64) -> Option<Change> {
        let place = version.checked_sub(1)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&version.to_le_bytes());
        hasher.update(name.as_bytes());
        let mut random = ChaCha8Rng::from_seed(*hasher.finalize().as_bytes());
        let remesher = self.remesh.then(|| {
            let kind = match self.remeshers.is_empty() {
                true => mixed(place, vertices, &mut random),
                false => self.remeshers[(place % self.remeshers.len() as u64) as usize].clone(),
            };
            (kind, random.random())
        });
        let deformation = Deformation::draw(self.stretch, self.bend, &mut random);
        let rotation = self.rotate.draw(&mut random).map(DMat3::from_quat);
        let mirror = self.mirror.draw(&mut random);
        let relief = Relief::draw(self.roughen, self.smooth, &mut random);
        let crop = (self.cut > 0.0).then(|| self.crop(&mut random)).flatten();
        let remesher = match (remesher, crop) {
            (Some((kind, seed)), Some((crop, _))) => {
                Some((RemeshKind::Sequence(Sequence { steps: vec![kind, crop.into()] }), seed))
            }
            (None, Some((crop, seed))) => Some((crop.into(), seed)),
            (remesher, None) => remesher,
        };
        Some(Change {
            remesher,
            is_optional: true,
            relief,
            deformation,
            motion: match (rotation, mirror) {
                (Some(rotation), Some(mirror)) => Some(rotation * mirror),
                (rotation, mirror) => rotation.or(mirror),
            },
        })
    }

    /// A random part to remove and its seed; `None` if the version stays whole.
    fn crop(&self, random: &mut ChaCha8Rng) -> Option<(Crop, u64)> {
        let is_cut = random.random::<f64>() < CUT_VERSIONS;
        let share = self.cut * random.random::<f64>();
        let holes = random.random_range(0..=HOLES);
        let seed = random.random();
        is_cut.then_some((Crop { share, holes }, seed))
    }

    /// The class that takes the place of each class in a mirrored version. Empty if all stay.
    ///
    /// # Errors
    /// A correspondence, whose classes have no mirror images, targets at edges, or pairs that are not of the classes.
    pub(super) fn swaps(&self, (task, per): (Task, Element), classes: Option<&Classes>) -> Result<Vec<u32>> {
        if self.mirror != Mirrors::None && per == Element::Edge {
            let problem = "the edges of a mirrored mesh come in another order; leave it out for targets at edges";
            return Err(TaskError::setting("augmentation.mirror", problem));
        }
        if self.mirror != Mirrors::None && task == Task::Correspondence {
            let problem = "a mirrored vertex of the template is not known; leave it out for correspondence";
            return Err(TaskError::setting("augmentation.mirror", problem));
        }
        if self.mirrored_classes.is_empty() {
            return Ok(Vec::new());
        }
        let refuse = |problem: String| TaskError::setting("augmentation.mirrored_classes", problem);
        let Some(classes) = classes else { return Err(refuse("the data have no classes".into())) };
        let mut swaps: Vec<u32> = (0..classes.count() as u32).collect();
        for pair in &self.mirrored_classes {
            let [left, right] = pair.each_ref().map(|word| classes.named_or_labelled(word));
            let (Some(left), Some(right)) = (left, right) else {
                let names: Vec<String> = (0..classes.count()).map(|c| classes.name(c)).collect();
                let names = super::classes::listed(&names, 50);
                return Err(refuse(format!("{pair:?} are not two of {names}")));
            };
            if left == right || swaps[left] != left as u32 || swaps[right] != right as u32 {
                return Err(refuse(format!("{pair:?}: a class can be in one pair only")));
            }
            swaps.swap(left, right);
        }
        Ok(swaps)
    }
}

/// Number of changed copies of a mesh that test how robust a model is.
pub(super) const COPIES: usize = 5;

/// What meshes from elsewhere may differ in: the mesh, its density, how smooth or rough it is, and the pose.
pub(super) fn copy(name: &str, number: usize) -> Change {
    let mut random = ChaCha8Rng::from_seed(*blake3::hash(format!("copy {number} of {name}").as_bytes()).as_bytes());
    let remesher = match number {
        0 => Some(Isotropic::default().into()),
        1 => Some(Simplify { size: MeshSize::Ratio(0.5) }.into()),
        _ => None,
    };
    Change {
        remesher: remesher.map(|kind: RemeshKind| (kind, random.random())),
        is_optional: true,
        relief: match number {
            2 => Relief::draw(0.0, 20, &mut random),
            3 => Relief::draw(0.2, 0, &mut random),
            _ => None,
        },
        deformation: if number == 4 { Deformation::draw(0.1, 0.06, &mut random) } else { None },
        motion: None,
    }
}

/// Exchanges the classes of a target; empty `swaps` leave it as it is.
pub(super) fn swapped(target: Target, swaps: &[u32]) -> Target {
    let swap = |class: u32| swaps.get(class as usize).copied().unwrap_or(class);
    target.map(|classes| classes.into_iter().map(swap).collect(), |values| values)
}

/// A change of a mesh, before it is prepared.
#[derive(Clone, PartialEq)]
pub(super) struct Change {
    /// Remesher and its seed.
    pub remesher: Option<(RemeshKind, u64)>,
    /// True if a mesh that the remesher refuses stays as it is.
    pub is_optional: bool,
    pub relief: Option<Relief>,
    pub deformation: Option<Deformation>,
    /// An orthogonal matrix: a rotation, a reflection, or both.
    pub motion: Option<DMat3>,
}

// The text is a part of the keys of cached meshes: without a relief it is as before there were any.
impl std::fmt::Debug for Change {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { remesher, is_optional, relief, deformation, motion } = self;
        let mut text = formatter.debug_struct("Change");
        text.field("remesher", remesher).field("is_optional", is_optional);
        text.field("deformation", deformation).field("motion", motion);
        if let Some(relief) = relief {
            text.field("relief", relief);
        }
        text.finish()
    }
}

impl Change {
    /// A remeshing that must succeed.
    pub fn remeshing(kind: RemeshKind, seed: u64) -> Self {
        Self { remesher: Some((kind, seed)), is_optional: false, relief: None, deformation: None, motion: None }
    }

    /// True if left and right change places.
    pub fn is_mirrored(&self) -> bool {
        self.motion.is_some_and(|motion| motion.determinant() < 0.0)
    }

    /// The mesh after the remeshing, with what carries fields along. `None` if it is not remeshed.
    pub fn remeshed(&self, name: &str, mesh: &Mesh) -> Result<Option<Remeshed>> {
        let Some((kind, seed)) = &self.remesher else { return Ok(None) };
        match remesh(mesh, kind, *seed) {
            Ok(remeshed) => Ok(Some(remeshed)),
            Err(_) if self.is_optional => Ok(None),
            Err(error) => Err(TaskError::setting(name, error.to_string())),
        }
    }

    /// The mesh with its fields, smoothed and roughened, deformed, mirrored and rotated, after the remeshing.
    pub fn moved(&self, name: &str, mesh: &Mesh, fields: Fields) -> Result<(Mesh, Fields)> {
        let refuse = |error: gemcnn_mesh::MeshError| TaskError::setting(name, error.to_string());
        let mut mesh = mesh.clone();
        if let Some(relief) = &self.relief {
            mesh = relief.apply(&mesh).map_err(refuse)?;
        }
        if let Some(deformation) = &self.deformation {
            mesh = deformation.apply(&mesh).map_err(refuse)?;
        }
        let Some(motion) = self.motion else { return Ok((mesh, fields)) };
        let mesh = mesh.map_vertices(|point| motion * point).map_err(refuse)?;
        // Normals still point outwards.
        let mesh = if self.is_mirrored() { mesh.with_reversed_faces() } else { mesh };
        Ok((mesh, fields.moved(motion)))
    }
}

/// A remesher with random settings: each kind in turn.
fn mixed(place: u64, vertices: usize, random: &mut ChaCha8Rng) -> RemeshKind {
    let mut between = |low: f64, high: f64| low + (high - low) * random.random::<f64>();
    let jitter = |amount| RemeshKind::Jitter(Jitter { amount });
    let steps = match place % 5 {
        0 => vec![RemeshKind::Isotropic(Isotropic {
            size: MeshSize::EdgeLength(between(0.75, 1.3)),
            ..Isotropic::default()
        })],
        1 => vec![
            RemeshKind::Subdivide(Subdivide { rounds: 1, rule: Default::default() }),
            RemeshKind::Simplify(Simplify { size: MeshSize::Ratio(between(0.2, 0.45)) }),
        ],
        2 => vec![
            jitter(between(0.2, 1.0)),
            RemeshKind::RefineLocally(RefineLocally { regions: between(2.0, 8.0) as usize, factor: between(1.5, 2.5) }),
        ],
        3 => vec![jitter(between(0.5, 1.0)), RemeshKind::FlipRandomly(FlipRandomly { share: between(0.05, 0.4) })],
        // From two thirds to four thirds of the vertices of a body.
        _ => vec![RemeshKind::Resample(Resample {
            resolution: ((vertices as f64).sqrt() * between(0.5, 0.7)).clamp(8.0, 500.0) as usize,
        })],
    };
    RemeshKind::Sequence(Sequence { steps })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_mesh::shapes;

    #[test]
    fn versions_differ_and_depend_on_name_and_number_alone() {
        let augmentation = Augmentation { versions: 6, stretch: 0.1, rotate: Rotations::All, ..Default::default() };
        assert_eq!(augmentation.change("a", 642, 0), None);
        let mesh = shapes::icosphere(3).unwrap();
        let mut met = vec![mesh.clone()];
        for version in 1..augmentation.prepared_versions() as u64 {
            let change = augmentation.change("a", 642, version);
            assert_eq!(augmentation.change("a", 642, version), change);
            assert_ne!(augmentation.change("b", 642, version), change);
            let change = change.unwrap();
            let remeshed = change.remeshed("a", &mesh).unwrap().unwrap().mesh;
            let (made, _) = change.moved("a", &remeshed, Fields::default()).unwrap();
            assert!(!met.contains(&made), "version {version}: {change:?}");
            met.push(made);
        }
    }

    #[test]
    fn a_mesh_that_a_remesher_refuses_stays() {
        let open = shapes::grid(5, 6, shapes::Cells::Triangles).unwrap();
        let kind = RemeshKind::Resample(Resample { resolution: 0 });
        let mut change = Change::remeshing(kind, 1);
        assert!(change.remeshed("open", &open).is_err());
        change.is_optional = true;
        assert_eq!(change.remeshed("open", &open).unwrap(), None);
        let (moved, _) = change.moved("open", &open, Fields::default()).unwrap();
        assert_eq!(moved, open);
    }

    #[test]
    fn mirrored_versions_keep_their_outside_and_exchange_classes() {
        let augmentation = Augmentation {
            remesh: false,
            mirror: Mirrors::X,
            mirrored_classes: vec![["left".into(), "right".into()]],
            ..Default::default()
        };
        let mesh = shapes::icosphere(2).unwrap();
        let changes: Vec<Change> = (1..100).filter_map(|version| augmentation.change("a", 162, version)).collect();
        let mirrored = changes.iter().filter(|change| change.is_mirrored());
        assert!((30..70).contains(&mirrored.clone().count()));
        for change in mirrored {
            let (made, _) = change.moved("a", &mesh, Fields::default()).unwrap();
            for (point, image) in mesh.vertices().iter().zip(made.vertices()) {
                assert_eq!([-point.x, point.y, point.z], image.to_array());
            }
            let outward = made.faces().iter().all(|face| {
                let [a, b, c] = [0, 1, 2].map(|corner| made.vertices()[face[corner] as usize]);
                (b - a).cross(c - a).dot(a) > 0.0
            });
            assert!(outward);
        }
        let classes = Classes::named(vec!["head".into(), "left".into(), "right".into()], vec![7, 8, 9]);
        let swaps = |pairs: &[[&str; 2]], task| {
            let pairs = pairs.iter().map(|pair| pair.map(String::from)).collect();
            let augmentation = Augmentation { mirrored_classes: pairs, ..augmentation.clone() };
            augmentation.swaps((task, Element::Vertex), Some(&classes)).ok()
        };
        for pairs in [[["left", "right"]], [["9", "8"]]] {
            assert_eq!(swaps(&pairs, Task::Segmentation).unwrap(), [0, 2, 1]);
        }
        assert_eq!(swaps(&[], Task::Segmentation).unwrap(), [0; 0]);
        for wrong in [&[["left", "wing"]][..], &[["left", "left"]], &[["left", "right"], ["left", "head"]]] {
            assert_eq!(swaps(wrong, Task::Segmentation), None);
        }
        assert_eq!(swaps(&[], Task::Correspondence), None);
        let unknown = gemcnn_nn::IGNORE;
        let target = swapped(Target::Classes(vec![0, 1, 2, unknown]), &[0, 2, 1]);
        assert!(matches!(target, Target::Classes(labels) if labels == [0, 2, 1, unknown]));
    }

    #[test]
    fn noise_smoothing_and_cuts_come_after_all_else() {
        let plain = Augmentation { stretch: 0.1, rotate: Rotations::All, mirror: Mirrors::X, ..Default::default() };
        let more = Augmentation { roughen: 0.2, smooth: 5, cut: 0.4, ..plain.clone() };
        let written = toml::to_string(&plain).unwrap();
        assert!(["roughen", "smooth", "cut"].iter().all(|name| !written.contains(name)), "{written}");
        assert_eq!(toml::from_str::<Augmentation>(&toml::to_string(&more).unwrap()).unwrap(), more);
        let mesh = shapes::icosphere(3).unwrap();
        let mut cut = 0;
        for version in 1..=60 {
            let [before, now] = [&plain, &more].map(|augmentation| augmentation.change("a", 642, version).unwrap());
            assert_eq!((&now.deformation, &now.motion), (&before.deformation, &before.motion));
            assert!(before.relief.is_none() && now.relief.is_some());
            assert!(!format!("{before:?}").contains("relief"));
            assert_ne!(format!("{now:?}"), format!("{:?}", Change { relief: None, ..now.clone() }));
            let Some((RemeshKind::Sequence(Sequence { steps }), seed)) = &now.remesher else {
                panic!("{now:?}");
            };
            let (kind, first_seed) = before.remesher.clone().unwrap();
            let is_cut = matches!(steps.last(), Some(RemeshKind::Crop(_)));
            assert_eq!(*seed, first_seed);
            assert_eq!(if is_cut { &steps[0] } else { &now.remesher.as_ref().unwrap().0 }, &kind);
            cut += usize::from(is_cut);
            if version <= 10 {
                let remeshed = now.remeshed("a", &mesh).unwrap().unwrap();
                assert_eq!(remeshed.sources.len(), remeshed.mesh.vertex_count());
                let (moved, _) = now.moved("a", &remeshed.mesh, Fields::default()).unwrap();
                assert_ne!(moved, before.moved("a", &remeshed.mesh, Fields::default()).unwrap().0);
            }
        }
        assert!((18..42).contains(&cut), "{cut}");
    }

    #[test]
    fn amounts_outside_their_range_are_refused() {
        for change in [
            |a: &mut Augmentation| a.stretch = 1.0,
            |a: &mut Augmentation| a.bend = f64::NAN,
            |a: &mut Augmentation| a.resample = -0.1,
            |a: &mut Augmentation| a.versions = usize::MAX,
            |a: &mut Augmentation| a.roughen = -0.1,
            |a: &mut Augmentation| a.smooth = 1001,
            |a: &mut Augmentation| a.cut = 0.9,
        ] {
            let mut augmentation = Augmentation::default();
            augmentation.check().unwrap();
            change(&mut augmentation);
            augmentation.check().unwrap_err();
        }
    }
}
