//! A finished picture.

/// Pixels in rows from the top left, as sRGB and opacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    width: u32,
    height: u32,
    pixels: Vec<[u8; 4]>,
}

impl Picture {
    /// A picture of `width * height` pixels, neither of them zero.
    pub(super) fn new(width: u32, height: u32, pixels: Vec<[u8; 4]>) -> Self {
        debug_assert_eq!(pixels.len(), width as usize * height as usize);
        Self {
            width,
            height,
            pixels,
        }
    }

    /// Pixels from left to right.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Pixels from top to bottom.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// All pixels, row after row from the top.
    pub fn pixels(&self) -> &[[u8; 4]] {
        &self.pixels
    }

    /// The picture as the content of a PNG file.
    pub fn encode_png(&self) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, self.width, self.height);
        encoder.set_color(png::ColorType::Rgba);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_source_srgb(png::SrgbRenderingIntent::Perceptual);
        encoder
            .write_header()
            .and_then(|mut writer| {
                writer.write_image_data(self.pixels.as_flattened())?;
                writer.finish()
            })
            .expect("a picture has pixels, and memory takes them all");
        file
    }
}
