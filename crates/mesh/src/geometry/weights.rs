//! Weights of neighbours in convolutions: coefficients of edges that depend little on the meshing.

use super::graph::check_length;
use super::{Adjacency, Frame, GaugeGraph, GeometryError};
use crate::Mesh;
use crate::polygon::vector_area;
use glam::DVec3;
use rayon::prelude::*;

/// Ridge of the two first and the three second derivatives, in units of the radius of the row. The
/// squared Hessian has the mixed derivative twice.
const RIDGE: [f64; 5] = [1e-6, 1e-6, 1e-4, 2e-4, 1e-4];
/// Least cosine between normals in the weights.
pub(crate) const MIN_COSINE: f64 = 0.05;

/// Weights of the neighbours of a vertex in a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NeighbourWeights {
    /// All neighbours count the same, as in the paper.
    #[default]
    Count,
    /// The area of the neighbour times `max(n_p . n_q, 0.05)^2` and the window
    /// `max(1 - r^2 / 2 h^2, 0)^2`, divided by the sum over the neighbours. `h` is the root mean square distance under
    /// the first two factors; for a ball of radius `R`, the window ends at `R`.
    Area,
    /// Least-squares derivatives of second order: the harmonics `exp(i k theta)` of orders 0, 1 and 2 are
    /// replaced by the coefficients of the Laplacian, of `dx + i dy` and of `dxx - dyy + 2 i dxy`. Lengths
    /// are in units of the radius of the neighbourhood; of the mean length of edges if there is none. Each row that
    /// is not empty also has an edge to its own vertex.
    Jets,
}

impl NeighbourWeights {
    /// Numbers of each edge: none, one factor, or the Laplacian and the real and imaginary parts of two derivatives.
    fn columns(self) -> usize {
        match self {
            Self::Count => 0,
            Self::Area => 1,
            Self::Jets => 5,
        }
    }

    /// Weights that a graph stores coefficients for, with the name of their tensor.
    pub(super) const STORED: [(Self, &'static str); 2] = [(Self::Area, "area_weights"), (Self::Jets, "jets")];
}

/// Coefficients of the edges of a graph.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Coefficients {
    pub weights: NeighbourWeights,
    /// Area of every vertex.
    pub areas: Vec<f64>,
    /// `[edges, columns]`.
    pub values: Vec<f64>,
}

impl Coefficients {
    /// The coefficients in frames rotated by `angles`: harmonic `k` of row `p` rotates by `-k a_p`.
    pub fn rotate(&mut self, adjacency: &Adjacency, angles: &[f64]) {
        let columns = self.weights.columns();
        for (vertex, &angle) in angles.iter().enumerate() {
            let row = adjacency.row(vertex);
            for values in self.values[row.start * columns..row.end * columns].chunks_mut(columns) {
                for order in 1..=columns / 2 {
                    let (sine, cosine) = (-(order as f64) * angle).sin_cos();
                    let [re, im] = [values[2 * order - 1], values[2 * order]];
                    values[2 * order - 1] = cosine * re - sine * im;
                    values[2 * order] = sine * re + cosine * im;
                }
            }
        }
    }
}

impl GaugeGraph {
    /// As [`with_frames`](Self::with_frames), with weights of the neighbours and their areas. `unit` is the unit of
    /// length of derivatives.
    pub(crate) fn weighted(
        points: &[DVec3],
        frames: Vec<Frame>,
        adjacency: Adjacency,
        weights: NeighbourWeights,
        areas: Vec<f64>,
        unit: Option<f64>,
    ) -> Result<Self, GeometryError> {
        check_length("areas", areas.len(), adjacency.vertex_count())?;
        let adjacency = match weights {
            NeighbourWeights::Jets => adjacency.with_own()?,
            _ => adjacency,
        };
        let mut graph = Self::with_frames(points, frames, adjacency)?;
        let mean = graph.radius().iter().sum::<f64>() / graph.edge_count().max(1) as f64;
        // A unit far below the edges would overflow.
        let unit = unit.unwrap_or(mean).max(1e-9 * mean).max(f64::MIN_POSITIVE);
        let rows: Vec<Vec<f64>> = (0..graph.vertex_count())
            .into_par_iter()
            .with_min_len(256)
            .map(|vertex| match weights {
                NeighbourWeights::Count => Vec::new(),
                NeighbourWeights::Area => graph.area_weights(vertex, &areas),
                NeighbourWeights::Jets => graph.jet_coefficients(vertex, &areas, unit),
            })
            .collect();
        if weights != NeighbourWeights::Count {
            graph.coefficients = Some(Coefficients { weights, areas, values: rows.concat() });
        }
        Ok(graph)
    }

