//! Detailed evaluation of a trained model.

mod assessment;
mod classes;
mod geodesic;
mod segmentation;

pub use crate::train::{ColumnScores, RegressionScores};
pub use assessment::{Assessment, Assessor};
pub use classes::{ClassScore, ClassScores};
pub use geodesic::{GeodesicScores, LARGEST_RADIUS, MeshMap};
pub use segmentation::{BORDER, SegmentationScores};

use crate::data::{Cache, Classes, DataConfig, Dataset, GaugeChoice, PreparedSplit, Split, csv_cell};
use crate::predict::Prediction;
use crate::train::{
    BatchPlan, BatchSource, Division, GeometryCache, Outputs, Prefetch, RunConfig, Scaled, Scores, Tally, TrainedModel,
    evaluate_batch, names,
};
use crate::{Element, Result, Sample, SampleSource, Task, TaskError};
use gemcnn_mesh::remesh::RemeshKind;
use gemcnn_mesh::write_atomically;
use gemcnn_nn::{Device, IGNORE, Objective, Target, Workspace};
use gemcnn_view::plot::Chart;
use geodesic::Confusions;
use segmentation::{RowGeometry, SegmentationSums};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Meshes of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluationOptions {
    /// Split of the data set (default: test).
    pub split: Split,
    /// Seed of random rotations of the meshes (default: no rotations).
    pub rotation: Option<u64>,
    /// Refuses a mesh that cannot be used, instead of leaving it out (default true).
    pub strict: bool,
    /// Remesher of the meshes and its seed (default: meshes as they are). Targets are carried along.
    pub meshing: Option<(RemeshKind, u64)>,
    /// Seed of random frames (default: those of the model).
    pub frames: Option<u64>,
    /// Also compares predictions for vertices with those on the meshes as they are (default false).
    pub compare: bool,
}

impl Default for EvaluationOptions {
    fn default() -> Self {
        Self { split: Split::Test, rotation: None, strict: true, meshing: None, frames: None, compare: false }
    }
}

/// Scores of a model on a split of a data set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Name of the data set.
    pub data: String,
    /// The split.
    #[serde(rename = "part", alias = "split")]
    pub split: Split,
    /// Seed of random rotations, if there were any.
    pub rotation: Option<u64>,
    /// Number of meshes.
    pub meshes: usize,
    /// What a row of the targets is for.
    #[serde(default)]
    pub per: Element,
    /// Meshes that were left out because they cannot be used, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// Meshes that are also training meshes, by content or name, if they were
    /// [compared](Self::compared_with_training).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_training: Vec<String>,
    /// Segmentation and classification: names of the classes without a target in the split, of which the scores say
    /// nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent_classes: Vec<String>,
    /// Loss (without class weights), and accuracy or error.
    pub scores: Scores,
    /// Fraction of the vertices with another predicted class than on the meshes as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<f64>,
    /// Scores of each class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<ClassScores>,
    /// Segmentation: scores by area and away from borders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segmentation: Option<SegmentationScores>,
    /// Scores of regression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regression: Option<RegressionScores>,
    /// Correspondence: geodesic errors on the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub geodesic: Option<GeodesicScores>,
}

impl Evaluation {
    /// Finds the meshes that the model of a configuration was trained on, if its data still exist. `dataset` is that of
    /// the evaluation.
    pub fn compared_with_training(mut self, config: &RunConfig, dataset: &Dataset) -> Self {
        self.in_training = match &config.data {
            DataConfig::Folder(folder) if folder.display().to_string() != dataset.name() => {
                let training = folder.exists().then(|| config.dataset().ok()).flatten();
                training.map_or(Vec::new(), |training| dataset.in_training(self.split, &training))
            }
            _ => dataset.in_training(self.split, dataset),
        };
        self
    }

