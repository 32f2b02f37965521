//! `gemcnn eval`: evaluation of a trained model.

use crate::data::CacheArgs;
use crate::device::DeviceArgs;
use crate::failure::Failure;
use crate::kinds::{SPLITS, word};
use crate::output::{count, grouped, json_line, print, say, table};
use crate::progress;
use clap::Args;
use gemcnn_mesh::remesh::RemeshKind;
use gemcnn_tasks::data::{DataConfig, Dataset, Split};
use gemcnn_tasks::evaluation::{ClassScores, Evaluation, EvaluationOptions, evaluate};
use gemcnn_tasks::train::{RunConfig, TrainedModel};
use gemcnn_tasks::{Task, TaskError, summed_up};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Largest number of classes for which all are listed.
const MAX_LISTED_CLASSES: usize = 16;
/// Number of classes that are listed otherwise.
const WORST_CLASSES: usize = 8;
/// Seed of `--remesh`.
const REMESHING_SEED: u64 = 1;

/// Options of `gemcnn eval`.
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// Run directory, or a model file such as best.safetensors.
    #[arg(value_name = "RUN")]
    run: PathBuf,

    /// Folder of meshes with targets [default: the data of the run]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Split of the data set [default: test; with --data, all meshes if the folder has no splits]
    #[arg(long, value_parser = word::<Split>(SPLITS))]
    split: Option<Split>,

    /// Earlier name of --split.
    #[arg(long, value_parser = word::<Split>(SPLITS), hide = true, conflicts_with = "split")]
    part: Option<Split>,

    /// Rotate each mesh at random, with this seed, before computing geometry and features.
    #[arg(long, value_name = "SEED")]
    rotate: Option<u64>,

    #[arg(
        long,
        value_name = "KIND",
        value_parser = remesher,
        help = format!(
            "Remesh each mesh first, and carry its targets along: a remesher ({}), with its settings as JSON if it needs \
             any, such as '{{\"kind\": \"jitter\", \"amount\": 0.5}}'",
            RemeshKind::NAMES.join(", ")
        ),
    )]
    remesh: Option<RemeshKind>,

    /// Stop with an error if a mesh cannot be used, instead of skipping it.
    #[arg(long)]
    strict: bool,

    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    cache: CacheArgs,

    #[command(flatten)]
    device: DeviceArgs,
}

impl EvalArgs {
    pub fn run(mut self) -> Result<(), Failure> {
        if let Some(split) = self.part {
            say("note: --part is now called --split");
            self.split = Some(split);
        }
        let model = TrainedModel::read(&self.run).map_err(Failure::input)?;
        let products = model.config.training.precision.into();
        let device = if self.json { self.device.open_quietly(products) } else { self.device.open(products) }?;
        let options = EvaluationOptions {
            split: self.split(),
            rotation: self.rotate,
            strict: self.strict,
            meshing: self.remesh.clone().map(|kind| (kind, REMESHING_SEED)),
            ..Default::default()
        };
        let data = match &self.data {
            Some(folder) => DataConfig::Folder(folder.clone()),
            None => model.config.data.clone(),
        };
        if let (None, DataConfig::Folder(folder) | DataConfig::Faust(folder)) = (&self.data, &data)
            && !folder.exists()
        {
            return Err(Failure::input(format!(
                "{}: the data of the run do not exist any more; give their folder with --data",
                folder.display()
            )));
        }
        let cache = self.cache.open()?;
        let (evaluation, all) = progress::during("evaluating", || {
            // The training meshes of the model are not for testing.
            let dataset = match is_same(&data, &model.config.data) {
                true => {
                    let mut config = RunConfig { data, ..model.config.clone() };
                    config.training.strict = self.strict;
                    config.dataset()?
                }
                false => {
                    let dataset = Dataset::open_with(&data, Some(model.config.task), self.strict)?;
                    if self.split.is_none() { dataset.all_for_testing() } else { dataset }
                }
            };
            let all = dataset.is_for_testing();
            let evaluation = evaluate(&model, &dataset, options, &cache, &device)?;
            Ok::<_, TaskError>((evaluation.compared_with_training(&model.config, &dataset), all))
        })
        .map_err(Failure::input)?;
        // The scores are printed even if they cannot be written.
        let files = evaluation.write(&self.stem());
        print(&if self.json { json_line(&evaluation)? } else { in_words(&evaluation, model.config.task, all) })?;
        let files = files.map_err(Failure::input)?;
        if self.json { Ok(()) } else { print(&written(&files)) }
    }

