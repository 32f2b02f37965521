//! The grids that digits lie on.

use crate::digits::SIDE;
use gemcnn_mesh::shapes::{Axis, Cells, Profile, Roughness, ShapeError, bent_grid, grid, rough_grid};
use gemcnn_mesh::{Gauge, GaugeGraph, GeometryError, GeometryOptions, Mesh};
use gemcnn_tasks::TaskError;
use serde::{Deserialize, Serialize};
use std::f64::consts::{PI, SQRT_2};
use std::fmt;
use std::str::FromStr;

/// The geometry of the grids.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Surface {
    /// The pixel grid in its plane.
    Flat,
    /// The pixel grid, bent without stretching: every cell stays a square.
    Isometric,
    /// Curved grids of a given roughness, at least 0 and below 3.
    Rough(f64),
}

impl Surface {
    /// The paper's training geometries.
    pub const TRAIN: [Self; 6] =
        [Self::Flat, Self::Rough(1.0), Self::Rough(1.5), Self::Rough(2.0), Self::Rough(2.25), Self::Rough(2.5)];
    /// The paper's test geometries.
    pub const TEST: [Self; 10] = [
        Self::Flat,
        Self::Isometric,
        Self::Rough(0.5),
        Self::Rough(1.0),
        Self::Rough(1.25),
        Self::Rough(1.5),
        Self::Rough(1.75),
        Self::Rough(2.0),
        Self::Rough(2.25),
        Self::Rough(2.5),
    ];
    /// The geometries that the paper shows.
    pub const PICTURED: [Self; 8] = [
        Self::Flat,
        Self::Isometric,
        Self::Rough(0.5),
        Self::Rough(1.0),
        Self::Rough(1.5),
        Self::Rough(2.0),
        Self::Rough(2.25),
        Self::Rough(2.5),
    ];
}

impl fmt::Display for Surface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flat => f.write_str("flat"),
            Self::Isometric => f.write_str("isometric"),
            Self::Rough(roughness) => write!(f, "{roughness}"),
        }
    }
}

impl FromStr for Surface {
    type Err = TaskError;

    fn from_str(text: &str) -> Result<Self, TaskError> {
        let rough = || text.parse().ok().filter(|r| (0.0..3.0).contains(r));
        match text {
            "flat" => Ok(Self::Flat),
            "isometric" => Ok(Self::Isometric),
            _ => rough().map(Self::Rough).ok_or_else(|| {
                TaskError::setting(
                    "geometry",
                    format!("`{text}` is not one of flat, isometric, or a roughness of at least 0 and below 3"),
                )
            }),
        }
    }
}

impl From<Surface> for String {
    fn from(surface: Surface) -> Self {
        surface.to_string()
    }
}

impl TryFrom<String> for Surface {
    type Error = TaskError;

    fn try_from(text: String) -> Result<Self, TaskError> {
        text.parse()
    }
}

/// The two disjoint sets of grids of a geometry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Grids for training and validation.
    Train,
    /// Grids for testing.
    Test,
}

/// Construction of the grids, the same for all geometries of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GridOptions {
    /// Splits each cell into two triangles (default false). Vertices then have six neighbours instead of four,
    /// and bent grids are no longer exactly isometric to the flat one.
    pub triangles: bool,
    /// Largest displacement of the vertices of rough grids before smoothing, in pixels (default 5).
    /// Displacements are uniform between its negative and itself.
    pub amplitude: f64,
    /// Number of grids in each part of a geometry (default 32); there is only one flat grid.
    pub count: usize,
}

impl Default for GridOptions {
    fn default() -> Self {
        Self { triangles: false, amplitude: Roughness::DEFAULT_AMPLITUDE, count: 32 }
    }
}

impl GridOptions {
    /// Number of neighbours of an interior vertex.
    pub fn degree(&self) -> f64 {
        if self.triangles { 6.0 } else { 4.0 }
    }

    fn cells(&self) -> Cells {
        if self.triangles { Cells::Triangles } else { Cells::Quads }
    }

    /// One grid of a geometry, with mean edge length 1.
    ///
    /// # Errors
    /// An amplitude that is negative or huge.
    pub fn mesh(&self, surface: Surface, part: Part, index: usize) -> Result<Mesh, TaskError> {
        let (cells, seed) = (self.cells(), seed(surface, part, index));
        let refuse = |error: ShapeError| TaskError::setting(name(surface, index), error.to_string());
        let mesh = match surface {
            Surface::Flat => grid(SIDE, SIDE, cells),
            Surface::Isometric => {
                let axis = match index % 2 {
                    0 => Axis::Columns,
                    _ => Axis::Rows,
                };
                bent_grid(SIDE, SIDE, cells, axis, &Profile::random(seed))
            }
            Surface::Rough(roughness) => {
                let roughness = Roughness { roughness, amplitude: self.amplitude, seed };
                rough_grid(SIDE, SIDE, cells, &roughness)
            }
        };
        let mesh = mesh.map_err(refuse)?;
        let scale = match surface {
            Surface::Flat | Surface::Isometric => 1.0 / self.unscaled_edge_length(),
            // Rough grids are made with this length.
            Surface::Rough(_) => 1.0,
        };
        (mesh.map_vertices(|place| scale * place)).map_err(|error| refuse(ShapeError::Mesh(error)))
    }