    /// Writes `stem.json`, and `stem.csv`, `stem.png` and `stem.svg` if there is a table or a chart. Returns the
    /// paths.
    pub fn write(&self, stem: &Path) -> Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        let write = |extension: &str, text: String| {
            let path = stem.with_added_extension(extension);
            write_atomically(&path, |file| file.write_all(text.as_bytes())).map_err(TaskError::file(&path))?;
            Ok::<_, TaskError>(path)
        };
        if let Some(table) = self.to_csv() {
            paths.push(write("csv", table)?);
        }
        if let Some(chart) = self.chart() {
            paths.extend(chart.write(stem)?);
        }
        // Last, because all the others are there if this one is.
        let json =
            serde_json::to_string_pretty(self).map_err(|error| TaskError::setting("evaluation", error.to_string()))?;
        paths.push(write("json", json + "\n")?);
        Ok(paths)
    }

    /// Reads `stem.json`; `None` if there is no such file.
    ///
    /// # Errors
    /// A file that cannot be read or is invalid.
    pub fn read(stem: &Path) -> Result<Option<Self>> {
        let path = stem.with_added_extension("json");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(TaskError::file(path)(error)),
        };
        let evaluation =
            serde_json::from_str(&text).map_err(|error| TaskError::at(&path, format!("{error}; remove the file")))?;
        Ok(Some(evaluation))
    }

    /// Table of the scores: the curve of geodesic errors in correspondence, otherwise a row for each class, or for each
    /// column of a regression of several values. `None` in regression of one value.
    pub fn to_csv(&self) -> Option<String> {
        match (&self.geodesic, &self.classes, &self.regression) {
            (Some(geodesic), ..) => Some(geodesic.to_csv()),
            (None, Some(classes), _) => Some(classes.to_csv()),
            (None, None, Some(regression)) if !regression.columns.is_empty() => {
                let mut table = String::from("column,root_mean_square,mean_absolute\n");
                for column in &regression.columns {
                    let (square, absolute) = (column.root_mean_square, column.mean_absolute);
                    table += &format!("{},{square},{absolute}\n", csv_cell(&column.name));
                }
                Some(table)
            }
            _ => None,
        }
    }

    /// Plot of the geodesic errors, in correspondence.
    pub fn chart(&self) -> Option<Chart> {
        let rotated = if self.rotation.is_some() { ", random rotations" } else { "" };
        let title = format!("Correspondence: {} split{rotated}", self.split);
        Some(self.geodesic.as_ref()?.chart(&title))
    }
}

/// Evaluates a model, one mesh at a time, while the next one is loaded.
///
/// # Errors
/// Data for another task, with unknown classes, or without a mesh in the split; a mesh that cannot be loaded; a
/// loss that is not finite; no known target.
pub fn evaluate(
    model: &TrainedModel,
    dataset: &Dataset,
    options: EvaluationOptions,
    cache: &Cache,
    device: &Device,
) -> Result<Evaluation> {
    let config = &model.config;
    let EvaluationOptions { split, rotation, strict, meshing, frames, compare } = options;
    if dataset.task() != config.task {
        let problem = format!("the data set is for {}, but the model for {}", dataset.task(), config.task);
        return Err(TaskError::setting(dataset.name(), problem));
    }
    check_elements(model, dataset)?;
    if dataset.is_empty(split) {
        let problem = format!("the {split} split has no meshes; choose another one (`--split`)");
        return Err(TaskError::setting(dataset.name(), problem));
    }
    let mut preparation = model.preparation();
    let plain = dataset.split(split, &preparation, cache)?;
    preparation.rotation = rotation;
    preparation.gauge = frames.map_or(preparation.gauge, GaugeChoice::Random);
    // Every mesh is loaded once.
    let samples = dataset.split(split, &preparation, cache)?.with_memory(0);
    let samples = match meshing {
        Some((kind, seed)) => samples.remeshed(kind, seed),
        None => samples,
    };
    let changed = if compare { changed(model, [&plain, &samples], device)? } else { None };
    let samples = Relabelled {
        classes: class_map(model, dataset)?,
        geometry: (config.task == Task::Segmentation).then(Mutex::default),
        source: &samples,
    };
    let objective = config.training.objective(model.learned())?;
    let mut counts = Counts::new(model, strict);
    let scores = run(model, &samples, objective, device, &mut counts)?;
    let geodesic = match (&counts.confusions, dataset.distances()?) {
        (Some(confusions), Some(template)) => Some(GeodesicScores::new(template, confusions, scores.counted)?),
        _ => None,
    };
    Ok(Evaluation {
        data: dataset.name().into(),
        split,
        rotation,
        meshes: samples.len() - counts.skipped.len(),
        per: model.per,
        skipped: [dataset.skipped(), &counts.skipped].concat(),
        in_training: Vec::new(),
        absent_classes: match (&counts.classes, config.task) {
            (Some(classes), Task::Segmentation | Task::Classification) => classes.absent(),
            _ => Vec::new(),
        },
        scores,
        changed,
        classes: counts.classes,
        segmentation: counts.segmentation.scores(),
        regression: counts.outputs.regression.map(|sums| sums.scores(dataset.value_names())),
        geodesic,
    })
}

