//! Colours: the sRGB curve, a colour map for numbers and a palette for labels.
//!
//! Shading and averaging are done in linear RGB, where light is additive. The colour map and the palette are
//! formulas in Oklab, where equal distances look about equal.

use std::f32::consts::TAU;

use glam::Vec3;

/// Linear intensity of every sRGB byte.
pub(super) fn linear_table() -> [f32; 256] {
    std::array::from_fn(|byte| {
        let value = byte as f32 / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    })
}

/// sRGB byte of a linear intensity, which is clamped to 0 to 1.
pub(super) fn srgb_byte(linear: f32) -> u8 {
    let linear = linear.clamp(0.0, 1.0);
    let value = if linear <= 0.003_130_8 { 12.92 * linear } else { 1.055 * linear.powf(1.0 / 2.4) - 0.055 };
    (255.0 * value).round() as u8
}

/// The colour of a number from 0 to 1, as sRGB: from dark violet-blue over teal and green to bright yellow.
///
/// Lightness increases evenly, so the map also works in greyscale. Numbers outside of 0 to 1 are clamped. NaN
/// is grey.
///
/// ```
/// use gemcnn_view::render::colour_map;
/// let grey = |[r, g, b]: [u8; 3]| u32::from(r) * 2 + u32::from(g) * 7 + u32::from(b);
/// assert!(grey(colour_map(0.1)) < grey(colour_map(0.6)));
/// assert_eq!(colour_map(7.0), colour_map(1.0));
/// ```
pub fn colour_map(t: f64) -> [u8; 3] {
    if t.is_nan() {
        return [128, 128, 128];
    }
    let t = t.clamp(0.0, 1.0) as f32;
    let lightness = 0.28 + 0.64 * t;
    let chroma = 0.095 + 0.075 * (2.0 * t - 1.0).powi(2);
    let hue = (295.0 - 190.0 * t).to_radians();
    oklch(lightness, chroma, hue)
}

/// The colour of a number from 0 to 1 on a scale with a neutral middle at 0.5, as sRGB: blue below, near white in the
/// middle, red above.
///
/// Lightness falls evenly to both sides. Numbers outside of 0 to 1 are clamped. NaN is grey.
///
/// ```
/// use gemcnn_view::render::diverging_map;
/// let [low, high] = [diverging_map(0.0), diverging_map(1.0)];
/// assert!(low[2] > low[0] && high[0] > high[2]);
/// ```
pub fn diverging_map(t: f64) -> [u8; 3] {
    if t.is_nan() {
        return [128, 128, 128];
    }
    let side = 2.0 * t.clamp(0.0, 1.0) as f32 - 1.0;
    let hue = if side < 0.0 { 255.0f32 } else { 28.0 };
    let strength = side.abs();
    oklch(0.95 - 0.5 * strength, 0.17 * strength, hue.to_radians())
}

/// The colour of a label, as sRGB. Consecutive labels differ strongly, and the first forty are all distinct.
///
/// ```
/// use gemcnn_view::render::label_colour;
/// assert_ne!(label_colour(0), label_colour(1));
/// ```
pub fn label_colour(label: u32) -> [u8; 3] {
    // Hues at multiples of the golden ratio never repeat. Where they come close, after 8, 13, 21 or 34
    // steps, the lightness differs.
    const GOLDEN_RATIO: f64 = 0.618_033_988_749_894_9;
    const LIGHTNESS: [f32; 5] = [0.66, 0.82, 0.49, 0.74, 0.57];
    let hue = (f64::from(label) * GOLDEN_RATIO + 0.72).fract() as f32;
    oklch(LIGHTNESS[label as usize % 5], 0.15, TAU * hue)
}

/// sRGB of a colour in the polar form of Oklab. Chroma is reduced until the colour is in the sRGB gamut.
fn oklch(lightness: f32, chroma: f32, hue: f32) -> [u8; 3] {
    let linear = |chroma: f32| oklab_to_linear(lightness, chroma * hue.cos(), chroma * hue.sin());
    let in_gamut = |rgb: Vec3| rgb.min_element() >= 0.0 && rgb.max_element() <= 1.0;
    let mut most = chroma;
    if !in_gamut(linear(chroma)) {
        // Bisection between grey, which is in the gamut, and the requested chroma, which is not.
        let (mut low, mut high) = (0.0, chroma);
        for _ in 0..16 {
            most = 0.5 * (low + high);
            if in_gamut(linear(most)) {
                low = most;
            } else {
                high = most;
            }
        }
    }
    linear(most).to_array().map(srgb_byte)
}

