//! Isosurface extraction: marching tetrahedra on a cubic lattice.
//!
//! Every cube is cut into six tetrahedra around its main diagonal. All cubes are cut alike, so
//! adjacent cubes agree on their common face. A tetrahedron has only two kinds of crossing (one
//! corner or two corners inside), and neither is ambiguous. The surface is a closed manifold if the
//! function is positive on the whole border of the lattice.

use glam::DVec3;
use rayon::prelude::*;

/// Steps from a lattice point to the corners of its cube; edges of tetrahedra run along them.
const STEPS: [[usize; 3]; 8] = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]];
/// Corners of the six tetrahedra as indices into `STEPS`, each positively oriented.
const TETRAHEDRA: [[usize; 4]; 6] =
    [[0, 1, 3, 7], [0, 3, 2, 7], [0, 2, 6, 7], [0, 6, 4, 7], [0, 4, 5, 7], [0, 5, 1, 7]];
/// Minimum distance of a crossing from the ends of its lattice edge, as a fraction of the edge, so
/// that crossings do not coincide.
const CLEARANCE: f64 = 0.1;
const NONE: u32 = u32::MAX;

/// A cubic lattice, parallel to the axes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lattice {
    /// Position of the first lattice point.
    pub(crate) low: DVec3,
    pub(crate) spacing: f64,
    /// Number of points along each axis, at least one.
    pub(crate) size: [usize; 3],
}

impl Lattice {
    /// Number of points.
    pub(crate) fn len(&self) -> usize {
        self.size.iter().product()
    }

    /// Index of a point; x varies fastest.
    pub(crate) fn index(&self, [x, y, z]: [usize; 3]) -> usize {
        (z * self.size[1] + y) * self.size[0] + x
    }

    /// The point with a given index.
    pub(crate) fn point(&self, index: usize) -> [usize; 3] {
        let [nx, ny, _] = self.size;
        [index % nx, index / nx % ny, index / (nx * ny)]
    }

    /// Position of a point.
    pub(crate) fn position(&self, [x, y, z]: [usize; 3]) -> DVec3 {
        self.low + self.spacing * DVec3::new(x as f64, y as f64, z as f64)
    }

    /// Steps of the index along the edges of tetrahedra that start at a point.
    pub(crate) fn steps(&self) -> [usize; 7] {
        std::array::from_fn(|i| self.index(STEPS[i + 1]))
    }
}

/// The zero set of `value` between `low` and `high`, for a function that is negative inside.
/// Triangles are oriented outwards. The lattice spacing is about `spacing`.
pub(crate) fn isosurface(
    value: impl Fn(DVec3) -> f64 + Sync,
    low: DVec3,
    high: DVec3,
    spacing: f64,
) -> (Vec<DVec3>, Vec<[u32; 3]>) {
    let cells = ((high - low) / spacing).to_array();
    let lattice = Lattice { low, spacing, size: cells.map(|cells| cells.ceil() as usize + 1) };
    let values: Vec<f64> = (0..lattice.len())
        .into_par_iter()
        .with_min_len(1024)
        .map(|i| value(lattice.position(lattice.point(i))))
        .collect();
    march_lattice(&lattice, &values, |along| along.clamp(CLEARANCE, 1.0 - CLEARANCE))
}