/// Fraction of the vertices with another predicted class than on the plain meshes; `None` if none are predicted.
fn changed(model: &TrainedModel, [plain, samples]: [&PreparedSplit; 2], device: &Device) -> Result<Option<f64>> {
    let mut workspace = Workspace::new(device.clone());
    let (mut differ, mut all) = (0, 0);
    for index in 0..samples.len() {
        let mut predicted = |split: &PreparedSplit| -> Result<Vec<u32>> {
            let mut sample = split.load(index)?;
            model.scaling.apply_limited(&sample.kind, &mut sample.features);
            match model.predict(&mut workspace, &sample)? {
                Prediction::Classes { per: Element::Vertex, classes } => Ok(classes),
                _ => Ok(Vec::new()),
            }
        };
        let (before, after) = (predicted(plain)?, predicted(samples)?);
        let before = samples.carried(index, before)?;
        differ += before.iter().zip(&after).filter(|(before, after)| before != after).count();
        all += after.len();
    }
    Ok((all > 0).then(|| differ as f64 / all as f64))
}

/// Counts besides the loss.
struct Counts {
    classes: Option<ClassScores>,
    segmentation: SegmentationSums,
    outputs: Outputs,
    confusions: Option<Confusions>,
    strict: bool,
    skipped: Vec<String>,
}

impl Counts {
    fn new(model: &TrainedModel, strict: bool) -> Self {
        let is_correspondence = model.config.task == Task::Correspondence;
        Self {
            classes: model.classes.as_ref().map(ClassScores::new),
            segmentation: SegmentationSums::default(),
            outputs: Outputs { classes: Some(Vec::new()), ..Default::default() },
            confusions: is_correspondence.then(Confusions::default),
            strict,
            skipped: Vec::new(),
        }
    }

    fn add_labels(&mut self, labels: &[u32], predicted: &[u32]) {
        let known = labels.iter().zip(predicted).filter(|(l, _)| **l != IGNORE);
        for (&label, &predicted) in known {
            if let Some(classes) = &mut self.classes {
                classes.add(label, predicted);
            }
            if let Some(confusions) = &mut self.confusions
                && label != predicted
            {
                *confusions.entry((label, predicted)).or_insert(0) += 1;
            }
        }
    }
}

/// Runs the model on all samples.
fn run(
    model: &TrainedModel,
    samples: &Relabelled<'_>,
    objective: Objective<f32>,
    device: &Device,
    counts: &mut Counts,
) -> Result<Scores> {
    let scaled = Scaled { source: samples, features: &model.scaling, targets: model.target_scaling.as_ref() };
    let plan = BatchPlan {
        samples: samples.len(),
        versions: 1,
        division: Division::Meshes(1),
        shuffle: None,
        drop_last: false,
    };
    let (objective, cache) = (Arc::new(objective), GeometryCache::off());
    let mut workspace = Workspace::new(device.clone());
    let mut tally = Tally::default();
    std::thread::scope(|scope| {
        let all = (0, plan.steps());
        let batches = BatchSource { samples: &scaled, objective: &objective, cache: &cache, device };
        for prepared in Prefetch::start(scope, batches, plan, all) {
            let prepared = match prepared {
                Err(error) if error.is_of_mesh() && !counts.strict => {
                    counts.skipped.push(error.to_string());
                    continue;
                }
                prepared => prepared?,
            };
            let (network, weights, scaling) = (&*model.network, &model.parameters, model.target_scaling.as_ref());
            let outputs = &mut counts.outputs;
            let loss = evaluate_batch(network, weights, &mut workspace, scaling, &prepared.batch, outputs)?;
            if let Target::Classes(targets) = prepared.batch.target() {
                let predicted = counts.outputs.classes.take().unwrap_or_default();
                counts.add_labels(targets.labels, &predicted);
                // There is one mesh in each batch.
                let sample = prepared.samples.first();
                if let Some(geometry) = sample.and_then(|&index| samples.take_geometry(index)) {
                    counts.segmentation.add(&geometry, targets.labels, &predicted);
                }
                counts.outputs.classes = Some(predicted);
            }
            let scores = loss.read()?;
            if !scores.loss.is_finite() {
                let name = names(samples, &prepared.samples);
                return Err(TaskError::setting(name, format!("the loss is {}", scores.loss)));
            }
            tally.add(scores);
        }
        tally.scores().ok_or_else(|| match &counts.skipped[..] {
            [] => TaskError::setting("evaluation", "no target is known"),
            skipped => TaskError::setting("evaluation", format!("no mesh can be used: {}", skipped.join("; "))),
        })
    })
}

