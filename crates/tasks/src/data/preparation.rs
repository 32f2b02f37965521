//! Preparation of meshes: geometry, coarser levels, features.

use super::extras::{ExtraConfig, all_extras, in_key};
use crate::features::{Fields, Surface};
use crate::registry::is_default;
use crate::{Element, FeatureConfig, Result, Sample, TaskError};
use gemcnn_mesh::features::shot;
use gemcnn_mesh::surface::{BasisSource, OperatorOptions, SurfaceOperators};
use gemcnn_mesh::{
    Adjacency, Gauge, GaugeGraph, GeometryError, GeometryOptions, Hierarchy, HierarchyOptions, Mesh, MeshError,
    NeighbourWeights, Neighbourhood, NormalWeighting, uniform_rotation, vertex_areas,
};
use gemcnn_nn::{Extras, Target};
use glam::{DMat3, DQuat};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::f64::consts::TAU;
use std::sync::Arc;

/// Radius of the neighbourhoods of models with area weights or jets, and the largest number of neighbours beyond the
/// one-ring. The ball has about as many vertices as the two-ring on an even mesh of 6,890 vertices.
const PATCH_RADIUS: f64 = 0.03;
const PATCH_LIMIT: usize = 64;

/// Settings of the preparation of meshes. Lengths are relative to the mean edge length of each mesh.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Preparation {
    /// Input features.
    pub features: FeatureConfig,
    /// Normals and neighbourhoods.
    pub geometry: GeometrySettings,
    /// Choice of frames.
    pub gauge: GaugeChoice,
    /// Weights of the neighbours in convolutions.
    pub weights: NeighbourWeights,
    /// Coarser levels, for models that pool.
    pub hierarchy: Option<HierarchySettings>,
    /// What the model reads besides graphs.
    pub extras: Vec<ExtraConfig>,
    /// Elements that the output is for; in a [`Dataset`](super::Dataset), those that the targets are for.
    pub per: Element,
    /// Seed of random rotations. Each mesh is rotated about the origin before anything else is computed. The
    /// rotation depends on the seed and the name of the mesh.
    pub rotation: Option<u64>,
}

/// Settings in the key of the cache. Entries are found again as long as the text of all settings stays the same.
#[derive(Serialize)]
struct Key<'a> {
    features: &'a FeatureConfig,
    geometry: &'a GeometrySettings,
    #[serde(skip_serializing_if = "is_default")]
    gauge: GaugeChoice,
    #[serde(skip_serializing_if = "is_default")]
    weights: NeighbourWeights,
    #[serde(skip_serializing_if = "Option::is_none")]
    hierarchy: &'a Option<HierarchySettings>,
    #[serde(flatten, serialize_with = "in_key")]
    extras: &'a [ExtraConfig],
    #[serde(skip_serializing_if = "Option::is_none")]
    rotation: Option<u64>,
}

/// Normals and neighbourhoods of a mesh.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GeometrySettings {
    /// Weights of faces in vertex normals (default: area).
    pub normals: NormalWeighting,
    /// Neighbours are the vertices within a ball (default: those that share an edge).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ball: Option<Ball>,
    /// Centres each mesh and scales it to unit area before anything else is computed, and pulls spikes back into the
    /// surface (default false; true in the recipes of most tasks).
    pub normalise: bool,
    /// For models with area weights or jets, unless there is a ball: neighbours are the vertices at most two edges away
    /// and those within this radius, in units of the square root of the area of the mesh (default 0.03).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<f64>,
    /// Where eigenvectors of orders 1 and 2 come from (default: the connection Laplacian).
    #[serde(skip_serializing_if = "is_default")]
    pub basis: BasisSource,
}

/// Direction of the first axis of the frame at each vertex.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GaugeChoice {
    /// Towards the first neighbour: an arbitrary choice, on which an equivariant network does not depend.
    #[default]
    FirstNeighbour,
    /// Along the first axis of the SHOT frame, for networks that are not equivariant.
    Shot,
    /// At random, with a seed: a test of equivariance.
    Random(u64),
}

/// Neighbours by distance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ball {
    /// Largest distance, in mean edge lengths.
    pub radius: f64,
    /// Largest number of neighbours of a vertex (default: no limit).
    #[serde(default = "no_limit")]
    pub limit: usize,
}

