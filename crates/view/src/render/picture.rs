//! Raster images.

/// An image: pixels as sRGB and opacity, row by row from the top left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    width: u32,
    height: u32,
    pixels: Vec<[u8; 4]>,
}

impl Picture {
    /// An image of `width * height` pixels. Neither side is zero.
    pub(crate) fn new(width: u32, height: u32, pixels: Vec<[u8; 4]>) -> Self {
        debug_assert_eq!(pixels.len(), width as usize * height as usize);
        Self {
            width,
            height,
            pixels,
        }
    }

    /// Width in pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height in pixels.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// All pixels, row by row from the top left.
    pub fn pixels(&self) -> &[[u8; 4]] {
        &self.pixels
    }

    /// The content of a PNG file.
    pub fn encode_png(&self) -> Vec<u8> {
        let bytes = self.pixels.as_flattened();
        crate::encode_png(self.width, self.height, png::ColorType::Rgba, bytes, |_| ())
    }
}
