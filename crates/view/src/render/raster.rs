//! The rasteriser. Bands of rows are drawn in parallel, each with its own depth buffer.

use glam::{DVec2, Vec3};
use rayon::prelude::*;

use super::colour::{linear_table, srgb_byte};
use super::soup::{Soup, Triangle};
use super::{Picture, RenderOptions};

/// Rows of pixels per band.
const BAND: u32 = 16;
/// Smallest barycentric coordinate of a point inside. It is negative so that rounding leaves no gaps between
/// adjacent triangles.
const TOLERANCE: f64 = -1e-7;

/// Tint of the key light.
const WARM: Vec3 = Vec3::new(1.05, 1.0, 0.93);
/// Tint of the ambient light.
const COOL: Vec3 = Vec3::new(0.88, 0.98, 1.16);
/// Opacity of edges over the surface.
const WIRE_OPACITY: f32 = 0.7;

/// Draws the triangles. Of two at the same depth the first one is visible.
pub(super) fn draw(soup: &Soup, options: &RenderOptions) -> Picture {
    let bands = Bands::sort(soup, options);
    let painter = Painter::new(options);
    let (width, height) = (options.width, options.height);
    let mut pixels = vec![[0; 4]; width as usize * height as usize];
    pixels.par_chunks_mut((BAND * width) as usize).enumerate().for_each(|(band, pixels)| {
        let mut samples = Samples::new(band as u32, options);
        for &triangle in bands.triangles(band) {
            let triangle = &soup.triangles[triangle as usize];
            samples.draw(soup, triangle, &painter);
        }
        samples.average(pixels, options);
    });
    Picture::new(width, height, pixels)
}

/// The triangles that overlap each band, in their order, as compressed rows.
struct Bands {
    starts: Vec<usize>,
    triangles: Vec<u32>,
}

impl Bands {
    fn sort(soup: &Soup, options: &RenderOptions) -> Self {
        let count = options.height.div_ceil(BAND) as usize;
        let rows = (BAND * options.supersampling) as f32;
        let reach = |triangle: &Triangle| {
            let ys = soup.positions_of(triangle).map(|position| position.y);
            let low = ys.into_iter().fold(f32::INFINITY, f32::min);
            let high = ys.into_iter().fold(f32::NEG_INFINITY, f32::max);
            // The triangle covers no row of samples.
            if (low - 0.5).ceil() > (high - 0.5).floor() {
                return 0..0;
            }
            let first = (low / rows).floor().max(0.0) as usize;
            let last = (high / rows).floor().max(-1.0) + 1.0;
            first..(last as usize).min(count)
        };
        let reaches: Vec<_> = soup.triangles.par_iter().map(reach).collect();
        let mut starts = vec![0; count + 1];
        for band in reaches.iter().cloned().flatten() {
            starts[band + 1] += 1;
        }
        for band in 0..count {
            starts[band + 1] += starts[band];
        }
        let mut next = starts.clone();
        let mut triangles = vec![0; starts[count]];
        for (triangle, reach) in reaches.into_iter().enumerate() {
            for band in reach {
                triangles[next[band]] = triangle as u32;
                next[band] += 1;
            }
        }
        Self { starts, triangles }
    }

    fn triangles(&self, band: usize) -> &[u32] {
        &self.triangles[self.starts[band]..self.starts[band + 1]]
    }
}

/// Lights, and the style of edges.
struct Painter {
    wire_colour: Vec3,
    /// Half the width of an edge in samples. Negative if edges are not drawn.
    wire_reach: f64,
    key_light: Vec3,
    halfway: Vec3,
}

impl Painter {
    fn new(options: &RenderOptions) -> Self {
        let linear = linear_table();
        let key_light = Vec3::new(-0.5, 0.65, 0.7).normalize();
        Self {
            wire_colour: options.wire_colour.map(|byte| linear[byte as usize]).into(),
            wire_reach: if options.wireframe {
                0.5 * options.wire_width * f64::from(options.supersampling)
            } else {
                -1.0
            },
            key_light,
            halfway: (key_light + Vec3::Z).normalize(),
        }
    }

    /// Colour of a lit surface: a warm key light from the upper left, a weaker light at the eye, a cool ambient
    /// light that is stronger from above, and a faint highlight.
    fn light(&self, normal: Vec3, colour: Vec3) -> Vec3 {
        let normal = normal.try_normalize().unwrap_or(Vec3::Z);
        let key = 0.80 * normal.dot(self.key_light).max(0.0);
        let head = 0.12 * normal.z.max(0.0);
        let ambient = 0.13 + 0.10 * normal.y;
        let gloss = 0.05 * normal.dot(self.halfway).max(0.0).powi(24);
        colour * (key * WARM + Vec3::splat(head) + ambient * COOL) + gloss
    }
}

