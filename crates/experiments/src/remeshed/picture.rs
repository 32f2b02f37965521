//! A picture of one test body in all meshings, coloured by the predicted points of the template.

use super::Meshing;
use crate::runs::TestSet;
use gemcnn_mesh::remesh::remesh;
use gemcnn_mesh::{DVec3, Faces, Mesh, write_atomically};
use gemcnn_nn::{Device, Workspace};
use gemcnn_tasks::TaskError;
use gemcnn_tasks::data::Split;
use gemcnn_tasks::predict::{Prediction, template_colours};
use gemcnn_tasks::train::TrainedModel;
use gemcnn_view::render::{RenderOptions, Shading, render};
use std::path::Path;

/// Pixels of each body, and height of the picture.
const WIDTH: u32 = 420;
const HEIGHT: u32 = 900;

/// Draws the first test body in all meshings side by side.
pub(super) fn draw(
    model: &TrainedModel,
    tests: &[TestSet<Meshing>],
    device: &Device,
    path: &Path,
) -> Result<(), TaskError> {
    let Some(template) = &model.template else {
        return Ok(());
    };
    let palette = template_colours(template);
    let mut workspace = Workspace::new(device.clone());
    let (mut vertices, mut faces, mut colours) = (Vec::new(), Faces::default(), Vec::new());
    let mut right = 0.0;
    let refuse = |error: String| TaskError::setting("picture", error);
    for test in tests {
        let mut mesh = test.dataset.mesh(Split::Test, 0)?;
        if let Some((kind, seed)) = &test.options.meshing {
            mesh = remesh(&mesh, kind, *seed).map_err(|error| refuse(error.to_string()))?.mesh;
        }
        let sample = model.sample(test.condition.word(), &mesh)?;
        let Prediction::Classes { classes, .. } = model.predict(&mut workspace, &sample)? else {
            return Ok(());
        };
        let colour = |&class: &u32| palette.get(class as usize).copied().unwrap_or([128; 3]);
        colours.extend(classes.iter().map(colour));
        let [low, high] = mesh.bounds().unwrap_or_default();
        let shift = DVec3::new(right - low.x, -low.y, 0.0);
        right += 1.1 * (high.x - low.x);
        let first = vertices.len() as u32;
        vertices.extend(mesh.vertices().iter().map(|&vertex| vertex + shift));
        for face in mesh.faces().iter() {
            let corners: Vec<u32> = face.iter().map(|corner| corner + first).collect();
            faces.push(&corners);
        }
    }
    let all = Mesh::new(vertices, faces).map_err(|error| refuse(error.to_string()))?;
    let options = RenderOptions {
        width: WIDTH * tests.len() as u32,
        height: HEIGHT,
        view: gemcnn_view::render::View::orbit(0.0, 0.0, gemcnn_view::render::Up::Y),
        shading: Shading::Flat,
        wireframe: true,
        wire_width: 0.4,
        ..Default::default()
    };
    let picture = render(&all, Some(&colours), &[], &options);
    let bytes = picture.map_err(|error| refuse(error.to_string()))?.encode_png();
    write_atomically(path, |file| file.write_all(&bytes)).map_err(TaskError::file(path))
}
