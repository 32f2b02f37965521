//! Vertex colours in text formats.

use crate::{AttributeValues, VertexAttribute};

/// Conventional names of the colour columns.
const CHANNELS: [&str; 4] = ["red", "green", "blue", "alpha"];

/// Converts `channels` values per vertex to colour columns.
///
/// Values in \[0, 1\] are fractions and integers up to 255 are bytes; both become `u8`. Other
/// values are kept as `f64`.
pub(super) fn columns(values: &[f64], channels: usize) -> Vec<VertexAttribute> {
    let scale = if values.iter().all(|value| (0.0..=1.0).contains(value)) {
        Some(255.0)
    } else if values.iter().all(|value| (0.0..=255.0).contains(value) && value.fract() == 0.0) {
        Some(1.0)
    } else {
        None
    };
    CHANNELS[..channels]
        .iter()
        .enumerate()
        .map(|(channel, &name)| {
            let column = values.iter().skip(channel).step_by(channels);
            let values = match scale {
                Some(scale) => AttributeValues::U8(column.map(|v| (v * scale).round() as u8).collect()),
                None => AttributeValues::F64(column.copied().collect()),
            };
            VertexAttribute::new(name, values)
        })
        .collect()
}
