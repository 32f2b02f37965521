//! Isometric bends: the flat grid, bent about lines parallel to one of its axes.
//!
//! In the direction across these lines, the sheet follows a polyline whose segments all have unit
//! length. The segment between two adjacent lines points along the heading angle of the profile at the
//! middle of the segment. Every cell therefore stays a planar unit square, and the sheet is exactly
//! isometric to the flat grid, not only in the limit of fine grids.

use std::f64::consts::{PI, TAU};
use std::fmt;
use std::sync::Arc;

use glam::{DVec2, DVec3};

use super::grid::{require_grid, sheet};
use super::{Cells, ShapeError, require};
use crate::Mesh;
use crate::random::Uniform;

/// The grid lines that stay straight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Axis {
    /// Rows stay straight. The sheet bends along y; arc length starts at the last row.
    Rows,
    /// Columns stay straight. The sheet bends along x; arc length starts at column 0.
    Columns,
}

/// Profile curve of a bent sheet, given by its heading angle as a function of arc length.
///
/// Heading 0 is the direction of the flat sheet; positive headings rise towards +z. Arc length is
/// in grid spacings, angles are in radians.
#[derive(Debug, Clone)]
pub enum Profile {
    /// Straight: the flat grid.
    Flat,
    /// An arc of a circle, horizontal in the middle of the sheet.
    Cylinder {
        /// Angle between the two ends of the sheet; a positive angle bends the ends up.
        turn: f64,
    },
    /// A roll of paper: an involute of a circle, with constant distance `gap` between layers.
    Spiral {
        /// Radius of curvature at the inner end, in grid spacings; greater than 0.
        inner_radius: f64,
        /// Distance between layers, in grid spacings; 0 gives a cylinder.
        gap: f64,
    },
    /// A wave: the heading is a sine of the arc length.
    Wave {
        /// The steepest heading.
        amplitude: f64,
        /// Number of periods over the sheet.
        periods: f64,
    },
    /// A cylinder with waves added to its heading.
    Harmonics {
        /// Angle between the two ends, as in [`Profile::Cylinder`].
        turn: f64,
        /// The waves.
        waves: Vec<Harmonic>,
    },
    /// An arbitrary heading function of the arc length; see [`Profile::from_heading`].
    Heading(HeadingFunction),
}

/// A heading function of the arc length, created by [`Profile::from_heading`].
#[derive(Clone)]
pub struct HeadingFunction(Arc<dyn Fn(f64) -> f64 + Send + Sync>);

impl fmt::Debug for HeadingFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// One wave of [`Profile::Harmonics`]: `amplitude * sin(2 pi periods * s / length + phase)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Harmonic {
    /// The steepest heading of the wave alone.
    pub amplitude: f64,
    /// Number of periods over the sheet.
    pub periods: f64,
    /// Phase at arc length 0.
    pub phase: f64,
}

impl Profile {
    /// The profile with the given heading function, for arc lengths from 0 to the length of the
    /// sheet.
    ///
    /// ```
    /// use gemcnn_mesh::shapes::{Axis, Cells, Profile, bent_grid};
    /// let ramp = Profile::from_heading(|s| if s < 10.0 { 0.0 } else { 0.5 });
    /// let mesh = bent_grid(28, 28, Cells::Quads, Axis::Columns, &ramp)?;
    /// assert_eq!(mesh.vertices()[10].z, 0.0);
    /// assert!((mesh.vertices()[11].z - 0.5_f64.sin()).abs() < 1e-12);
    /// # Ok::<(), gemcnn_mesh::shapes::ShapeError>(())
    /// ```
    pub fn from_heading(heading: impl Fn(f64) -> f64 + Send + Sync + 'static) -> Self {
        Self::Heading(HeadingFunction(Arc::new(heading)))
    }

    /// A smooth random profile: a total angle of up to pi in either direction and three waves.
    ///
    /// A seed gives the same profile on every platform. Different seeds give different embeddings
    /// of the same flat sheet.
    pub fn random(seed: u64) -> Self {
        let mut uniform = Uniform::new(seed);
        let turn = PI * uniform.signed();
        let waves = [1.0, 2.0, 3.0]
            .map(|periods| Harmonic { amplitude: uniform.signed() / periods, periods, phase: PI * uniform.signed() })
            .to_vec();
        Self::Harmonics { turn, waves }
    }