/// The zero set of a function given by its values on a lattice, negative inside. Triangles are
/// oriented outwards. Crossings are interpolated linearly. `adjust` maps their position along the
/// lattice edge, from 0 to 1, to the one that is used.
pub(crate) fn march_lattice(
    lattice: &Lattice,
    values: &[f64],
    adjust: impl Fn(f64) -> f64,
) -> (Vec<DVec3>, Vec<[u32; 3]>) {
    let [nx, ny, nz] = lattice.size;
    let mut vertices = Vec::new();
    let mut triangles = Vec::new();
    // Crossing on the edge from a lattice point along each step, for two layers of points.
    let layer = nx * ny;
    let mut crossings = vec![[NONE; 8]; 2 * layer];
    for z in 0..nz - 1 {
        if z > 0 {
            crossings.copy_within(layer.., 0);
            crossings[layer..].fill([NONE; 8]);
        }
        for y in 0..ny - 1 {
            for x in 0..nx - 1 {
                let corner = |step: usize| {
                    let [dx, dy, dz] = STEPS[step];
                    [x + dx, y + dy, z + dz]
                };
                let corner_values: [f64; 8] = std::array::from_fn(|step| values[lattice.index(corner(step))]);
                let inside = corner_values.map(|value| value < 0.0);
                if inside == [true; 8] || inside == [false; 8] {
                    continue;
                }
                let mut crossing = |a: usize, b: usize| {
                    // For every edge of a tetrahedron, the bits of one corner's step contain those
                    // of the other's.
                    let (from, to) = (a.min(b), a.max(b));
                    let slot = &mut crossings[lattice.index(corner(from)) - z * layer][from ^ to];
                    if *slot == NONE {
                        let (start, end) = (corner_values[from], corner_values[to]);
                        let along = adjust(start / (start - end));
                        *slot = vertices.len() as u32;
                        let [start, end] = [from, to].map(|step| lattice.position(corner(step)));
                        vertices.push(start.lerp(end, along));
                    }
                    *slot
                };
                for tetrahedron in TETRAHEDRA {
                    march(tetrahedron, &inside, &mut crossing, &mut triangles);
                }
            }
        }
    }
    (vertices, triangles)
}

/// Triangles of one tetrahedron, oriented towards its outside corners.
fn march(
    corners: [usize; 4],
    inside: &[bool; 8],
    crossing: &mut impl FnMut(usize, usize) -> u32,
    triangles: &mut Vec<[u32; 3]>,
) {
    /// Even permutations that move any one corner, or any two, to the front.
    const FRONT: [[usize; 4]; 4] = [[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]];
    const PAIRS: [[usize; 4]; 6] = [[0, 1, 2, 3], [0, 2, 3, 1], [0, 3, 1, 2], [1, 2, 0, 3], [1, 3, 2, 0], [2, 3, 0, 1]];
    let is_inside = corners.map(|corner| inside[corner]);
    let count = is_inside.iter().filter(|&&inside| inside).count();
    match count {
        1 | 3 => {
            for order in FRONT.iter().filter(|order| is_inside[order[0]] == (count == 1)) {
                let [i, j, k, l] = order.map(|place| corners[place]);
                let [first, second, third] = [crossing(i, j), crossing(i, k), crossing(i, l)];
                triangles.push(if count == 1 { [first, second, third] } else { [first, third, second] });
            }
        }
        2 => {
            for order in PAIRS.iter().filter(|order| is_inside[order[0]] && is_inside[order[1]]) {
                let [i, j, k, l] = order.map(|place| corners[place]);
                let [ik, il, jl, jk] = [crossing(i, k), crossing(i, l), crossing(j, l), crossing(j, k)];
                triangles.extend([[ik, il, jl], [ik, jl, jk]]);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Faces, Mesh, MeshReport};

    #[test]
    fn isosurfaces_are_closed_and_outward_with_the_right_genus() {
        let sphere = |p: DVec3| p.length() - 0.8;
        let ring = |p: DVec3| (p.truncate().length() - 0.6).hypot(p.z) - 0.25;
        let extent = DVec3::splat(1.0);
        for (triangles, genus, volume) in
            [(isosurface(sphere, -extent, extent, 0.07), 0, 2.145), (isosurface(ring, -extent, extent, 0.07), 1, 0.740)]
        {
            let (vertices, triangles) = triangles;
            let enclosed: f64 = triangles
                .iter()
                .map(|t| {
                    let [a, b, c] = t.map(|v| vertices[v as usize]);
                    a.dot(b.cross(c)) / 6.0
                })
                .sum();
            assert!((enclosed / volume - 1.0).abs() < 0.03, "{enclosed}");
            let faces: Faces = triangles.iter().collect();
            let report = MeshReport::new(&Mesh::new(vertices, faces).unwrap());
            assert!(report.is_sound() && report.closed, "{report:?}");
            assert_eq!(report.genus, Some(genus));
        }
    }
}
