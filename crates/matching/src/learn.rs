//! Self-training: a matcher for a collection of meshes without known correspondences.

use crate::collection::{Collection, Link};
use crate::{Describer, MatchError, Matcher, Shape, ShapeOptions};
use gemcnn_mesh::Mesh;
use gemcnn_nn::{Device, Workspace};
use gemcnn_tasks::TaskError;
use gemcnn_tasks::data::{Cache, DESCRIPTION_FILE, DataConfig, DataError, Dataset, Split, mesh_files};
use gemcnn_tasks::run::trained;
use gemcnn_tasks::train::{Event, Observer, RunConfig, StopFlag, TrainedModel};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Name of the bundled model that first maps are tried with.
const BODIES: &str = "bodies-match";
/// Folder of the data set with the correspondences that were found.
pub const FOUND: &str = "correspondences";
/// Share of accepted maps from which on no other way is tried.
const ENOUGH: f64 = 0.5;
/// Largest number of names in a note.
const LISTED: usize = 5;

/// Error of learning from meshes without known correspondences.
#[derive(Debug, thiserror::Error)]
pub enum LearnError {
    /// Too few meshes.
    #[error("{usable} of {given} meshes can be matched, but at least 2 are needed")]
    TooFew {
        /// Number of meshes.
        given: usize,
        /// Number of meshes with a surface that can be matched.
        usable: usize,
    },
    /// No map is good enough to learn from.
    #[error(
        "none of {pairs} pairs of meshes has a map to learn from, which keeps areas and orientation and can be inverted \
         (the best one: {rejected}); give whole surfaces of one kind, or start from a model that knows them (`--start`)"
    )]
    NoMaps {
        /// Number of pairs.
        pairs: usize,
        /// What speaks against the best map.
        rejected: String,
    },
    /// A model to start from that reads other eigenvectors than the one to train.
    #[error(
        "{model} reads {found} eigenvectors, but the model to train reads {needed}; start from a model with its settings"
    )]
    Start {
        /// The model to start from.
        model: PathBuf,
        /// Number of eigenvectors that it reads.
        found: usize,
        /// Number of eigenvectors that the model to train reads.
        needed: usize,
    },
    /// A mesh that cannot be matched.
    #[error("{name}: {source}")]
    Mesh {
        /// The mesh.
        name: String,
        /// The cause.
        source: MatchError,
    },
    /// A network that cannot describe or match shapes.
    #[error(transparent)]
    Match(#[from] MatchError),
    /// An error of training.
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// The first maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// From the model `bodies-match` if at least half of its maps are accepted, otherwise from the spectrum.
    Best,
    /// From the spectrum.
    Spectrum,
    /// From a model: a run, a file or the name of a bundled model. Training then starts from its weights.
    Model(PathBuf),
}

/// Options of [`learn`].
#[derive(Debug, Clone, PartialEq)]
pub struct LearnOptions {
    /// Rounds of matching and training (default 3).
    pub rounds: usize,
    /// Number of other meshes that each mesh is matched with in a round (default 4).
    pub partners: usize,
    /// Number of classes: points of the template (default 1,000).
    pub classes: usize,
    /// The first maps (default: the best).
    pub start: Start,
    /// Meshes with more vertices are simplified (default 3,000).
    pub direct: usize,
    /// Number of vertices of simplified meshes (default 2,000).
    pub simplified: usize,
}

impl Default for LearnOptions {
    fn default() -> Self {
        Self { rounds: 3, partners: 4, classes: 1000, start: Start::Best, direct: 3000, simplified: 2000 }
    }
}

/// The correspondences of the meshes of a configuration, if they are known: those of its data set, or, of a folder without
/// a description, the numbers of the vertices where all meshes have the same faces. Otherwise the reason.
///
/// # Errors
/// A data set that cannot be opened for other reasons.
pub fn known_correspondences(config: &RunConfig) -> Result<Result<Dataset, String>, TaskError> {
    let dataset = match config.dataset() {
        Err(TaskError::Data(DataError::NothingToLearn { found, .. })) => return Ok(Err(found)),
        dataset => dataset?,
    };
    let folder = match &config.data {
        DataConfig::Folder(folder) if !folder.join(DESCRIPTION_FILE).exists() => folder,
        _ => return Ok(Ok(dataset)),
    };
    if !dataset.is_registered() {
        return Ok(Ok(dataset));
    }
    // A single mesh of an extension is registered with itself.
    if Split::ALL.iter().map(|&split| dataset.len(split)).sum::<usize>() < 2 && mesh_files(folder)?.len() > 1 {
        return Ok(Err("the meshes are not registered".into()));
    }
    let mut first: Option<Mesh> = None;
    for split in Split::ALL {
        for index in 0..dataset.len(split) {
            let mesh = dataset.mesh(split, index)?;
            match &first {
                Some(first) if first.faces() != mesh.faces() => {
                    let name = dataset.mesh_name(split, index);
                    return Ok(Err(format!("{name} has as many vertices as other meshes, but other faces")));
                }
                Some(_) => {}
                None => first = Some(mesh),
            }
        }
    }
    Ok(Ok(dataset))
}

