//! Isotropic remeshing: even triangles of a given size, and an exact number of vertices.
//!
//! Each round splits long edges, collapses short ones, flips edges so that degrees approach six,
//! and moves vertices along the surface to the middle of their neighbours. The number of vertices
//! follows from the edge length, which is corrected once. The remaining difference is removed at
//! the shortest or longest edges.

use glam::DVec3;
use rayon::prelude::*;

use super::surface::Skin;
use super::triangulation::Triangulation;

/// Edges are split above, and collapsed below, these multiples of the target length.
const SPLIT: f64 = 4.0 / 3.0;
const COLLAPSE: f64 = 4.0 / 5.0;
/// Number of steps of the search for the edge length.
const LENGTH_STEPS: usize = 5;
/// Minimum cosine between the normals of a new triangle and of the skin.
const FACING: f64 = 0.4;
/// Number of split passes per round.
const SPLIT_PASSES: usize = 8;
/// Maximum factor between the edge lengths of consecutive rounds.
const STAGE: f64 = 1.4;
/// Number of rounds before and after the correction of the edge length.
const FIRST_ROUNDS: usize = 4;
const LATER_ROUNDS: usize = 3;
/// Maximum number of rounds that add or remove single vertices; a few suffice.
const COUNT_ROUNDS: usize = 40;
/// Number of final rounds that keep the number of vertices.
const POLISH_ROUNDS: usize = 6;

/// Remeshes a closed surface near the skin, with edges of about `first_length`, to `vertices`
/// vertices on the skin, or as close to that number as its topology allows.
pub(super) fn remesh(
    surface: Triangulation,
    skin: &Skin,
    first_length: f64,
    vertices: usize,
) -> Triangulation {
    let sites = area_sites(&surface);
    let base = base_length(&sites, skin, vertices as f64);
    let mut remesher = Remesher {
        surface,
        skin,
        base: first_length,
        wanted: Vec::new(),
    };
    // Approach the target length gradually, so that the triangles stay well shaped.
    while remesher.base != base {
        remesher.base = base.clamp(remesher.base / STAGE, remesher.base * STAGE);
        remesher.measure();
        remesher.round();
    }
    for _ in 0..FIRST_ROUNDS {
        remesher.round();
    }
    let reached = remesher.surface.vertex_count() as f64;
    let corrected = vertices as f64 * vertices as f64 / reached;
    remesher.base = base_length(&sites, skin, corrected);
    remesher.measure();
    for _ in 0..LATER_ROUNDS {
        remesher.round();
    }
    remesher.reach_count(vertices);
    for _ in 0..POLISH_ROUNDS {
        remesher.flip_for_angles();
        remesher.relax();
    }
    remesher.flip_for_angles();
    remesher.surface.compacted()
}

/// Centroid and area of every triangle.
fn area_sites(surface: &Triangulation) -> Vec<(DVec3, f64)> {
    surface
        .triangles()
        .map(|triangle| {
            let corners = triangle.map(|v| surface.positions[v as usize]);
            (corners.iter().sum::<DVec3>() / 3.0, area(corners))
        })
        .collect()
}

/// The base edge length for which even triangles of the target sizes have `vertices` vertices. Each
/// vertex corresponds to two triangles of area `sqrt(3) / 4 * length^2`.
fn base_length(sites: &[(DVec3, f64)], skin: &Skin, vertices: f64) -> f64 {
    let count = |base: f64| {
        let density = 2.0 / 3.0_f64.sqrt();
        let shares = sites
            .par_iter()
            .map(|&(middle, area)| density * area / skin.edge_length(middle, base).powi(2));
        shares.collect::<Vec<f64>>().iter().sum::<f64>()
    };
    // The count is inversely proportional to the squared length, except for thin limbs and large
    // lengths.
    (0..LENGTH_STEPS).fold(0.02, |base, _| {
        base * (count(base) / vertices).sqrt().min(4.0)
    })
}

struct Remesher<'a> {
    surface: Triangulation,
    skin: &'a Skin,
    base: f64,
    /// Target edge length at every vertex.
    wanted: Vec<f64>,
}

