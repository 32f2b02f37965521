//! Pictures of meshes: a z-buffer rasteriser on the CPU, which needs no display.
//!
//! The projection is orthographic and fits the mesh to the picture. The main light comes from the upper left.
//! Both sides of a face are lit alike, so open and inconsistently oriented meshes look right. The same input
//! gives the same pixels on any number of threads.
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

pub use colour::{colour_map, diverging_map, label_colour};
pub use picture::{Picture, encode_animation};
pub use view::{Up, View};

use glam::DVec3;

use gemcnn_mesh::Mesh;
use soup::Soup;

/// Largest width and height of a picture in pixels.
pub const MAX_SIDE: u32 = 16384;

/// How normals vary over a face.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Shading {
    /// Each face has one normal, so that the polygons are visible.
    Flat,
    /// Normals are interpolated across edges. Edges with an angle of more than 50 degrees stay sharp.
    #[default]
    Smooth,
}

/// An arrow in the space of a mesh, for example a tangent vector or an axis of a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrow {
    /// Start point.
    pub from: DVec3,
    /// Tip.
    pub to: DVec3,
    /// Colour, as sRGB.
    pub colour: [u8; 3],
}

/// The colours of a mesh, as sRGB.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Paint<'a> {
    /// The colour [`RenderOptions::surface`].
    #[default]
    Surface,
    /// One colour per vertex, interpolated over the faces.
    Smooth(&'a [[u8; 3]]),
    /// A class and a colour per vertex. Borders between classes are crisp: they cross edges in the middle, and colours
    /// are interpolated on each side of them.
    Classes {
        /// Class of each vertex.
        classes: &'a [u32],
        /// Colour of each vertex.
        colours: &'a [[u8; 3]],
    },
    /// One colour per face.
    Faces(&'a [[u8; 3]]),
    /// One colour per corner of the faces, that of the side from this corner to the next. A point has the colour of the
    /// nearest side of its face.
    Sides(&'a [[u8; 3]]),
}

/// Options of [`render`].
#[derive(Debug, Clone, PartialEq)]
pub struct RenderOptions {
    /// Width in pixels, from 1 to [`MAX_SIDE`] (default 1024).
    pub width: u32,
    /// Height in pixels, from 1 to [`MAX_SIDE`] (default 768).
    pub height: u32,
    /// Viewing direction (default: three quarters from the front, y up).
    pub view: View,
    /// Background as sRGB and opacity (default opaque white).
    pub background: [u8; 4],
    /// Colour of a mesh without vertex colours, as sRGB (default light blue).
    pub surface: [u8; 3],
    /// Flat or smooth shading (default smooth).
    pub shading: Shading,
    /// Draws the edges of the faces (default off).
    pub wireframe: bool,
    /// Colour of the edges, as sRGB (default dark grey).
    pub wire_colour: [u8; 3],
    /// Width of the edges in pixels (default 0.8).
    pub wire_width: f64,
    /// Width of the shafts of arrows in pixels (default 3).
    pub arrow_width: f64,
    /// Margin around the mesh as a fraction of the smaller side of the picture, at least 0 and less than 0.5
    /// (default 0.05).
    pub margin: f64,
    /// Samples along each side of a pixel for antialiasing, from 1 to 4 (default 3).
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

/// Errors of [`render`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RenderError {
    /// An option is out of range.
    #[error("{option} is {value}, but must be {allowed}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// Its value.
        value: String,
        /// Description of the allowed values.
        allowed: &'static str,
    },
    /// The number of colours differs from the number of vertices, faces or corners that they are for.
    #[error("{colours} colours or classes for {elements} vertices, faces or corners: give one for each")]
    Colours {
        /// Number of colours.
        colours: usize,
        /// Number of vertices, faces or corners.
        elements: usize,
    },
    /// An end of an arrow is NaN or infinite.
    #[error("arrow {arrow}: both ends must be finite")]
    Arrow {
        /// Index of the arrow, from 0.
        arrow: usize,
    },
    /// The triangles of the mesh and the arrows exceed 32-bit indices.
    #[error("{arrows} arrows together with the mesh have too many triangles: draw fewer arrows")]
    TooManyArrows {
        /// Number of arrows.
        arrows: usize,
    },
}

impl RenderOptions {
    fn check(&self) -> Result<(), RenderError> {
        let side = "from 1 to 16384";
        let width = "finite and at least 0";
        let sides = 1..=MAX_SIDE;
        let is_width = |value: f64| value.is_finite() && value >= 0.0;
        let direction = |v: DVec3| v.is_finite() && v != DVec3::ZERO;
        for (valid, option, value, allowed) in [
            (sides.contains(&self.width), "width", self.width.to_string(), side),
            (sides.contains(&self.height), "height", self.height.to_string(), side),
            ((1..=4).contains(&self.supersampling), "supersampling", self.supersampling.to_string(), "from 1 to 4"),
            ((0.0..0.5).contains(&self.margin), "margin", self.margin.to_string(), "at least 0 and less than 0.5"),
            (is_width(self.wire_width), "wire_width", self.wire_width.to_string(), width),
            (is_width(self.arrow_width), "arrow_width", self.arrow_width.to_string(), width),
            (
                direction(self.view.towards_eye),
                "view.towards_eye",
                self.view.towards_eye.to_string(),
                "finite and not zero",
            ),
            (direction(self.view.up), "view.up", self.view.up.to_string(), "finite and not zero"),
        ] {
            if !valid {
                return Err(RenderError::Option { option, value, allowed });
            }
        }
        Ok(())
    }
}

/// Draws a mesh and arrows. `colours` holds one sRGB colour per vertex, interpolated over the faces.
///
/// Faces of zero area are invisible.
///
/// # Errors
/// An option is out of range, the number of colours differs from the number of vertices, an arrow is not
/// finite, or there are too many arrows.
pub fn render(
    mesh: &Mesh,
    colours: Option<&[[u8; 3]]>,
    arrows: &[Arrow],
    options: &RenderOptions,
) -> Result<Picture, RenderError> {
    let paint = colours.map_or(Paint::Surface, Paint::Smooth);
    render_painted(mesh, paint, arrows, options)
}

/// Draws a mesh and arrows like [`render`], with colours of vertices, classes, faces or edges.
pub fn render_painted(
    mesh: &Mesh,
    paint: Paint<'_>,
    arrows: &[Arrow],
    options: &RenderOptions,
) -> Result<Picture, RenderError> {
    options.check()?;
    let (vertices, faces) = (mesh.vertex_count(), mesh.face_count());
    let (elements, given) = match paint {
        Paint::Surface => (0, [0; 2]),
        Paint::Smooth(colours) => (vertices, [colours.len(); 2]),
        Paint::Classes { classes, colours } => (vertices, [classes.len(), colours.len()]),
        Paint::Faces(colours) => (faces, [colours.len(); 2]),
        Paint::Sides(colours) => (mesh.faces().corners().len(), [colours.len(); 2]),
    };
    if let Some(&colours) = given.iter().find(|&&given| given != elements) {
        return Err(RenderError::Colours { colours, elements });
    }
    if let Some(arrow) = arrows.iter().position(|arrow| !arrow.from.is_finite() || !arrow.to.is_finite()) {
        return Err(RenderError::Arrow { arrow });
    }
    let soup = Soup::new(mesh, paint, arrows, options)?;
    Ok(raster::draw(&soup, options))
}
