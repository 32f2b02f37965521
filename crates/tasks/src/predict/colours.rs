//! Colours of predictions.

use super::Prediction;
use crate::Element;
use crate::data::vectors;
use gemcnn_mesh::{AttributeValues, DVec3, Frame, Mesh, VertexAttribute};
use gemcnn_view::render::{colour_map, label_colour};

/// A colour for each vertex of a template, by its position, so that near points have similar colours.
pub fn template_colours(template: &Mesh) -> Vec<[u8; 3]> {
    let [low, high] = template.bounds().unwrap_or_default();
    let span = (high - low).max(DVec3::splat(f64::MIN_POSITIVE));
    // Avoids black and white, so that shading is visible.
    let byte = |share: f64| (50.0 + 190.0 * share).round() as u8;
    let colour = |point: &DVec3| ((*point - low) / span).to_array().map(byte);
    template.vertices().iter().map(colour).collect()
}

/// Colours of a template as vertex attributes.
pub(crate) fn template_attributes(template: &Mesh) -> [VertexAttribute; 3] {
    attributes(&template_colours(template))
}

/// Colours as vertex attributes.
pub(super) fn attributes(colours: &[[u8; 3]]) -> [VertexAttribute; 3] {
    let column = |name: &str, channel: usize| {
        let values = colours.iter().map(|colour| colour[channel]).collect();
        VertexAttribute::new(name, AttributeValues::U8(values))
    };
    [column("red", 0), column("green", 1), column("blue", 2)]
}

/// Makes colours paler where the largest of some probabilities is small: white at an even distribution.
pub(super) fn fade(colours: &mut [[u8; 3]], confidences: &[f32], classes: usize) {
    let even = 1.0 / classes as f32;
    for (colour, confidence) in colours.iter_mut().zip(confidences) {
        let share = ((confidence - even) / (1.0 - even).max(f32::EPSILON)).clamp(0.0, 1.0);
        *colour = colour.map(|byte| (255.0 + (f32::from(byte) - 255.0) * share).round() as u8);
    }
}

/// A colour for each row, none for predictions of whole meshes, and the range of a colour map. Classes have the colours
/// of the template or of the palette; values have a colour map of the first scalar, or of the length of the first
/// vector.
pub(super) fn of_prediction(
    prediction: &Prediction,
    template: Option<&[[u8; 3]]>,
    frames: &[Frame],
) -> (Vec<[u8; 3]>, Option<[f64; 2]>) {
    match prediction {
        Prediction::MeshClass { .. } => Default::default(),
        Prediction::Classes { classes, .. } => {
            let from_template = |class: u32| template?.get(class as usize).copied();
            let colour = |&class| from_template(class).unwrap_or_else(|| label_colour(class));
            (classes.iter().map(colour).collect(), None)
        }
        Prediction::Values { per: Element::Mesh, .. } => Default::default(),
        Prediction::Values { kind, values, .. } => {
            let rows = values.chunks_exact(kind.dimension().max(1));
            let sizes: Vec<f64> = match kind.multiplicity(0) {
                0 => {
                    let count = kind.multiplicity(1);
                    let all = vectors::in_space(frames, &order_one(kind, values));
                    let first = all.iter().step_by(count.max(1));
                    first.map(|vector| vector.length()).collect()
                }
                _ => rows.map(|row| f64::from(row[0])).collect(),
            };
            let finite = sizes.iter().copied().filter(|size| size.is_finite());
            let low = finite.clone().fold(f64::INFINITY, f64::min);
            let high = finite.fold(f64::NEG_INFINITY, f64::max);
            let span = if high > low { high - low } else { 1.0 };
            let colour = |size: &f64| colour_map((size - low) / span);
            (sizes.iter().map(colour).collect(), Some([low, high]))
        }
    }
}

/// The components of order 1, row after row.
pub(super) fn order_one(kind: &gemcnn_nn::FeatureType, values: &[f32]) -> Vec<f32> {
    let range = kind.range(1);
    let rows = values.chunks_exact(kind.dimension().max(1));
    rows.flat_map(|row| row[range.clone()].iter().copied()).collect()
}