    /// Area of the neighbour times the squared cosine between the normals, of each edge of a row, relative to the
    /// largest one. All 1 if there is no area.
    fn facing_areas(&self, vertex: usize, areas: &[f64]) -> Vec<f64> {
        let normal = self.frames()[vertex].normal;
        let mut weights: Vec<f64> = (self.row(vertex))
            .map(|edge| {
                let q = self.neighbours()[edge] as usize;
                let cosine = normal.dot(self.frames()[q].normal).max(MIN_COSINE);
                areas[q] * cosine * cosine
            })
            .collect();
        let largest = weights.iter().copied().fold(0.0, f64::max);
        if largest > 0.0 {
            weights.iter_mut().for_each(|weight| *weight /= largest);
        } else {
            weights.fill(1.0);
        }
        weights
    }

    fn area_weights(&self, vertex: usize, areas: &[f64]) -> Vec<f64> {
        let mut weights = self.facing_areas(vertex, areas);
        let radii = &self.radius()[self.row(vertex)];
        let longest = radii.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let squared: Vec<f64> = radii.iter().map(|r| (r / longest).powi(2)).collect();
        let moment: f64 = weights.iter().zip(&squared).map(|(w, r)| w * r).sum();
        let bound = 2.0 * moment / weights.iter().sum::<f64>();
        let window = |squared: f64| if bound > 0.0 { (1.0 - squared / bound).max(0.0).powi(2) } else { 1.0 };
        let pairs = weights.iter_mut().zip(&squared);
        pairs.for_each(|(weight, &squared)| *weight *= window(squared));
        // The nearest neighbour is inside of the window, so the sum is positive.
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= sum);
        weights
    }

    fn jet_coefficients(&self, vertex: usize, areas: &[f64], unit: f64) -> Vec<f64> {
        let row = self.row(vertex);
        let Some(own) = row.clone().next_back() else { return Vec::new() };
        let weights = self.facing_areas(vertex, areas);
        let mut points: Vec<[f64; 4]> = (row.start..own)
            .zip(&weights)
            .map(|(edge, &weight)| {
                let (sine, cosine) = self.theta()[edge].sin_cos();
                let radius = self.radius()[edge] / unit;
                [radius * cosine, radius * sine, radius * radius, weight]
            })
            .collect();
        let mut coefficients = Vec::with_capacity(5 * row.len());
        fit_jets(&mut points, |[dx, dy, dxx, dxy, dyy]| {
            coefficients.extend([dxx + dyy, dx, dy, dxx - dyy, 2.0 * dxy]);
        });
        let sums =
            coefficients.chunks_exact(5).fold([0.0; 5], |sums, values| std::array::from_fn(|k| sums[k] + values[k]));
        coefficients.extend(sums.map(|sum| -sum));
        coefficients
    }

    /// Weights of the neighbours.
    pub fn weights(&self) -> NeighbourWeights {
        let coefficients = self.coefficients.as_ref();
        coefficients.map_or(NeighbourWeights::Count, |c| c.weights)
    }

    /// Coefficients of every directed edge, `[edges, columns]`: no columns if neighbours count the same, one factor
    /// with areas, and with jets the coefficient of the Laplacian and the real and imaginary parts of those
    /// of `dx + i dy` and `dxx - dyy + 2 i dxy`.
    pub fn coefficients(&self) -> (usize, &[f64]) {
        match &self.coefficients {
            None => (0, &[]),
            Some(coefficients) => (coefficients.weights.columns(), &coefficients.values),
        }
    }

