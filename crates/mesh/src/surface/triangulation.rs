//! Intrinsic Delaunay triangulation of the tufted cover of a mesh.
//!
//! The tufted cover (Sharp and Crane, *A Laplacian for Nonmanifold Triangle Meshes*, 2020) has two
//! copies of every triangle, a front and a back. Around every edge the copies are glued in a
//! cycle: the side of each triangle to the opposite side of the next. The cover is a closed,
//! oriented surface, whatever the mesh is, so edge flips need no special cases.

use super::SurfaceError;
use super::metric::{heron_area, mean_side, mollification, side_lengths};
use crate::Mesh;
use crate::classes::bucket;
use crate::points::PointIndex;
use crate::triangulate::triangle_corners;
use std::collections::HashMap;

/// An edge is flipped if its weight is below the negative of this fraction of the cotangents.
const TOLERANCE: f64 = 1e-10;
/// Limit of the number of edges examined per side of the cover. Closed bodies need about 2.
const MAX_STEPS_PER_SIDE: usize = 64;

/// Nodes of a mesh: its vertices, with coincident vertices merged, and those that no triangle reaches joined to the
/// nearest others.
#[derive(Debug, Clone)]
pub(super) struct Nodes {
    /// Node of every vertex.
    pub(super) of_vertex: Vec<u32>,
    /// Vertex that represents a node: the first one that a triangle uses, if any.
    pub(super) representative: Vec<u32>,
    /// Number of vertices at the position of every node.
    pub(super) count: Vec<u32>,
    /// True for vertices that joined a node at another position.
    pub(super) is_apart: Vec<bool>,
}

/// Triangles over nodes, without those that repeat a node.
pub(super) struct Welded {
    pub(super) nodes: Nodes,
    pub(super) triangles: Vec<[u32; 3]>,
}

impl Welded {
    /// Triangulates the faces of a mesh and merges vertices at exactly equal positions. What no triangle reaches joins
    /// the nearest node of a triangle.
    pub(super) fn new(mesh: &Mesh) -> Self {
        let positions = mesh.vertices();
        let mut found = HashMap::with_capacity(positions.len());
        let mut representative = Vec::new();
        let mut of_vertex: Vec<u32> = (0u32..)
            .zip(positions)
            .map(|(vertex, position)| {
                // Adding zero maps -0 to 0.
                let key = position.to_array().map(|x| (x + 0.0).to_bits());
                *found.entry(key).or_insert_with(|| {
                    representative.push(vertex);
                    representative.len() as u32 - 1
                })
            })
            .collect();
        let mut corners = triangle_corners(mesh);
        corners.retain(|corners| {
            let [a, b, c] = corners.map(|corner| of_vertex[corner as usize]);
            a != b && b != c && c != a
        });
        let mut is_corner = vec![false; positions.len()];
        for &corner in corners.iter().flatten() {
            is_corner[corner as usize] = true;
        }
        let mut is_reached = vec![false; representative.len()];
        for (vertex, &node) in (0u32..).zip(&of_vertex) {
            let node = node as usize;
            if is_corner[vertex as usize] && !is_reached[node] {
                is_reached[node] = true;
                representative[node] = vertex;
            }
        }
        if !corners.is_empty() && is_reached.contains(&false) {
            join_nearest(mesh, &is_reached, &mut of_vertex, &mut representative);
        }
        let mut count = vec![0; representative.len()];
        let places = positions.iter().zip(&of_vertex);
        let is_apart: Vec<bool> = places
            .map(|(position, &node)| {
                let is_apart = *position != positions[representative[node as usize] as usize];
                count[node as usize] += u32::from(!is_apart);
                is_apart
            })
            .collect();
        let triangles = corners.into_iter().map(|corners| corners.map(|corner| of_vertex[corner as usize])).collect();
        Self { nodes: Nodes { of_vertex, representative, count, is_apart }, triangles }
    }
}

/// Keeps the nodes that triangles reach. The vertices of the others join the nearest of them.
fn join_nearest(mesh: &Mesh, is_reached: &[bool], of_vertex: &mut [u32], representative: &mut Vec<u32>) {
    let position = |node: usize| mesh.vertices()[representative[node] as usize];
    let (kept, others): (Vec<usize>, Vec<usize>) = (0..is_reached.len()).partition(|&node| is_reached[node]);
    let points: Vec<_> = kept.iter().map(|&node| position(node)).collect();
    let index = PointIndex::new(&points);
    let mut number = vec![0; is_reached.len()];
    for (new, &node) in (0..).zip(&kept) {
        number[node] = new;
    }
    for node in others {
        number[node] = index.nearest(position(node)).map_or(0, |found| found.point);
    }
    for node in of_vertex {
        *node = number[*node as usize];
    }
    *representative = kept.iter().map(|&node| representative[node]).collect();
}

