//! A picture of the first mesh of each test, coloured by the predicted points of the template.

use super::run::TestSet;
use crate::output::{invalid, write_bytes};
use gemcnn_mesh::remesh::remesh;
use gemcnn_mesh::{DVec3, Mesh};
use gemcnn_nn::{Device, Workspace};
use gemcnn_tasks::TaskError;
use gemcnn_tasks::predict::{Prediction, template_colours};
use gemcnn_tasks::train::TrainedModel;
use gemcnn_view::render::{RenderOptions, Shading, Up, View, render};
use std::path::Path;

/// Width of each mesh and height of the picture, in pixels.
const WIDTH: u32 = 420;
const HEIGHT: u32 = 900;

/// Draws the first mesh of each test, side by side; nothing if the model does not predict points of a template.
pub(super) fn draw(model: &TrainedModel, tests: &[TestSet], device: &Device, path: &Path) -> Result<(), TaskError> {
    let Some(template) = &model.template else { return Ok(()) };
    let palette = template_colours(template);
    let mut workspace = Workspace::new(device.clone());
    let (mut meshes, mut colours) = (Vec::new(), Vec::new());
    // Where the next mesh begins.
    let mut left = 0.0;
    for TestSet { name, dataset, options } in tests {
        let mut mesh = dataset.mesh(options.split, 0)?;
        if let Some((kind, seed)) = &options.meshing {
            mesh = remesh(&mesh, kind, *seed).map_err(invalid("picture"))?.mesh;
        }
        let sample = model.sample(name, &mesh)?;
        let Prediction::Classes { classes, .. } = model.predict(&mut workspace, &sample)? else { return Ok(()) };
        let colour = |&class: &u32| palette.get(class as usize).copied().unwrap_or([128; 3]);
        colours.extend(classes.iter().map(colour));
        let [low, high] = mesh.bounds().unwrap_or_default();
        let shift = DVec3::new(left - low.x, -low.y, 0.0);
        left += 1.1 * (high.x - low.x);
        meshes.push((mesh, shift));
    }
    let all = Mesh::side_by_side(meshes.iter().map(|(mesh, shift)| (mesh, *shift))).map_err(invalid("picture"))?;
    let options = RenderOptions {
        width: WIDTH * tests.len() as u32,
        height: HEIGHT,
        view: View::orbit(0.0, 0.0, Up::Y),
        shading: Shading::Flat,
        wireframe: true,
        wire_width: 0.4,
        ..Default::default()
    };
    let picture = render(&all, Some(&colours), &[], &options).map_err(invalid("picture"))?;
    write_bytes(path, &picture.encode_png())
}