/// Settings of the coarser levels of a mesh.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HierarchySettings {
    /// For each coarser level, the fraction of the vertices of the previous level.
    pub ratios: Vec<f64>,
    /// Radius of the neighbourhoods on each coarser level, in mean edge lengths of the mesh.
    pub radii: Vec<f64>,
    /// Largest number of neighbours on the coarser levels (default: no limit).
    #[serde(default = "no_limit")]
    pub neighbour_limit: usize,
}

fn no_limit() -> usize {
    // Fits in the integers of TOML.
    u32::MAX as usize
}

impl Preparation {
    /// Prepares a mesh without fields. `name` is for messages and determines the rotation. The sample has no target,
    /// and its features are not scaled.
    pub fn prepare(&self, name: &str, mesh: &Mesh) -> Result<Sample> {
        self.prepare_with(name, mesh, &Fields::default())
    }

    /// Prepares a mesh with the fields that the features need.
    ///
    /// # Errors
    /// Geometry, levels or features that cannot be computed, or a field that is not there.
    pub fn prepare_with(&self, name: &str, mesh: &Mesh, fields: &Fields) -> Result<Sample> {
        Ok(self.prepare_mesh(name, mesh, fields)?.0)
    }

    /// Prepares a mesh, and returns it as the sample has it: normalised and rotated.
    pub(super) fn prepare_mesh(&self, name: &str, mesh: &Mesh, fields: &Fields) -> Result<(Sample, Mesh)> {
        let mesh = self.placed(name, mesh)?;
        let fields = match self.rotation_of(name) {
            None => Cow::Borrowed(fields),
            Some(rotation) => Cow::Owned(fields.moved(DMat3::from_quat(rotation))),
        };
        let sample = self.prepare_as_it_is(name, &mesh, &fields)?;
        Ok((sample, mesh.into_owned()))
    }

