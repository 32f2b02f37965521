//! `gemcnn train matching`: a model of `gemcnn match` for the meshes of a folder.

use super::{RUNS, TrainArgs, train_in};
use crate::failure::Failure;
use crate::output::{json_line, print, say, table, write_file};
use crate::progress;
use crate::train_progress::TrainProgress;
use gemcnn_matching::{
    Describer, FOUND, LearnError, LearnOptions, Matcher, Place, Shape, Start, Verdict, known_correspondences, learn,
};
use gemcnn_mesh::{Mesh, read_mesh};
use gemcnn_nn::{Device, Workspace};
use gemcnn_tasks::data::{DataConfig, Dataset, Split, mesh_files};
use gemcnn_tasks::evaluation::{GeodesicScores, LARGEST_RADIUS, MeshMap};
use gemcnn_tasks::predict::UniqueNames;
use gemcnn_tasks::train::{BundledModel, Checked, RunConfig, RunDirectory, StopFlag, TrainedModel};
use serde::Serialize;
use std::borrow::Cow;
use std::path::Path;

/// What the command trains, in place of a task.
pub(super) const NAME: &str = "matching";
/// The start that is no model.
const SPECTRUM: &str = "spectrum";
/// The bundled model whose configuration is the default.
const BODIES: &str = "bodies-match";
/// Number of steps, if the number of epochs is not given.
const STEPS: u64 = 2000;
/// Largest number of pairs that the model is judged on.
const JUDGED: usize = 20;
/// File with the scores.
const SCORES: &str = "matching.json";

/// The configuration of the bundled model.
pub(super) fn config(args: &TrainArgs) -> Result<RunConfig, Failure> {
    let refused = [
        (args.preset.is_some(), "--preset"),
        (args.tune, "--tune"),
        (args.seeds.is_some(), "--seeds"),
        (args.folds, "--folds"),
        (args.view, "--view"),
    ];
    if let Some((_, option)) = refused.iter().find(|(given, _)| *given) {
        return Err(Failure::usage(format!("{option} is not for {NAME}")));
    }
    if args.data.is_none() {
        return Err(Failure::usage("matching needs --data DIR, a folder of meshes"));
    }
    let bundled = BundledModel::named(BODIES).map_or("", |model| model.configuration);
    RunConfig::parse(bundled).map_err(Failure::input)
}

/// Trains a model on the known correspondences of a folder, or on those that it finds, and meshes it on pairs of meshes.
pub(super) fn train_matcher(
    args: &TrainArgs,
    config: Checked<RunConfig>,
    device: &Device,
    stop: &StopFlag,
) -> Result<(), Failure> {
    let known = match known_correspondences(&config) {
        // They only judge the result.
        Err(_) if args.unsupervised => None,
        known => match known.map_err(Failure::input)? {
            Ok(dataset) => Some(dataset),
            Err(reason) => {
                if !args.unsupervised && !args.quiet {
                    say(format_args!("the correspondences are not known: {reason}; they are found in training"));
                }
                None
            }
        },
    };
    match known {
        Some(dataset) if !args.unsupervised => supervised(args, config, &dataset, device, stop),
        known => unsupervised(args, config, known, device, stop),
    }
}

/// The configuration with as many epochs as make the default number of steps, unless epochs were asked for.
fn with_steps(args: &TrainArgs, config: Checked<RunConfig>, meshes: usize) -> RunConfig {
    let mut config = RunConfig::clone(&config);
    if args.epochs.is_none() && !args.quick {
        config.training.epochs = STEPS.div_ceil(meshes.max(1) as u64);
    }
    config
}

fn supervised(
    args: &TrainArgs,
    config: Checked<RunConfig>,
    dataset: &Dataset,
    device: &Device,
    stop: &StopFlag,
) -> Result<(), Failure> {
    if args.start.as_deref() == Some(Path::new(SPECTRUM)) {
        let problem = "the correspondences of these meshes are known; `--start spectrum` needs --unsupervised";
        return Err(Failure::usage(problem));
    }
    let given = dataset.len(Split::Train);
    if given < 2 {
        return Err(Failure::input(LearnError::TooFew { given, usable: given }));
    }
    let config = with_steps(args, config, given).checked().map_err(Failure::usage)?;
    let run = match &args.run_dir {
        Some(path) => RunDirectory::create(path),
        None => RunDirectory::create_next(Path::new(RUNS), &config.name()),
    };
    let run = run.map_err(Failure::input)?;
    let path = run.path().to_path_buf();
    train_in(args, &config, run, &args.cache.open()?, device, stop)?;
    judge(&path, config.training.start.as_deref(), &Meshes::Known(dataset.clone()), device)
}

