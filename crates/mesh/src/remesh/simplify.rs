//! Simplification: edges collapse in the order of their quadric error.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use glam::DVec3;
use serde::{Deserialize, Serialize};

use super::cut::Cut;
use super::isotropic::at_corner;
use super::original::{Original, Place, shape, twice_area};
use super::quadric::Quadric;
use super::triangulation::NONE;
use super::{MeshSize, Remesh, RemeshError, Remeshed, finish};
use crate::mesh::Mesh;

/// Weight of the planes that keep borders in place, relative to the squared length of the edge.
const BORDER: f64 = 10.0;
/// Weight of the fourth power of the edge length, which orders collapses on flat surfaces.
const EVENNESS: f64 = 1e-6;
/// Minimum cosine between the normals of a triangle before and after a collapse.
const FACING: f64 = 0.3;
/// Shape of the thinnest triangles that a collapse may make of thicker ones.
const THINNEST: f64 = 0.1;

/// Fewer vertices: edges collapse in the order of their quadric error (Garland and Heckbert, 1997). A mesh that has no
/// more vertices than wanted is only triangulated.
///
/// Collapses that change the topology or turn a triangle over are skipped, so the number of vertices
/// can stay above the target. Vertices are off the original surface by about the approximation
/// error; sources are the nearest points. Vertices that no face uses are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simplify {
    /// Size of the result.
    pub size: MeshSize,
}

impl Remesh for Simplify {
    fn remesh(&self, mesh: &Mesh, _: u64) -> Result<Remeshed, RemeshError> {
        self.size.check()?;
        let original = Original::new(mesh);
        let cut = Cut::new(mesh);
        let target = self.size.vertices(mesh) + cut.copies();
        let mut simplifier = Simplifier::new(cut, &original);
        // Collapses that were skipped may be possible after others, so the queue is filled again.
        loop {
            let before = simplifier.cut.surface.vertex_count();
            simplifier.fill();
            simplifier.run(target);
            let after = simplifier.cut.surface.vertex_count();
            if after <= target || after == before {
                break;
            }
        }
        let Cut { surface, origin, locked } = &simplifier.cut;
        finish(surface, mesh.vertex_count(), locked, origin, |vertex| original.surface_point(simplifier.places[vertex]))
    }
}

struct Simplifier<'a> {
    cut: Cut,
    original: &'a Original<'a>,
    places: Vec<Place>,
    quadrics: Vec<Quadric>,
    /// Origin of the coordinates of the quadrics, near the surface to keep their precision.
    centre: DVec3,
    /// Collapses by cost: the bits of the cost, the edge, and its state when the cost was computed.
    queue: BinaryHeap<Reverse<(u64, u32, u32)>>,
    states: Vec<u32>,
}

impl<'a> Simplifier<'a> {
    fn new(cut: Cut, original: &'a Original<'a>) -> Self {
        let surface = &cut.surface;
        let centre = surface.positions.first().copied().unwrap_or_default();
        let mut quadrics = vec![Quadric::default(); surface.positions.len()];
        for half_edge in surface.half_edges() {
            let corners = surface.triangle(half_edge);
            let positions = corners.map(|v| surface.positions[v as usize] - centre);
            let normal = twice_area(positions);
            let direction = normal.normalize_or_zero();
            if half_edge % 3 == 0 {
                let plane = Quadric::of_plane(direction, positions[0], 0.5 * normal.length());
                for v in corners {
                    quadrics[v as usize].add(&plane);
                }
            }
            if surface.is_border(half_edge) {
                let along = positions[1] - positions[0];
                let across = direction.cross(along).normalize_or_zero();
                let weight = BORDER * along.length_squared();
                let plane = Quadric::of_plane(across, positions[0], weight);
                for &v in &corners[..2] {
                    quadrics[v as usize].add(&plane);
                }
            }
        }
        let places = surface.outgoing.iter().map(|&h| at_corner(h)).collect();
        let states = vec![0; surface.half_edge_slots() as usize];
        Self { cut, original, places, quadrics, centre, queue: BinaryHeap::new(), states }
    }

    /// Queues all edges.
    fn fill(&mut self) {
        let edges: Vec<u32> = self.cut.surface.edges().collect();
        edges.into_iter().for_each(|edge| self.offer(edge));
    }