    /// A mesh, normalised and rotated.
    pub(super) fn placed<'m>(&self, name: &str, mesh: &'m Mesh) -> Result<Cow<'m, Mesh>> {
        let refuse = |error: MeshError| TaskError::setting(name, error.to_string());
        let mut mesh = match self.geometry.normalise {
            false => Cow::Borrowed(mesh),
            true => Cow::Owned(gemcnn_mesh::normalised(mesh).map_err(refuse)?),
        };
        if let Some(rotation) = self.rotation_of(name) {
            mesh = Cow::Owned(mesh.map_vertices(|point| rotation * point).map_err(refuse)?);
        }
        Ok(mesh)
    }

    fn prepare_as_it_is(&self, name: &str, mesh: &Mesh, fields: &Fields) -> Result<Sample> {
        let geometry = |source| TaskError::Geometry { name: name.into(), source };
        let options = self.graph_options(mesh).map_err(geometry)?;
        let gauge = options.gauge.clone();
        let hierarchy = match &self.hierarchy {
            None => GaugeGraph::new(mesh, &options).map_err(geometry)?.into(),
            Some(settings) => {
                let options = settings.options(options, mean_edge_length(mesh).map_err(geometry)?);
                Hierarchy::new(mesh, &options).map_err(|source| TaskError::Hierarchy { name: name.into(), source })?
            }
        };
        let graph = hierarchy.graph();
        // Features do not depend on the weights of the model. Frames are the same.
        let plain = match self.weights {
            NeighbourWeights::Count => None,
            _ => {
                let count = NeighbourWeights::Count;
                let mut plain = self.geometry.options(mesh, count).map_err(geometry)?;
                plain.gauge = gauge;
                Some(GaugeGraph::new(mesh, &plain).map_err(geometry)?)
            }
        };
        let of_surface = |source| TaskError::Surface { name: name.into(), source };
        let operators = match self.eigenpairs() {
            [0, 0, 0] => None,
            eigenpairs => {
                let options = OperatorOptions { eigenpairs, basis: self.geometry.basis, ..Default::default() };
                Some(SurfaceOperators::new(mesh, graph, &options).map_err(of_surface)?)
            }
        };
        self.assemble(name, mesh, hierarchy, plain.as_ref(), operators.as_ref(), fields)
    }

    /// The sample of a mesh whose geometry is known. `plain` is the graph for the features, if it is not that of the
    /// model.
    pub(crate) fn assemble(
        &self,
        name: &str,
        mesh: &Mesh,
        hierarchy: Hierarchy,
        plain: Option<&GaugeGraph>,
        operators: Option<&SurfaceOperators>,
        fields: &Fields,
    ) -> Result<Sample> {
        let surface = Surface {
            mesh,
            graph: plain.unwrap_or(hierarchy.graph()),
            normals: self.geometry.normals,
            operators,
            fields,
        };
        let of_features = |kind, source| TaskError::Features { name: name.into(), kind, source };
        let mut extras = Extras::default();
        for extra in self.all_extras() {
            extra.source.compute(surface, &mut extras).map_err(|source| of_features(extra.name, source))?;
        }
        let kind = self.features.name();
        let features = self.features.compute(surface).map_err(|source| of_features(kind, source))?;
        let expected = mesh.vertex_count() * self.features.kind().dimension();
        if features.len() != expected {
            let found = features.len();
            let problem = format!("features `{kind}` gave {found} numbers instead of {expected}");
            return Err(TaskError::setting(name, problem));
        }
        Ok(Sample {
            name: name.into(),
            extras,
            areas: areas(mesh),
            kind: self.features.kind(),
            features: features.iter().map(|&value| value as f32).collect(),
            target: Target::Unknown,
            hierarchy: Arc::new(hierarchy),
        })
    }

    /// What the model reads besides graphs, and the elements that the output is for, in the order of an entry of the
    /// cache.
    pub(super) fn all_extras(&self) -> Vec<ExtraConfig> {
        all_extras(&self.extras, self.per)
    }

    /// Number of eigenvectors of orders 0, 1 and 2 of a mesh that is prepared.
    pub fn eigenpairs(&self) -> [usize; 3] {
        let (own, needed) = (self.eigenvectors(), self.features.eigenvectors());
        std::array::from_fn(|order| own[order].max(needed[order]))
    }

    /// The largest number of eigenvectors of orders 0, 1 and 2 that an extra needs.
    pub(crate) fn eigenvectors(&self) -> [usize; 3] {
        let most = |order: usize| self.extras.iter().map(|extra| extra.source.eigenvectors()[order]).max();
        std::array::from_fn(|order| most(order).unwrap_or(0))
    }

    fn graph_options(&self, mesh: &Mesh) -> Result<GeometryOptions, GeometryError> {
        let mut options = self.geometry.options(mesh, self.weights)?;
        match self.gauge {
            GaugeChoice::FirstNeighbour => {}
            GaugeChoice::Shot => {
                let shot = shot::ShotOptions { radius: self.features.support_radius(), normals: self.geometry.normals };
                options.gauge = shot::gauge(mesh, &shot)?;
            }
            GaugeChoice::Random(seed) => {
                let mut random = ChaCha8Rng::seed_from_u64(seed);
                let angle = |_| TAU * random.random::<f64>();
                options.gauge = Gauge::Angles((0..mesh.vertex_count()).map(angle).collect());
            }
        }
        Ok(options)
    }

    /// The gauge graph of a mesh that is normalised and rotated.
    pub(super) fn graph(&self, mesh: &Mesh) -> Result<GaugeGraph, GeometryError> {
        GaugeGraph::new(mesh, &self.graph_options(mesh)?)
    }

    /// True if the graph takes about as long to compute as to read, so that entries of the cache leave it out.
    pub(super) fn graph_follows(&self) -> bool {
        self.weights == NeighbourWeights::Count && self.gauge != GaugeChoice::Shot
    }

    /// The settings in the key of the cache.
    pub(super) fn key(&self) -> Vec<u8> {
        let Self { features, geometry, gauge, weights, hierarchy, rotation, .. } = self;
        let (gauge, weights, rotation) = (*gauge, *weights, *rotation);
        let key = Key { features, geometry, gauge, weights, hierarchy, extras: &self.all_extras(), rotation };
        serde_json::to_vec(&key).unwrap_or_default()
    }

    /// The random rotation of a mesh, uniformly distributed; `None` without a seed.
    pub fn rotation_of(&self, name: &str) -> Option<DQuat> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.rotation?.to_le_bytes());
        hasher.update(name.as_bytes());
        let mut random = ChaCha8Rng::from_seed(*hasher.finalize().as_bytes());
        Some(uniform_rotation(&mut random))
    }
}