fn unsupervised(
    args: &TrainArgs,
    config: Checked<RunConfig>,
    known: Option<Dataset>,
    device: &Device,
    stop: &StopFlag,
) -> Result<(), Failure> {
    let all = match known {
        Some(dataset) => Meshes::Known(dataset),
        None => Meshes::unknown(&config)?,
    };
    let training = all.training()?;
    let mut config = with_steps(args, config, training.len());
    let mut options = LearnOptions::default();
    options.rounds = args.rounds.unwrap_or(options.rounds);
    options.start = match config.training.start.take() {
        None => Start::Best,
        Some(start) if start == Path::new(SPECTRUM) => Start::Spectrum,
        Some(model) => Start::Model(model),
    };
    let parent = match &args.run_dir {
        Some(folder) if folder.join(FOUND).exists() => RunDirectory::open_or_create(folder),
        Some(folder) => RunDirectory::create(folder),
        None => RunDirectory::create_next(Path::new(RUNS), &config.name()),
    };
    let parent = parent.map_err(Failure::input)?;
    let directory = parent.path().to_path_buf();
    let cache = args.cache.open()?;
    let place = Place { directory: &directory, cache: &cache, device, stop };
    let learned = learn(&training, &config, &options, &place, &mut TrainProgress::new(args.quiet));
    let learned = match learned {
        Ok(learned) => learned,
        Err(error) => {
            // Stays if there are runs in it.
            parent.discard();
            return Err(Failure::input(error));
        }
    };
    if learned.is_none() {
        return Err(Failure::Interrupted(format!(
            "stopped; the same command with --run-dir {} goes on",
            directory.display()
        )));
    }
    let last = TrainedModel::file_of(&directory.join(format!("round-{}", options.rounds.max(1))));
    let bytes = gemcnn_mesh::read_file(&last).map_err(Failure::at(&last))?;
    write_file(&parent.model(), &bytes)?;
    let first = RunConfig::read(&directory.join("round-1").join("config.toml")).map_err(Failure::input)?;
    let start = first.training.start.unwrap_or_else(|| SPECTRUM.into());
    judge(&directory, Some(&start), &all, device)
}

/// The meshes of a folder.
enum Meshes {
    /// With known correspondences.
    Known(Dataset),
    /// Without, by unique names.
    Unknown(Vec<(String, Mesh)>),
}

impl Meshes {
    /// Those that can be read.
    fn unknown(config: &RunConfig) -> Result<Self, Failure> {
        let DataConfig::Folder(folder) = &config.data else {
            return Err(Failure::usage("matching without known correspondences needs a folder of meshes"));
        };
        let mut names = UniqueNames::default();
        let mut meshes = Vec::new();
        for path in mesh_files(folder).map_err(Failure::input)? {
            match read_mesh(&path) {
                Ok(file) => meshes.push((names.of(&path), file.mesh)),
                Err(error) if config.training.strict => return Err(Failure::input(error)),
                Err(error) => say(format_args!("skipped: {error}")),
            }
        }
        Ok(Self::Unknown(meshes))
    }

    /// The meshes to train on.
    fn training(&self) -> Result<Cow<'_, [(String, Mesh)]>, Failure> {
        match self {
            Self::Known(dataset) => {
                let mut names = UniqueNames::default();
                let mesh = |index| {
                    let name = names.of(Path::new(dataset.mesh_name(Split::Train, index)));
                    Ok((name, dataset.mesh(Split::Train, index).map_err(Failure::input)?))
                };
                (0..dataset.len(Split::Train)).map(mesh).collect::<Result<_, _>>().map(Cow::Owned)
            }
            Self::Unknown(meshes) => Ok(Cow::Borrowed(meshes)),
        }
    }

    /// Number of meshes to judge on: those for testing, if the correspondences are known.
    fn len(&self) -> usize {
        match self {
            Self::Known(dataset) => dataset.len(Split::Test),
            Self::Unknown(meshes) => meshes.len(),
        }
    }

    /// A mesh to judge on, as it is matched; `None` if it cannot be.
    fn shape(&self, index: usize, describer: &Describer, workspace: &mut Workspace<f32>) -> Option<Shape> {
        match self {
            Self::Known(dataset) => describer.shape(workspace, &dataset.mesh(Split::Test, index).ok()?).ok(),
            Self::Unknown(meshes) => describer.shape(workspace, &meshes[index].1).ok(),
        }
    }
}

