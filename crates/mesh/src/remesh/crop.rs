//! Removal of a part of the surface, as in an incomplete scan.

use glam::DVec3;
use serde::{Deserialize, Serialize};

use super::cut::Cut;
use super::original::{Original, twice_area};
use super::{Remesh, RemeshError, Remeshed, SurfacePoint, require};
use crate::classes::Classes;
use crate::mesh::{Faces, Mesh};
use crate::random::Uniform;

/// Smallest and largest share of the area in a hole.
const HOLE: [f64; 2] = [0.001, 0.006];
/// Least area of a piece that is kept, relative to the largest piece.
const MIN_PIECE: f64 = 0.05;

/// Removes a region of the surface and small holes, as in an incomplete scan.
///
/// The region lies on one side of a random plane, or in a ball around a random point of the surface; a hole is a small
/// ball. Pieces that are then apart from the others are removed if they have less than 5 % of the area of the
/// largest one. The remaining vertices stay in place and in order. Triangles that would meet the others in
/// nothing but a vertex are removed as well.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Crop {
    /// Share of the area of the region, from 0 to 0.8 (default 0).
    pub share: f64,
    /// Number of holes, from 0 to 20 (default 0).
    pub holes: usize,
}

impl Remesh for Crop {
    fn remesh(&self, mesh: &Mesh, seed: u64) -> Result<Remeshed, RemeshError> {
        let Self { share, holes } = *self;
        require((0.0..=0.8).contains(&share), "share", share, "from 0 to 0.8")?;
        require(holes <= 20, "holes", holes, "from 0 to 20")?;
        let original = Original::new(mesh);
        if share == 0.0 && holes == 0 || !original.area().is_normal() {
            return Remeshed::identity(mesh);
        }
        let mut uniform = Uniform::new(seed);
        let mut kept = vec![true; original.triangles.len()];
        let is_plane = uniform.unit() < 0.5;
        let region = Region::draw(&original, is_plane, &mut uniform);
        region.remove(&original, share, &mut kept);
        for _ in 0..holes {
            let hole = Region::draw(&original, false, &mut uniform);
            hole.remove(&original, HOLE[0] + (HOLE[1] - HOLE[0]) * uniform.unit(), &mut kept);
        }
        let triangles = original.triangles.iter().zip(kept).filter(|(_, kept)| *kept);
        let triangles = without_pinches(mesh, triangles.map(|(triangle, _)| *triangle).collect())?;
        part(mesh, &largest_pieces(mesh, triangles))
    }
}

/// Points are removed in the order of their distance from a plane or from a centre.
enum Region {
    Plane(DVec3),
    Ball(DVec3),
}

impl Region {
    fn draw(original: &Original, is_plane: bool, uniform: &mut Uniform) -> Self {
        let direction = DVec3::from(std::array::from_fn(|_| uniform.signed()));
        // A random point by area.
        let mut left = uniform.unit() * original.area();
        let centre = (0..original.triangles.len() as u32).map(|t| original.corners(t)).find(|&corners| {
            left -= 0.5 * twice_area(corners).length();
            left <= 0.0
        });
        match is_plane {
            true => Self::Plane(direction),
            false => Self::Ball(centre.map_or(DVec3::ZERO, |[a, b, c]| (a + b + c) / 3.0)),
        }
    }

    /// Removes the first triangles up to a share of the whole area.
    fn remove(&self, original: &Original, share: f64, kept: &mut [bool]) {
        let triangles = 0..original.triangles.len() as u32;
        let mut by_distance: Vec<(f64, u32)> = triangles
            .map(|triangle| {
                let [a, b, c] = original.corners(triangle);
                let middle = (a + b + c) / 3.0;
                let distance = match self {
                    Self::Plane(direction) => direction.dot(middle),
                    Self::Ball(centre) => centre.distance(middle),
                };
                (distance, triangle)
            })
            .collect();
        by_distance.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut left = share * original.area();
        for (_, triangle) in by_distance {
            left -= 0.5 * twice_area(original.corners(triangle)).length();
            if left < 0.0 {
                break;
            }
            kept[triangle as usize] = false;
        }
    }
}

