//! Distances made consistent with the triangles: sweeps that lay triangles out in the plane.

use crate::classes::bucket;
use glam::DVec2;

/// Sweeps end when no distance changes by more than this part of itself.
const SETTLED: f64 = 1e-10;
/// Limit of the number of sweeps. Two or three are common.
const MAX_SWEEPS: usize = 64;

/// The triangles around each vertex.
#[derive(Debug, Clone)]
pub(super) struct Fans {
    offsets: Vec<u32>,
    corners: Vec<Corner>,
}

/// A triangle seen from one of its corners.
#[derive(Debug, Clone, Copy, Default)]
struct Corner {
    /// The other two corners.
    others: [u32; 2],
    /// Lengths of the sides to them.
    sides: [f64; 2],
    /// Length of the side between them.
    base: f64,
    /// Not finite if they lie on one point: then no source is seen between them.
    inverse_base: f64,
    /// Where this corner lies when the first of the others is at the origin, the second on the x axis.
    apex: DVec2,
}

impl Fans {
    /// The triangles around each vertex, given the lengths of their sides opposite to each corner.
    pub(super) fn new(vertices: usize, triangles: &[[u32; 3]], sides: &[[f64; 3]]) -> Self {
        let corners = triangles.iter().zip(sides).flat_map(|(corners, lengths)| {
            [0, 1, 2].map(|own| {
                let (first, second) = ((own + 1) % 3, (own + 2) % 3);
                let base = lengths[own];
                let sides = [lengths[second], lengths[first]];
                let corner = Corner {
                    others: [corners[first], corners[second]],
                    sides,
                    base,
                    inverse_base: base.recip(),
                    apex: apex(base, sides),
                };
                (corners[own], corner)
            })
        });
        let (offsets, corners) = bucket(vertices, corners);
        Self { offsets, corners }
    }

    /// Distances from a source; infinite on other components. `others` lists the other vertices roughly
    /// by distance.
    ///
    /// The distance of a vertex is the least that its triangles give it: along a side, or from a source
    /// that lies where the distances of the two other corners put it, laid out in the plane of the triangle,
    /// if it is seen through the side between them. This is exact on flat pieces.
    pub(super) fn distances(&self, source: u32, others: &[u32]) -> Vec<f64> {
        let mut distances = vec![f64::INFINITY; self.offsets.len() - 1];
        distances[source as usize] = 0.0;
        // Whether a neighbour has changed since the vertex was last looked at.
        let mut due = vec![true; distances.len()];
        for _ in 0..MAX_SWEEPS {
            let mut settled = true;
            for &vertex in others {
                let vertex = vertex as usize;
                if !std::mem::take(&mut due[vertex]) {
                    continue;
                }
                let before = distances[vertex];
                let fan = self.offsets[vertex] as usize..self.offsets[vertex + 1] as usize;
                let fan = &self.corners[fan];
                let least = fan.iter().fold(before, |least, corner| {
                    let known = corner.others.map(|other| distances[other as usize]);
                    corner.shorter(known, least)
                });
                if before - least > SETTLED * least {
                    distances[vertex] = least;
                    settled = false;
                    for other in fan.iter().flat_map(|corner| corner.others) {
                        due[other as usize] = true;
                    }
                }
            }
            if settled {
                break;
            }
        }
        distances
    }
}

impl Corner {
    /// The distance of this corner, given those of the other two, or `least` if that is shorter.
    fn shorter(&self, [first, second]: [f64; 2], least: f64) -> f64 {
        if first.min(second) >= least {
            return least;
        }
        let least = least.min(first + self.sides[0]).min(second + self.sides[1]);
        if !(first.is_finite() && second.is_finite()) {
            return least;
        }
        let x = 0.5 * (self.base + (first - second) * (first + second) * self.inverse_base);
        let depth_squared = (first - x) * (first + x);
        let source = DVec2::new(x, -depth_squared.sqrt());
        let height = self.apex.y - source.y;
        // Where the straight line to the source crosses the base, times the height. There is no such
        // source if the depth is not a number, and then no comparison holds.
        let crossing = self.apex.x * height + (source.x - self.apex.x) * self.apex.y;
        let squared = self.apex.distance_squared(source);
        let is_seen = height > 0.0 && (0.0..=self.base * height).contains(&crossing);
        if is_seen && squared < least * least { squared.sqrt() } else { least }
    }
}

/// The third corner of a triangle over a base from the origin along the x axis.
fn apex(base: f64, [first, second]: [f64; 2]) -> DVec2 {
    if base == 0.0 {
        return DVec2::ZERO;
    }
    let x = 0.5 * (base + (first - second) * (first + second) / base);
    let height_squared = (first - x) * (first + x);
    DVec2::new(x, height_squared.max(0.0).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_seen_straight_or_along_a_side() {
        // Base from (0, 0) to (2, 0), this corner at (1, 1).
        let sides = [2f64.sqrt(); 2];
        let corner = Corner { others: [0, 1], sides, base: 2.0, inverse_base: 0.5, apex: apex(2.0, sides) };
        assert!((corner.apex - DVec2::ONE).length() < 1e-15);
        for (source, expected) in [
            (DVec2::new(1.0, -3.0), 4.0),
            (DVec2::new(0.5, -1.0), 4.25f64.sqrt()),
            (DVec2::ZERO, 2f64.sqrt()),
            // Out of sight: round the corner at the origin.
            (DVec2::new(-3.0, 0.0), 3.0 + 2f64.sqrt()),
        ] {
            let known = [DVec2::ZERO, DVec2::new(2.0, 0.0)].map(|other| other.distance(source));
            assert!((corner.shorter(known, f64::INFINITY) - expected).abs() < 1e-14, "{source}");
        }
        assert_eq!(corner.shorter([1.0, 1.0], 0.5), 0.5);
        // Distances that differ by more than the base, and one that is not known yet.
        assert_eq!(corner.shorter([1.0, 9.0], f64::INFINITY), 1.0 + sides[0]);
        assert_eq!(corner.shorter([f64::INFINITY, 2.0], f64::INFINITY), 2.0 + sides[1]);
        let flat = Corner { base: 0.0, inverse_base: f64::INFINITY, apex: apex(0.0, sides), ..corner };
        assert_eq!(flat.shorter([1.0, 1.0], f64::INFINITY), 1.0 + sides[0]);
    }
}
