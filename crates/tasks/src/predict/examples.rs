//! Example predictions for a few meshes of a data set.

use super::{Prediction, PredictionFiles, UniqueNames};
use crate::TaskError;
use crate::data::{Dataset, Part};
use crate::train::TrainedModel;
use gemcnn_nn::{Device, Workspace};
use gemcnn_view::render::RenderOptions;
use std::path::Path;

/// Largest number of examples.
const EXAMPLES: usize = 3;

/// Writes predictions for the first meshes of a part to a directory, as meshes and pictures. Writes nothing for
/// whole-mesh classification.
///
/// # Errors
/// A mesh that cannot be read, or a file that cannot be written.
pub fn write_examples(
    model: &TrainedModel,
    dataset: &Dataset,
    part: Part,
    device: &Device,
    directory: &Path,
) -> Result<(), TaskError> {
    let mut workspace = Workspace::new(device.clone());
    let mut names = UniqueNames::default();
    let mut files = None;
    for index in 0..dataset.len(part).min(EXAMPLES) {
        let mesh = dataset.mesh(part, index)?;
        let name = dataset.mesh_name(part, index);
        let fields = dataset.fields(part, index, &model.config.features.fields())?;
        let sample = model.sample_with(name, &mesh, &fields)?;
        let prediction = model.predict(&mut workspace, &sample)?;
        if let Prediction::MeshClass { .. } = prediction {
            return Ok(());
        }
        let files = match &mut files {
            Some(files) => files,
            none => none.insert(PredictionFiles::new(
                directory,
                model,
                Some(RenderOptions::default()),
            )?),
        };
        let name = names.of(name.as_ref());
        files.write(&name, &mesh, sample.graph.frames(), &prediction)?;
    }
    Ok(())
}