/// Oklab to linear RGB, by the published matrices.
fn oklab_to_linear(lightness: f32, a: f32, b: f32) -> Vec3 {
    let l = (lightness + 0.396_337_78 * a + 0.215_803_76 * b).powi(3);
    let m = (lightness - 0.105_561_346 * a - 0.063_854_17 * b).powi(3);
    let s = (lightness - 0.089_484_18 * a - 1.291_485_5 * b).powi(3);
    Vec3::new(
        4.076_741_7 * l - 3.307_711_6 * m + 0.230_969_94 * s,
        -1.268_438 * l + 2.609_757_4 * m - 0.341_319_4 * s,
        -0.004_196_086_3 * l - 0.703_418_6 * m + 1.707_614_7 * s,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn luminance(colour: [u8; 3]) -> f32 {
        let [r, g, b] = colour.map(|byte| linear_table()[byte as usize]);
        0.2126 * r + 0.7152 * g + 0.0722 * b
    }

    #[test]
    fn the_srgb_curve_and_its_inverse_agree_on_every_byte() {
        for (byte, linear) in linear_table().into_iter().enumerate() {
            assert_eq!(srgb_byte(linear) as usize, byte);
        }
        assert_eq!((srgb_byte(-1.0), srgb_byte(2.0)), (0, 255));
    }

    #[test]
    fn oklab_greys_are_grey() {
        let white = oklab_to_linear(1.0, 0.0, 0.0);
        assert!((white - Vec3::ONE).abs().max_element() < 1e-3, "{white}");
        let [r, g, b] = oklch(0.5, 0.0, 1.0);
        assert!(r == g && g == b && r > 80 && r < 110, "{r} {g} {b}");
    }

    #[test]
    fn the_map_grows_lighter_all_the_way_in_small_steps() {
        let colours: Vec<[u8; 3]> = (0..=100).map(|i| colour_map(f64::from(i) / 100.0)).collect();
        for pair in colours.windows(2) {
            assert!(luminance(pair[0]) < luminance(pair[1]), "{pair:?}");
            let step = (0..3).map(|i| pair[0][i].abs_diff(pair[1][i])).max();
            assert!(step.unwrap() <= 10, "{pair:?}");
        }
        assert_eq!(colour_map(f64::NAN), [128, 128, 128]);
        assert_eq!(colour_map(f64::NEG_INFINITY), colours[0]);
    }

    #[test]
    fn both_sides_of_the_diverging_map_grow_darker_alike() {
        for i in 1..=10 {
            let [near, far] = [i - 1, i].map(|step| f64::from(step) / 20.0);
            let [low, high] = [0.5 - far, 0.5 + far].map(|t| luminance(diverging_map(t)));
            assert!(low < luminance(diverging_map(0.5 - near)));
            assert!(high < luminance(diverging_map(0.5 + near)));
            assert!((low - high).abs() < 0.06, "{i}: {low} {high}");
        }
        let [r, g, b] = diverging_map(0.5);
        assert!(r.abs_diff(g) < 3 && g.abs_diff(b) < 3 && r > 225);
        assert_eq!(diverging_map(f64::NAN), [128, 128, 128]);
    }

    #[test]
    fn labels_look_different() {
        let distance = |a: [u8; 3], b: [u8; 3]| (0..3).map(|i| u32::from(a[i].abs_diff(b[i]))).sum::<u32>();
        for a in 0..40 {
            for b in 0..a {
                let apart = distance(label_colour(a), label_colour(b));
                assert!(apart > 24, "labels {a} and {b} are {apart} apart");
            }
            assert!(distance(label_colour(a), label_colour(a + 1)) > 100);
        }
        label_colour(u32::MAX);
    }
}
