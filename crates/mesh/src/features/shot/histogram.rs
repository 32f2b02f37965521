//! The SHOT descriptor: histograms of normals over the parts of the ball around a vertex.

use super::{ShotFrame, SupportPoint};
use crate::geometry::atan2;
use std::f64::consts::PI;

const AZIMUTHS: usize = 8;
const ELEVATIONS: usize = 2;
const SHELLS: usize = 2;
const COSINES: usize = 11;

/// Number of scalars in a descriptor: 32 parts of the ball with 11 bins each.
pub const DESCRIPTOR_LENGTH: usize = AZIMUTHS * ELEVATIONS * SHELLS * COSINES;

/// Adds the support to a row of zeros and normalises it to unit length.
pub(super) fn histogram(frame: &ShotFrame, support: &[SupportPoint], row: &mut [f64]) {
    for point in support {
        let [x, y, z] = frame.coordinates(point.offset);
        let azimuth = around(0.5 * (atan2(y, x) / PI + 1.0), AZIMUTHS);
        let elevation = between(atan2(z, (x * x + y * y).sqrt()) / PI + 0.5, ELEVATIONS);
        let shell = between(point.distance, SHELLS);
        let cosine = between(0.5 * (frame.z.dot(point.normal) + 1.0), COSINES);
        for (azimuth, by_azimuth) in azimuth {
            for (elevation, by_elevation) in elevation {
                for (shell, by_shell) in shell {
                    let part = (azimuth * ELEVATIONS + elevation) * SHELLS + shell;
                    let weight = by_azimuth * by_elevation * by_shell;
                    for (cosine, by_cosine) in cosine {
                        row[part * COSINES + cosine] += weight * by_cosine;
                    }
                }
            }
        }
    }
    let length = row.iter().map(|value| value * value).sum::<f64>().sqrt();
    if length > 0.0 {
        for value in row {
            *value /= length;
        }
    }
}

/// The two bins nearest to a position in [0, 1], divided into `bins` bins, and their weights.
/// Before the centre of the first bin or after that of the last, that bin has the whole weight.
fn between(place: f64, bins: usize) -> [(usize, f64); 2] {
    let last = bins - 1;
    let from_centre = (place * bins as f64 - 0.5).clamp(0.0, last as f64);
    let lower = (from_centre as usize).min(last - 1);
    let upper_weight = from_centre - lower as f64;
    [(lower, 1.0 - upper_weight), (lower + 1, upper_weight)]
}

/// As [`between`], but on a circle: the last bin is adjacent to the first.
fn around(place: f64, bins: usize) -> [(usize, f64); 2] {
    let from_centre = place * bins as f64 + bins as f64 - 0.5;
    let lower = from_centre as usize;
    let upper_weight = from_centre - lower as f64;
    [(lower % bins, 1.0 - upper_weight), ((lower + 1) % bins, upper_weight)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DVec3;

    #[test]
    fn bin_weights_are_linear_and_add_up_to_one() {
        assert_eq!(between(0.0, 2), [(0, 1.0), (1, 0.0)]);
        assert_eq!(between(0.5, 2), [(0, 0.5), (1, 0.5)]);
        assert_eq!(between(1.0, 2), [(0, 0.0), (1, 1.0)]);
        assert_eq!(between(0.625, 4), [(2, 1.0), (3, 0.0)]);
        assert_eq!(around(0.0, 8), [(7, 0.5), (0, 0.5)]);
        assert_eq!(around(1.0, 8), [(7, 0.5), (0, 0.5)]);
        assert_eq!(around(0.1875, 8), [(1, 1.0), (2, 0.0)]);
        for step in 0..=1000 {
            let place = f64::from(step) / 1000.0;
            for bins in [between(place, 11), around(place, 8)] {
                assert!((bins[0].1 + bins[1].1 - 1.0).abs() < 1e-12);
                assert!(bins.iter().all(|(_, weight)| (0.0..=1.0).contains(weight)));
            }
        }
    }

    #[test]
    fn a_vertex_at_the_centre_of_a_bin_is_counted_there_alone() {
        let frame = ShotFrame { x: DVec3::X, y: DVec3::Y, z: DVec3::Z, reliability: 1.0 };
        // Azimuth 5 (centre at 67.5 degrees, counted from -180), upper half (45 degrees), outer
        // shell (3/4 of the radius), cosine 0: bin 5 of 11.
        let (sin, cos) = (67.5f64).to_radians().sin_cos();
        let offset = 0.75 * 0.5f64.sqrt() * DVec3::new(cos, sin, 1.0);
        let point = SupportPoint { offset, distance: offset.length(), normal: DVec3::X };
        let mut row = vec![0.0; DESCRIPTOR_LENGTH];
        histogram(&frame, &[point], &mut row);
        let at = ((5 * 2 + 1) * 2 + 1) * 11 + 5;
        for (bin, value) in row.iter().enumerate() {
            let expected = if bin == at { 1.0 } else { 0.0 };
            assert!((value - expected).abs() < 1e-12, "bin {bin}: {value}");
        }
    }
}