/// Removes triangles until no vertex has several fans of triangles, except for those where the mesh has.
fn without_pinches(mesh: &Mesh, mut triangles: Vec<[u32; 3]>) -> Result<Vec<[u32; 3]>, RemeshError> {
    let before = Cut::new(mesh);
    loop {
        let cut = Cut::new(&Mesh::new(mesh.vertices().to_vec(), triangles.iter().collect())?);
        let mut sizes = vec![0; cut.origin.len()];
        cut.surface.start.iter().for_each(|&fan| sizes[fan as usize] += 1);
        // The first of the largest fans of each vertex stays.
        let mut largest: Vec<u32> = (0..mesh.vertex_count() as u32).collect();
        for (fan, &vertex) in cut.origin.iter().enumerate() {
            let most = &mut largest[vertex as usize];
            if sizes[fan] > sizes[*most as usize] {
                *most = fan as u32;
            }
        }
        let count = triangles.len();
        let mut fans = cut.surface.start.as_chunks::<3>().0.iter();
        triangles.retain(|triangle| {
            let mut corners = fans.next().into_iter().flatten().zip(triangle);
            corners.all(|(&fan, &vertex)| largest[vertex as usize] == fan || before.locked[vertex as usize])
        });
        if triangles.len() == count {
            return Ok(triangles);
        }
    }
}

/// The triangles without those of small pieces.
fn largest_pieces(mesh: &Mesh, mut triangles: Vec<[u32; 3]>) -> Vec<[u32; 3]> {
    let mut pieces = Classes::new(mesh.vertex_count());
    for &[a, b, c] in &triangles {
        pieces.join(a, b);
        pieces.join(a, c);
    }
    let mut areas = vec![0.0; mesh.vertex_count()];
    for triangle in &triangles {
        let corners = triangle.map(|v| mesh.vertices()[v as usize]);
        areas[pieces.find(triangle[0]) as usize] += twice_area(corners).length();
    }
    let largest = areas.iter().copied().fold(0.0, f64::max);
    triangles.retain(|triangle| areas[pieces.find(triangle[0]) as usize] >= MIN_PIECE * largest);
    triangles
}

/// The mesh of some of the triangles.
fn part(mesh: &Mesh, triangles: &[[u32; 3]]) -> Result<Remeshed, RemeshError> {
    let mut used = vec![false; mesh.vertex_count()];
    triangles.as_flattened().iter().for_each(|&v| used[v as usize] = true);
    let mut place = vec![0; mesh.vertex_count()];
    let (mut positions, mut sources) = (Vec::new(), Vec::new());
    for (vertex, _) in used.iter().enumerate().filter(|(_, used)| **used) {
        place[vertex] = positions.len() as u32;
        positions.push(mesh.vertices()[vertex]);
        sources.push(SurfacePoint::vertex(vertex as u32));
    }
    let faces: Faces = triangles.iter().map(|triangle| triangle.map(|v| place[v as usize])).collect();
    Ok(Remeshed { mesh: Mesh::new(positions, faces)?, sources })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::{Cells, grid, icosphere, torus};
    use crate::{MeshReport, remesh::remesh};

    #[test]
    fn the_share_of_the_area_is_removed_and_vertices_stay() {
        let mesh = icosphere(4).unwrap();
        let whole = MeshReport::new(&mesh).area;
        let mut borders = Vec::new();
        for seed in 0..20 {
            let done = remesh(&mesh, &Crop { share: 0.3, holes: 0 }, seed).unwrap();
            let report = MeshReport::new(&done.mesh);
            assert!((report.area / whole - 0.7).abs() < 0.002, "{}", report.area / whole);
            assert!(report.is_sound() && !report.closed && report.components == 1, "{report:?}");
            for (vertex, source) in done.mesh.vertices().iter().zip(&done.sources) {
                assert_eq!(*vertex, source.position(mesh.vertices()));
            }
            borders.push(done.mesh.vertex_count());
        }
        borders.dedup();
        assert!(borders.len() > 3);
        let holes = remesh(&mesh, &Crop { share: 0.0, holes: 5 }, 1).unwrap();
        let left = MeshReport::new(&holes.mesh).area / whole;
        assert!((0.965..0.997).contains(&left), "{left}");
        let nothing = remesh(&mesh, &Crop::default(), 1).unwrap();
        assert_eq!(nothing.mesh, mesh);
    }

    #[test]
    fn any_surface_stays_a_manifold_and_no_small_pieces_remain() {
        let meshes = [torus(40, 12, 1.0, 0.2, Cells::Quads).unwrap(), grid(20, 20, Cells::Quads).unwrap()];
        for mesh in meshes {
            for seed in 0..30 {
                let done = remesh(&mesh, &Crop { share: 0.6, holes: 20 }, seed).unwrap();
                let report = MeshReport::new(&done.mesh);
                assert!(report.is_sound(), "{report:?}");
                assert!(report.components <= 20 && report.area > 0.0);
                assert_eq!(done, remesh(&mesh, &Crop { share: 0.6, holes: 20 }, seed).unwrap());
            }
        }
    }
}
