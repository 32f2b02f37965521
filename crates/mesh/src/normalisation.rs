//! Position and size of meshes, without regard to spikes.

use crate::features::centred;
use crate::{Mesh, MeshError};
use glam::DVec3;

/// A vertex is a spike if it is further from the mean of its neighbours than this many times the largest distance of a
/// neighbour from that mean.
const SPIKE: f64 = 4.0;
/// Largest share of the vertices that can be spikes. With more, they are the shape of the surface.
const MAX_SPIKES: f64 = 0.005;

/// The mesh with its centroid at the origin and unit area. Spikes are moved to the mean of their neighbours first: one
/// vertex far away from a scan would change position, size and spectrum of the whole mesh.
///
/// # Errors
/// Vertices that are not finite after scaling.
pub fn normalised(mesh: &Mesh) -> Result<Mesh, MeshError> {
    let despiked = without_spikes(mesh)?;
    match centred(&despiked) {
        Ok(positions) => Mesh::new(positions, despiked.into_parts().1),
        // Without an area there is nothing to scale by.
        Err(_) => Ok(despiked),
    }
}

/// The mesh with spikes moved to the mean of their neighbours.
fn without_spikes(mesh: &Mesh) -> Result<Mesh, MeshError> {
    let points = mesh.vertices();
    // For each vertex the number of its neighbours, once for each face, their mean, and the largest distance from it.
    let mut counts = vec![0; points.len()];
    let mut means = vec![DVec3::ZERO; points.len()];
    let mut reaches = vec![0.0f64; points.len()];
    for_sides(mesh, |vertex, neighbour| {
        counts[vertex] += 1;
        means[vertex] += points[neighbour];
    });
    for (mean, &count) in means.iter_mut().zip(&counts) {
        *mean /= f64::from(count);
    }
    for_sides(mesh, |vertex, neighbour| {
        let distance = points[neighbour].distance(means[vertex]);
        reaches[vertex] = reaches[vertex].max(distance);
    });
    let is_spike =
        |&vertex: &usize| counts[vertex] >= 3 && points[vertex].distance(means[vertex]) > SPIKE * reaches[vertex];
    let spikes: Vec<usize> = (0..points.len()).filter(is_spike).collect();
    let most = (MAX_SPIKES * points.len() as f64).max(1.0);
    if spikes.is_empty() || spikes.len() as f64 > most {
        return Ok(mesh.clone());
    }
    let (mut vertices, faces) = mesh.clone().into_parts();
    for vertex in spikes {
        vertices[vertex] = means[vertex];
    }
    Mesh::new(vertices, faces)
}

/// Calls `visit` with both ends of each side of each face, in both directions.
fn for_sides(mesh: &Mesh, mut visit: impl FnMut(usize, usize)) {
    for face in mesh.faces().iter() {
        for (at, &corner) in face.iter().enumerate() {
            let next = face[(at + 1) % face.len()];
            visit(corner as usize, next as usize);
            visit(next as usize, corner as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes;

    fn with_vertex(mesh: &Mesh, vertex: usize, place: impl Fn(DVec3) -> DVec3) -> Mesh {
        let (mut vertices, faces) = mesh.clone().into_parts();
        vertices[vertex] = place(vertices[vertex]);
        Mesh::new(vertices, faces).unwrap()
    }

    fn largest_move(a: &Mesh, b: &Mesh, besides: usize) -> f64 {
        let pairs = a.vertices().iter().zip(b.vertices()).enumerate();
        let others = pairs.filter(|(at, _)| *at != besides);
        others.map(|(_, (a, b))| a.distance(*b)).fold(0.0, f64::max)
    }

    #[test]
    fn units_and_place_do_not_matter() {
        let mesh = shapes::icosphere(3).unwrap();
        let shift = DVec3::new(3.0, -20.0, 1e3);
        let moved = mesh.map_vertices(|p| 1e3 * p + shift).unwrap();
        let (a, b) = (normalised(&mesh).unwrap(), normalised(&moved).unwrap());
        assert!(largest_move(&a, &b, usize::MAX) < 1e-9);
        let radius = (4.0 * std::f64::consts::PI).sqrt().recip();
        assert!((a.vertices()[0].length() - radius).abs() < 1e-3);
    }

    #[test]
    fn one_spike_moves_nothing_else() {
        let mesh = shapes::icosphere(3).unwrap();
        let spiked = with_vertex(&mesh, 100, |p| 3.0 * p);
        let (a, b) = (normalised(&mesh).unwrap(), normalised(&spiked).unwrap());
        assert!(largest_move(&a, &b, 100) < 1e-3);
        assert!(b.vertices()[100].distance(a.vertices()[100]) < 0.01);
        // A moderate bump is shape.
        let bump = with_vertex(&mesh, 100, |p| 1.2 * p);
        assert_eq!(without_spikes(&bump).unwrap(), bump);
    }

    #[test]
    fn many_spikes_are_the_shape() {
        let mesh = shapes::icosphere(2).unwrap();
        let urchin =
            (0..mesh.vertex_count()).step_by(20).fold(mesh, |mesh, vertex| with_vertex(&mesh, vertex, |p| 4.0 * p));
        assert_eq!(without_spikes(&urchin).unwrap(), urchin);
    }

    #[test]
    fn a_mesh_without_area_stays() {
        let flat = shapes::icosahedron().map_vertices(|_| DVec3::ONE).unwrap();
        assert_eq!(normalised(&flat).unwrap(), flat);
    }
}