    fn split(&self) -> Split {
        self.split.unwrap_or(Split::Test)
    }

    /// Path of the results without extension: next to the model, named after split, model file, data and rotation.
    fn stem(&self) -> PathBuf {
        let folder = if self.run.is_dir() { self.run.as_path() } else { self.run.parent().unwrap_or(Path::new("")) };
        let mut name = format!("eval-{}", self.split());
        if let Some(model) = self.run.file_stem()
            && !self.run.is_dir()
        {
            let _ = write!(name, "-{}", model.to_string_lossy());
        }
        // The absolute path, so that `.` has a name too.
        let data = self.data.as_ref().and_then(|data| data.canonicalize().ok());
        if let Some(data) = data.as_deref().and_then(Path::file_name) {
            let _ = write!(name, "-{}", data.to_string_lossy());
        }
        if let Some(seed) = self.rotate {
            let _ = write!(name, "-rotated-{seed}");
        }
        if let Some(kind) = self.remesh.as_ref().and_then(|kind| {
            let settings = serde_json::to_value(kind).ok()?;
            Some(settings.get("kind")?.as_str()?.to_owned())
        }) {
            let _ = write!(name, "-{kind}");
        }
        folder.join(name)
    }
}

/// True if both are the same folder, or the same other source.
fn is_same(a: &DataConfig, b: &DataConfig) -> bool {
    use DataConfig::{Faust, Folder};
    match (a, b) {
        (Folder(a) | Faust(a), Folder(b) | Faust(b)) => {
            let same = (a.canonicalize().ok()).zip(b.canonicalize().ok());
            a == b || same.is_some_and(|(a, b)| a == b)
        }
        _ => a == b,
    }
}

