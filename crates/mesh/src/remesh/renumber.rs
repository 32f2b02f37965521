//! Another order of vertices and faces.

use serde::{Deserialize, Serialize};

use super::{Remesh, RemeshError, Remeshed};
use crate::mesh::Mesh;
use crate::random::Uniform;

/// Puts vertices and faces into a random order. The surface and its triangles stay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Renumber {}

impl Remesh for Renumber {
    fn remesh(&self, mesh: &Mesh, seed: u64) -> Result<Remeshed, RemeshError> {
        let Remeshed { mesh, sources } = Remeshed::identity(mesh)?;
        let mut uniform = Uniform::new(seed);
        let order = shuffled(mesh.vertex_count(), &mut uniform);
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, &vertex)| places[vertex] = place as u32);
        let faces = shuffled(mesh.face_count(), &mut uniform).into_iter();
        let faces = faces.map(|face| mesh.face(face).iter().map(|&v| places[v as usize]).collect::<Vec<u32>>());
        let vertices = order.iter().map(|&vertex| mesh.vertices()[vertex]).collect();
        Ok(Remeshed {
            mesh: Mesh::new(vertices, faces.collect())?,
            sources: order.iter().map(|&vertex| sources[vertex]).collect(),
        })
    }
}

/// The numbers below `count` in random order.
fn shuffled(count: usize, uniform: &mut Uniform) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    (1..count).rev().for_each(|end| order.swap(end, uniform.below(end + 1)));
    order
}
