//! Features from the eigenbases of a surface: heat and wave kernel signatures.

use crate::surface::Eigenbasis;

/// Times of [`heat_kernel_signatures`] in common use: 16 values from 0.01 to 1 with constant
/// ratio, in units of the area.
pub fn signature_times() -> [f64; 16] {
    std::array::from_fn(|i| 10f64.powf(-2.0 + 2.0 * i as f64 / 15.0))
}

/// Heat kernel signatures `sum_k exp(-lambda_k t) |phi_k(p)|^2` at every vertex (Sun, Ovsjanikov
/// and Guibas, 2009). Shape `[V, times]`. Invariant under isometries and changes of frames.
///
/// ```
/// use gemcnn_mesh::features::{heat_kernel_signatures, signature_times};
/// use gemcnn_mesh::surface::SurfaceLaplacian;
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
/// let mesh = shapes::icosphere(2)?;
/// let graph = GaugeGraph::new(&mesh, &GeometryOptions::default())?;
/// let laplacian = SurfaceLaplacian::new(&mesh)?;
/// let basis = laplacian.connection(0, graph.frames())?.eigenbasis(32)?;
/// let signatures = heat_kernel_signatures(&basis, &signature_times());
/// assert_eq!(signatures.len(), mesh.vertex_count() * 16);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn heat_kernel_signatures(basis: &Eigenbasis, times: &[f64]) -> Vec<f64> {
    let filters: Vec<Vec<f64>> =
        times.iter().map(|time| basis.values.iter().map(|l| (-l * time).exp()).collect()).collect();
    signatures(basis, &filters)
}

/// Wave kernel signatures at every vertex (Aubry, Schlickewei and Cremers, 2011): at `count`
/// energies, equally spaced in the logarithm of the eigenvalue, the mean of `|phi_k(p)|^2` under a
/// Gaussian in `log lambda_k` of seven times the spacing. Shape `[V, count]`. Zero eigenvalues are
/// left out; all values are zero if no eigenvalue remains.
pub fn wave_kernel_signatures(basis: &Eigenbasis, count: usize) -> Vec<f64> {
    // The kernel has eigenvalues of rounding size, and others are far above 1 in units of area.
    const MIN_VALUE: f64 = 1e-6;
    let logarithm = |&value: &f64| (value > MIN_VALUE).then(|| value.ln());
    let logarithms: Vec<Option<f64>> = basis.values.iter().map(logarithm).collect();
    let found = logarithms.iter().flatten();
    let (low, high) = found.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &x| (low.min(x), high.max(x)));
    let spacing = (high - low) / count.saturating_sub(1).max(1) as f64;
    let sigma = (7.0 * spacing).max(1e-3);
    let filters: Vec<Vec<f64>> = (0..count)
        .map(|index| {
            let energy = low + spacing * index as f64;
            let gaussian = |x: &Option<f64>| x.map_or(0.0, |x| (-(x - energy).powi(2) / (2.0 * sigma * sigma)).exp());
            let filter: Vec<f64> = logarithms.iter().map(gaussian).collect();
            let total: f64 = filter.iter().sum();
            let scale = if total > 0.0 { total.recip() } else { 0.0 };
            filter.into_iter().map(|x| scale * x).collect()
        })
        .collect();
    signatures(basis, &filters)
}

/// `sum_k f_k |phi_k(p)|^2` for several filters.
fn signatures(basis: &Eigenbasis, filters: &[Vec<f64>]) -> Vec<f64> {
    let pairs = basis.len();
    if pairs == 0 {
        return Vec::new();
    }
    let width = if basis.order == 0 { pairs } else { 2 * pairs };
    let mut result = Vec::with_capacity(basis.vertex_count() * filters.len());
    let mut squares = vec![0.0; pairs];
    for row in basis.vectors.chunks_exact(width) {
        squares.fill(0.0);
        for part in row.chunks_exact(pairs) {
            for (square, value) in squares.iter_mut().zip(part) {
                *square += value * value;
            }
        }
        let dot = |filter: &Vec<f64>| filter.iter().zip(&squares).map(|(f, s)| f * s).sum::<f64>();
        result.extend(filters.iter().map(dot));
    }
    result
}