    /// Queues an edge.
    fn offer(&mut self, edge: u32) {
        self.states[edge as usize] += 1;
        if let Some((cost, _)) = self.best_point(edge)
            && cost.is_finite()
        {
            let state = self.states[edge as usize];
            self.queue.push(Reverse((cost.to_bits(), edge, state)));
        }
    }

    /// Cost of a collapse, and the position of the remaining vertex; `None` if both ends are locked.
    /// A locked end stays, and an end on a border stays when the other is not on it.
    fn best_point(&self, edge: u32) -> Option<(f64, DVec3)> {
        let surface = &self.cut.surface;
        let ends = surface.ends(edge);
        let [from, to] = surface.segment(edge);
        let mut quadric = self.quadrics[ends[0] as usize];
        quadric.add(&self.quadrics[ends[1] as usize]);
        let length = from.distance_squared(to);
        let cost = |p: DVec3| quadric.value(p - self.centre) + EVENNESS * length * length;
        let rank = |v: u32| (self.cut.locked[v as usize], surface.on_border(v));
        let middle = from.midpoint(to);
        let point = match (rank(ends[0]), rank(ends[1])) {
            ((true, _), (true, _)) => return None,
            (a, b) if a > b => from,
            (a, b) if a < b => to,
            ((_, true), _) => cheapest(cost, [from, to, middle]),
            _ => match quadric.minimum().map(|p| p + self.centre) {
                // A minimum far from the edge is a sign of nearly parallel planes.
                Some(p) if p.distance_squared(middle) < length => p,
                _ => cheapest(cost, [from, to, middle]),
            },
        };
        Some((cost(point), point))
    }

    /// Collapses edges until there are `target` vertices or the queue is empty.
    fn run(&mut self, target: usize) {
        while self.cut.surface.vertex_count() > target {
            let Some(Reverse((_, edge, state))) = self.queue.pop() else { return };
            if self.states[edge as usize] != state || !self.cut.surface.is_edge(edge) {
                continue;
            }
            if let Some((_, point)) = self.best_point(edge)
                && self.cut.surface.can_collapse(edge)
                && self.keeps_orientation(edge, point)
            {
                self.collapse(edge, point);
            }
        }
    }

    fn collapse(&mut self, edge: u32, point: DVec3) {
        let [kept, removed] = self.cut.surface.ends(edge).map(|v| v as usize);
        let walks = [kept, removed].map(|v| self.original.walk(self.places[v].triangle, point));
        self.places[kept] = if walks[1].1 < walks[0].1 { walks[1].0 } else { walks[0].0 };
        let quadric = self.quadrics[removed];
        self.quadrics[kept].add(&quadric);
        if self.cut.locked[removed] {
            self.cut.locked[kept] = true;
            self.cut.origin[kept] = self.cut.origin[removed];
        }
        self.cut.surface.collapse(edge, point);
        let surface = &self.cut.surface;
        let mut edges: Vec<u32> = Vec::with_capacity(16);
        for half_edge in surface.around(kept as u32) {
            edges.push(surface.first_side(half_edge));
            let incoming = surface.incoming(half_edge);
            if surface.twin[incoming as usize] == NONE {
                edges.push(incoming);
            }
        }
        edges.into_iter().for_each(|edge| self.offer(edge));
    }

    /// True if no triangle around the ends of the edge turns over, or becomes much thinner, when they
    /// move to `point`.
    fn keeps_orientation(&self, edge: u32, point: DVec3) -> bool {
        let surface = &self.cut.surface;
        let ends = surface.ends(edge);
        (0..2).all(|end| {
            surface.around(ends[end]).all(|half_edge| {
                let [a, b, c] = surface.triangle(half_edge);
                if b == ends[1 - end] || c == ends[1 - end] {
                    return true;
                }
                let [a, b, c] = [a, b, c].map(|v| surface.positions[v as usize]);
                let (before, after) = (twice_area([a, b, c]), twice_area([point, b, c]));
                let limit = FACING * before.length() * after.length();
                let faces_alike = before.dot(after) > limit || before == DVec3::ZERO;
                faces_alike && shape([point, b, c]) >= THINNEST.min(0.9 * shape([a, b, c]))
            })
        })
    }
}

/// The point with the least cost.
fn cheapest(cost: impl Fn(DVec3) -> f64, points: [DVec3; 3]) -> DVec3 {
    let [first, rest @ ..] = points;
    let mut best = (cost(first), first);
    for point in rest {
        let value = cost(point);
        if value < best.0 {
            best = (value, point);
        }
    }
    best.1
}
