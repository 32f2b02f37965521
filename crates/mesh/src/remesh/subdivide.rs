//! Subdivision: every triangle becomes four.

use glam::DVec3;
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

use super::triangulation::previous;
use super::{Remesh, RemeshError, Remeshed, require, require_size};
use crate::edges::EdgeTable;
use crate::mesh::{Faces, Mesh};

/// Positions of the vertices after a subdivision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubdivisionRule {
    /// New vertices at the midpoints of the edges; the surface does not change.
    #[default]
    Midpoint,
    /// The weights of Loop (1987), which smooth the surface. Borders are smoothed as curves;
    /// vertices of edges with more than two faces stay.
    Loop,
}

/// Splits every triangle into four, `rounds` times. Vertices keep their indices, and the midpoints of
/// the edges follow.
///
/// Sources are exact for [`SubdivisionRule::Midpoint`]. For [`SubdivisionRule::Loop`] they are the
/// points that the rule has moved.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Subdivide {
    /// Number of rounds, from 0 to 16 (default 1).
    pub rounds: usize,
    /// Positions of the vertices (default midpoint).
    pub rule: SubdivisionRule,
}

impl Default for Subdivide {
    fn default() -> Self {
        Self { rounds: 1, rule: SubdivisionRule::default() }
    }
}

impl Remesh for Subdivide {
    fn remesh(&self, mesh: &Mesh, _: u64) -> Result<Remeshed, RemeshError> {
        let Self { rounds, rule } = *self;
        require(rounds <= 16, "rounds", rounds, "from 0 to 16")?;
        // Corners of the faces bound the number of edges, and each round has four times as many.
        let corners = mesh.faces().corners().len() as f64 / 2.0;
        require_size(mesh.vertex_count() as f64 + corners * 4.0_f64.powi(rounds as i32 - 1))?;
        let mut result = Remeshed::identity(mesh)?;
        for _ in 0..rounds {
            result = subdivide_once(result, rule)?;
        }
        Ok(result)
    }
}

fn subdivide_once(coarse: Remeshed, rule: SubdivisionRule) -> Result<Remeshed, RemeshError> {
    let Remeshed { mesh, mut sources } = coarse;
    let edges = EdgeTable::new(&mesh);
    let old = mesh.vertices();
    let count = old.len();
    // Midpoint of the edge from each corner to the next.
    let mut midpoints = vec![0u32; mesh.faces().corners().len()];
    let mut positions = match rule {
        SubdivisionRule::Midpoint => old.to_vec(),
        SubdivisionRule::Loop => smoothed(&mesh, &edges),
    };
    positions.reserve(edges.len());
    sources.reserve(edges.len());
    for (edge, ([a, b], sides)) in edges.iter().enumerate() {
        for side in sides {
            midpoints[side.tail as usize] = (count + edge) as u32;
        }
        let middle = old[a as usize].midpoint(old[b as usize]);
        positions.push(match (rule, sides) {
            (SubdivisionRule::Loop, [one, other]) => {
                let opposite = |tail: u32| {
                    let corner = previous(tail);
                    old[mesh.faces().corners()[corner as usize] as usize]
                };
                0.75 * middle + 0.125 * (opposite(one.tail) + opposite(other.tail))
            }
            _ => middle,
        });
        sources.push(sources[a as usize].midpoint(&sources[b as usize]));
    }
    let mut faces = Faces::with_capacity(4 * mesh.face_count(), 12 * mesh.face_count());
    let corners = mesh.faces().corners().as_chunks::<3>().0;
    for (&[a, b, c], &[ab, bc, ca]) in corners.iter().zip(midpoints.as_chunks::<3>().0) {
        for triangle in [[a, ab, ca], [b, bc, ab], [c, ca, bc], [ab, bc, ca]] {
            faces.push(&triangle);
        }
    }
    Ok(Remeshed { mesh: Mesh::new(positions, faces)?, sources })
}

/// The old vertices, moved by Loop's rule.
fn smoothed(mesh: &Mesh, edges: &EdgeTable) -> Vec<DVec3> {
    let old = mesh.vertices();
    let zero = (0usize, DVec3::ZERO);
    let mut around = vec![zero; old.len()];
    let mut border = vec![zero; old.len()];
    let mut fixed = vec![false; old.len()];
    for ([a, b], sides) in edges.iter() {
        for (vertex, neighbour) in [(a as usize, b as usize), (b as usize, a as usize)] {
            let sums = match sides.len() {
                1 => &mut border[vertex],
                _ => &mut around[vertex],
            };
            sums.0 += 1;
            sums.1 += old[neighbour];
            fixed[vertex] |= sides.len() > 2;
        }
    }
    let place = |vertex: usize| {
        let here = old[vertex];
        match (fixed[vertex], border[vertex], around[vertex]) {
            (false, (2, sum), _) => 0.75 * here + 0.125 * sum,
            (false, (0, _), (degree, sum)) if degree > 2 => {
                let n = degree as f64;
                let beta = (0.625 - (0.375 + 0.25 * (TAU / n).cos()).powi(2)) / n;
                (1.0 - n * beta) * here + beta * sum
            }
            _ => here,
        }
    };
    (0..old.len()).map(place).collect()
}
