//! Line charts, written as SVG and as PNG.
//!
//! A [`Chart`] is a grid of [`Panel`]s. A panel has two [`Axis`]es and any number of [`Series`]. Series of the
//! same name have the same style in all panels and share one entry of the legend, which stands above the
//! panels. Drawing needs neither a display nor an installed font. The same chart gives the same bytes.
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
mod key;
mod layout;
mod raster;
mod scene;
mod svg;

pub use axis::Axis;
pub use key::Key;

use std::path::{Path, PathBuf};

/// Default colours of series, as sRGB: the palette of Okabe and Ito, which is distinguishable with any
/// colour vision.
pub const PALETTE: [[u8; 3]; 7] = [
    [0x00, 0x72, 0xb2],
    [0xd5, 0x5e, 0x00],
    [0x00, 0x9e, 0x73],
    [0xcc, 0x79, 0xa7],
    [0xe6, 0x9f, 0x00],
    [0x56, 0xb4, 0xe9],
    [0x33, 0x33, 0x33],
];

/// A title, a legend and a grid of panels.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    title: String,
    columns: usize,
    width: u32,
    panel_height: u32,
    panels: Vec<Panel>,
}

impl Chart {
    /// A chart without panels, 800 units wide. An empty title takes no space.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), columns: 2, width: 800, panel_height: 270, panels: Vec::new() }
    }

    /// Adds a panel. Panels are placed row by row, from left to right.
    pub fn panel(mut self, panel: Panel) -> Self {
        self.panels.push(panel);
        self
    }

    /// Panels per row, at least 1 (default 2).
    pub fn columns(mut self, columns: usize) -> Self {
        self.columns = columns.max(1);
        self
    }

    /// Width of the chart in units, clamped to 200 to 4,000 (default 800). A unit is two pixels of the PNG.
    pub fn width(mut self, width: u32) -> Self {
        self.width = width.clamp(200, 4000);
        self
    }

    /// Height of a panel with its title and axis in units, clamped to 100 to 2,000 (default 270).
    pub fn panel_height(mut self, height: u32) -> Self {
        self.panel_height = height.clamp(100, 2000);
        self
    }

    /// The content of an SVG file. Text stays text.
    pub fn to_svg(&self) -> String {
        svg::write(&layout::lay_out(self))
    }

    /// The content of a PNG file, with two pixels per unit.
    pub fn to_png(&self) -> Vec<u8> {
        raster::draw(&layout::lay_out(self))
    }

    /// Writes `stem.png` and `stem.svg` atomically and returns their paths.
    pub fn write(&self, stem: &Path) -> Result<[PathBuf; 2], WriteError> {
        let paths = ["png", "svg"].map(|extension| stem.with_added_extension(extension));
        let files = [self.to_png(), self.to_svg().into_bytes()];
        for (path, bytes) in paths.iter().zip(files) {
            gemcnn_mesh::write_atomically(path, |file| file.write_all(&bytes))
                .map_err(|source| WriteError { path: path.clone(), source })?;
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

/// Two axes and the series between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
}

impl Panel {
    /// A panel without series. An empty title takes no space.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), x, y, series: Vec::new() }
    }

    /// Adds a series on top of the previous ones.
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }
}

/// A line through points. A point that is not finite, or not positive on a logarithmic axis, interrupts the
/// line.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    /// Half the height of the band at each point.
    band: Vec<f64>,
    colour: Option<[u8; 3]>,
    line: Line,
    markers: bool,
}

/// Style of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Line {
    /// A continuous line.
    #[default]
    Solid,
    /// Dashes.
    Dashed,
}

impl Series {
    /// Series with more points than this have no markers by default.
    const MAX_MARKERS: usize = 30;

    /// A solid line, with markers if it has at most 30 points. A series with an empty name is not in the
    /// legend.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let points: Vec<_> = points.into_iter().collect();
        Self {
            name: name.into(),
            band: Vec::new(),
            colour: None,
            line: Line::Solid,
            markers: points.len() <= Self::MAX_MARKERS,
            points,
        }
    }

    /// Adds a band around the line, for example a standard error. `half_heights` holds its extent above and
    /// below each point. Points beyond the end of `half_heights` have no band.
    pub fn band(mut self, half_heights: impl IntoIterator<Item = f64>) -> Self {
        self.band = half_heights.into_iter().collect();
        self
    }

    /// Colour as sRGB. By default the series of a chart cycle through [`PALETTE`].
    pub fn colour(mut self, colour: [u8; 3]) -> Self {
        self.colour = Some(colour);
        self
    }

    /// Style of the line (default solid).
    pub fn line(mut self, line: Line) -> Self {
        self.line = line;
        self
    }

    /// Draws the line without markers.
    pub fn without_markers(mut self) -> Self {
        self.markers = false;
        self
    }
}
