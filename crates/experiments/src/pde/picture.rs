//! An animated picture of predictions that are fed back, beside the solution.

use super::evaluation::RollOut;
use super::samples::Coordinates;
use gemcnn_mesh::{DVec3, Frame, Mesh, write_atomically};
use gemcnn_tasks::TaskError;
use gemcnn_view::render::{
    Arrow, Picture, RenderOptions, Up, View, colour_map, diverging_map, encode_animation, render,
};
use std::path::Path;

/// Height of the picture, and width of each of both surfaces, in pixels.
const SIDE: u32 = 240;
/// Largest number of frames, and frames of each second.
const FRAMES: usize = 25;
const RATE: u16 = 5;
/// Arrows on each surface, and the length of the longest one in square roots of the area.
const ARROWS: usize = 150;
const LONGEST: f64 = 0.12;

/// What is drawn: the solution on the left, the prediction on the right.
pub(super) struct Drawn<'a> {
    pub mesh: &'a Mesh,
    pub frames: &'a [Frame],
    pub coordinates: Coordinates,
    pub states: &'a RollOut,
}

impl Drawn<'_> {
    /// Writes the animated PNG file.
    pub fn write(&self, path: &Path) -> Result<(), TaskError> {
        let refuse = |error: String| TaskError::at(path, error);
        let [low, high] = self.mesh.bounds().unwrap_or_default();
        let size = high - low;
        let shift = DVec3::X * (size.x + 0.15 * size.max_element());
        let both = Mesh::side_by_side([DVec3::ZERO, shift].map(|shift| (self.mesh, shift)));
        let both = both.map_err(|error| refuse(error.to_string()))?;
        let RollOut { truth, found, .. } = self.states;
        let vectors: Vec<Vec<DVec3>> = truth.iter().map(|state| self.vectors(state)).collect();
        let largest = vectors.iter().flatten().map(|v| v.length());
        let largest = largest.fold(f64::MIN_POSITIVE, f64::max);
        let options = RenderOptions {
            width: 2 * SIDE,
            height: SIDE,
            view: View::orbit(0.0, 25.0, Up::Y),
            arrow_width: 1.5,
            ..Default::default()
        };
        let draw = |time: usize| -> Result<Picture, TaskError> {
            let mut values = vectors[time].clone();
            values.extend(self.vectors(&found[time]));
            let colour = |value: &DVec3| match self.coordinates {
                Coordinates::Scalars => diverging_map(0.5 + 0.5 * value.x / largest),
                _ => colour_map(value.length() / largest),
            };
            let colours: Vec<[u8; 3]> = values.iter().map(colour).collect();
            let mut arrows = Vec::new();
            if self.coordinates != Coordinates::Scalars {
                let stride = self.mesh.vertex_count().div_ceil(ARROWS);
                let pairs = both.vertices().iter().zip(&values).step_by(stride);
                arrows.extend(pairs.map(|(&from, value)| Arrow {
                    from,
                    // Predictions that diverge have no arrows.
                    to: if value.length() < 10.0 * largest { from + LONGEST / largest * *value } else { from },
                    colour: [20, 20, 20],
                }));
            }
            render(&both, Some(&colours), &arrows, &options).map_err(|error| refuse(error.to_string()))
        };
        let stride = truth.len().div_ceil(FRAMES);
        let pictures: Result<Vec<Picture>, TaskError> = (0..truth.len()).step_by(stride).map(draw).collect();
        let bytes = encode_animation(&pictures?, RATE).ok_or_else(|| refuse("there are no states to draw".into()))?;
        write_atomically(path, |file| file.write_all(&bytes)).map_err(TaskError::file(path))
    }

    /// A vector for each vertex: the tangent vector, or the scalar as its first coordinate.
    fn vectors(&self, state: &[f32]) -> Vec<DVec3> {
        let width = self.coordinates.width();
        let rows = state.chunks_exact(width).zip(self.frames);
        rows.map(|(row, frame)| match *row {
            [x] => DVec3::X * f64::from(x),
            [x, y] => frame.vector([x.into(), y.into()]),
            [x, y, z] => DVec3::new(x.into(), y.into(), z.into()),
            _ => DVec3::ZERO,
        })
        .collect()
    }
}
