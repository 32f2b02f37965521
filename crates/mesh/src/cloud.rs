//! Point clouds as surfaces.

use crate::mesh::{Faces, Mesh, MeshError};
use crate::points::{Neighbour, PointIndex};
use crate::symmetric::symmetric_eigen;
use glam::{DMat3, DVec2, DVec3};
use rayon::prelude::*;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

/// Neighbours of a point that its triangles are chosen from.
const NEIGHBOURS: usize = 24;
/// Neighbours that determine the normal of a point.
const NORMAL: usize = 12;
/// Displacement that breaks ties among points on a circle, relative to the distance of the nearest neighbour.
const TIE: f64 = 1e-5;

/// Connects the points of a cloud to a surface: a mesh with the same vertices in the same order, and triangles between
/// them.
///
/// The normal of each point is that of the plane through its neighbours. Each point chooses the triangles around it:
/// those of the Delaunay triangulation of its neighbours in its tangent plane. Triangles become faces in the order of
/// the number of corners that choose them, small ones first, unless they overlap an earlier one. Normals, and with them
/// the faces, are oriented alike from neighbour to neighbour, outwards at the highest point of each connected part.
/// Every edge has at most two faces; vertices may be not manifold in places, which the operators of this crate allow.
///
/// The surface follows the points: gaps between sheets must be wider than the distance of neighbouring points. A point
/// whose neighbours are all in the same place has no faces.
///
/// # Errors
/// More faces than a mesh can have.
pub fn connect_points(points: &[DVec3]) -> Result<Mesh, MeshError> {
    let index = PointIndex::new(points);
    let neighbours: Vec<Vec<Neighbour>> = (points.par_iter())
        .map_init(Vec::new, |found, &point| {
            // The point itself, and some in the same place.
            index.within(point, f64::INFINITY, 2 * NEIGHBOURS, found);
            let others = found.iter().filter(|other| other.squared_distance > 0.0);
            others.take(NEIGHBOURS).copied().collect()
        })
        .collect();
    let mut normals: Vec<DVec3> =
        (points.par_iter().zip(&neighbours)).map(|(&point, around)| normal(points, point, around)).collect();
    orient(points, &neighbours, &mut normals);
    let displaced: Vec<DVec3> = (points.iter().zip(&neighbours).enumerate())
        .map(|(vertex, (&point, around))| {
            let nearest = around.first().map_or(0.0, |near| near.squared_distance.sqrt());
            let [a, b] = [2.4, 3.7].map(|step| step * vertex as f64);
            point + TIE * nearest * DVec3::new(a.cos(), a.sin(), b.sin())
        })
        .collect();
    let stars: Vec<Vec<[u32; 3]>> = (0..points.len())
        .into_par_iter()
        .map(|vertex| star(&displaced, vertex as u32, &neighbours[vertex], normals[vertex]))
        .collect();
    let mut chosen: Vec<([u32; 3], u32)> = (stars.iter().enumerate())
        .flat_map(|(vertex, star)| star.iter().map(move |&t| (sorted(t), vertex as u32)))
        .collect();
    chosen.par_sort_unstable();
    // Most votes first, then small ones. The order of numbers that are not negative is that of their bits.
    let longest = |[a, b, c]: [u32; 3]| {
        let sides = [(a, b), (b, c), (c, a)].map(|(p, q)| {
            let [p, q] = [p, q].map(|v| points[v as usize]);
            p.distance_squared(q)
        });
        sides.into_iter().fold(0.0, f64::max).to_bits()
    };
    let mut candidates: Vec<(Reverse<usize>, u64, [u32; 3])> = chosen
        .chunk_by(|a, b| a.0 == b.0)
        .map(|votes| (Reverse(votes.len()), longest(votes[0].0), votes[0].0))
        .collect();
    candidates.sort_unstable();
    let oriented = |[a, b, c]: [u32; 3]| {
        let [p, q, r] = [a, b, c].map(|v| points[v as usize]);
        let outwards: DVec3 = [a, b, c].iter().map(|&v| normals[v as usize]).sum();
        if (q - p).cross(r - p).dot(outwards) < 0.0 { [a, c, b] } else { [a, b, c] }
    };
    let mut faces = Faces::with_capacity(2 * points.len(), 6 * points.len());
    let mut taken = HashSet::with_capacity(6 * points.len());
    for (_, _, triangle) in candidates {
        let [a, b, c] = oriented(triangle);
        let sides = [(a, b), (b, c), (c, a)];
        // A side that is taken in the same direction belongs to a triangle on the same side: they overlap.
        if sides.iter().all(|side| !taken.contains(side)) {
            taken.extend(sides);
            faces.push(&[a, b, c]);
        }
    }
    Mesh::new(points.to_vec(), faces)
}

fn sorted(mut triangle: [u32; 3]) -> [u32; 3] {
    triangle.sort_unstable();
    triangle
}

