//! Line charts: one description, two outputs, SVG and PNG.
//!
//! A [`Chart`] is a grid of [`Panel`]s, a panel is two [`Axis`]es and some [`Series`]. Series of the same
//! name look the same in all panels, and one legend above the panels names them all. Neither output
//! needs a display or a font file: the PNG draws text with strokes of its own. The same chart gives
//! the same bytes.
//!
//! ```
//! use gemcnn_view::plot::{Axis, Chart, Panel, Series};
//! let curve = |rate: f64| (1..=10).map(move |epoch| (epoch as f64, (-rate * epoch as f64).exp()));
//! let chart = Chart::new("Learning curves").panel(
//!     Panel::new("Loss", Axis::linear("epoch"), Axis::log("cross-entropy"))
//!         .series(Series::new("training", curve(0.5)))
//!         .series(Series::new("validation", curve(0.3)).band([0.02; 10])),
//! );
//! assert!(chart.to_svg().starts_with("<svg"));
//! assert_eq!(&chart.to_png()[1..4], b"PNG");
//! ```

mod axis;
mod font;
mod layout;
mod png;
mod scene;
mod svg;

pub use axis::{Axis, Scale};
pub use scene::Colour;

use std::path::{Path, PathBuf};

/// Colours that people with any kind of colour vision tell apart on white, after Okabe and Ito.
pub const PALETTE: [Colour; 7] = [
    Colour(0x00, 0x72, 0xb2),
    Colour(0xd5, 0x5e, 0x00),
    Colour(0x00, 0x9e, 0x73),
    Colour(0xcc, 0x79, 0xa7),
    Colour(0xe6, 0x9f, 0x00),
    Colour(0x56, 0xb4, 0xe9),
    Colour(0x33, 0x33, 0x33),
];

/// Panels in a grid, a title and a legend above them.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    title: String,
    columns: usize,
    width: f64,
    panel_height: f64,
    panels: Vec<Panel>,
}

impl Chart {
    /// A chart without panels, 800 units wide. An empty title takes no room.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            columns: 2,
            width: 800.0,
            panel_height: 270.0,
            panels: Vec::new(),
        }
    }

    /// Adds a panel: from left to right, then from top to bottom.
    pub fn panel(mut self, panel: Panel) -> Self {
        self.panels.push(panel);
        self
    }

    /// How many panels stand side by side; 2 unless there is only one.
    pub fn columns(mut self, columns: usize) -> Self {
        self.columns = columns.max(1);
        self
    }

    /// Width of the chart in units, of which the PNG has two pixels each; between 200 and 4,000.
    pub fn width(mut self, width: f64) -> Self {
        self.width = bounded(width, 200.0, 4000.0);
        self
    }

    /// Height of a panel with its title and axis in units, 270 by default; between 100 and 2,000.
    pub fn panel_height(mut self, height: f64) -> Self {
        self.panel_height = bounded(height, 100.0, 2000.0);
        self
    }

    /// The chart as the content of an SVG file, with its text as text.
    pub fn to_svg(&self) -> String {
        svg::write(&layout::lay_out(self))
    }

    /// The chart as the content of a PNG file.
    pub fn to_png(&self) -> Vec<u8> {
        png::draw(&layout::lay_out(self))
    }

    /// Writes `stem.png` and `stem.svg`, whole or not at all, and returns their paths.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, stem: &Path) -> Result<[PathBuf; 2], WriteError> {
        let paths = ["png", "svg"].map(|extension| stem.with_added_extension(extension));
        for (path, bytes) in paths
            .iter()
            .zip([self.to_png(), self.to_svg().into_bytes()])
        {
            gemcnn_mesh::write_atomically(path, |file| file.write_all(&bytes)).map_err(
                |source| WriteError {
                    path: path.clone(),
                    source,
                },
            )?;
        }
        Ok(paths)
    }
}

/// A file of a chart that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// The error of the operating system.
    pub source: std::io::Error,
}

/// `value` brought into a range; the lower end if it is not a number.
fn bounded(value: f64, low: f64, high: f64) -> f64 {
    if value >= low { value.min(high) } else { low }
}

/// Series over two axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
}

impl Panel {
    /// A panel without series.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self {
            title: title.into(),
            x,
            y,
            series: Vec::new(),
        }
    }

    /// Adds a series, drawn over those before.
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }
}

/// A line through points, with its name in the legend. Points that are not finite, or not positive
/// on a logarithmic axis, are gaps.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    /// Half the height of the band at each point.
    band: Vec<f64>,
    colour: Option<Colour>,
    line: Line,
    markers: Option<bool>,
}

/// How a line is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Line {
    /// Without gaps.
    #[default]
    Solid,
    /// In dashes.
    Dashed,
    /// In dots.
    Dotted,
    /// Not at all: markers alone.
    None,
}

impl Series {
    /// A solid line in a colour of its own, with markers if there are few points.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self {
            name: name.into(),
            points: points.into_iter().collect(),
            band: Vec::new(),
            colour: None,
            line: Line::Solid,
            markers: None,
        }
    }

    /// A band around the line, such as a standard error: so far above and below each point. Points
    /// beyond the end of `half_heights` have none.
    pub fn band(mut self, half_heights: impl IntoIterator<Item = f64>) -> Self {
        self.band = half_heights.into_iter().collect();
        self
    }

    /// The colour; without it, series take those of the [`PALETTE`] in turn.
    pub fn colour(mut self, colour: Colour) -> Self {
        self.colour = Some(colour);
        self
    }

    /// How the line is drawn.
    pub fn line(mut self, line: Line) -> Self {
        self.line = line;
        self
    }

    /// Whether points have markers; without this, those of series of at most 30 points do.
    pub fn markers(mut self, markers: bool) -> Self {
        self.markers = Some(markers);
        self
    }
}
