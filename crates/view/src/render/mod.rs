//! Pictures of meshes without a display: a z-buffer rasteriser in plain Rust.
//!
//! The mesh is seen in parallel projection, fitted to the picture, under a soft light from above the
//! viewer's shoulder. Both sides of every face are lit alike, so that open and inconsistently
//! oriented meshes look right. The same input gives the same pixels on any number of threads.
//!
//! ```
//! use gemcnn_view::render::{RenderOptions, colour_map, render};
//! use gemcnn_mesh::shapes;
//! let mesh = shapes::icosphere(3)?;
//! let heat: Vec<[u8; 3]> = mesh.vertices().iter().map(|p| colour_map(0.5 + 0.5 * p.y)).collect();
//! let options = RenderOptions { width: 160, height: 120, ..RenderOptions::default() };
//! let picture = render(&mesh, Some(&heat), &[], &options)?;
//! let file_content: Vec<u8> = picture.encode_png();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod colour;
mod picture;
mod raster;
mod soup;
mod view;

pub use colour::{colour_map, label_colour};
pub use picture::Picture;
pub use view::{Up, View};

use glam::DVec3;

use gemcnn_mesh::Mesh;
use soup::Soup;

/// Most pixels along either side of a picture.
pub const MAX_SIDE: u32 = 16384;

/// How faces are lit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Shading {
    /// Each face in one plane: shows the polygons.
    Flat,
    /// Rounded over gentle edges; edges that turn by more than 50 degrees stay sharp.
    #[default]
    Smooth,
}

/// An arrow to draw with a mesh, such as a tangent vector or an axis of a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrow {
    /// Where it starts.
    pub from: DVec3,
    /// Where its tip is.
    pub to: DVec3,
    /// Its colour, as sRGB.
    pub colour: [u8; 3],
}

/// How a picture is made.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderOptions {
    /// Pixels from left to right, 1 to [`MAX_SIDE`].
    pub width: u32,
    /// Pixels from top to bottom, 1 to [`MAX_SIDE`].
    pub height: u32,
    /// Where the mesh is seen from.
    pub view: View,
    /// Colour behind the mesh: sRGB and opacity.
    pub background: [u8; 4],
    /// Colour of a mesh without colours of its own, as sRGB.
    pub surface: [u8; 3],
    /// How faces are lit.
    pub shading: Shading,
    /// Whether the edges of the faces are drawn.
    pub wireframe: bool,
    /// Colour of the edges, as sRGB.
    pub wire_colour: [u8; 3],
    /// Width of the edges in pixels.
    pub wire_width: f64,
    /// Thickness of the arrows' shafts in pixels.
    pub arrow_width: f64,
    /// Space left around the mesh on every side, as a share of the picture's smaller side; from 0
    /// to under 0.5.
    pub margin: f64,
    /// Samples along each side of a pixel, 1 to 4: more give smoother outlines.
    pub supersampling: u32,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self {
            width: 1024,
            height: 768,
            view: View::default(),
            background: [255, 255, 255, 255],
            surface: [190, 204, 222],
            shading: Shading::Smooth,
            wireframe: false,
            wire_colour: [38, 46, 60],
            wire_width: 0.8,
            arrow_width: 3.0,
            margin: 0.05,
            supersampling: 3,
        }
    }
}

/// Why a picture cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RenderError {
    /// An option is outside of what is allowed.
    #[error("{option} is {value}, but must be {allowed}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// The value it was given.
        value: String,
        /// The values that are allowed.
        allowed: &'static str,
    },
    /// There is not one colour for each vertex.
    #[error("there are {colours} colours for {vertices} vertices: give one colour for each vertex")]
    Colours {
        /// How many colours were given.
        colours: usize,
        /// How many vertices the mesh has.
        vertices: usize,
    },
    /// An arrow has an end that is NaN or infinite.
    #[error("arrow {arrow} has an end that is not finite")]
    Arrow {
        /// Index of the arrow, from 0.
        arrow: usize,
    },
    /// Mesh and arrows together have more corners than 32-bit indices can address.
    #[error("mesh and {arrows} arrows are too much to draw at once: give fewer arrows")]
    TooManyArrows {
        /// How many arrows were given.
        arrows: usize,
    },
}

impl RenderOptions {
    fn check(&self) -> Result<(), RenderError> {
        let side = "from 1 to 16384 pixels";
        let width = "a finite number of pixels, 0 or more";
        let sides = 1..=MAX_SIDE;
        let is_width = |value: f64| value.is_finite() && value >= 0.0;
        let direction = |v: DVec3| v.is_finite() && v != DVec3::ZERO;
        for (valid, option, value, allowed) in [
            (
                sides.contains(&self.width),
                "width",
                self.width.to_string(),
                side,
            ),
            (
                sides.contains(&self.height),
                "height",
                self.height.to_string(),
                side,
            ),
            (
                (1..=4).contains(&self.supersampling),
                "supersampling",
                self.supersampling.to_string(),
                "from 1 to 4",
            ),
            (
                (0.0..0.5).contains(&self.margin),
                "margin",
                self.margin.to_string(),
                "from 0 to under 0.5",
            ),
            (
                is_width(self.wire_width),
                "wire_width",
                self.wire_width.to_string(),
                width,
            ),
            (
                is_width(self.arrow_width),
                "arrow_width",
                self.arrow_width.to_string(),
                width,
            ),
            (
                direction(self.view.towards_eye),
                "direction towards the eye",
                self.view.towards_eye.to_string(),
                "finite and not zero",
            ),
            (
                direction(self.view.up),
                "up direction",
                self.view.up.to_string(),
                "finite and not zero",
            ),
        ] {
            if !valid {
                return Err(RenderError::Option {
                    option,
                    value,
                    allowed,
                });
            }
        }
        Ok(())
    }
}

/// Draws a mesh, with a colour for each vertex if given, and arrows.
///
/// Faces without area are not drawn; a mesh without faces gives a picture of the background and the
/// arrows.
///
/// # Errors
/// An option that is out of range, a number of colours that is not that of the vertices, or an arrow
/// that is not finite.
pub fn render(
    mesh: &Mesh,
    colours: Option<&[[u8; 3]]>,
    arrows: &[Arrow],
    options: &RenderOptions,
) -> Result<Picture, RenderError> {
    options.check()?;
    let vertices = mesh.vertex_count();
    if let Some(colours) = colours
        && colours.len() != vertices
    {
        return Err(RenderError::Colours {
            colours: colours.len(),
            vertices,
        });
    }
    if let Some(arrow) = arrows
        .iter()
        .position(|arrow| !arrow.from.is_finite() || !arrow.to.is_finite())
    {
        return Err(RenderError::Arrow { arrow });
    }
    let soup = Soup::new(mesh, colours, arrows, options)?;
    Ok(raster::draw(&soup, options))
}