/// How good the maps of a model are.
#[derive(Serialize)]
struct Row {
    descriptors: String,
    pairs: usize,
    /// Maps that nothing speaks against.
    good: usize,
    /// Errors, if the correspondences are known.
    geodesic: Option<GeodesicScores>,
}

/// Matches pairs of meshes with the start and with the trained model, and prints and writes how good the maps are.
fn judge(run: &Path, start: Option<&Path>, meshes: &Meshes, device: &Device) -> Result<(), Failure> {
    let count = meshes.len();
    let pairs = (1..count).flat_map(|step| (0..count).map(move |from| (from, (from + step) % count)));
    let pairs: Vec<(usize, usize)> = pairs.take(JUDGED).collect();
    if pairs.is_empty() {
        say("note: fewer than two meshes are held out, so the model is not judged");
        return print(&next(run));
    }
    let mut ways = Vec::new();
    for path in start.into_iter().chain([run]) {
        let describer = match path == Path::new(SPECTRUM) {
            true => Describer::Spectrum,
            false => {
                let model = TrainedModel::read(path).map_err(Failure::input)?;
                Matcher::new(model).map_err(Failure::input)?.into()
            }
        };
        ways.push((path.display().to_string(), describer));
    }
    let mut workspace = Workspace::new(device.clone());
    let mut rows = Vec::new();
    for (descriptors, describer) in ways {
        let (good, maps) = progress::during("matching held-out pairs", || {
            let is_used = |&index: &usize| pairs.iter().any(|&(from, to)| from == index || to == index);
            let mut shape = |index: usize| meshes.shape(index, &describer, &mut workspace);
            let shapes: Vec<Option<Shape>> =
                (0..count).map(|index| Some(index).filter(is_used).and_then(&mut shape)).collect();
            let (mut good, mut maps) = (0, Vec::new());
            for &(from, to) in &pairs {
                let (Some(a), Some(b)) = (&shapes[from], &shapes[to]) else { continue };
                let found = describer.matched(a, b).map_err(Failure::input)?;
                good += usize::from(found.evidence.verdict() == Verdict::Good);
                maps.push(MeshMap { from, to, vertices: found.vertices() });
            }
            Ok::<_, Failure>((good, maps))
        })?;
        let geodesic = match meshes {
            Meshes::Known(dataset) => {
                Some(GeodesicScores::of_maps(dataset, Split::Test, &maps).map_err(Failure::input)?)
            }
            Meshes::Unknown(_) => None,
        };
        rows.push(Row { descriptors, pairs: maps.len(), good, geodesic });
    }
    write_file(&run.join(SCORES), json_line(&rows)?.as_bytes())?;
    let header = ["maps from", "pairs", "good", "mean error x 100", "median", "within 0.05 (%)", "flips (%)"];
    let mut cells = vec![header.map(String::from).to_vec()];
    for row in rows {
        let scores = row.geodesic.map_or(["-"; 4].map(String::from), |scores| {
            [
                format!("{:.2}", 100.0 * scores.mean),
                format!("{:.2}", 100.0 * scores.median),
                format!("{:.1}", 100.0 * scores.share_within(0.05)),
                format!("{:.2}", 100.0 * (1.0 - scores.share_within(LARGEST_RADIUS))),
            ]
        });
        let mut row = vec![row.descriptors, row.pairs.to_string(), row.good.to_string()];
        row.extend(scores);
        cells.push(row);
    }
    print(&format!("{}{}", table(&cells), next(run)))
}

fn next(run: &Path) -> String {
    let run = run.display();
    format!("model        {run}\nnext         gemcnn match A B --model {run}\n")
}
