//! The steps of isotropic remeshing, for any surface that can guide them.
//!
//! Each round splits long edges, collapses short ones, flips edges so that degrees approach six,
//! and moves vertices along the surface to the middle of their neighbours. Borders keep their
//! corners, and locked vertices stay where they are.

use glam::DVec3;
use rayon::prelude::*;

use super::cut::Cut;
use super::triangulation::{NONE, Triangulation};

/// Edges are split above, and collapsed below, these multiples of the target length.
const SPLIT: f64 = 4.0 / 3.0;
const COLLAPSE: f64 = 4.0 / 5.0;
/// Minimum cosine between the normals of a new triangle and of the surface.
const FACING: f64 = 0.4;
/// Minimum cosine of the turn of a border at a vertex that may be removed (20 degrees).
const STRAIGHT: f64 = 0.94;
/// Number of split passes per round.
const SPLIT_PASSES: usize = 8;
/// Maximum number of rounds that add or remove single vertices; a few suffice.
const COUNT_ROUNDS: usize = 40;

/// The surface that a triangulation approximates.
pub(crate) trait Guide: Sync {
    /// Where a vertex lies on the surface.
    type Place: Copy + Send + Sync;
    /// Minimum cosine between the normals of two triangles whose common edge may be flipped.
    const CREASE: f64;
    /// Whether a vertex stays where the relaxation would turn a triangle over.
    const CHECKS_RELAXATION: bool;

    /// The unit normal at a vertex.
    fn normal(&self, at: DVec3, place: Self::Place) -> DVec3;
    /// The unit normal near a triangle.
    fn normal_near(&self, corners: [DVec3; 3], places: [Self::Place; 3]) -> DVec3;
    /// The point of the surface nearest to `point`, searched from `near`.
    fn project(&self, point: DVec3, near: Self::Place) -> (DVec3, Self::Place);
    /// Position of a new vertex in the middle of an edge with the given ends.
    fn split_point(&self, middle: DVec3, ends: [Self::Place; 2]) -> (DVec3, Self::Place);
    /// Target edge length near a point, where `base` is the length for the whole surface.
    fn edge_length(&self, point: DVec3, base: f64) -> f64;
}

/// A triangulation and the surface it approximates.
pub(crate) struct Remesher<'a, G: Guide> {
    pub(crate) surface: Triangulation,
    pub(crate) guide: &'a G,
    /// Target edge length, before the local factor of the guide.
    pub(crate) base: f64,
    /// No edges are split at this number of vertices.
    pub(crate) most_vertices: usize,
    /// Where every vertex lies on the guide.
    pub(crate) places: Vec<G::Place>,
    /// For each vertex, true if it must not move or disappear.
    pub(crate) locked: Vec<bool>,
    /// Vertex of the original mesh for each locked vertex.
    pub(crate) origin: Vec<u32>,
    /// Target edge length at every vertex.
    wanted: Vec<f64>,
}

impl<'a, G: Guide> Remesher<'a, G> {
    pub(crate) fn new(cut: Cut, guide: &'a G, base: f64, place: impl FnMut(u32) -> G::Place) -> Self {
        let vertices = cut.surface.positions.len();
        let mut remesher = Self {
            guide,
            base,
            most_vertices: usize::MAX,
            places: (0..vertices as u32).map(place).collect(),
            locked: cut.locked,
            origin: cut.origin,
            wanted: Vec::new(),
            surface: cut.surface,
        };
        remesher.measure();
        remesher
    }

    pub(crate) fn round(&mut self) {
        self.split_long_edges();
        self.collapse_short_edges();
        self.flip_for_degrees();
        self.flip_for_angles();
        self.relax();
    }

    /// Computes the target edge lengths at all vertices.
    pub(crate) fn measure(&mut self) {
        self.wanted = self.surface.positions.par_iter().map(|&p| self.guide.edge_length(p, self.base)).collect();
    }

    /// Length of an edge relative to its target length.
    fn relative_length(&self, edge: u32) -> f64 {
        let [from, to] = self.surface.segment(edge);
        let [a, b] = self.surface.ends(edge).map(|v| self.wanted[v as usize]);
        from.distance(to) / (0.5 * (a + b))
    }

    /// Splits an edge in half, unless it is a cut. Returns whether it was split.
    fn split(&mut self, edge: u32) -> bool {
        let ends = self.surface.ends(edge);
        let is_cut = self.surface.is_border(edge) && ends.iter().all(|&v| self.locked[v as usize]);
        if is_cut || self.surface.vertex_count() >= self.most_vertices {
            return false;
        }
        let [from, to] = self.surface.segment(edge);
        let [a, b] = ends.map(|v| self.wanted[v as usize]);
        let places = ends.map(|v| self.places[v as usize]);
        let (middle, place) = self.guide.split_point(from.midpoint(to), places);
        self.surface.split(edge, middle);
        self.wanted.push(0.5 * (a + b));
        self.places.push(place);
        self.locked.push(false);
        self.origin.push(NONE);
        true
    }

