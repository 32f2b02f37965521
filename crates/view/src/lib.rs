//! Pictures of meshes ([`render`]) and line charts ([`plot`]), drawn on the CPU without a display, and interactive
//! pages ([`page`]).
//!
//! This crate knows meshes and arrays, but nothing of learning.

pub mod page;
pub mod plot;
pub mod render;

/// The content of a PNG file. `bytes` are pixels in sRGB, row by row from the top; `tune` may change the
/// compression.
fn encode_png(
    width: u32,
    height: u32,
    colour: png::ColorType,
    bytes: &[u8],
    tune: impl FnOnce(&mut png::Encoder<&mut Vec<u8>>),
) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(colour);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_source_srgb(png::SrgbRenderingIntent::Perceptual);
    tune(&mut encoder);
    encoder
        .write_header()
        .and_then(|mut writer| {
            writer.write_image_data(bytes)?;
            writer.finish()
        })
        .expect("a picture has pixels, and writing to memory cannot fail");
    file
}
