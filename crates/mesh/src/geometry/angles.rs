//! Angles of many vectors at once.
//!
//! The arc tangent is a polynomial that compiles to the vector instructions of the machine,
//! selected at run time. It is an order of magnitude faster than one library call per vector. It
//! uses additions, products and divisions only, so the result has the same bits on every platform.

use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};

/// Replaces every `y` by the angle of `(x, y)`, in [-pi, pi].
pub(super) fn angles(y: &mut [f64], x: &[f64]) {
    pulp::Arch::new().dispatch(|| {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = atan2(*y, x);
        }
    });
}

/// Coefficients of `(atan(z) / z - 1) / z^2` in powers of `z^2`, for `|z| <= tan(pi / 8)`: the
/// polynomial that interpolates at the Chebyshev points. The relative error of `atan(z)` is 5e-18,
/// far below rounding.
const SERIES: [f64; 11] = [
    -0.3333333333333333,
    0.19999999999995516,
    -0.14285714284665682,
    0.11111111015187018,
    -0.0909090457530649,
    0.07692183125376892,
    -0.06664510525508936,
    0.05858140904866328,
    -0.050854078345894844,
    0.03923044778479309,
    -0.019175404711104935,
];

/// The angle of `(x, y)` to two units in the last place. The angle of `(0, 0)` is 0.
#[inline(always)]
pub(crate) fn atan2(y: f64, x: f64) -> f64 {
    const TAN_EIGHTH: f64 = std::f64::consts::SQRT_2 - 1.0;
    let (across, along) = (y.abs(), x.abs());
    let (low, high) = (across.min(along), across.max(along));
    // tan(a - pi/4) = (t - 1) / (t + 1): both cases of the reduction share one division.
    let steep = low > TAN_EIGHTH * high;
    let numerator = if steep { low - high } else { low };
    let denominator = if steep { low + high } else { high };
    let z = numerator / denominator.max(f64::MIN_POSITIVE);
    let w = z * z;
    // Two interleaved Horner schemes, in w^2.
    let v = w * w;
    let even = ((((SERIES[10] * v + SERIES[8]) * v + SERIES[6]) * v + SERIES[4]) * v + SERIES[2]) * v + SERIES[0];
    let odd = (((SERIES[9] * v + SERIES[7]) * v + SERIES[5]) * v + SERIES[3]) * v + SERIES[1];
    let reduced = z + z * w * (even + odd * w);
    let octant = if steep { FRAC_PI_4 + reduced } else { reduced };
    let quadrant = if across > along { FRAC_PI_2 - octant } else { octant };
    let half = if x < 0.0 { PI - quadrant } else { quadrant };
    half.copysign(y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_equal_the_library_to_rounding_everywhere() {
        let mut x = Vec::new();
        let mut y = Vec::new();
        for step in 0..200_000 {
            let angle = PI * (step as f64 / 100_000.0 - 1.0);
            let radius = 2f64.powi(step % 600 - 300);
            x.push(radius * angle.cos());
            y.push(radius * angle.sin());
        }
        for (a, b) in [
            (0.0, 0.0),
            (0.0, -1.0),
            (-0.0, 1.0),
            (1.0, 0.0),
            (-1.0, 0.0),
            (1.0, 1.0),
            (-3.0, -3.0),
            (f64::MIN_POSITIVE, 1.0),
            (5e-324, -2.0),
            (1e300, -1e-300),
        ] {
            y.push(a);
            x.push(b);
        }
        let expected: Vec<f64> = y.iter().zip(&x).map(|(y, x)| y.atan2(*x)).collect();
        angles(&mut y, &x);
        for (ours, library) in y.iter().zip(expected) {
            let error = (ours - library).abs();
            assert!(error <= 4.5e-16 * library.abs(), "{ours} is not {library}");
        }
    }
}