    /// The same graph with stored areas and coefficients of [`coefficients`](Self::coefficients).
    pub(super) fn with_coefficients(
        mut self,
        weights: NeighbourWeights,
        areas: Vec<f64>,
        values: Vec<f64>,
    ) -> Result<Self, GeometryError> {
        check_length("areas", areas.len(), self.vertex_count())?;
        let (edges, found) = (self.edge_count(), values.len());
        if found != edges * weights.columns() {
            return Err(GeometryError::BadGraph { problem: format!("{found} coefficients for {edges} edges") });
        }
        for (what, values) in [("area", &areas), ("coefficient", &values)] {
            if let Some(index) = values.iter().position(|value| !value.is_finite()) {
                return Err(GeometryError::NotFinite { what, index });
            }
        }
        self.coefficients = Some(Coefficients { weights, areas, values });
        Ok(self)
    }

    /// Area of every vertex, up to a common factor; empty if neighbours count the same.
    pub fn areas(&self) -> &[f64] {
        self.coefficients.as_ref().map_or(&[], |c| &c.areas)
    }
}

/// Area of every vertex: that of its faces, divided by their numbers of corners. The sum is the area of the mesh.
pub fn vertex_areas(mesh: &Mesh) -> Vec<f64> {
    let mut areas = vec![0.0; mesh.vertex_count()];
    for face in 0..mesh.face_count() {
        let corners = mesh.face(face);
        let area = vector_area(mesh.face_positions(face)).length() / corners.len().max(1) as f64;
        for &corner in corners {
            areas[corner as usize] += area;
        }
    }
    areas
}

/// Fits polynomials of degree 2 through the origin by weighted least squares. `points` are coordinates `x, y`, the
/// squared distance `r^2` and a weight, which is multiplied by `exp(-r^2 / 2 h^2)`; `h` is the root
/// mean square distance. Calls `each` with the coefficients of `dx`, `dy`, `dxx`, `dxy` and `dyy` of every point.
pub(crate) fn fit_jets(points: &mut [[f64; 4]], mut each: impl FnMut([f64; 5])) {
    let (mut total, mut moment) = (0.0, 0.0);
    for [_, _, squared, weight] in &*points {
        total += weight;
        moment += weight * squared;
    }
    let squared_radius = (moment / total.max(f64::MIN_POSITIVE)).max(1e-16);
    let inverse = squared_radius.sqrt().recip();
    let mut sum = 0.0;
    for [x, y, squared, weight] in &mut *points {
        *weight *= (-0.5 * *squared / squared_radius).exp();
        sum += *weight;
        *x *= inverse;
        *y *= inverse;
    }
    let normalise = sum.max(f64::MIN_POSITIVE).recip();
    let monomials = |x: f64, y: f64| [x, y, 0.5 * x * x, x * y, 0.5 * y * y];
    let mut normal_matrix = [[0.0; 5]; 5];
    for [x, y, _, weight] in &mut *points {
        *weight *= normalise;
        let values = monomials(*x, *y);
        for i in 0..5 {
            for j in 0..=i {
                normal_matrix[i][j] += *weight * values[i] * values[j];
            }
        }
    }
    for (i, ridge) in RIDGE.into_iter().enumerate() {
        normal_matrix[i][i] += ridge;
    }
    let factor = small_cholesky(normal_matrix);
    let square = inverse * inverse;
    let units = [inverse, inverse, square, square, square];
    for &mut [x, y, _, weight] in points {
        let mut solution = small_solve(&factor, monomials(x, y));
        for (value, unit) in solution.iter_mut().zip(units) {
            *value *= weight * unit;
        }
        each(solution);
    }
}

/// Lower Cholesky factor with the inverses of its diagonal on the diagonal.
fn small_cholesky(mut matrix: [[f64; 5]; 5]) -> [[f64; 5]; 5] {
    for i in 0..5 {
        for j in 0..=i {
            let products = matrix[i].iter().zip(&matrix[j]).take(j);
            let sum = matrix[i][j] - products.map(|(x, y)| x * y).sum::<f64>();
            matrix[i][j] = if i == j { sum.max(f64::MIN_POSITIVE).sqrt().recip() } else { sum * matrix[j][j] };
        }
    }
    matrix
}

fn small_solve(factor: &[[f64; 5]; 5], mut x: [f64; 5]) -> [f64; 5] {
    for i in 0..5 {
        for k in 0..i {
            x[i] -= factor[i][k] * x[k];
        }
        x[i] *= factor[i][i];
    }
    for i in (0..5).rev() {
        for k in i + 1..5 {
            x[i] -= factor[k][i] * x[k];
        }
        x[i] *= factor[i][i];
    }
    x
}
