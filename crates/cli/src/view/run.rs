//! The page of a training run.

use super::{files, mesh_paths, report};
use crate::failure::Failure;
use gemcnn_nn::{Device, Workspace};
use gemcnn_tasks::TaskError;
use gemcnn_tasks::data::{Cache, Dataset, Split};
use gemcnn_tasks::evaluation::Assessor;
use gemcnn_tasks::page::PredictionPage;
use gemcnn_tasks::train::{RunConfig, TrainedModel, read_metrics};
use gemcnn_view::page::{Page, PageMesh, Ranked, Report};
use std::path::Path;

/// The page of a run with the `most` worst held-out meshes.
pub(super) fn page(run: &Path, most: usize, cache: &Cache) -> Result<Page, Failure> {
    let config = run.join("config.toml");
    let text = std::fs::read_to_string(&config).map_err(Failure::at(&config))?;
    let metrics = run.join("metrics.jsonl");
    let records = if metrics.exists() { read_metrics(&metrics).map_err(Failure::input)? } else { Vec::new() };
    let mut report = report::of_records(&records, &text);
    let config = RunConfig::read(&config).map_err(Failure::input)?;
    report.facts.insert(0, ("Task".into(), config.task.to_string()));
    let mut page = Page::new(run.display().to_string());
    match model(run) {
        None => page.notes.push("No model is saved yet, so there are no predictions.".into()),
        Some(model) => {
            let model = model.map_err(Failure::input)?;
            if let Err(error) = add_meshes(&mut page, &mut report, &model, most, cache) {
                // The data may be gone; the examples of the run stay.
                page = examples(run).unwrap_or(page);
                page.notes.push(format!("The held-out meshes cannot be shown: {error}"));
            }
        }
    }
    page.report = Some(report);
    Ok(page)
}

/// The model of a run, or the best one so far; `None` if there is none yet.
fn model(run: &Path) -> Option<Result<TrainedModel, TaskError>> {
    let files = ["model.safetensors", "best.safetensors"].map(|name| run.join(name));
    let file = files.into_iter().find(|file| file.exists())?;
    Some(TrainedModel::read(&file))
}

/// The page of the example predictions.
fn examples(run: &Path) -> Option<Page> {
    let mut page = files::page(&mesh_paths(&[run.join("predictions")]).ok()?).ok()?;
    page.title = run.display().to_string();
    Some(page)
}

/// The held-out split of a data set: the test split, or the validation split if there is none.
pub(super) fn held_out_split(dataset: &Dataset) -> Split {
    if dataset.is_empty(Split::Test) { Split::Validation } else { Split::Test }
}

fn add_meshes(
    page: &mut Page,
    report: &mut Report,
    model: &TrainedModel,
    most: usize,
    cache: &Cache,
) -> Result<(), TaskError> {
    let dataset = model.config.dataset()?;
    let split = held_out_split(&dataset);
    let assessor = Assessor::new(model, &dataset, split, cache)?;
    let mut held_out = PredictionPage::new(model);
    let mut workspace = Workspace::new(Device::Cpu);
    let mut worst: Vec<(f64, usize, PageMesh)> = Vec::new();
    let mut ranking = Vec::new();
    for index in 0..assessor.len() {
        let assessed = assessor.assess(model, &mut workspace, index)?;
        let (mesh, score) = held_out.mesh(assessed);
        // Meshes without a known target come last.
        let badness = match (score, held_out.larger_is_better()) {
            (Some(score), true) => -score,
            (Some(score), false) => score,
            (None, _) => f64::NEG_INFINITY,
        };
        ranking.push((badness, index, mesh.name.clone(), score));
        worst.push((badness, index, mesh));
        worst.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        worst.truncate(most);
    }
    ranking.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    held_out.prepare(page);
    let before = page.meshes.len();
    let place = |index: usize| worst.iter().position(|(_, other, _)| *other == index);
    report.ranking = ranking
        .into_iter()
        .filter_map(|(_, index, name, score)| {
            Some(Ranked { name, score: score?, mesh: place(index).map(|place| before + place) })
        })
        .collect();
    report.score = held_out.score_name().into();
    report.confusion = held_out.confusion();
    report.facts.push(("Held out".into(), format!("{} of the {split} split", assessor.len())));
    page.meshes.extend(worst.into_iter().map(|(_, _, mesh)| mesh));
    Ok(())
}