    /// Heading at arc length `s` of a sheet of the given length.
    pub fn heading(&self, s: f64, length: f64) -> f64 {
        let arc = |turn: f64| turn * (s / length - 0.5);
        match self {
            Self::Flat => 0.0,
            Self::Cylinder { turn } => arc(*turn),
            // Curvature 1 / sqrt(inner_radius^2 + gap s / pi), integrated without cancellation.
            Self::Spiral { inner_radius, gap } => {
                let radius = (inner_radius * inner_radius + gap * s / PI).sqrt();
                2.0 * s / (inner_radius + radius)
            }
            Self::Wave { amplitude, periods } => amplitude * (TAU * periods * s / length).sin(),
            Self::Harmonics { turn, waves } => {
                let wave = |wave: &Harmonic| wave.amplitude * (TAU * wave.periods * s / length + wave.phase).sin();
                arc(*turn) + waves.iter().map(wave).sum::<f64>()
            }
            Self::Heading(HeadingFunction(heading)) => heading(s),
        }
    }

    /// Returns an error if a parameter does not define a curve.
    fn check(&self) -> Result<(), ShapeError> {
        let finite = |parameter, value: f64| require(value.is_finite(), parameter, value, "a finite number");
        match self {
            Self::Flat | Self::Heading(_) => Ok(()),
            Self::Cylinder { turn } => finite("turn", *turn),
            Self::Spiral { inner_radius, gap } => {
                require(
                    *inner_radius > 0.0 && inner_radius.is_finite(),
                    "inner_radius",
                    inner_radius,
                    "a finite number over 0",
                )?;
                require(*gap >= 0.0 && gap.is_finite(), "gap", gap, "a finite number, 0 or more")
            }
            Self::Wave { amplitude, periods } => {
                finite("amplitude", *amplitude)?;
                finite("periods", *periods)
            }
            Self::Harmonics { turn, waves } => {
                finite("turn", *turn)?;
                for wave in waves {
                    finite("amplitude", wave.amplitude)?;
                    finite("periods", wave.periods)?;
                    finite("phase", wave.phase)?;
                }
                Ok(())
            }
        }
    }

    /// The `count` points of the polyline, at unit distance, starting at the origin.
    fn points(&self, count: usize) -> Result<Vec<DVec2>, ShapeError> {
        self.check()?;
        let length = (count - 1) as f64;
        let mut points = Vec::with_capacity(count);
        let mut point = DVec2::ZERO;
        points.push(point);
        let mut previous: Option<DVec2> = None;
        for line in 0..count - 1 {
            let heading = self.heading(line as f64 + 0.5, length);
            require(heading.is_finite(), "heading of the profile", heading, "finite at every arc length")?;
            let segment = DVec2::from_angle(heading);
            if previous.is_some_and(|previous| previous.dot(segment) < SHARPEST_FOLD) {
                return Err(ShapeError::FoldedBack { line });
            }
            point += segment;
            points.push(point);
            previous = Some(segment);
        }
        Ok(points)
    }
}

/// Cosine of the angle between segments at which two strips are treated as coincident.
const SHARPEST_FOLD: f64 = -1.0 + 1e-9;

/// The flat [`grid`](super::grid) bent along `profile` about lines parallel to `axis`. Every edge
/// keeps its length and every quad stays a planar square. [`Profile::Flat`] gives the flat grid.
///
/// # Errors
/// The grid size is invalid, a parameter or heading is not finite or out of range, or the profile
/// changes direction by pi between adjacent strips.
pub fn bent_grid(rows: usize, columns: usize, cells: Cells, axis: Axis, profile: &Profile) -> Result<Mesh, ShapeError> {
    require_grid(rows, columns, cells)?;
    match axis {
        Axis::Columns => {
            let points = profile.points(columns)?;
            sheet(rows, columns, cells, |row, column| {
                let point = points[column];
                DVec3::new(point.x, (rows - 1 - row) as f64, point.y)
            })
        }
        Axis::Rows => {
            let points = profile.points(rows)?;
            sheet(rows, columns, cells, |row, column| {
                let point = points[rows - 1 - row];
                DVec3::new(column as f64, point.x, point.y)
            })
        }
    }
}
