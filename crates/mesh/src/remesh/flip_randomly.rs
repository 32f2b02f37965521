//! Random edge flips.

use serde::{Deserialize, Serialize};

use super::cut::Cut;
use super::original::{shape, twice_area};
use super::{Remesh, RemeshError, Remeshed, own_vertices, require};
use crate::mesh::Mesh;
use crate::random::Uniform;

/// Minimum cosine between the normals of the triangles after a flip and the mean normal before it.
const FACING: f64 = 0.7;
/// Shape of the thinnest triangles that a flip may make.
const THINNEST: f64 = 0.1;

/// Flips a random share of the edges: an edge between two triangles becomes the other diagonal of
/// their quadrilateral. Vertices stay.
///
/// Each edge is drawn with probability `share`, in random order. Flips that would turn a triangle
/// over, leave a very thin one or repeat an edge are skipped, and so are edges at the border and
/// edges with more than two faces.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlipRandomly {
    /// Share of the edges to flip, from 0 to 1.
    pub share: f64,
}

impl Remesh for FlipRandomly {
    fn remesh(&self, mesh: &Mesh, seed: u64) -> Result<Remeshed, RemeshError> {
        let Self { share } = *self;
        require((0.0..=1.0).contains(&share), "share", share, "from 0 to 1")?;
        let mut cut = Cut::new(mesh);
        let mut uniform = Uniform::new(seed);
        let mut edges: Vec<u32> = cut.surface.edges().collect();
        edges.retain(|_| uniform.unit() < share);
        for last in (1..edges.len()).rev() {
            edges.swap(last, uniform.below(last + 1));
        }
        for edge in edges {
            // A flip next to an edge can move another edge to its slot, which is as random.
            if can_flip(&cut, edge) {
                cut.surface.flip(edge);
            }
        }
        let (_, faces) = cut.keeping_vertices();
        Ok(Remeshed { mesh: Mesh::new(mesh.vertices().to_vec(), faces)?, sources: own_vertices(mesh).collect() })
    }
}

fn can_flip(cut: &Cut, edge: u32) -> bool {
    let surface = &cut.surface;
    let ([a, b], [c, d]) = (surface.ends(edge), surface.opposite(edge));
    // Edges between cut vertices may exist elsewhere on the surface.
    let at_cuts = [c, d].iter().all(|&v| cut.locked[v as usize]);
    if at_cuts || !surface.can_flip(edge) {
        return false;
    }
    let corners = |triangle: [u32; 3]| triangle.map(|v| surface.positions[v as usize]);
    let mean = twice_area(corners([a, b, c])) + twice_area(corners([b, a, d]));
    [[a, d, c], [b, c, d]].into_iter().all(|triangle| {
        let new = twice_area(corners(triangle));
        new.dot(mean) > FACING * new.length() * mean.length() && shape(corners(triangle)) > THINNEST
    })
}