impl GeometrySettings {
    fn options(&self, mesh: &Mesh, weights: NeighbourWeights) -> Result<GeometryOptions, GeometryError> {
        let neighbourhood = match self.ball {
            None if weights == NeighbourWeights::Count => Neighbourhood::OneRing,
            None => Neighbourhood::Patch {
                radius: self.patch.unwrap_or(PATCH_RADIUS) * area_root(mesh),
                limit: PATCH_LIMIT,
            },
            Some(Ball { radius, limit }) => Neighbourhood::Radius { radius: radius * mean_edge_length(mesh)?, limit },
        };
        Ok(GeometryOptions {
            normals: self.normals,
            neighbourhood,
            weights,
            estimate_normals: true,
            ..Default::default()
        })
    }
}

impl HierarchySettings {
    /// Options for a mesh with this mean edge length.
    pub fn options(&self, geometry: GeometryOptions, mean_edge_length: f64) -> HierarchyOptions {
        let radius = |radius| radius * mean_edge_length;
        HierarchyOptions {
            geometry,
            ratios: self.ratios.clone(),
            radii: self.radii.iter().map(radius).collect(),
            neighbour_limit: self.neighbour_limit,
        }
    }
}

/// Area of each vertex of a mesh.
pub(super) fn areas(mesh: &Mesh) -> Vec<f32> {
    vertex_areas(mesh).iter().map(|&area| area as f32).collect()
}

/// Square root of the area of a mesh, also where the area overflows.
fn area_root(mesh: &Mesh) -> f64 {
    let scale = mesh.vertices().iter().map(|v| v.abs().max_element());
    let scale = scale.fold(f64::MIN_POSITIVE, f64::max);
    let unit = mesh.map_vertices(|v| v / scale);
    let area: f64 = unit.map_or(0.0, |mesh| vertex_areas(&mesh).iter().sum());
    (scale * area.sqrt()).min(f64::MAX)
}