impl Remesher<'_> {
    fn round(&mut self) {
        self.split_long_edges();
        self.collapse_short_edges();
        self.flip_for_degrees();
        self.flip_for_angles();
        self.relax();
    }

    /// Computes the target edge lengths at all vertices.
    fn measure(&mut self) {
        self.wanted = self
            .surface
            .positions
            .par_iter()
            .map(|&p| self.skin.edge_length(p, self.base))
            .collect();
    }

    /// Length of an edge relative to its target length.
    fn relative_length(&self, edge: u32) -> f64 {
        let [from, to] = self.surface.segment(edge);
        let [a, b] = self.surface.ends(edge).map(|v| self.wanted[v as usize]);
        from.distance(to) / (0.5 * (a + b))
    }

    fn split(&mut self, edge: u32) {
        let [from, to] = self.surface.segment(edge);
        let [a, b] = self.surface.ends(edge).map(|v| self.wanted[v as usize]);
        self.surface.split(edge, from.midpoint(to));
        self.wanted.push(0.5 * (a + b));
    }

    /// Splits long edges in half, longest first. In another order, flat triangles can create new
    /// long edges without end.
    fn split_long_edges(&mut self) {
        for _ in 0..SPLIT_PASSES {
            let mut long: Vec<(u64, u32)> = self.edges_by_length();
            long.retain(|&(length, _)| f64::from_bits(length) > SPLIT);
            if long.is_empty() {
                return;
            }
            for &(_, edge) in long.iter().rev() {
                self.split(edge);
            }
        }
    }

    /// All edges, shortest first, with the bits of their relative lengths. The bits of non-negative
    /// numbers have the order of the numbers.
    fn edges_by_length(&self) -> Vec<(u64, u32)> {
        let mut edges: Vec<(u64, u32)> = self
            .surface
            .edges()
            .map(|edge| (self.relative_length(edge).to_bits(), edge))
            .collect();
        edges.sort_unstable();
        edges
    }

    fn collapse_short_edges(&mut self) {
        for edge in 0..self.surface.half_edge_slots() {
            if self.surface.is_edge(edge) && self.relative_length(edge) < COLLAPSE {
                self.try_collapse(edge, SPLIT);
            }
        }
    }

    /// Collapses the edge to its midpoint, unless that breaks the topology, inverts a triangle or
    /// leaves an edge longer than `longest` times its target length.
    fn try_collapse(&mut self, edge: u32, longest: f64) -> bool {
        if !self.surface.can_collapse(edge) {
            return false;
        }
        let ends = self.surface.ends(edge);
        let [from, to] = self.surface.segment(edge);
        let middle = self.skin.project(from.midpoint(to));
        let surface = &self.surface;
        let sound = (0..2).all(|end| {
            let (kept, other) = (ends[end], ends[1 - end]);
            surface.around(kept).all(|half_edge| {
                let b = surface.ends(half_edge)[1];
                let [c, _] = surface.opposite(half_edge);
                if b == other || c == other {
                    return true;
                }
                let [b_at, c_at] = [b, c].map(|v| surface.positions[v as usize]);
                let limit = longest * 0.5 * (self.wanted[kept as usize] + self.wanted[b as usize]);
                b_at.distance(middle) < limit && self.faces_outwards([middle, b_at, c_at])
            })
        });
        if sound {
            self.surface.collapse(edge, middle);
        }
        sound
    }

    /// Flips edges if that brings the degrees of the four vertices closer to six.
    fn flip_for_degrees(&mut self) {
        let mut degrees: Vec<i32> = (0..self.surface.positions.len() as u32)
            .map(|vertex| self.surface.degree(vertex) as i32)
            .collect();
        for edge in 0..self.surface.half_edge_slots() {
            if !self.surface.is_edge(edge) {
                continue;
            }
            let ([a, b], [c, d]) = (self.surface.ends(edge), self.surface.opposite(edge));
            let excess = [a, b, c, d].map(|v| degrees[v as usize] - 6);
            let cost = |changes: [i32; 4]| -> i32 {
                (excess.iter().zip(changes))
                    .map(|(excess, change)| (excess + change).pow(2))
                    .sum()
            };
            if cost([-1, -1, 1, 1]) < cost([0; 4])
                && self.surface.can_flip(edge)
                && self.flip_keeps_orientation(edge)
            {
                self.surface.flip(edge);
                for (vertex, change) in [(a, -1), (b, -1), (c, 1), (d, 1)] {
                    degrees[vertex as usize] += change;
                }
            }
        }
    }

    /// True if both triangles are oriented outwards after a flip.
    fn flip_keeps_orientation(&self, edge: u32) -> bool {
        let [a, b] = self.surface.segment(edge);
        let opposite = self.surface.opposite(edge);
        let [c, d] = opposite.map(|v| self.surface.positions[v as usize]);
        self.faces_outwards([a, d, c]) && self.faces_outwards([b, c, d])
    }

    /// True if a triangle is roughly parallel to the skin and oriented outwards.
    fn faces_outwards(&self, [a, b, c]: [DVec3; 3]) -> bool {
        let normal = (b - a).cross(c - a);
        let outwards = self.skin.normal((a + b + c) / 3.0);
        normal.dot(outwards) > FACING * normal.length()
    }

    /// Flips edges whose opposite angles sum to more than pi (the Delaunay condition), which
    /// increases the smallest angle. Degrees stay between 4 and 8.
    fn flip_for_angles(&mut self) {
        for edge in 0..self.surface.half_edge_slots() {
            if !self.surface.is_edge(edge) {
                continue;
            }
            let [a, b] = self.surface.segment(edge);
            let opposite = self.surface.opposite(edge);
            let angles = opposite.map(|v| {
                let apex = self.surface.positions[v as usize];
                (a - apex).angle_between(b - apex)
            });
            let degrees_allow = self
                .surface
                .ends(edge)
                .iter()
                .all(|&v| self.surface.degree(v) > 4)
                && opposite.iter().all(|&v| self.surface.degree(v) < 8);
            if angles[0] + angles[1] > std::f64::consts::PI + 1e-6
                && degrees_allow
                && self.surface.can_flip(edge)
                && self.flip_keeps_orientation(edge)
            {
                self.surface.flip(edge);
            }
        }
    }

    /// Moves every vertex along the surface to the weighted mean of the triangles around it. The
    /// weight of a triangle is its area divided by the squared target edge length.
    fn relax(&mut self) {
        let surface = &self.surface;
        let moved: Vec<DVec3> = (0..surface.positions.len() as u32)
            .into_par_iter()
            .with_min_len(256)
            .map(|vertex| {
                let here = surface.positions[vertex as usize];
                let (mut middle, mut weights) = (DVec3::ZERO, 0.0);
                for half_edge in surface.around(vertex) {
                    let [_, b] = surface.ends(half_edge);
                    let [c, _] = surface.opposite(half_edge);
                    let [b_at, c_at] = [b, c].map(|v| surface.positions[v as usize]);
                    let wanted = self.wanted[b as usize] + self.wanted[c as usize];
                    let weight = area([here, b_at, c_at]) / (wanted * wanted);
                    middle += weight * (here + b_at + c_at) / 3.0;
                    weights += weight;
                }
                if weights == 0.0 {
                    return here;
                }
                let step = middle / weights - here;
                let normal = self.skin.normal(here);
                self.skin.project(here + step - step.dot(normal) * normal)
            })
            .collect();
        self.surface.positions = moved;
        self.measure();
    }

    /// Collapses the shortest or splits the longest edges until there are `vertices` vertices.
    fn reach_count(&mut self, vertices: usize) {
        for _ in 0..COUNT_ROUNDS {
            let count = self.surface.vertex_count();
            if count == vertices {
                return;
            }
            let mut edges = self.edges_by_length();
            if count < vertices {
                edges.reverse();
            }
            // At most one edit per neighbourhood and round keeps the stored edge lengths valid.
            let mut touched = vec![false; self.surface.positions.len()];
            let mut missing = count.abs_diff(vertices);
            for (_, edge) in edges {
                if missing == 0 {
                    break;
                }
                if !self.surface.is_edge(edge) {
                    continue;
                }
                let quad = [self.surface.ends(edge), self.surface.opposite(edge)].concat();
                if quad
                    .iter()
                    .any(|&v| touched.get(v as usize).is_none_or(|&touched| touched))
                {
                    continue;
                }
                let done = if count > vertices {
                    self.try_collapse(edge, f64::INFINITY)
                } else {
                    self.split(edge);
                    true
                };
                if done {
                    quad.iter().for_each(|&v| touched[v as usize] = true);
                    missing -= 1;
                }
            }
            self.flip_for_degrees();
            self.relax();
        }
    }
}

fn area([a, b, c]: [DVec3; 3]) -> f64 {
    0.5 * (b - a).cross(c - a).length()
}