/// Where and with what a matcher is trained.
pub struct Place<'a> {
    /// Directory of the runs `round-1`, `round-2`, ... and of the correspondences that were found.
    pub directory: &'a Path,
    /// Prepared meshes.
    pub cache: &'a Cache,
    /// The device.
    pub device: &'a Device,
    /// Stops on request.
    pub stop: &'a StopFlag,
}

/// Trains a network on maps between the meshes themselves. In each round, random pairs are matched, maps that keep areas
/// and orientation and can be inverted are kept, and composed to maps from each mesh to one of them, on which the network
/// is trained for correspondence as `config` says. The next round matches with its descriptors. Runs that are finished
/// are not repeated, and stopped ones go on. Returns `None` if a stop is requested.
///
/// # Errors
/// Fewer than two meshes, no map that is good enough, or an error of training.
pub fn learn(
    meshes: &[(String, Mesh)],
    config: &RunConfig,
    options: &LearnOptions,
    place: &Place<'_>,
    observer: &mut dyn Observer,
) -> Result<Option<TrainedModel>, LearnError> {
    let mut learner = Learner::new(meshes, config, options, place, observer)?;
    let data = place.directory.join(FOUND);
    let mut config = RunConfig { data: DataConfig::Folder(data.clone()), ..config.clone() };
    let mut model = None;
    for round in 1..=options.rounds.max(1) {
        let path = place.directory.join(format!("round-{round}"));
        let begun = path.join("config.toml");
        if begun.exists() {
            config.training.start = RunConfig::read(&begun)?.training.start;
        } else {
            let ways = match model.take() {
                None => learner.starts()?,
                Some(model) => {
                    let describer = Matcher::new(model)?.into();
                    vec![Way { name: format!("round {}", round - 1), model: None, describer }]
                }
            };
            let Some((found, start)) = learner.match_pairs(round, ways, observer)? else { return Ok(None) };
            if round == 1 {
                config.training.start = start;
            }
            found.write(&data, options.classes)?;
        }
        match trained(&config, &path, place.cache, place.device, observer, place.stop)? {
            Some((trained, _)) => model = Some(trained),
            None => return Ok(None),
        }
    }
    Ok(model)
}

/// First maps, or those of a round.
struct Way {
    /// In words.
    name: String,
    /// The model of a start.
    model: Option<PathBuf>,
    describer: Describer,
}

/// The accepted maps, and the model of the start that they are from.
type Found<'a> = (Collection<'a>, Option<PathBuf>);

struct Learner<'a> {
    options: &'a LearnOptions,
    place: &'a Place<'a>,
    names: Vec<String>,
    shapes: Vec<Shape>,
    workspace: Workspace<f32>,
    eigenpairs: usize,
    seed: u64,
}

impl<'a> Learner<'a> {
    fn new(
        meshes: &[(String, Mesh)],
        config: &RunConfig,
        options: &'a LearnOptions,
        place: &'a Place<'a>,
        observer: &mut dyn Observer,
    ) -> Result<Self, LearnError> {
        let eigenpairs = config.preparation().eigenpairs()[0];
        let (direct, simplified) = (options.direct, options.simplified);
        let with = ShapeOptions { eigenpairs, direct, simplified, ..Default::default() };
        let prepared: Vec<_> = meshes.par_iter().map(|(_, mesh)| Shape::new(mesh, &with)).collect();
        let (mut names, mut shapes) = (Vec::new(), Vec::new());
        for ((name, _), shape) in meshes.iter().zip(prepared) {
            match shape {
                Ok(shape) => {
                    names.push(name.clone());
                    shapes.push(shape);
                }
                Err(source) if config.training.strict => return Err(LearnError::Mesh { name: name.clone(), source }),
                Err(error) => observer.observe(Event::Note(&format!("skipped: {name}: {error}"))),
            }
        }
        if shapes.len() < 2 {
            return Err(LearnError::TooFew { given: meshes.len(), usable: shapes.len() });
        }
        let workspace = Workspace::new(place.device.clone());
        Ok(Self { options, place, names, shapes, workspace, eigenpairs, seed: config.training.seed })
    }