/// Fails unless the targets of a data set are for what the model predicts.
fn check_elements(model: &TrainedModel, dataset: &Dataset) -> Result<()> {
    if dataset.per() == model.per {
        return Ok(());
    }
    let [[_, found], [_, known]] = [dataset.per(), model.per].map(Element::words);
    let problem = format!("its targets are those of {found}, but the model is for {known}");
    Err(TaskError::setting(dataset.name(), problem))
}

/// The class of the model for each class of a data set; `None` if they are the same.
fn class_map(model: &TrainedModel, dataset: &Dataset) -> Result<Option<Vec<u32>>> {
    let refuse = |problem: String| Err(TaskError::setting(dataset.name(), problem));
    let (Some(known), Some(found)) = (&model.classes, dataset.classes()) else {
        let (found, known) = (dataset.outputs(), model.network.output());
        return match found == *known {
            true => Ok(None),
            false => refuse(format!("its targets have type {found}, but the output of the model {known}")),
        };
    };
    if known == found {
        return Ok(None);
    }
    if model.config.task == Task::Correspondence {
        return refuse(format!(
            "its template has {} vertices, but that of the model has {}",
            found.count(),
            known.count()
        ));
    }
    let counterpart = |class: usize| match found.names().get(class) {
        Some(name) if !known.names().is_empty() => by_name(known, name),
        _ => known.class_of(found.label(class)),
    };
    let map: Vec<Option<u32>> = (0..found.count()).map(counterpart).collect();
    match map.iter().position(Option::is_none) {
        None => Ok(map.into_iter().collect()),
        Some(class) => refuse(format!(
            "the model has no class `{}`, its classes are {}; correct the labels, or list `classes` in dataset.toml",
            found.name(class),
            (0..known.count()).map(|class| known.name(class)).collect::<Vec<_>>().join(", ")
        )),
    }
}

fn by_name(classes: &Classes, name: &str) -> Option<u32> {
    let place = classes.names().iter().position(|known| known == name)?;
    Some(place as u32)
}

/// Samples with labels of the model.
struct Relabelled<'a> {
    source: &'a PreparedSplit,
    classes: Option<Vec<u32>>,
    /// Segmentation: geometry of the rows of loaded samples, until they are scored.
    geometry: Option<Mutex<HashMap<usize, RowGeometry>>>,
}

impl Relabelled<'_> {
    fn take_geometry(&self, index: usize) -> Option<RowGeometry> {
        let geometry = self.geometry.as_ref()?;
        let mut geometry = geometry.lock().unwrap_or_else(PoisonError::into_inner);
        geometry.remove(&index)
    }
}

impl SampleSource for Relabelled<'_> {
    fn len(&self) -> usize {
        self.source.len()
    }

    fn name(&self, index: usize) -> String {
        self.source.name(index)
    }

    fn load(&self, index: usize) -> Result<Sample> {
        let (mut sample, scoring) = match &self.geometry {
            Some(_) => {
                let (sample, scoring) = self.source.load_scored(index)?;
                (sample, Some(scoring))
            }
            None => (self.source.load(index)?, None),
        };
        let relabel = |label: &mut u32| {
            if let Some(map) = &self.classes {
                // Unknown labels stay unknown.
                *label = map.get(*label as usize).copied().unwrap_or(IGNORE);
            }
        };
        if let Target::Classes(labels) = &mut sample.target {
            labels.iter_mut().for_each(relabel);
        }
        if let (Some(geometry), Some(mut scoring)) = (&self.geometry, scoring) {
            let soft = scoring.soft.iter_mut().flatten().flatten();
            soft.for_each(relabel);
            if let Some(found) = RowGeometry::new(&sample, scoring) {
                let mut geometry = geometry.lock().unwrap_or_else(PoisonError::into_inner);
                geometry.insert(index, found);
            }
        }
        Ok(sample)
    }
}