/// Mean length of the edges of a mesh; 0 if there are none.
fn mean_edge_length(mesh: &Mesh) -> Result<f64, GeometryError> {
    let adjacency = Adjacency::one_ring(mesh)?;
    let points = mesh.vertices();
    let sum: f64 = (0..points.len())
        .flat_map(|p| adjacency.neighbours_of(p).iter().map(move |&q| (p, q)))
        .map(|(p, q)| points[p].distance(points[q as usize]))
        .sum();
    Ok(sum / adjacency.edge_count().max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_mesh::features::shot::ShotOptions;
    use gemcnn_mesh::{DVec3, shapes};

    fn bumpy() -> Mesh {
        let bump = |p: DVec3| p * (1.0 + 0.2 * (3.0 * p.x).sin() + 0.1 * (5.0 * p.y + p.z).cos());
        shapes::icosphere(3).unwrap().map_vertices(bump).unwrap()
    }

    #[test]
    fn rotations_keep_invariant_features() {
        let mesh = bumpy();
        let mut preparation = Preparation { features: FeatureConfig::of_kind("matrix").unwrap(), ..Default::default() };
        let still = preparation.prepare("a", &mesh).unwrap();
        preparation.rotation = Some(7);
        let turned = preparation.prepare("a", &mesh).unwrap();
        assert_eq!(turned, preparation.prepare("a", &mesh).unwrap());
        assert_ne!(turned.graph(), preparation.prepare("b", &mesh).unwrap().graph());
        let pairs = still.features.iter().zip(&turned.features);
        assert!(pairs.clone().all(|(a, b)| (a - b).abs() < 1e-5));
        let turn = preparation.rotation_of("a").unwrap();
        let normal = |prepared: &Sample| prepared.graph().frames()[5].normal;
        assert!((turn * normal(&still) - normal(&turned)).length() < 1e-9);
    }

    #[test]
    fn random_rotations_prefer_no_direction() {
        let preparation = Preparation { rotation: Some(1), ..Default::default() };
        let turns = (0..4000).filter_map(|n| preparation.rotation_of(&n.to_string()));
        let sum: DVec3 = turns.map(|turn| turn * DVec3::X).sum();
        assert!(sum.length() / 4000.0 < 0.05, "{sum}");
    }

    #[test]
    fn shot_frames_turn_with_the_mesh() {
        let mesh = bumpy();
        let mut preparation = Preparation { gauge: GaugeChoice::Shot, ..Default::default() };
        let still = preparation.prepare("a", &mesh).unwrap();
        preparation.rotation = Some(3);
        let turned = preparation.prepare("a", &mesh).unwrap();
        let angles = still.graph().theta().iter().zip(turned.graph().theta());
        let same = angles.filter(|(a, b)| (*a - *b).sin().abs() < 1e-6).count();
        assert!(same as f64 > 0.99 * still.graph().edge_count() as f64);
    }

    #[test]
    fn shot_descriptors_count_the_normals_of_the_geometry() {
        let mesh = bumpy();
        let mut preparation = Preparation { features: FeatureConfig::of_kind("shot").unwrap(), ..Default::default() };
        let by_area = preparation.prepare("a", &mesh).unwrap().features;
        preparation.geometry.normals = NormalWeighting::CornerAngle;
        let by_angle = preparation.prepare("a", &mesh).unwrap().features;
        assert_ne!(by_area, by_angle);
        let options = ShotOptions { normals: NormalWeighting::CornerAngle, ..Default::default() };
        let expected = shot::descriptors(&mesh, &options).unwrap().values;
        assert!(expected.iter().map(|&value| value as f32).eq(by_angle));
    }

    #[test]
    fn weights_change_neighbours_but_not_features() {
        let mesh = bumpy();
        let mut preparation = Preparation { features: FeatureConfig::of_kind("reltan").unwrap(), ..Default::default() };
        let plain = preparation.prepare("a", &mesh).unwrap();
        preparation.geometry.patch = Some(0.1);
        assert_eq!(preparation.prepare("a", &mesh).unwrap(), plain);
        for (weights, columns) in [(NeighbourWeights::Area, 1), (NeighbourWeights::Jets, 5)] {
            preparation.weights = weights;
            let prepared = preparation.prepare("a", &mesh).unwrap();
            assert_eq!(prepared.features, plain.features);
            assert_eq!(prepared.graph().frames(), plain.graph().frames());
            assert_eq!(prepared.graph().coefficients().0, columns);
            // The radius is in units of the square root of the area.
            let large = mesh.map_vertices(|p| 64.0 * p).unwrap();
            let large = preparation.prepare("a", &large).unwrap();
            assert_eq!(prepared.graph().neighbours(), large.graph().neighbours());
            let difference = |(a, b): (&f64, &f64)| (a - b).abs();
            let pairs = prepared.graph().coefficients().1.iter();
            let pairs = pairs.zip(large.graph().coefficients().1);
            assert!(pairs.map(difference).fold(0.0, f64::max) < 1e-9);
            assert!(prepared.graph().edge_count() > 2 * plain.graph().edge_count());
        }
    }

    #[test]
    fn lengths_are_relative_to_the_edges_of_the_mesh() {
        let preparation = Preparation {
            geometry: GeometrySettings { ball: Some(Ball { radius: 2.1, limit: 100 }), ..Default::default() },
            hierarchy: Some(HierarchySettings { ratios: vec![0.25], radii: vec![4.0], neighbour_limit: 100 }),
            ..Default::default()
        };
        let mesh = bumpy();
        let large = mesh.map_vertices(|p| 64.0 * p).unwrap();
        let (a, b) = (preparation.prepare("a", &mesh).unwrap(), preparation.prepare("b", &large).unwrap());
        assert_eq!(a.graph().neighbours(), b.graph().neighbours());
        let level = |p: &Sample| p.hierarchy.levels()[1].graph.edge_count();
        assert_eq!(level(&a), level(&b));
        assert!(a.graph().edge_count() > 10 * mesh.vertex_count());
    }
}