    /// Splits long edges in half, longest first. In another order, flat triangles can create new
    /// long edges without end.
    fn split_long_edges(&mut self) {
        for _ in 0..SPLIT_PASSES {
            let mut long: Vec<(u64, u32)> = self.edges_by_length();
            long.retain(|&(length, _)| f64::from_bits(length) > SPLIT);
            let mut any = false;
            for &(_, edge) in long.iter().rev() {
                any |= self.split(edge);
            }
            if !any {
                return;
            }
        }
    }

    /// All edges, shortest first, with the bits of their relative lengths. The bits of non-negative
    /// numbers have the order of the numbers.
    fn edges_by_length(&self) -> Vec<(u64, u32)> {
        let mut edges: Vec<(u64, u32)> =
            self.surface.edges().map(|edge| (self.relative_length(edge).to_bits(), edge)).collect();
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

    /// Collapses the edge, unless that breaks the topology, inverts a triangle or leaves an edge
    /// longer than `longest` times its target length. The remaining vertex is the midpoint; an end
    /// that is locked or on a border stays.
    pub(crate) fn try_collapse(&mut self, edge: u32, longest: f64) -> bool {
        let ends = self.surface.ends(edge);
        let Some(stays) = self.end_that_stays(edge) else { return false };
        if !self.surface.can_collapse(edge) {
            return false;
        }
        let (middle, place) = match stays {
            End::Neither => {
                let [from, to] = self.surface.segment(edge);
                let near = self.places[ends[0] as usize];
                self.guide.project(from.midpoint(to), near)
            }
            End::At(end) => {
                let vertex = ends[end] as usize;
                (self.surface.positions[vertex], self.places[vertex])
            }
        };
        let surface = &self.surface;
        let sound = (0..2).all(|end| {
            let (kept, other) = (ends[end], ends[1 - end]);
            surface.around(kept).all(|half_edge| {
                let [_, b, c] = surface.triangle(half_edge);
                if b == other || c == other {
                    return true;
                }
                let [b_at, c_at] = [b, c].map(|v| surface.positions[v as usize]);
                let [b_place, c_place] = [b, c].map(|v| self.places[v as usize]);
                let limit = longest * 0.5 * (self.wanted[kept as usize] + self.wanted[b as usize]);
                b_at.distance(middle) < limit && self.faces_outwards([middle, b_at, c_at], [place, b_place, c_place])
            })
        });
        if sound {
            self.surface.collapse(edge, middle);
            let kept = ends[0] as usize;
            self.places[kept] = place;
            if let End::At(end) = stays {
                let from = ends[end] as usize;
                self.locked[kept] = self.locked[from];
                self.origin[kept] = self.origin[from];
            }
        }
        sound
    }

    /// The end of an edge that stays in place in a collapse; `None` if both must.
    fn end_that_stays(&self, edge: u32) -> Option<End> {
        let ends = self.surface.ends(edge);
        let locked = ends.map(|v| self.locked[v as usize]);
        let border = ends.map(|v| self.surface.on_border(v));
        match (locked, border) {
            ([true, true], _) => None,
            // A locked vertex replaces a vertex of a border only along a straight border.
            ([true, false], [_, true]) => self.is_straight(ends[1]).then_some(End::At(0)),
            ([false, true], [true, _]) => self.is_straight(ends[0]).then_some(End::At(1)),
            ([true, false], _) | (_, [true, false]) => Some(End::At(0)),
            ([false, true], _) | (_, [false, true]) => Some(End::At(1)),
            (_, [true, true]) => (0..2).find(|&end| self.is_straight(ends[1 - end])).map(End::At),
            _ => Some(End::Neither),
        }
    }

    /// True if the border hardly turns at a vertex.
    fn is_straight(&self, vertex: u32) -> bool {
        let mut neighbours = self.surface.neighbours(vertex);
        let (Some(first), Some(last)) = (neighbours.next(), neighbours.last()) else { return false };
        let [p, here, q] = [first, vertex, last].map(|v| self.surface.positions[v as usize]);
        let (arriving, leaving) = (here - p, q - here);
        arriving.dot(leaving) > STRAIGHT * arriving.length() * leaving.length()
    }

    /// Flips edges if that brings the degrees of the four vertices closer to six.
    fn flip_for_degrees(&mut self) {
        let mut degrees: Vec<i32> =
            (0..self.surface.positions.len() as u32).map(|vertex| self.surface.degree(vertex) as i32).collect();
        for edge in 0..self.surface.half_edge_slots() {
            if !self.surface.is_edge(edge) {
                continue;
            }
            let ([a, b], [c, d]) = (self.surface.ends(edge), self.surface.opposite(edge));
            let excess = [a, b, c, d].map(|v| {
                let regular = if self.surface.on_border(v) { 4 } else { 6 };
                degrees[v as usize] - regular
            });
            let cost = |changes: [i32; 4]| -> i32 {
                (excess.iter().zip(changes)).map(|(excess, change)| (excess + change).pow(2)).sum()
            };
            if cost([-1, -1, 1, 1]) < cost([0; 4]) && self.surface.can_flip(edge) && self.flip_keeps_orientation(edge) {
                self.surface.flip(edge);
                for (vertex, change) in [(a, -1), (b, -1), (c, 1), (d, 1)] {
                    degrees[vertex as usize] += change;
                }
            }
        }
    }

    /// True if the edge is no crease and both triangles are oriented outwards after a flip.
    fn flip_keeps_orientation(&self, edge: u32) -> bool {
        let ([a, b], [c, d]) = (self.surface.ends(edge), self.surface.opposite(edge));
        let position = |v: u32| self.surface.positions[v as usize];
        if G::CREASE > -1.0 {
            let [one, other] = [[a, b, c], [b, a, d]].map(|t| normal(t.map(position)));
            if one.dot(other) < G::CREASE * one.length() * other.length() {
                return false;
            }
        }
        [[a, d, c], [b, c, d]].into_iter().all(|triangle| {
            let places = triangle.map(|v| self.places[v as usize]);
            self.faces_outwards(triangle.map(position), places)
        })
    }

    /// True if a triangle is roughly parallel to the surface and oriented outwards.
    fn faces_outwards(&self, corners: [DVec3; 3], places: [G::Place; 3]) -> bool {
        let normal = normal(corners);
        let outwards = self.guide.normal_near(corners, places);
        normal.dot(outwards) > FACING * normal.length()
    }

    /// Flips edges whose opposite angles sum to more than pi (the Delaunay condition), which
    /// increases the smallest angle. Degrees stay between 4 and 8.
    pub(crate) fn flip_for_angles(&mut self) {
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
            let degrees_allow = || {
                self.surface.ends(edge).iter().all(|&v| self.surface.degree(v) > 4)
                    && opposite.iter().all(|&v| self.surface.degree(v) < 8)
            };
            if angles[0] + angles[1] > std::f64::consts::PI + 1e-6
                && degrees_allow()
                && self.surface.can_flip(edge)
                && self.flip_keeps_orientation(edge)
            {
                self.surface.flip(edge);
            }
        }
    }