    /// Ways to find the first maps.
    fn starts(&self) -> Result<Vec<Way>, LearnError> {
        let spectrum = || Way { name: "the spectrum".into(), model: None, describer: Describer::Spectrum };
        Ok(match &self.options.start {
            Start::Spectrum => vec![spectrum()],
            Start::Model(path) => vec![self.network(path)?],
            Start::Best => vec![self.network(Path::new(BODIES))?, spectrum()],
        })
    }

    /// Matches pairs in the first way that gives enough accepted maps, otherwise in the last one, and returns these; `None` if
    /// a stop is requested.
    fn match_pairs(
        &mut self,
        round: usize,
        ways: Vec<Way>,
        observer: &mut dyn Observer,
    ) -> Result<Option<Found<'_>>, LearnError> {
        let (mut tried, mut best_rejected) = (0, (f64::INFINITY, String::new()));
        let (mut links, mut start) = (Vec::new(), None);
        for Way { name, model, describer } in ways {
            // Fewer maps from the spectrum are good enough.
            let factor = if let Describer::Spectrum = describer { 2 } else { 1 };
            let pairs = draw(self.shapes.len(), factor * self.options.partners, self.seed, round as u64);
            for shape in &mut self.shapes {
                describer.describe(&mut self.workspace, shape)?;
            }
            let (shapes, stop) = (&self.shapes, self.place.stop);
            let found = pairs.par_iter().map(|&[a, b]| {
                if stop.is_requested() {
                    return Ok(None);
                }
                let (refined, evidence) = describer.best(&shapes[a], &shapes[b])?;
                Ok(Some((Link::new(a, b, refined, evidence.badness()), evidence)))
            });
            let found: Result<Option<Vec<_>>, MatchError> = found.collect();
            let Some(found) = found? else { return Ok(None) };
            (links, start) = (Vec::new(), model);
            for (link, evidence) in found {
                if describer.accepts(&evidence) {
                    links.push(link);
                } else if link.badness < best_rejected.0 {
                    best_rejected = (link.badness, evidence.summary());
                }
            }
            let (accepted, count) = (links.len(), pairs.len());
            tried += count;
            observer
                .observe(Event::Note(&format!("round {round}: {accepted} of {count} maps from {name} are accepted")));
            if accepted as f64 >= ENOUGH * count as f64 {
                break;
            }
        }
        if links.is_empty() {
            return Err(LearnError::NoMaps { pairs: tried, rejected: best_rejected.1 });
        }
        let collection = Collection::new(&self.names, &self.shapes, links);
        let left = collection.left_out();
        if !left.is_empty() {
            let names = left.iter().take(LISTED).copied().collect::<Vec<_>>().join(", ");
            let more = if left.len() > LISTED { ", ..." } else { "" };
            let (count, all) = (left.len(), self.names.len());
            observer.observe(Event::Note(&format!(
                "round {round}: no accepted map reaches {count} of {all} meshes: {names}{more}"
            )));
        }
        Ok(Some((collection, start)))
    }

    fn network(&self, path: &Path) -> Result<Way, LearnError> {
        let matcher = Matcher::new(TrainedModel::read(path)?)?;
        let found = matcher.options().eigenpairs;
        if found != self.eigenpairs {
            return Err(LearnError::Start { model: path.into(), found, needed: self.eigenpairs });
        }
        Ok(Way { name: path.display().to_string(), model: Some(path.into()), describer: matcher.into() })
    }
}

/// Random pairs: each of `count` meshes with some others.
fn draw(count: usize, partners: usize, seed: u64, stream: u64) -> Vec<[usize; 2]> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(stream);
    let mut pairs = BTreeSet::new();
    for a in 0..count {
        let mut others: Vec<usize> = (0..count).filter(|&other| other != a).collect();
        let (drawn, _) = others.partial_shuffle(&mut random, partners.max(1));
        pairs.extend(drawn.iter().map(|&b| [a.min(b), a.max(b)]));
    }
    pairs.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mesh_has_its_partners_and_rounds_have_others() {
        let pairs = draw(9, 3, 1, 1);
        assert!(pairs == draw(9, 3, 1, 1) && pairs != draw(9, 3, 1, 2) && pairs != draw(9, 3, 2, 1));
        for mesh in 0..9 {
            assert!(pairs.iter().filter(|pair| pair.contains(&mesh)).count() >= 3);
        }
        assert!(pairs.iter().all(|[a, b]| a < b) && pairs.len() <= 27);
        assert_eq!(draw(3, 8, 1, 1), [[0, 1], [0, 2], [1, 2]]);
    }
}
