//! Eigendecomposition of symmetric 3x3 matrices.

use crate::DVec3;
use glam::DMat3;

/// Maximum number of sweeps over the three off-diagonal entries. After five, any matrix is diagonal up to rounding.
const MAX_SWEEPS: usize = 16;

/// Eigenvalues of a symmetric matrix in descending order, and orthonormal eigenvectors, by Jacobi
/// rotations. The result is accurate to rounding even for equal eigenvalues. No library functions
/// are used, so it is the same on every platform.
pub(crate) fn symmetric_eigen(matrix: DMat3) -> ([f64; 3], [DVec3; 3]) {
    let mut a = matrix.to_cols_array_2d();
    let mut vectors = DVec3::AXES;
    for _ in 0..MAX_SWEEPS {
        let off_diagonal = a[0][1].abs() + a[0][2].abs() + a[1][2].abs();
        let diagonal = a[0][0].abs() + a[1][1].abs() + a[2][2].abs();
        if off_diagonal <= f64::EPSILON * f64::EPSILON * diagonal {
            break;
        }
        for (p, q) in [(0, 1), (0, 2), (1, 2)] {
            if a[p][q] == 0.0 {
                continue;
            }
            // Tangent of the smaller of the two angles that make the entry zero.
            let theta = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
            let tangent = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
            let cosine = 1.0 / (tangent * tangent + 1.0).sqrt();
            let sine = tangent * cosine;
            let r = 3 - p - q;
            a[p][p] -= tangent * a[p][q];
            a[q][q] += tangent * a[p][q];
            (a[p][q], a[q][p]) = (0.0, 0.0);
            let (rp, rq) = (a[r][p], a[r][q]);
            a[r][p] = cosine * rp - sine * rq;
            a[r][q] = sine * rp + cosine * rq;
            (a[p][r], a[q][r]) = (a[r][p], a[r][q]);
            let (vp, vq) = (vectors[p], vectors[q]);
            vectors[p] = cosine * vp - sine * vq;
            vectors[q] = sine * vp + cosine * vq;
        }
    }
    let mut order = [0, 1, 2];
    order.sort_by(|&i, &j| a[j][j].total_cmp(&a[i][i]));
    (order.map(|i| a[i][i]), order.map(|i| vectors[i]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use glam::DQuat;

    #[test]
    fn eigenvectors_diagonalise_any_spectrum() {
        let turn = DMat3::from_quat(DQuat::from_xyzw(0.3, -0.5, 0.7, 0.4).normalize());
        for spectrum in [
            [3.0, 2.0, 1.0],
            [5.0, 5.0, 1.0],
            [1.0, 1.0, 1.0],
            [1.0, 1e-9, 0.0],
            [1e-200, 1e-201, 0.0],
            [0.0, 0.0, 0.0],
        ] {
            let matrix = turn * DMat3::from_diagonal(DVec3::from_array(spectrum)) * turn.transpose();
            let (values, vectors) = symmetric_eigen(matrix);
            let scale = spectrum[0].max(f64::MIN_POSITIVE);
            for i in 0..3 {
                assert!((values[i] - spectrum[i]).abs() <= 1e-15 * scale);
                let rest = matrix * vectors[i] - values[i] * vectors[i];
                assert!(rest.length() <= 3e-15 * scale, "{rest} of {spectrum:?}");
                for j in 0..3 {
                    let expected = if i == j { 1.0 } else { 0.0 };
                    assert!((vectors[i].dot(vectors[j]) - expected).abs() < 1e-14);
                }
            }
        }
    }
}