/// Weights and masses of an intrinsic Delaunay triangulation.
pub(super) struct Weights {
    /// Distinct pairs of nodes, lower first, sorted.
    pub(super) edges: Vec<[u32; 2]>,
    /// Cotangent weight of every edge, positive.
    pub(super) weights: Vec<f64>,
    /// A third of the area of the triangles around every node.
    pub(super) mass: Vec<f64>,
    /// Area of the mesh.
    pub(super) area: f64,
}

/// Cotangent weights and lumped masses of the intrinsic Delaunay triangulation, halved because the
/// cover has every triangle twice.
pub(super) fn delaunay_weights(mesh: &Mesh, welded: &Welded) -> Result<Weights, SurfaceError> {
    let mut cover = Cover::new(mesh, welded)?;
    cover.flip_to_delaunay();
    let nodes = welded.nodes.representative.len();
    let mut mass = vec![0.0; nodes];
    let mut area = 0.0;
    let mut sides = Vec::with_capacity(cover.tail.len());
    for triangle in 0..cover.tail.len() / 3 {
        let first = 3 * triangle;
        let lengths = [0, 1, 2].map(|side| cover.length[first + side]);
        let own_area = heron_area(lengths);
        area += 0.5 * own_area;
        let [l0, l1, l2] = lengths.map(|length| length * length);
        // A quarter of the cotangent sum: half of the usual weight.
        let scale = 1.0 / (16.0 * own_area);
        let halves = [l1 + l2 - l0, l2 + l0 - l1, l0 + l1 - l2].map(|cosine| cosine * scale);
        for (side, half) in halves.into_iter().enumerate() {
            let from = cover.tail[first + side];
            let to = cover.tail[first + (side + 1) % 3];
            mass[from as usize] += own_area / 6.0;
            if from != to {
                sides.push((from.min(to), (from.max(to), half)));
            }
        }
    }
    let (offsets, mut grouped) = bucket(nodes, sides.iter().copied());
    let (mut edges, mut weights) = (Vec::new(), Vec::new());
    for (low, row) in (0u32..).zip(offsets.windows(2)) {
        let row = &mut grouped[row[0] as usize..row[1] as usize];
        row.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        for group in row.chunk_by(|a, b| a.0 == b.0) {
            let weight: f64 = group.iter().map(|(_, weight)| weight).sum();
            if weight > 0.0 {
                edges.push([low, group[0].0]);
                weights.push(weight);
            }
        }
    }
    Ok(Weights { edges, weights, mass, area })
}

/// A closed oriented surface of triangles. Side `3 t + i` of triangle `t` leads from its corner `i`
/// to its corner `i + 1`.
struct Cover {
    /// Node at the start of every side.
    tail: Vec<u32>,
    /// Side of another triangle, or of the same, that is glued to each side.
    twin: Vec<u32>,
    length: Vec<f64>,
}

impl Cover {
    fn new(mesh: &Mesh, welded: &Welded) -> Result<Self, SurfaceError> {
        let triangles = &welded.triangles;
        let positions: Vec<_> =
            welded.nodes.representative.iter().map(|&vertex| mesh.vertices()[vertex as usize]).collect();
        let lengths = side_lengths(&positions, triangles);
        let mean = mean_side(&lengths);
        if mean == 0.0 || !mean.is_finite() {
            return Err(SurfaceError::NoExtent { faces: mesh.face_count() });
        }
        if triangles.len() > (u32::MAX / 12) as usize {
            return Err(SurfaceError::OutOfMemory { bytes: triangles.len().saturating_mul(6 * 16) });
        }
        let lengthening = mollification(&lengths, mean);
        let count = triangles.len();
        let mut cover = Self {
            tail: Vec::with_capacity(6 * count),
            twin: vec![u32::MAX; 6 * count],
            length: Vec::with_capacity(6 * count),
        };
        // Triangle 2 t is the front a, b, c; triangle 2 t + 1 is the back a, c, b. `lengths` lists
        // the sides opposite to a, b, c.
        for (&[a, b, c], lengths) in triangles.iter().zip(&lengths) {
            let [la, lb, lc] = lengths.map(|length| length + lengthening);
            cover.tail.extend([a, b, c, a, c, b]);
            cover.length.extend([lc, la, lb, lb, la, lc]);
        }
        // Every side of a triangle as (lower node, (higher node, upward side, downward side)).
        let sides = (0u32..).zip(triangles).flat_map(|(triangle, corners)| {
            let front = 6 * triangle;
            // The same edge on the front and on the back.
            [(0, 5), (1, 4), (2, 3)].map(|(at, behind)| {
                let (from, to) = (corners[at as usize], corners[(at as usize + 1) % 3]);
                let (upward, downward) =
                    if from < to { (front + at, front + behind) } else { (front + behind, front + at) };
                (from.min(to), (from.max(to), upward, downward))
            })
        });
        let (offsets, mut grouped) = bucket(positions.len(), sides);
        for row in offsets.windows(2) {
            let row = &mut grouped[row[0] as usize..row[1] as usize];
            row.sort_by_key(|side| side.0);
            for around in row.chunk_by(|a, b| a.0 == b.0) {
                for (index, &(_, upward, _)) in around.iter().enumerate() {
                    let (_, _, downward) = around[(index + 1) % around.len()];
                    cover.twin[upward as usize] = downward;
                    cover.twin[downward as usize] = upward;
                }
            }
        }
        Ok(cover)
    }

