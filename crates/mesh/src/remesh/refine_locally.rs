//! Local refinement: a few regions with much smaller triangles.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use super::cut::Cut;
use super::original::{Original, twice_area};
use super::triangulation::Triangulation;
use super::{Remesh, RemeshError, Remeshed, SurfacePoint, require, require_size};
use crate::mesh::Mesh;
use crate::random::Uniform;

/// Share of the surface in one region, as a flat disk.
const REGION: f64 = 0.04;
/// Edges are split above this multiple of the target length.
const SPLIT: f64 = 4.0 / 3.0;
/// Maximum number of passes over the edges; each halves the longest ones.
const PASSES: usize = 32;

/// Refines the surface strongly in a few random regions. The surface does not change: triangles are
/// only split at midpoints of their edges, so sources are exact.
///
/// A region is the set of vertices within a fixed distance of a random centre, measured along the
/// edges. The distance is the radius of a disk with 4 % of the area. Within the regions, edges are
/// split, longest first, until they are about `factor` times shorter than the mean edge of the
/// mesh. Vertices keep their indices, and the new ones follow. Edges with more than two faces stay.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RefineLocally {
    /// Number of regions, from 0 to 1,000 (default 5).
    pub regions: usize,
    /// Factor by which edges in the regions become shorter, from 1 to 64 (default 3).
    pub factor: f64,
}

impl Default for RefineLocally {
    fn default() -> Self {
        Self { regions: 5, factor: 3.0 }
    }
}

impl Remesh for RefineLocally {
    fn remesh(&self, mesh: &Mesh, seed: u64) -> Result<Remeshed, RemeshError> {
        let Self { regions, factor } = *self;
        require(regions <= 1000, "regions", regions, "from 0 to 1,000")?;
        require((1.0..=64.0).contains(&factor), "factor", factor, "from 1 to 64")?;
        let original = Original::new(mesh);
        let vertices = mesh.vertex_count() as f64;
        let refined = (REGION * regions as f64).min(1.0);
        let expected = vertices * (1.0 + 2.0 * refined * factor * factor);
        require_size(expected)?;

        let mut cut = Cut::new(mesh);
        let mut inside = vec![false; cut.surface.positions.len()];
        let area = original.area();
        let mut uniform = Uniform::new(seed);
        for centre in centres(&original, regions, &mut uniform) {
            mark_ball(&cut.surface, centre, (REGION * area / PI).sqrt(), &mut inside);
        }
        let mut sources: Vec<SurfacePoint> = cut.origin.iter().map(|&v| SurfacePoint::vertex(v)).collect();
        let longest = SPLIT * original.mean_side() / factor;
        let most = 4 * expected as usize + 100;
        for _ in 0..PASSES {
            if !split_pass(&mut cut, longest, most, &mut inside, &mut sources) {
                break;
            }
        }
        let (kept, faces) = cut.keeping_vertices();
        let positions = kept.iter().map(|&v| cut.surface.positions[v as usize]);
        Ok(Remeshed {
            mesh: Mesh::new(positions.collect(), faces)?,
            sources: kept.iter().map(|&v| sources[v as usize]).collect(),
        })
    }
}

/// Random vertices, with a probability proportional to the area around them.
fn centres(original: &Original, count: usize, uniform: &mut Uniform) -> Vec<u32> {
    let mut total = 0.0;
    let triangles = 0..original.triangles.len() as u32;
    let sums: Vec<f64> = triangles
        .map(|triangle| {
            total += twice_area(original.corners(triangle)).length();
            total
        })
        .collect();
    let draw = |_| {
        let at = uniform.unit() * total;
        let triangle = sums.partition_point(|&sum| sum <= at);
        let corner = uniform.below(3);
        Some(original.triangles.get(triangle)?[corner])
    };
    (0..count).filter_map(draw).collect()
}

/// Marks the vertices within a distance of a centre, measured along the edges.
fn mark_ball(surface: &Triangulation, centre: u32, radius: f64, inside: &mut [bool]) {
    let mut distances = vec![f64::INFINITY; surface.positions.len()];
    let mut queue = BinaryHeap::from([Reverse((0.0_f64.to_bits(), centre))]);
    distances[centre as usize] = 0.0;
    while let Some(Reverse((bits, vertex))) = queue.pop() {
        let distance = f64::from_bits(bits);
        if distance > distances[vertex as usize] {
            continue;
        }
        inside[vertex as usize] = true;
        let here = surface.positions[vertex as usize];
        for neighbour in surface.neighbours(vertex) {
            let there = distance + here.distance(surface.positions[neighbour as usize]);
            if there <= radius && there < distances[neighbour as usize] {
                distances[neighbour as usize] = there;
                queue.push(Reverse((there.to_bits(), neighbour)));
            }
        }
    }
}

/// Splits the edges inside the regions that are longer than `longest`, longest first. Returns
/// whether there was one.
fn split_pass(
    cut: &mut Cut,
    longest: f64,
    most: usize,
    inside: &mut Vec<bool>,
    sources: &mut Vec<SurfacePoint>,
) -> bool {
    let surface = &mut cut.surface;
    let is_locked = |v: u32| cut.locked.get(v as usize).is_some_and(|&locked| locked);
    let mut long: Vec<(u64, u32)> = surface
        .edges()
        .filter(|&edge| {
            let ends = surface.ends(edge);
            let is_cut = surface.is_border(edge) && ends.iter().all(|&v| is_locked(v));
            !is_cut && ends.iter().all(|&v| inside[v as usize])
        })
        .map(|edge| {
            let [from, to] = surface.segment(edge);
            (from.distance(to), edge)
        })
        .filter(|&(length, _)| length > longest)
        .map(|(length, edge)| (length.to_bits(), edge))
        .collect();
    long.sort_unstable();
    let any = !long.is_empty();
    for (_, edge) in long.into_iter().rev() {
        if surface.positions.len() >= most {
            return false;
        }
        let [a, b] = surface.ends(edge).map(|v| v as usize);
        let [from, to] = surface.segment(edge);
        // A split next to an edge moves another edge to its slot, which may be short.
        if from.distance(to) <= longest || !(inside[a] && inside[b]) {
            continue;
        }
        surface.split(edge, from.midpoint(to));
        inside.push(true);
        sources.push(sources[a].midpoint(&sources[b]));
    }
    any
}