    /// Mean edge length of flat and bent grids with cells of side 1.
    fn unscaled_edge_length(&self) -> f64 {
        let (along_axes, diagonals) = if self.triangles { ((2 * SIDE) as f64, (SIDE - 1) as f64) } else { (1.0, 0.0) };
        (along_axes + diagonals * SQRT_2) / (along_axes + diagonals)
    }

    /// The gauge graph of one grid. All frames point up: the first axis points to the vertex above, and in the
    /// top row away from the vertex below. On the flat grid all frames are parallel.
    pub fn graph(&self, surface: Surface, part: Part, index: usize) -> Result<GaugeGraph, TaskError> {
        let mesh = self.mesh(surface, part, index)?;
        let refuse = |source: GeometryError| TaskError::Geometry { name: name(surface, index), source };
        let vertices = mesh.vertex_count();
        let reference = |vertex: usize| if vertex < SIDE { vertex + SIDE } else { vertex - SIDE };
        let options = GeometryOptions {
            gauge: Gauge::Neighbours((0..vertices).map(|v| reference(v) as u32).collect()),
            ..GeometryOptions::default()
        };
        let angle = |vertex: usize| if vertex < SIDE { PI } else { 0.0 };
        let angles: Vec<f64> = (0..vertices).map(angle).collect();
        GaugeGraph::new(&mesh, &options).and_then(|graph| graph.gauge_transform(&angles)).map_err(refuse)
    }

    /// The gauge graphs of one part of a geometry.
    pub fn graphs(&self, surface: Surface, part: Part) -> Result<Vec<GaugeGraph>, TaskError> {
        let count = match surface {
            Surface::Flat => 1,
            Surface::Isometric | Surface::Rough(_) => self.count.max(1),
        };
        (0..count).map(|index| self.graph(surface, part, index)).collect()
    }
}

fn name(surface: Surface, index: usize) -> String {
    format!("grid {index} of geometry {surface}")
}

/// Seed of a grid: different for each geometry (roughness in hundredths), part and index.
fn seed(surface: Surface, part: Part, index: usize) -> u64 {
    let family = match surface {
        Surface::Flat => 0,
        Surface::Isometric => 1,
        Surface::Rough(roughness) => 1000 + (100.0 * roughness).round() as u64,
    };
    let part = match part {
        Part::Train => 0,
        Part::Test => 1,
    };
    family << 33 | part << 32 | index as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn geometries_parse_and_print() {
        for surface in Surface::TEST {
            assert_eq!(surface.to_string().parse::<Surface>().unwrap(), surface);
        }
        for text in ["", "bent", "3", "-1", "nan", "inf"] {
            assert!(text.parse::<Surface>().is_err(), "{text}");
        }
    }

    #[test]
    fn all_grids_of_all_geometries_differ() {
        let options = GridOptions::default();
        let mut seen = HashSet::new();
        for surface in Surface::TEST {
            for part in [Part::Train, Part::Test] {
                for index in 0..options.count {
                    let seed = seed(surface, part, index);
                    assert!(seen.insert(seed), "{surface} {part:?} {index}");
                }
            }
        }
        let [train, test] = [Part::Train, Part::Test].map(|part| options.mesh(Surface::Rough(1.0), part, 3).unwrap());
        assert_ne!(train.vertices(), test.vertices());
    }

    #[test]
    fn edges_have_mean_length_1_and_flat_frames_are_parallel() {
        for triangles in [false, true] {
            let options = GridOptions { triangles, ..GridOptions::default() };
            for surface in Surface::TEST {
                let graph = options.graph(surface, Part::Test, 1).unwrap();
                let mean = graph.radius().iter().sum::<f64>() / graph.edge_count() as f64;
                assert!((mean - 1.0).abs() < 1e-12, "{surface}: {mean}");
            }
            let flat = options.graph(Surface::Flat, Part::Train, 0).unwrap();
            let largest = flat.transport().iter().fold(0.0, |m: f64, g| m.max(g.abs()));
            assert!(largest < 1e-12, "{largest}");
            // The vertex to the right is at -pi/2 from up, also in the top row.
            for vertex in [0, 5, 28 * 14 + 14] {
                let right = flat.row(vertex).find(|&e| flat.neighbours()[e] as usize == vertex + 1);
                let angle = flat.theta()[right.unwrap()];
                assert!((angle + PI / 2.0).abs() < 1e-12, "{vertex}: {angle}");
            }
        }
    }
}