    /// Flips edges until all weights are non-negative up to rounding, or the limit of steps is reached.
    fn flip_to_delaunay(&mut self) {
        let sides = self.tail.len();
        let mut stack: Vec<u32> = (0..sides as u32).filter(|&side| side < self.twin[side as usize]).collect();
        let mut is_waiting = vec![false; sides];
        for &side in &stack {
            is_waiting[side as usize] = true;
        }
        let mut steps_left = MAX_STEPS_PER_SIDE * sides;
        while let Some(side) = stack.pop()
            && steps_left > 0
        {
            steps_left -= 1;
            let side = side as usize;
            is_waiting[side] = false;
            if let Some(around) = self.flip(side) {
                for next in around {
                    let next = next.min(self.twin[next] as usize);
                    if !std::mem::replace(&mut is_waiting[next], true) {
                        stack.push(next as u32);
                    }
                }
            }
        }
    }

    /// Flips the edge of a side if it violates the Delaunay condition. Returns the four sides
    /// around it.
    fn flip(&mut self, side: usize) -> Option<[usize; 4]> {
        let twin = self.twin[side] as usize;
        if side / 3 == twin / 3 {
            return None;
        }
        // Triangles a, b, c and b, a, d over the edge from a to b.
        let (bc, ca) = others(side);
        let (ad, db) = others(twin);
        let length = self.length[side];
        let first = self.apex(length, self.length[ca], self.length[bc]);
        let second = self.apex(length, self.length[ad], self.length[db]);
        // Cotangents at c and d: the weight of the edge is proportional to their sum.
        let cotangent = |[x, y]: [f64; 2]| (x * (x - length) + y * y) / (length * y);
        let cotangents = [cotangent(first), cotangent(second)];
        let limit = TOLERANCE * (1.0 + cotangents[0].abs() + cotangents[1].abs());
        // Not a number fails the comparison.
        let is_violated = cotangents[0] + cotangents[1] < -limit;
        if !is_violated {
            return None;
        }
        let diagonal = (first[0] - second[0]).hypot(first[1] + second[1]);
        let lengths = [ca, ad, bc, db].map(|side| self.length[side]);
        let proper = |x: f64, y: f64| diagonal < x + y && (x - y).abs() < diagonal;
        if !(proper(lengths[0], lengths[1]) && proper(lengths[2], lengths[3])) {
            return None;
        }
        let (c, d) = (self.tail[ca], self.tail[db]);
        let moved = [bc, ca, ad, db].map(|side| (self.tail[side], self.length[side], self.twin[side] as usize));
        // The new triangles are d, c, a (over `side`) and c, d, b (over `twin`).
        let targets = [db, bc, ca, ad];
        let renamed = |old: usize| match old {
            old if old == bc => db,
            old if old == ca => bc,
            old if old == ad => ca,
            old if old == db => ad,
            old => old,
        };
        self.tail[side] = d;
        self.tail[twin] = c;
        self.length[side] = diagonal;
        self.length[twin] = diagonal;
        for (target, (tail, length, glued)) in targets.into_iter().zip(moved) {
            let glued = renamed(glued);
            self.tail[target] = tail;
            self.length[target] = length;
            self.twin[target] = glued as u32;
            self.twin[glued] = target as u32;
        }
        Some(targets)
    }

    /// The third corner of a triangle with its base from the origin along the x axis, `left` from
    /// the origin and `right` from the other end.
    fn apex(&self, base: f64, left: f64, right: f64) -> [f64; 2] {
        let x = 0.5 * (base + (left - right) * (left + right) / base);
        [x, 2.0 * heron_area([base, left, right]) / base]
    }
}

/// The two sides that follow a side in its triangle.
fn others(side: usize) -> (usize, usize) {
    let first = side - side % 3;
    (first + (side + 1) % 3, first + (side + 2) % 3)
}
