//! Zernike polynomials on geodesic discs.

use super::{DenseFactor, Discs, PatchRow};
use rayon::prelude::*;

/// Ridge of the fit, relative to the mean square of a polynomial: discs of few vertices have finite coefficients.
const RIDGE: f64 = 1e-3;

/// Coefficients of functions on geodesic discs in Zernike polynomials, as a sparse matrix.
///
/// The polynomials `R_n^m(r) cos(m theta)` and `R_n^m(r) sin(m theta)` have mean square 1 on the unit disc. They are listed by the
/// angular order `m`, then cosine and sine, then the degree `n = m, m + 2, ...`: the layout of features of order `m`. If the
/// frame of the centre rotates, coefficients rotate as such features do.
#[derive(Debug, Clone, PartialEq)]
pub struct ZernikeFit {
    /// Number of polynomials of each angular order from 0.
    pub multiplicities: Vec<usize>,
    /// A row of vertices and weights for each polynomial of each disc.
    pub rows: Vec<PatchRow>,
}

/// A polynomial: degree, angular order, and whether it is the sine.
type Polynomial = (usize, usize, bool);

impl ZernikeFit {
    /// Polynomials up to a degree, by least squares over discs of a radius. `areas` weight the vertices.
    pub fn new(discs: &Discs, radius: f64, degree: usize, areas: &[f64]) -> Self {
        let polynomials = polynomials(degree);
        let rows = (0..discs.len()).into_par_iter().flat_map_iter(|centre| {
            let entries = discs.row(centre);
            let vertices = &discs.vertices[entries.clone()];
            let weights = shares(vertices, areas);
            let values: Vec<Vec<f64>> = (discs.coordinates[entries].iter())
                .map(|&[x, y]| {
                    let (r, theta) = (x.hypot(y) / radius, y.atan2(x));
                    polynomials.iter().map(|&p| value(p, r, theta)).collect()
                })
                .collect();
            coefficients(vertices, &weights, &values, polynomials.len())
        });
        Self {
            multiplicities: (0..=degree).map(|m| (degree - m) / 2 + 1).collect(),
            rows: rows.collect(),
        }
    }
}

/// Weights that sum to 1; equal ones where there are no areas.
fn shares(vertices: &[u32], areas: &[f64]) -> Vec<f64> {
    let area = |&v: &u32| areas.get(v as usize).copied().unwrap_or(0.0);
    let total: f64 = vertices.iter().map(area).sum();
    match total > 0.0 {
        true => vertices.iter().map(|v| area(v) / total).collect(),
        false => vec![1.0 / vertices.len() as f64; vertices.len()],
    }
}

/// The rows `(Z^T W Z + ridge)^-1 Z^T W`.
fn coefficients(
    vertices: &[u32],
    weights: &[f64],
    values: &[Vec<f64>],
    count: usize,
) -> Vec<PatchRow> {
    let mut matrix = vec![0.0; count * count];
    for (weight, values) in weights.iter().zip(values) {
        for i in 0..count {
            for j in 0..=i {
                matrix[i * count + j] += weight * values[i] * values[j];
            }
        }
    }
    (0..count).for_each(|i| matrix[i * count + i] += RIDGE);
    let factor = DenseFactor::new(count, matrix);
    let mut rows = vec![Vec::with_capacity(vertices.len()); count];
    for ((&vertex, weight), values) in vertices.iter().zip(weights).zip(values) {
        let mut column: Vec<f64> = values.iter().map(|value| weight * value).collect();
        factor.solve(&mut column);
        for (row, value) in rows.iter_mut().zip(column) {
            row.push((vertex, value));
        }
    }
    rows
}

/// All polynomials up to a degree, in order.
fn polynomials(degree: usize) -> Vec<Polynomial> {
    let orders = 0..=degree;
    orders
        .flat_map(|m| {
            let parts = if m == 0 { 1 } else { 2 };
            (0..parts).flat_map(move |part| (m..=degree).step_by(2).map(move |n| (n, m, part == 1)))
        })
        .collect()
}

/// The polynomial at a point of the unit disc.
fn value((n, m, is_sine): Polynomial, r: f64, theta: f64) -> f64 {
    let factorial = |k: usize| (1..=k).map(|i| i as f64).product::<f64>();
    let radial: f64 = (0..=(n - m) / 2)
        .map(|k| {
            let below = factorial(k) * factorial((n + m) / 2 - k) * factorial((n - m) / 2 - k);
            let sign = if k % 2 == 0 { 1.0 } else { -1.0 };
            sign * factorial(n - k) / below * r.powi((n - 2 * k) as i32)
        })
        .sum();
    let norm = ((n + 1) as f64 * if m == 0 { 1.0 } else { 2.0 }).sqrt();
    let angle = m as f64 * theta;
    norm * radial * if is_sine { angle.sin() } else { angle.cos() }
}
