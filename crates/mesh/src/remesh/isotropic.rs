//! Isotropic remeshing: even triangles of about one edge length.

use glam::DVec3;
use serde::{Deserialize, Serialize};
use std::fmt;

use super::cut::Cut;
use super::original::{Original, Place};
use super::remesher::{Guide, Remesher};
use super::{MeshSize, Remesh, RemeshError, Remeshed, finish, require, require_size};
use crate::mesh::Mesh;
use crate::random::Uniform;

/// Maximum factor between the edge lengths of consecutive rounds.
const STAGE: f64 = 1.4;
/// Largest random move of a vertex at the start, relative to its shortest edge.
const SHAKE: f64 = 0.3;
/// Number of final rounds that keep the number of vertices.
const POLISH_ROUNDS: usize = 2;

/// Remeshes a surface with even triangles: long edges are split, short ones collapsed, others flipped
/// so that most vertices have degree six, and vertices move along the surface to the middle of their
/// neighbours (Botsch and Kobbelt, 2004). All vertices lie on the original surface.
///
/// The seed moves the vertices of the original mesh a little before the first round. Borders of the
/// surface keep their shape up to turns of 20 degrees. A number of vertices is met exactly, unless
/// the topology does not allow it. Vertices that no face uses are dropped. A surface without extent
/// is returned unchanged.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Isotropic {
    /// Edge length or number of vertices (default: edge length 1, that of the original mesh).
    pub size: MeshSize,
    /// Number of rounds of splits, collapses, flips and relaxation, from 1 to 100 (default 4).
    pub iterations: usize,
}

// The text is a part of the keys of cached meshes, and has the name that these settings had when the first were written.
impl fmt::Debug for Isotropic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size, iterations } = self;
        write!(formatter, "Isotropic(IsotropicOptions {{ size: {size:?}, iterations: {iterations} }})")
    }
}

impl Default for Isotropic {
    fn default() -> Self {
        Self { size: MeshSize::EdgeLength(1.0), iterations: 4 }
    }
}

impl Remesh for Isotropic {
    fn remesh(&self, mesh: &Mesh, seed: u64) -> Result<Remeshed, RemeshError> {
        self.size.check()?;
        require((1..=100).contains(&self.iterations), "iterations", self.iterations, "from 1 to 100")?;
        let original = Original::new(mesh);
        let (mean, area) = (original.mean_side(), original.area());
        // Each vertex corresponds to two triangles of area `sqrt(3) / 4 * length^2`.
        let density = 2.0 / 3.0_f64.sqrt() * area;
        let (length, count) = match self.size {
            MeshSize::EdgeLength(length) => (length * mean, None),
            size => {
                let count = size.vertices(mesh);
                ((density / count as f64).sqrt(), Some(count))
            }
        };
        if !(mean > 0.0 && length > 0.0 && mean.is_finite() && length.is_finite() && area.is_finite()) {
            return Remeshed::identity(mesh);
        }
        let expected = count.map_or(density / (length * length), |count| count as f64);
        require_size(expected)?;

        let cut = Cut::new(mesh);
        let copies = cut.copies();
        let start = mesh.vertex_count();
        let places: Vec<Place> = cut.surface.outgoing.iter().map(|&h| at_corner(h)).collect();
        let mut remesher = Remesher::new(cut, &original, mean, |v| places[v as usize]);
        // Degenerate triangles may have edges that are long for their area.
        remesher.most_vertices = 4 * (expected as usize + start + copies);
        shake(&mut remesher, seed);

        // Approach a longer length gradually, so that the triangles stay well shaped.
        remesher.base = mean.min(length);
        let longest = length.min(mean * start as f64);
        while remesher.base * STAGE < longest {
            remesher.base *= STAGE;
            remesher.measure();
            remesher.round();
        }
        remesher.base = length;
        remesher.measure();
        for round in 0..self.iterations {
            if let Some(count) = count
                && round == self.iterations / 2
                && round > 0
            {
                let reached = remesher.surface.vertex_count().saturating_sub(copies);
                let correction = (reached as f64 / count as f64).sqrt();
                remesher.base *= correction.clamp(0.5, 2.0);
                remesher.measure();
            }
            remesher.round();
        }
        if let Some(count) = count {
            remesher.reach_count(count + copies);
        }
        for _ in 0..POLISH_ROUNDS {
            remesher.flip_for_angles();
            remesher.relax();
        }
        let (places, surface) = (remesher.places, remesher.surface);
        finish(&surface, start, &remesher.locked, &remesher.origin, |vertex| original.surface_point(places[vertex]))
    }
}

impl Guide for Original<'_> {
    type Place = Place;
    // Edges where the surface turns by more than 60 degrees stay.
    const CREASE: f64 = 0.5;
    const CHECKS_RELAXATION: bool = true;

    fn normal(&self, _: DVec3, place: Place) -> DVec3 {
        Original::normal(self, place)
    }

    fn normal_near(&self, _: [DVec3; 3], places: [Place; 3]) -> DVec3 {
        let [a, b, c] = places.map(|place| Original::normal(self, place));
        (a + b + c).normalize_or_zero()
    }

    fn project(&self, point: DVec3, near: Place) -> (DVec3, Place) {
        let (place, _) = self.walk(near.triangle, point);
        (self.position(place), place)
    }

    fn split_point(&self, middle: DVec3, ends: [Place; 2]) -> (DVec3, Place) {
        let [one, other] = ends.map(|near| self.walk(near.triangle, middle));
        let (place, _) = if other.1 < one.1 { other } else { one };
        (self.position(place), place)
    }

    fn edge_length(&self, _: DVec3, base: f64) -> f64 {
        base
    }
}

/// The start vertex of a half-edge of the original triangles. An unused vertex has no half-edge, and
/// its place is never used.
pub(super) fn at_corner(half_edge: u32) -> Place {
    let mut weights = [0.0; 3];
    weights[half_edge as usize % 3] = 1.0;
    Place { triangle: half_edge / 3, weights }
}

/// Moves every vertex a little in a random direction along the surface.
fn shake(remesher: &mut Remesher<Original>, seed: u64) {
    let mut uniform = Uniform::new(seed);
    let surface = &mut remesher.surface;
    for vertex in 0..surface.positions.len() as u32 {
        let at = vertex as usize;
        let direction = DVec3::from(std::array::from_fn(|_| uniform.signed()));
        let here = surface.positions[at];
        let edges = surface.neighbours(vertex);
        let shortest = edges.map(|v| here.distance(surface.positions[v as usize])).fold(f64::INFINITY, f64::min);
        if remesher.locked[at] || surface.on_border(vertex) || !shortest.is_finite() {
            continue;
        }
        let normal = remesher.guide.normal(remesher.places[at]);
        let step = direction - direction.dot(normal) * normal;
        // Along all three axes at most 1, so in length at most sqrt(3).
        let moved = here + SHAKE / 3.0_f64.sqrt() * shortest * step;
        (surface.positions[at], remesher.places[at]) = Guide::project(remesher.guide, moved, remesher.places[at]);
    }
}
