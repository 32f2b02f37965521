//! Example predictions for a few meshes of a data set.

use super::{Pictures, Prediction, PredictionFiles, UniqueNames};
use crate::data::{Dataset, Split};
use crate::train::TrainedModel;
use crate::{Element, Result};
use gemcnn_nn::{Device, Workspace};
use std::path::Path;

/// Largest number of examples.
const EXAMPLES: usize = 3;

/// Writes predictions for the first usable meshes of a split to a directory, as meshes and pictures. Writes nothing for
/// predictions of whole meshes.
///
/// # Errors
/// A mesh that cannot be read, or a file that cannot be written.
pub fn write_examples(
    model: &TrainedModel,
    dataset: &Dataset,
    split: Split,
    device: &Device,
    directory: &Path,
) -> Result<()> {
    let mut workspace = Workspace::new(device.clone());
    let mut names = UniqueNames::default();
    let mut files = None;
    let mut written = 0;
    for index in 0..dataset.len(split) {
        if written == EXAMPLES {
            break;
        }
        let name = dataset.mesh_name(split, index);
        let prepared = dataset.mesh(split, index).and_then(|mesh| {
            let fields = dataset.fields(split, index, &model.config.features.fields())?;
            let sample = model.sample_with(name, &mesh, &fields)?;
            Ok((mesh, sample))
        });
        let (mesh, sample) = match prepared {
            Err(error) if error.is_of_mesh() && !model.config.training.strict => continue,
            prepared => prepared?,
        };
        let prediction = model.predict(&mut workspace, &sample)?;
        if let Prediction::MeshClass { .. } | Prediction::Values { per: Element::Mesh, .. } = prediction {
            return Ok(());
        }
        let files = match &mut files {
            Some(files) => files,
            none => {
                none.insert(PredictionFiles::new(directory, model, Some(Pictures { up: model.config.training.up }))?)
            }
        };
        let name = names.of(name.as_ref());
        files.write(&name, &mesh, sample.graph().frames(), &prediction, None)?;
        written += 1;
    }
    Ok(())
}
