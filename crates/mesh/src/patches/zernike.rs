//! Zernike polynomials on geodesic discs.

use super::{Discs, Envelope, PatchRow};
use rayon::prelude::*;

/// Ridge of the fit, relative to the mean square of a polynomial: discs of few vertices have finite coefficients.
const RIDGE: f64 = 1e-3;

/// Coefficients of functions on geodesic discs in Zernike polynomials, as a sparse matrix.
///
/// The polynomials `R_n^m(r) cos(m theta)` and `R_n^m(r) sin(m theta)` have mean square 1 on the unit disc. They are
/// listed by the angular order `m`, then cosine and sine, then the degree `n = m, m + 2, ...`: the layout of features
/// of order `m`. If the frame of the centre rotates, coefficients rotate as such features do.
#[derive(Debug, Clone, PartialEq)]
pub struct ZernikeFit {
    /// Number of polynomials of each angular order from 0.
    pub multiplicities: Vec<usize>,
    /// A row of vertices and weights for each polynomial of each disc.
    pub rows: Vec<PatchRow>,
}

/// A polynomial: its angular order, whether it is the sine, and the coefficients of `r^m`, `r^(m + 2)`, ...
struct Polynomial {
    order: usize,
    is_sine: bool,
    radial: Vec<f64>,
}

impl ZernikeFit {
    /// Polynomials up to a degree, by least squares over discs of a radius. `areas` weight the vertices.
    pub fn new(discs: &Discs, radius: f64, degree: usize, areas: &[f64]) -> Self {
        let polynomials = polynomials(degree);
        let rows = (0..discs.len()).into_par_iter().flat_map_iter(|centre| {
            let entries = discs.row(centre);
            let vertices = &discs.vertices[entries.clone()];
            let weights = shares(vertices, areas);
            let mut values = Vec::with_capacity(vertices.len() * polynomials.len());
            for &[x, y] in &discs.coordinates[entries] {
                let [x, y] = [x / radius, y / radius];
                values.extend(polynomials.iter().map(|p| p.value(x, y)));
            }
            coefficients(vertices, &weights, &values, polynomials.len())
        });
        Self { multiplicities: (0..=degree).map(|m| (degree - m) / 2 + 1).collect(), rows: rows.collect() }
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

/// The rows `(Z^T W Z + ridge)^-1 Z^T W`. `values` are the `count` polynomials at each vertex.
fn coefficients(vertices: &[u32], weights: &[f64], values: &[f64], count: usize) -> Vec<PatchRow> {
    let mut factor = Envelope::new(count);
    for (weight, values) in weights.iter().zip(values.chunks_exact(count)) {
        for (i, value) in values.iter().enumerate() {
            let each = values[..=i].iter().enumerate();
            each.for_each(|(j, other)| factor.add(i, j, weight * value * other));
        }
    }
    (0..count).for_each(|i| factor.add(i, i, RIDGE));
    factor.factor();
    let mut rows = vec![Vec::with_capacity(vertices.len()); count];
    let mut column = vec![0.0; count];
    let points = vertices.iter().zip(weights);
    for ((&vertex, weight), values) in points.zip(values.chunks_exact(count)) {
        let each = column.iter_mut().zip(values);
        each.for_each(|(entry, value)| *entry = weight * value);
        factor.solve(&mut column);
        for (row, &value) in rows.iter_mut().zip(&column) {
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
            (0..parts).flat_map(move |part| {
                let degrees = (m..=degree).step_by(2);
                degrees.map(move |n| Polynomial::new(n, m, part == 1))
            })
        })
        .collect()
}

impl Polynomial {
    /// The polynomial of a degree.
    fn new(n: usize, m: usize, is_sine: bool) -> Self {
        let factorial = |k: usize| (1..=k).map(|i| i as f64).product::<f64>();
        let norm = ((n + 1) as f64 * if m == 0 { 1.0 } else { 2.0 }).sqrt();
        let coefficient = |k: usize| {
            let below = factorial(k) * factorial((n + m) / 2 - k) * factorial((n - m) / 2 - k);
            let sign = if k.is_multiple_of(2) { 1.0 } else { -1.0 };
            norm * sign * factorial(n - k) / below
        };
        Self { order: m, is_sine, radial: (0..=(n - m) / 2).rev().map(coefficient).collect() }
    }

    /// The value at a point of the unit disc. `r^m` times the cosine and sine of `m theta` are the parts of `(x + i
    /// y)^m`.
    fn value(&self, x: f64, y: f64) -> f64 {
        let square = x * x + y * y;
        let radial = (self.radial.iter().rev()).fold(0.0, |sum, c| sum * square + c);
        let power = |[re, im]: [f64; 2], _| [re * x - im * y, re * y + im * x];
        let [re, im] = (0..self.order).fold([1.0, 0.0], power);
        radial * if self.is_sine { im } else { re }
    }
}