    /// Moves every vertex along the surface to the weighted mean of the triangles around it. The
    /// weight of a triangle is its area divided by the squared target edge length.
    pub(crate) fn relax(&mut self) {
        let surface = &self.surface;
        let moved: Vec<(DVec3, G::Place)> = (0..surface.positions.len() as u32)
            .into_par_iter()
            .with_min_len(256)
            .map(|vertex| {
                let (here, place) = (surface.positions[vertex as usize], self.places[vertex as usize]);
                if self.locked[vertex as usize] || surface.outgoing[vertex as usize] == NONE {
                    return (here, place);
                }
                if surface.on_border(vertex) {
                    return self.guide.project(here, place);
                }
                let (mut middle, mut weights) = (DVec3::ZERO, 0.0);
                for half_edge in surface.around(vertex) {
                    let [_, b, c] = surface.triangle(half_edge);
                    let [b_at, c_at] = [b, c].map(|v| surface.positions[v as usize]);
                    let wanted = self.wanted[b as usize] + self.wanted[c as usize];
                    let weight = area([here, b_at, c_at]) / (wanted * wanted);
                    middle += weight * (here + b_at + c_at) / 3.0;
                    weights += weight;
                }
                if weights == 0.0 {
                    return (here, place);
                }
                let step = middle / weights - here;
                let normal = self.guide.normal(here, place);
                let flat = here + step - step.dot(normal) * normal;
                let (moved, moved_place) = self.guide.project(flat, place);
                if G::CHECKS_RELAXATION && !self.fits(vertex, moved, moved_place) && self.fits(vertex, here, place) {
                    return self.guide.project(here, place);
                }
                (moved, moved_place)
            })
            .collect();
        (self.surface.positions, self.places) = moved.into_iter().unzip();
        self.measure();
    }

    /// True if no triangle around a vertex turns over when it moves.
    fn fits(&self, vertex: u32, to: DVec3, place: G::Place) -> bool {
        let surface = &self.surface;
        surface.around(vertex).all(|half_edge| {
            let [_, b, c] = surface.triangle(half_edge);
            let [b_at, c_at] = [b, c].map(|v| surface.positions[v as usize]);
            let [b_place, c_place] = [b, c].map(|v| self.places[v as usize]);
            self.faces_outwards([to, b_at, c_at], [place, b_place, c_place])
        })
    }

    /// Collapses the shortest or splits the longest edges until there are `vertices` vertices.
    pub(crate) fn reach_count(&mut self, vertices: usize) {
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
                if quad.iter().any(|&v| touched.get(v as usize).is_none_or(|&touched| touched)) {
                    continue;
                }
                let done = if count > vertices { self.try_collapse(edge, f64::INFINITY) } else { self.split(edge) };
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

/// What happens to the ends of an edge that is collapsed.
enum End {
    /// Both move to the midpoint.
    Neither,
    /// The end with this index stays.
    At(usize),
}

/// Normal of a triangle, with twice its area as length.
fn normal([a, b, c]: [DVec3; 3]) -> DVec3 {
    (b - a).cross(c - a)
}

/// Area of a triangle.
pub(crate) fn area(corners: [DVec3; 3]) -> f64 {
    0.5 * normal(corners).length()
}
