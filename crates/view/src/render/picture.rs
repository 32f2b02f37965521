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
        let bytes = self.pixels.as_flattened();
        crate::encode_png(self.width, self.height, png::ColorType::Rgba, bytes, |_| ())
    }
}