/// The normal of the plane through the nearest neighbours, of unknown sign.
fn normal(points: &[DVec3], point: DVec3, around: &[Neighbour]) -> DVec3 {
    let near = &around[..around.len().min(NORMAL)];
    let offsets = || near.iter().map(|other| points[other.point as usize] - point);
    let mean = offsets().sum::<DVec3>() / (near.len() + 1) as f64;
    let outer = |d: DVec3| DMat3::from_cols(d * d.x, d * d.y, d * d.z);
    let moments = offsets().map(|offset| outer(offset - mean));
    // Relative to the nearest neighbours, so that nothing underflows.
    let size = near.last().map_or(1.0, |last| last.squared_distance);
    let sum = moments.fold(outer(mean), |sum, moment| sum + moment);
    symmetric_eigen(sum * size.recip()).1[2]
}

/// Orients the normals consistently, along a minimum spanning tree of their differences (Hoppe et al. 1992).
/// The highest point of each connected part has its normal upwards.
fn orient(points: &[DVec3], neighbours: &[Vec<Neighbour>], normals: &mut [DVec3]) {
    let mut order: Vec<u32> = (0..points.len() as u32).collect();
    order.sort_by(|&a, &b| points[b as usize].z.total_cmp(&points[a as usize].z));
    // Neighbourhood is made symmetric: a point far away is in nobody's list.
    let mut edges: Vec<(u32, u32)> = (neighbours.iter().enumerate())
        .flat_map(|(vertex, around)| {
            let near = &around[..around.len().min(NORMAL)];
            near.iter().map(move |other| (vertex as u32, other.point))
        })
        .flat_map(|(a, b)| [(a, b), (b, a)])
        .collect();
    edges.par_sort_unstable();
    edges.dedup();
    let offsets: Vec<usize> =
        (0..=points.len() as u32).map(|vertex| edges.partition_point(|edge| edge.0 < vertex)).collect();
    let mut is_oriented = vec![false; points.len()];
    let mut queue = BinaryHeap::new();
    for top in order {
        if is_oriented[top as usize] {
            continue;
        }
        if normals[top as usize].z < 0.0 {
            normals[top as usize] *= -1.0;
        }
        queue.push(Reverse((0u64, top, top)));
        while let Some(Reverse((_, vertex, from))) = queue.pop() {
            let place = vertex as usize;
            if is_oriented[place] {
                continue;
            }
            is_oriented[place] = true;
            if normals[place].dot(normals[from as usize]) < 0.0 {
                normals[place] *= -1.0;
            }
            for &(_, other) in &edges[offsets[place]..offsets[place + 1]] {
                if !is_oriented[other as usize] {
                    let turn = 1.0 - normals[place].dot(normals[other as usize]).abs();
                    // The order of numbers that are not negative is that of their bits.
                    queue.push(Reverse((turn.max(0.0).to_bits(), other, vertex)));
                }
            }
        }
    }
}

/// The Delaunay triangles around a point, in its tangent plane: neighbours whose bisectors bound its Voronoi cell, in
/// order.
fn star(points: &[DVec3], vertex: u32, around: &[Neighbour], normal: DVec3) -> Vec<[u32; 3]> {
    let Some(farthest) = around.last() else { return Vec::new() };
    let point = points[vertex as usize];
    let first = normal.any_orthonormal_vector();
    let second = normal.cross(first);
    let in_plane = |other: u32| {
        let offset = points[other as usize] - point;
        let plane = DVec2::new(first.dot(offset), second.dot(offset));
        // Keep the distance: the surface is curved, the plane is not.
        plane.normalize_or_zero() * offset.length()
    };
    // The cell as corners and, for the side that begins at each, the neighbour behind it.
    let size = 0.5 * farthest.squared_distance.sqrt();
    let corners = [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)];
    let mut cell: Vec<(DVec2, Option<u32>)> = (corners.iter()).map(|&(x, y)| (DVec2::new(x, y) * size, None)).collect();
    for other in around {
        let reach = cell.iter().map(|(corner, _)| corner.length_squared());
        let reach = reach.fold(0.0, f64::max);
        if other.squared_distance > 4.0 * reach {
            break;
        }
        cell = clipped(&cell, in_plane(other.point), other.point);
    }
    let sides = cell.iter().map(|(_, neighbour)| *neighbour);
    let next = sides.clone().cycle().skip(1);
    sides
        .zip(next)
        .filter_map(|pair| match pair {
            (Some(a), Some(b)) if a != b => Some([vertex, a, b]),
            _ => None,
        })
        .collect()
}