/// Depths and colours of the samples of one band.
struct Samples {
    columns: usize,
    rows: usize,
    /// Row of samples in the picture where the band starts.
    first_row: usize,
    depths: Vec<f32>,
    colours: Vec<Vec3>,
}

impl Samples {
    fn new(band: u32, options: &RenderOptions) -> Self {
        let per_side = options.supersampling as usize;
        let first_row = (band * BAND) as usize;
        let columns = options.width as usize * per_side;
        let rows = (options.height as usize - first_row).min(BAND as usize) * per_side;
        Self {
            columns,
            rows,
            first_row: first_row * per_side,
            depths: vec![f32::NEG_INFINITY; columns * rows],
            colours: vec![Vec3::ZERO; columns * rows],
        }
    }

    fn draw(&mut self, soup: &Soup, triangle: &Triangle, painter: &Painter) {
        let positions = soup.positions_of(triangle);
        let [a, b, c] = positions.map(|p| p.truncate().as_dvec2());
        // y points down here, so a triangle that faces the eye is clockwise.
        let twice_area = (c - a).perp_dot(b - a);
        if twice_area.abs() < 1e-12 {
            return;
        }
        let side = if twice_area > 0.0 { 1.0 } else { -1.0 };
        let normals = soup.normals_of(triangle).map(|normal| side * normal);
        let paint = soup.paint_of(triangle);
        let depths = positions.map(|position| position.z);
        // The distance from the side opposite a corner is the barycentric coordinate times the height.
        let heights = [c - b, a - c, b - a].map(|edge| twice_area.abs() / edge.length());

        let low = a.min(b).min(c);
        let high = a.max(b).max(c);
        let first_row = self.first_row as f64;
        for row in covered(low.y - first_row, high.y - first_row, self.rows) {
            for column in covered(low.x, high.x, self.columns) {
                let sample = DVec2::new(column as f64 + 0.5, row as f64 + 0.5 + first_row);
                let of_b = (c - a).perp_dot(sample - a) / twice_area;
                let of_c = (sample - a).perp_dot(b - a) / twice_area;
                let weights = [1.0 - of_b - of_c, of_b, of_c];
                if weights.iter().any(|&weight| weight < TOLERANCE) {
                    continue;
                }
                let mean = |values: [f32; 3]| {
                    weights[0] as f32 * values[0] + weights[1] as f32 * values[1] + weights[2] as f32 * values[2]
                };
                let depth = mean(depths);
                let index = row * self.columns + column;
                if depth <= self.depths[index] {
                    continue;
                }
                self.depths[index] = depth;
                let mean = |values: [Vec3; 3]| {
                    weights[0] as f32 * values[0] + weights[1] as f32 * values[1] + weights[2] as f32 * values[2]
                };
                let on_wire = (0..3).any(|i| triangle.edges[i] && weights[i] * heights[i] <= painter.wire_reach);
                let distances = std::array::from_fn(|i| (weights[i] * heights[i]) as f32);
                let colour = paint.at(weights.map(|weight| weight as f32), distances);
                let surface = painter.light(mean(normals), colour);
                self.colours[index] = if on_wire { surface.lerp(painter.wire_colour, WIRE_OPACITY) } else { surface };
            }
        }
    }

    /// Averages the samples of each pixel and blends them with the background.
    fn average(&self, pixels: &mut [[u8; 4]], options: &RenderOptions) {
        let linear = linear_table();
        let [red, green, blue, opacity] = options.background;
        let background = Vec3::from([red, green, blue].map(|byte| linear[byte as usize]));
        let opacity = f32::from(opacity) / 255.0;
        let per_side = options.supersampling as usize;
        let sample_count = (per_side * per_side) as f32;
        for (pixel_index, pixel) in pixels.iter_mut().enumerate() {
            let row = pixel_index / options.width as usize * per_side;
            let column = pixel_index % options.width as usize * per_side;
            let mut light = Vec3::ZERO;
            let mut covered = 0;
            for row in row..row + per_side {
                let start = row * self.columns + column;
                for index in start..start + per_side {
                    if self.depths[index] > f32::NEG_INFINITY {
                        light += self.colours[index];
                        covered += 1;
                    }
                }
            }
            if covered == 0 {
                *pixel = options.background;
                continue;
            }
            let coverage = covered as f32 / sample_count;
            let behind = (1.0 - coverage) * opacity;
            let alpha = coverage + behind;
            let colour = (light / sample_count + behind * background) / alpha;
            let [red, green, blue] = colour.to_array().map(srgb_byte);
            *pixel = [red, green, blue, (255.0 * alpha).round() as u8];
        }
    }
}

/// Indices, out of `count` samples in a line, of those with centres from `low` to `high`.
fn covered(low: f64, high: f64, count: usize) -> std::ops::Range<usize> {
    let first = (low - 0.5).ceil().max(0.0) as usize;
    let end = ((high - 0.5).floor() + 1.0).max(0.0) as usize;
    first..end.min(count)
}
