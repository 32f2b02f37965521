//! Eigenbases of orders 1 and 2 from scalar eigenvectors.
//!
//! On a closed surface of genus 0, the gradients of the scalar eigenvectors span the tangent fields over the complex
//! numbers. Products of two tangent fields are fields of order 2; traceless Hessians of few scalars would span
//! hardly any of the smooth ones. The lowest eigenpairs of the connection Laplacian in the span of such fields
//! (Rayleigh-Ritz) take the place of its own, without a Hermitian eigenproblem of the size of the mesh.

use super::laplacian::ConnectionLaplacian;
use super::{Eigenbasis, SurfaceError};
use faer::linalg::matmul::matmul;
use faer::traits::math_utils::from_f64;
use faer::{Accum, Mat, MatMut, MatRef, Par, Side, c64};

/// Number of fields for each eigenvector that is wanted, and more of them: constants have no gradient.
const SHARE: f64 = 1.5;
const MORE: usize = 8;
/// A combination of fields with a smaller share of the largest squared norm is a rounding error.
const DEPENDENT: f64 = 1e-6;

/// Number of fields whose span has `count` eigenvectors.
pub(super) fn fields_for(count: usize) -> usize {
    match count {
        0 => 0,
        count => (SHARE * count as f64) as usize + MORE,
    }
}

/// Number of fields of order 1 with as many products as `count` eigenvectors of order 2 need.
pub(super) fn factors_for(count: usize) -> usize {
    (1..).find(|factors| factors * (factors + 1) / 2 >= fields_for(count)).unwrap_or(0) * usize::from(count > 0)
}

/// Products of pairs of the first fields of order 1: fields of order 2, and their number.
pub(super) fn products(vectors: &Eigenbasis, factors: usize) -> (Vec<f64>, usize) {
    let (columns, factors) = (vectors.len(), factors.min(vectors.len()));
    let pairs: Vec<[usize; 2]> = (0..factors).flat_map(|i| (0..=i).map(move |j| [i, j])).collect();
    let mut fields = Vec::with_capacity(vectors.vertex_count() * 2 * pairs.len());
    for row in vectors.vectors.chunks_exact(2 * columns.max(1)) {
        let (re, im) = row.split_at(columns);
        fields.extend(pairs.iter().map(|&[i, j]| re[i] * re[j] - im[i] * im[j]));
        fields.extend(pairs.iter().map(|&[i, j]| re[i] * im[j] + im[i] * re[j]));
    }
    (fields, pairs.len())
}

/// The `count` lowest eigenpairs of a connection Laplacian in the span of fields of shape `[V, 2, columns]`.
pub(super) fn lowest_in_span(
    connection: &ConnectionLaplacian<'_>,
    mut fields: Vec<f64>,
    columns: usize,
    count: usize,
) -> Result<Eigenbasis, SurfaceError> {
    let (order, laplacian) = (connection.order(), connection.laplacian);
    let empty = || Ok(Eigenbasis { order, values: Vec::new(), vectors: Vec::new() });
    if columns == 0 {
        return empty();
    }
    // Fields of equal norm: those of high frequency are larger, and would hide others.
    let norms = laplacian.squared_norms(&fields, columns);
    let largest = norms.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let is_zero = |norm: f64| norm <= DEPENDENT * DEPENDENT * largest;
    let scales: Vec<f64> = norms.iter().map(|&norm| if is_zero(norm) { 0.0 } else { norm.sqrt().recip() }).collect();
    for row in fields.chunks_exact_mut(columns) {
        row.iter_mut().zip(&scales).for_each(|(value, scale)| *value *= scale);
    }
    let images = complex(&connection.apply(&fields, columns)?, columns);
    let fields = complex(&fields, columns);
    let vertices = laplacian.vertex_count();
    let product = |mut weighted: Vec<c64>, weights: &mut dyn Iterator<Item = f64>| {
        for (row, weight) in weighted.chunks_exact_mut(columns).zip(weights) {
            row.iter_mut().for_each(|value| *value *= weight);
        }
        let [left, right] = [&fields, &weighted].map(|values| MatRef::from_row_major_slice(values, vertices, columns));
        let mut result = Mat::<c64>::zeros(columns, columns);
        matmul(&mut result, Accum::Replace, left.adjoint(), right, from_f64(1.0), Par::Seq);
        result
    };
    // Each node counts once.
    let first = laplacian.representatives().enumerate();
    let energy = product(images, &mut first.map(|(vertex, node)| f64::from(u8::from(node as usize == vertex))));
    let gram = product(fields.clone(), &mut laplacian.mass().iter().copied());
    let failed = |_| SurfaceError::NotConverged { order, wanted: count, converged: 0 };
    let inner = gram.self_adjoint_eigen(Side::Lower).map_err(failed)?;
    let squares: Vec<f64> = inner.S().column_vector().iter().map(|value| value.re).collect();
    let first = squares.iter().take_while(|&&square| square <= DEPENDENT * squares[columns - 1]).count();
    let found = count.min(columns - first);
    if found == 0 {
        return empty();
    }
    let orthonormal = Mat::from_fn(columns, columns - first, |row, column| {
        inner.U()[(row, first + column)] * squares[first + column].sqrt().recip()
    });
    let reduced = orthonormal.adjoint() * &energy * &orthonormal;
    let lowest = reduced.self_adjoint_eigen(Side::Lower).map_err(failed)?;
    let coefficients = &orthonormal * lowest.U().subcols(0, found);
    let mut combined = vec![c64::new(0.0, 0.0); vertices * found];
    let left = MatRef::from_row_major_slice(&fields, vertices, columns);
    let target = MatMut::from_row_major_slice_mut(&mut combined, vertices, found);
    matmul(target, Accum::Replace, left, &coefficients, from_f64(1.0), Par::Seq);
    let mut vectors = Vec::with_capacity(vertices * 2 * found);
    for row in combined.chunks_exact(found.max(1)) {
        vectors.extend(row.iter().map(|value| value.re));
        vectors.extend(row.iter().map(|value| value.im));
    }
    let values = lowest.S().column_vector().iter().take(found).map(|value| value.re.max(0.0));
    Ok(Eigenbasis { order, values: values.collect(), vectors })
}

/// Complex numbers from rows of real parts, then imaginary parts.
fn complex(values: &[f64], columns: usize) -> Vec<c64> {
    let rows = values.chunks_exact(2 * columns).map(|row| row.split_at(columns));
    rows.flat_map(|(re, im)| re.iter().zip(im).map(|(&re, &im)| c64::new(re, im))).collect()
}