/// The part of a convex cell around the origin that is nearer to the origin than to `place`.
fn clipped(cell: &[(DVec2, Option<u32>)], place: DVec2, neighbour: u32) -> Vec<(DVec2, Option<u32>)> {
    let half = 0.5 * place.length_squared();
    let beyond = |corner: DVec2| corner.dot(place) - half;
    let mut kept = Vec::with_capacity(cell.len() + 1);
    for (at, &(corner, side)) in cell.iter().enumerate() {
        let next = cell[(at + 1) % cell.len()].0;
        let (here, there) = (beyond(corner), beyond(next));
        if here <= 0.0 {
            kept.push((corner, side));
        }
        if (here <= 0.0) != (there <= 0.0) {
            let crossing = corner.lerp(next, here / (here - there));
            // Leaving: the new side begins here. Entering: the old side goes on.
            kept.push((crossing, if here <= 0.0 { Some(neighbour) } else { side }));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::GeometryOptions;
    use crate::remesh::sample;
    use crate::shapes::{self, Cells};
    use crate::surface::{OperatorOptions, SurfaceOperators};
    use crate::{GaugeGraph, vertex_areas};

    fn area(mesh: &Mesh) -> f64 {
        vertex_areas(mesh).iter().sum()
    }

    #[test]
    fn random_points_of_a_sphere_become_a_sphere() {
        let sphere = shapes::icosphere(4).unwrap();
        let cloud = sample(&sphere, 4000, 3).unwrap().mesh;
        let mesh = connect_points(cloud.vertices()).unwrap();
        assert_eq!(mesh.vertices(), cloud.vertices());
        let faces = mesh.face_count() as f64 / (2.0 * 4000.0 - 4.0);
        assert!((faces - 1.0).abs() < 0.02, "{faces}");
        assert!((area(&mesh) / (4.0 * std::f64::consts::PI) - 1.0).abs() < 0.03);
        let graph = GaugeGraph::new(&mesh, &GeometryOptions::default()).unwrap();
        let pairs = graph.frames().iter().zip(mesh.vertices());
        let outwards = pairs.filter(|(frame, p)| frame.normal.dot(**p) > 0.8);
        assert!(outwards.count() > 3980);
        let options = OperatorOptions { eigenpairs: [9, 0, 0], ..Default::default() };
        let operators = SurfaceOperators::new(&mesh, &graph, &options).unwrap();
        let values = &operators.basis(0).unwrap().values;
        // Eigenvalues are for unit area.
        let scale = 1.0 / (4.0 * std::f64::consts::PI);
        for (value, known) in values.iter().zip([0.0, 2.0, 2.0, 2.0, 6.0, 6.0, 6.0, 6.0, 6.0]) {
            assert!((value * scale - known).abs() < 0.01 * known.max(0.1), "{values:?}");
        }
    }

    #[test]
    fn vertices_of_meshes_get_their_surface_back() {
        // Regular points on circles, a border, and two sheets apart.
        let torus = shapes::torus(48, 24, 2.0, 0.8, Cells::Triangles).unwrap();
        let grid = shapes::grid(20, 30, Cells::Triangles).unwrap();
        let mut sheets = grid.vertices().to_vec();
        sheets.extend(grid.vertices().iter().map(|p| *p + DVec3::Z * 5.0));
        for (points, expected) in
            [(torus.vertices(), area(&torus)), (grid.vertices(), area(&grid)), (&sheets, 2.0 * area(&grid))]
        {
            let mesh = connect_points(points).unwrap();
            let share = area(&mesh) / expected;
            assert!((share - 1.0).abs() < 0.02, "{share} {} {}", points.len(), mesh.face_count());
            let used: std::collections::HashSet<u32> = mesh.faces().iter().flatten().copied().collect();
            assert_eq!(used.len(), points.len());
        }
        // The sheets are not connected, and look the same way.
        let mesh = connect_points(&sheets).unwrap();
        for face in mesh.faces().iter() {
            let [p, q, r] = [0, 1, 2].map(|i| sheets[face[i] as usize]);
            assert!((q - p).cross(r - p).z > 0.0 && p.z == q.z && p.z == r.z);
        }
    }

    #[test]
    fn degenerate_clouds_have_no_faces_and_no_panic() {
        let line: Vec<DVec3> = (0..40).map(|i| DVec3::X * f64::from(i)).collect();
        for points in [vec![], vec![DVec3::ONE], vec![DVec3::ONE; 50], line.clone()] {
            let mesh = connect_points(&points).unwrap();
            assert!(mesh.vertices().iter().all(|p| p.is_finite()));
            assert!(area(&mesh) < 1e-3);
        }
        // Copies of points, and sizes near the limits of numbers.
        let sphere = shapes::icosphere(2).unwrap();
        for scale in [1e-150, 1e100] {
            let mut points: Vec<DVec3> = sphere.vertices().iter().map(|p| *p * scale).collect();
            points.extend_from_within(..20);
            let mesh = connect_points(&points).unwrap();
            assert!(mesh.face_count() > 250, "{}", mesh.face_count());
        }
    }
}
