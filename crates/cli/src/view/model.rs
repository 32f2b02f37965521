//! A model within a page, for meshes that are dropped on it.

use crate::failure::Failure;
use gemcnn_mesh::read_file;
use gemcnn_tasks::page::PredictionPage;
use gemcnn_tasks::train::{TEMPLATE, TrainedModel};
use gemcnn_view::page::{Page, PageModel};
use std::path::Path;

/// `crates/wasm`, optimised and deflated by `npm run wasm` (docs/view.md).
const PROGRAM: &[u8] = include_bytes!("predict.wasm.deflate");

/// Adds the model of a run directory or file, and the template of a correspondence if the page does not show it.
pub(super) fn add(page: &mut Page, run: &Path) -> Result<(), Failure> {
    let model = TrainedModel::read(run).map_err(Failure::input)?;
    let file = TrainedModel::file_of(run);
    let read = |path: &Path| read_file(path).map_err(Failure::at(path));
    let template = model.template.as_ref().map(|_| read(&file.with_file_name(TEMPLATE)));
    page.model = Some(PageModel { program: PROGRAM.into(), template: template.transpose()?, file: read(&file)? });
    let shown = PredictionPage::new(&model);
    if let Some(template) = shown.template()
        && page.report.is_none()
    {
        page.meshes.push(template);
    }
    Ok(())
}
