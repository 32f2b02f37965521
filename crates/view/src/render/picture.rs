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
        Self { width, height, pixels }
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

/// The content of an animated PNG file, which starts again after the last picture. Opacity is left out. `None` if there
/// are no pictures, or if they differ in size.
///
/// ```
/// use gemcnn_mesh::shapes;
/// use gemcnn_view::render::{RenderOptions, encode_animation, render};
/// let mesh = shapes::icosphere(2)?;
/// let options = RenderOptions { width: 40, height: 30, ..Default::default() };
/// let grey = render(&mesh, None, &[], &options)?;
/// let red = render(&mesh, Some(&[[200, 0, 0]; 162]), &[], &options)?;
/// let file = encode_animation(&[grey, red], 10).unwrap();
/// assert_eq!(&file[1..4], b"PNG");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn encode_animation(pictures: &[Picture], per_second: u16) -> Option<Vec<u8>> {
    let first = pictures.first()?;
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, first.width, first.height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_animated(pictures.len() as u32, 0).ok()?;
    encoder.set_frame_delay(1, per_second).ok()?;
    let mut writer = encoder.write_header().ok()?;
    for picture in pictures {
        let colours = picture.pixels.iter().flat_map(|&[r, g, b, _]| [r, g, b]);
        let is_like_first = (picture.width, picture.height) == (first.width, first.height);
        is_like_first.then_some(())?;
        writer.write_image_data(&colours.collect::<Vec<u8>>()).ok()?;
    }
    writer.finish().ok()?;
    Some(file)
}