/// A remesher from its name or its settings as JSON.
fn remesher(text: &str) -> Result<RemeshKind, String> {
    let kind = match text.starts_with('{') {
        true => serde_json::from_str(text),
        false => serde_json::from_value(serde_json::json!({ "kind": text })),
    };
    kind.map_err(|error| match error.to_string() {
        problem if problem.starts_with("missing field") => {
            format!(r#"{problem}; give the settings as JSON, such as '{{"kind": "jitter", "amount": 0.5}}'"#)
        }
        problem => problem,
    })
}

/// A line with the paths of written files.
fn written(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
    format!("  written    {}\n", names.join("\n             "))
}

fn in_words(evaluation: &Evaluation, task: Task, all: bool) -> String {
    let scores = &evaluation.scores;
    let counted = scores.counted as usize;
    let [one, many] = evaluation.per.words();
    let what = count(counted, one, many);
    let rotated = match evaluation.rotation {
        Some(seed) => format!(", random rotations with seed {seed}"),
        None => String::new(),
    };
    let which = if all { "all meshes".into() } else { format!("{} split", evaluation.split) };
    let mut text = format!(
        "{} ({task}), {which}: {}{rotated}\n  loss       {:.4}\n",
        evaluation.data,
        count(evaluation.meshes, "mesh", "meshes"),
        scores.loss
    );
    // Writing to a string does not fail.
    for line in summed_up(&evaluation.skipped) {
        let _ = writeln!(text, "  skipped    {line}");
    }
    if let Some(accuracy) = scores.accuracy {
        let _ = writeln!(text, "  accuracy   {} of {what}", percent(accuracy));
    }
    for note in notes(evaluation) {
        let _ = writeln!(text, "  note       {note}");
    }
    if let Some(segmentation) = &evaluation.segmentation {
        let _ = writeln!(text, "  by area    {} of the area", percent(segmentation.by_area));
        if let Some(away) = segmentation.away_from_borders {
            let counted = count(segmentation.counted as usize, "vertex", "vertices");
            let _ = writeln!(text, "  inside     {} of {counted} away from borders of the classes", percent(away));
        }
        if let Some(soft) = segmentation.soft_by_area {
            let _ = writeln!(text, "  soft       {} of the area, by soft labels", percent(soft));
        }
        if let Some(faces) = segmentation.by_face {
            let _ = writeln!(text, "  faces      {} of the faces", percent(faces));
        }
        if let (Some(hard), Some(soft)) = (segmentation.by_edge, segmentation.by_edge_soft) {
            let _ = writeln!(
                text,
                "  edges      {} right at both ends, {} up to an exchange of the ends' classes",
                percent(hard),
                percent(soft)
            );
        }
    }
    if let Some(regression) = &evaluation.regression {
        let _ = writeln!(
            text,
            "  error      {:.6} root mean square, {:.6} mean absolute, over {what}",
            regression.root_mean_square, regression.mean_absolute
        );
        if let Some(explained) = regression.explained {
            let share = percent(explained);
            let _ = writeln!(text, "  explained  {share} of the variance of the targets");
        }
        if !regression.columns.is_empty() {
            let head = ["column", "root mean square", "mean absolute"];
            let mut rows = vec![head.map(String::from).to_vec()];
            rows.extend(regression.columns.iter().map(|column| {
                let errors = [column.root_mean_square, column.mean_absolute];
                let errors = errors.map(|error| format!("{error:.6}"));
                [column.name.clone()].into_iter().chain(errors).collect()
            }));
            text += &table(&rows);
        }
        if let Some(angle) = regression.mean_angle {
            let _ = writeln!(text, "  angle      mean {angle:.2} degrees");
        }
    }
    if let Some(geodesic) = &evaluation.geodesic {
        let within = |radius| percent(geodesic.share_within(radius));
        let _ = writeln!(
            text,
            "  geodesic   mean {:.5} square roots of the template's area; within 0.01: {}, 0.05: {}, \
             0.1: {}",
            geodesic.mean,
            within(0.01),
            within(0.05),
            within(0.1)
        );
        if geodesic.unreachable > 0 {
            let far = grouped(geodesic.unreachable as usize);
            let _ = writeln!(text, "  apart      {far} on another connected component of the template");
        }
    }
    if let Some(classes) = &evaluation.classes {
        text += &class_table(classes);
    }
    text
}

/// What limits the trust in the scores.
fn notes(evaluation: &Evaluation) -> Vec<String> {
    let Evaluation { in_training, absent_classes, classes, split, .. } = evaluation;
    let mut notes = Vec::new();
    if !in_training.is_empty() {
        notes.push(format!(
            "{} of {} of the {split} split are training meshes too, by content or name: {}; the scores are too optimistic",
            grouped(in_training.len()),
            count(evaluation.meshes, "mesh", "meshes"),
            first_few(in_training)
        ));
    }
    if let (Some(classes), false) = (classes, absent_classes.is_empty()) {
        let all = classes.classes.len();
        notes.push(format!(
            "the scores are of {} of {} classes; the {split} split has none of {}",
            grouped(all - absent_classes.len()),
            grouped(all),
            first_few(absent_classes)
        ));
    }
    notes
}

/// Up to eight names, and the number of the others.
fn first_few(names: &[String]) -> String {
    let shown = names[..names.len().min(WORST_CLASSES)].join(", ");
    match names.len().saturating_sub(WORST_CLASSES) {
        0 => shown,
        more => format!("{shown} and {} more", grouped(more)),
    }
}

/// All classes with their confusion matrix if they are few, otherwise the worst classes.
fn class_table(scores: &ClassScores) -> String {
    let lists_all = scores.classes.len() <= MAX_LISTED_CLASSES;
    let mut text = String::new();
    if lists_all {
        let _ = writeln!(
            text,
            "  classes    mean accuracy {}, mean intersection over union {}",
            percent(scores.mean_accuracy()),
            percent(scores.mean_intersection_over_union())
        );
    }
    let mut rows = vec![vec!["class".to_string(), "correct".into(), "of".into()]];
    let shown = match lists_all {
        true => scores.classes.iter().collect(),
        false => {
            let mut worst = scores.worst();
            worst.truncate(WORST_CLASSES);
            let _ = writeln!(text, "  worst      {} of {} classes", worst.len(), grouped(scores.classes.len()));
            worst
        }
    };
    let confusion = scores.confusion.as_ref().filter(|_| lists_all);
    if confusion.is_some() {
        rows[0].extend(shown.iter().map(|class| format!("as {}", class.name)));
    }
    for (place, class) in shown.iter().enumerate() {
        let right = class.accuracy().map_or("-".into(), percent);
        let mut row = vec![class.name.clone(), right, grouped(class.counted as usize)];
        if let Some(taken_for) = confusion.and_then(|confusion| confusion.get(place)) {
            row.extend(taken_for.iter().map(|&times| grouped(times as usize)));
        }
        rows.push(row);
    }
    text + &table(&rows)
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}
