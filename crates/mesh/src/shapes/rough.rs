//! Rough grids: random displacements along the normal, smoothed by a Gaussian.

use glam::DVec3;

use super::grid::{require_grid, sheet};
use super::{Cells, ShapeError, require};
use crate::Mesh;
use crate::random::Uniform;

/// Maximum smoothing width, in pixels. Wider filters leave any sheet flat.
const MAX_SIGMA: f64 = 100.0;
/// Maximum amplitude, in pixels.
const MAX_AMPLITUDE: f64 = 1e6;

/// Displacements of a rough grid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Roughness {
    /// `3 - sigma`, with `sigma` the width of the smoothing Gaussian in pixels. Must be less than
    /// 3, where there would be no smoothing.
    pub roughness: f64,
    /// Displacements before smoothing are uniform in `[-amplitude, amplitude]` pixels.
    pub amplitude: f64,
    /// Seed of the displacements.
    pub seed: u64,
}

impl Roughness {
    /// The amplitude of [`Roughness::new`], in pixels.
    pub const DEFAULT_AMPLITUDE: f64 = 5.0;

    /// Creates this roughness with the default amplitude.
    pub fn new(roughness: f64, seed: u64) -> Self {
        Self { roughness, amplitude: Self::DEFAULT_AMPLITUDE, seed }
    }

    /// Width (standard deviation) of the smoothing Gaussian, in pixels.
    pub fn sigma(&self) -> f64 {
        3.0 - self.roughness
    }

    fn check(&self) -> Result<(), ShapeError> {
        require(
            self.sigma() > 0.0 && self.sigma() <= MAX_SIGMA,
            "roughness",
            self.roughness,
            "at least -97 and under 3 (it is 3 minus the width of the smoothing in pixels)",
        )?;
        require(
            (0.0..=MAX_AMPLITUDE).contains(&self.amplitude),
            "amplitude",
            self.amplitude,
            "from 0 to 1,000,000 pixels",
        )
    }
}

/// The flat [`grid`](super::grid) with every vertex displaced along z, scaled so that the mean edge
/// length is 1.
///
/// Displacements are drawn uniformly and independently for each vertex in index order. They are
/// smoothed by a normalised Gaussian of width `3 - roughness` pixels, truncated at four widths,
/// with reflection at the border (`c b a | a b c`).
///
/// ```
/// use gemcnn_mesh::shapes::{Cells, Roughness, rough_grid};
/// let mesh = rough_grid(28, 28, Cells::Quads, &Roughness::new(1.5, 7))?;
/// assert_eq!(mesh.vertex_count(), 784);
/// # Ok::<(), gemcnn_mesh::shapes::ShapeError>(())
/// ```
///
/// # Errors
/// The grid size is invalid, the roughness is not in [-97, 3), or the amplitude is negative or
/// greater than a million.
pub fn rough_grid(rows: usize, columns: usize, cells: Cells, roughness: &Roughness) -> Result<Mesh, ShapeError> {
    require_grid(rows, columns, cells)?;
    roughness.check()?;
    let mut uniform = Uniform::new(roughness.seed);
    let mut heights: Vec<f64> = (0..rows * columns).map(|_| roughness.amplitude * uniform.signed()).collect();
    let kernel = half_gaussian(roughness.sigma());
    for row in 0..rows {
        smooth_line(&mut heights, row * columns, 1, columns, &kernel);
    }
    for column in 0..columns {
        smooth_line(&mut heights, column, columns, rows, &kernel);
    }
    let scale = 1.0 / mean_edge_length(&heights, rows, columns, cells);
    sheet(rows, columns, cells, |row, column| {
        let height = heights[row * columns + column];
        scale * DVec3::new(column as f64, (rows - 1 - row) as f64, height)
    })
}

/// Weights of a Gaussian at the distances 0, 1, ... up to four widths, rounded. Both sides together
/// sum to 1.
fn half_gaussian(sigma: f64) -> Vec<f64> {
    let radius = (4.0 * sigma).round() as usize;
    let mut weights: Vec<f64> = (0..=radius).map(|distance| (-0.5 * (distance as f64 / sigma).powi(2)).exp()).collect();
    let total = weights[0] + 2.0 * weights[1..].iter().sum::<f64>();
    for weight in &mut weights {
        *weight /= total;
    }
    weights
}

/// Convolves one line of the grid: `count` values from `start` with stride `stride`.
fn smooth_line(values: &mut [f64], start: usize, stride: usize, count: usize, kernel: &[f64]) {
    let line: Vec<f64> = (0..count).map(|i| values[start + i * stride]).collect();
    for i in 0..count {
        let mut sum = kernel[0] * line[i];
        for (distance, &weight) in kernel.iter().enumerate().skip(1) {
            let before = line[mirrored(i as isize - distance as isize, count)];
            let after = line[mirrored((i + distance) as isize, count)];
            sum += weight * (before + after);
        }
        values[start + i * stride] = sum;
    }
}

/// Index in `0..count` for the index `i` by reflection at both borders, with repeated border
/// values.
fn mirrored(i: isize, count: usize) -> usize {
    let place = i.rem_euclid(2 * count as isize) as usize;
    place.min(2 * count - 1 - place)
}

/// Mean length of the distinct edges of the grid with the given heights.
fn mean_edge_length(heights: &[f64], rows: usize, columns: usize, cells: Cells) -> f64 {
    let mut total = 0.0;
    let mut add_edges = |down: usize, right: usize| {
        let flat = (down * down + right * right) as f64;
        for row in 0..rows - down {
            for column in 0..columns - right {
                let from = heights[row * columns + column];
                let to = heights[(row + down) * columns + column + right];
                total += (flat + (to - from).powi(2)).sqrt();
            }
        }
        (rows - down) * (columns - right)
    };
    let mut count = add_edges(0, 1) + add_edges(1, 0);
    if cells == Cells::Triangles {
        count += add_edges(1, 1);
    }
    total / count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_border_mirrors_any_number_of_times() {
        let places: Vec<usize> = (-7..7).map(|i| mirrored(i, 3)).collect();
        assert_eq!(places, [0, 0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0, 0]);
    }

    #[test]
    fn smoothing_equals_the_two_dimensional_sum() {
        let (rows, columns, sigma) = (5, 7, 1.3);
        let mut uniform = Uniform::new(3);
        let rough: Vec<f64> = (0..rows * columns).map(|_| uniform.signed()).collect();
        let kernel = half_gaussian(sigma);
        let mut fast = rough.clone();
        for row in 0..rows {
            smooth_line(&mut fast, row * columns, 1, columns, &kernel);
        }
        for column in 0..columns {
            smooth_line(&mut fast, column, columns, rows, &kernel);
        }
        let reach: isize = 5; // 4 * 1.3 = 5.2
        for row in 0..rows as isize {
            for column in 0..columns as isize {
                let (mut sum, mut total) = (0.0, 0.0);
                for dr in -reach..=reach {
                    for dc in -reach..=reach {
                        let squared = (dr * dr + dc * dc) as f64;
                        let weight = (-0.5 * squared / (sigma * sigma)).exp();
                        let from = mirrored(row + dr, rows) * columns + mirrored(column + dc, columns);
                        sum += weight * rough[from];
                        total += weight;
                    }
                }
                let here = row as usize * columns + column as usize;
                assert!((fast[here] - sum / total).abs() < 1e-14);
            }
        }
    }
}
