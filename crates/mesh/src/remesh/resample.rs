//! Resampling: the surface of the solid that a closed mesh bounds, by marching tetrahedra on a
//! lattice.
//!
//! Which lattice points are inside follows from the crossings of the lattice columns with the
//! triangles. The distance to the surface is computed at the lattice points next to it only, and
//! interpolated along the lattice edges.

use glam::{DQuat, DVec3};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::boxes::BoxTree;
use super::isosurface::{Lattice, march_lattice};
use super::original::{Original, Place};
use super::{Remesh, RemeshError, Remeshed, require, require_size};
use crate::classes::bucket;
use crate::edges::EdgeTable;
use crate::mesh::Mesh;
use crate::random::Uniform;

/// Crossings closer to a lattice point than this part of the lattice edge are placed at the lattice
/// point, where they coincide with others.
const SNAP: f64 = 0.005;

/// Resamples a closed surface by marching tetrahedra on a cubic lattice in random position and
/// orientation. The lattice has `resolution` cells along the longest side of the bounding box.
///
/// The triangles are those of the lattice: many are slivers, and where the surface passes through a
/// lattice point, vertices coincide. Nothing is welded. The result bounds the same solid up to
/// details smaller than a cell, so genus and components can differ. Vertices are off the surface by
/// about the curvature within a cell; sources are the nearest points.
///
/// A point is inside if the surface winds around it. If the orientations of the faces are
/// inconsistent, it is inside if a ray from it crosses the surface an odd number of times. The
/// faces of the result are oriented outwards, or inwards if those of the mesh are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resample {
    /// Lattice cells along the longest side of the bounding box, from 2 to 256.
    pub resolution: usize,
}

impl Remesh for Resample {
    fn remesh(&self, mesh: &Mesh, seed: u64) -> Result<Remeshed, RemeshError> {
        let Self { resolution } = *self;
        require((2..=256).contains(&resolution), "resolution", resolution, "from 2 to 256")?;
        let oriented = closed_and_oriented(mesh)?;
        let original = Original::new(mesh);
        let mut uniform = Uniform::new(seed);
        let rotation = random_rotation(&mut uniform);
        let Some(lattice) = lattice_around(&original, rotation, resolution, &mut uniform) else {
            return Err(RemeshError::TooThin { resolution });
        };
        require_size(lattice.len() as f64)?;
        let rotated: Vec<DVec3> = original.positions.iter().map(|&p| rotation * p).collect();
        let inside = inside_points(&original, &rotated, &lattice, oriented);
        if !inside.contains(&true) {
            return Err(RemeshError::TooThin { resolution });
        }

        let tree = BoxTree::new(&original);
        let back = rotation.inverse();
        let nearest = |point: DVec3, near: u32| {
            let near = original.walk(near, point);
            tree.nearest(point, near)
        };
        let values = signed_distances(&lattice, &inside, |point, near| {
            let (place, distance) = nearest(back * point, near);
            (distance.sqrt(), place.triangle)
        });
        let (mut vertices, mut triangles) = march_lattice(&lattice, &values, |along| {
            if along < SNAP {
                0.0
            } else if along > 1.0 - SNAP {
                1.0
            } else {
                along
            }
        });
        vertices.iter_mut().for_each(|vertex| *vertex = back * *vertex);
        if oriented && signed_volume(&original) < 0.0 {
            triangles.iter_mut().for_each(|triangle| triangle.swap(1, 2));
        }
        let places: Vec<Place> = in_chunks(&vertices, |chunk| {
            let mut near = 0;
            let places = chunk.iter().map(|&vertex| {
                let (place, _) = nearest(vertex, near);
                near = place.triangle;
                place
            });
            places.collect()
        });
        let sources = places.iter().map(|&place| original.surface_point(place));
        Ok(Remeshed { sources: sources.collect(), mesh: Mesh::new(vertices, triangles.iter().collect())? })
    }
}

/// Maps chunks of fixed size in parallel, so that results do not depend on the number of threads.
fn in_chunks<T: Sync, R: Send>(items: &[T], map: impl Fn(&[T]) -> Vec<R> + Sync + Send) -> Vec<R> {
    items.par_chunks(512).flat_map_iter(map).collect()
}

/// True if the two directions of every edge occur equally often. An edge with an odd number of sides
/// is an error.
fn closed_and_oriented(mesh: &Mesh) -> Result<bool, RemeshError> {
    let mut oriented = true;
    let mut boundary_edges = 0;
    for (_, sides) in EdgeTable::new(mesh).iter() {
        let forward = sides.iter().filter(|side| side.forward).count();
        oriented &= 2 * forward == sides.len();
        boundary_edges += sides.len() % 2;
    }
    if boundary_edges > 0 {
        return Err(RemeshError::Open { boundary_edges });
    }
    Ok(oriented)
}

/// A uniform random rotation: a uniform direction in four dimensions.
fn random_rotation(uniform: &mut Uniform) -> DQuat {
    for _ in 0..100 {
        let [x, y, z, w] = std::array::from_fn(|_| uniform.signed());
        let quaternion = DQuat::from_xyzw(x, y, z, w);
        if (0.01..=1.0).contains(&quaternion.length_squared()) {
            return quaternion.normalize();
        }
    }
    DQuat::IDENTITY
}

/// A lattice around the rotated surface with a random offset; `None` if the surface has no extent,
/// or one that is not finite.
fn lattice_around(original: &Original, rotation: DQuat, resolution: usize, uniform: &mut Uniform) -> Option<Lattice> {
    let bounds = |rotation: DQuat| {
        let corners = original.triangles.as_flattened().iter();
        let positions = corners.map(|&v| rotation * original.positions[v as usize]);
        positions.fold((DVec3::INFINITY, DVec3::NEG_INFINITY), |(low, high), p| (low.min(p), high.max(p)))
    };
    let (low, high) = bounds(DQuat::IDENTITY);
    let spacing = (high - low).max_element() / resolution as f64;
    let (low, high) = bounds(rotation);
    let extent = (high - low) / spacing;
    if !(spacing > 0.0 && spacing.is_finite() && extent.is_finite()) {
        return None;
    }
    let offset = DVec3::from(std::array::from_fn(|_| 1.0 + uniform.unit()));
    Some(Lattice {
        low: low - spacing * offset,
        spacing,
        size: (extent + offset).to_array().map(|cells| cells.ceil() as usize + 2),
    })
}

/// Six times the volume that an oriented surface bounds, negative if it faces inwards.
fn signed_volume(original: &Original) -> f64 {
    let origin = original.positions.first().copied().unwrap_or_default();
    let triangles = 0..original.triangles.len() as u32;
    triangles
        .map(|triangle| {
            let [a, b, c] = original.corners(triangle).map(|p| p - origin);
            a.dot(b.cross(c))
        })
        .sum()
}

/// For every lattice point, whether it is inside the surface. The crossings of each column of the
/// lattice (parallel to z) with the triangles are counted from below.
fn inside_points(original: &Original, rotated: &[DVec3], lattice: &Lattice, oriented: bool) -> Vec<bool> {
    let [nx, ny, nz] = lattice.size;
    let scaled: Vec<DVec3> = rotated.iter().map(|&p| (p - lattice.low) / lattice.spacing).collect();
    // Column, height and direction of every crossing.
    let mut crossings: Vec<(u32, (f64, i32))> = Vec::new();
    for triangle in &original.triangles {
        let corners = triangle.map(|v| scaled[v as usize]);
        let [a, b, c] = corners;
        let (low, high) = (a.min(b).min(c), a.max(b).max(c));
        let range =
            |axis: usize, size: usize| low[axis].ceil().max(0.0) as usize..=(high[axis].floor() as usize).min(size - 1);
        for y in range(1, ny) {
            for x in range(0, nx) {
                let at = DVec3::new(x as f64, y as f64, 0.0);
                if let Some((height, direction)) = crossing(triangle, corners, at) {
                    crossings.push(((y * nx + x) as u32, (height, direction)));
                }
            }
        }
    }
    let (columns, mut sorted) = bucket(nx * ny, crossings.iter().copied());
    let mut inside = vec![false; lattice.len()];
    for (column, bounds) in columns.windows(2).enumerate() {
        let crossings = &mut sorted[bounds[0] as usize..bounds[1] as usize];
        crossings.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        // Rounding can miss a crossing at a triangle seen edge-on; the column counts as outside.
        let is_inside = |winding: i32, count: usize| {
            if oriented { winding != 0 } else { count % 2 == 1 }
        };
        let total = crossings.iter().map(|&(_, direction)| direction).sum();
        if is_inside(total, crossings.len()) {
            continue;
        }
        let mut winding = 0;
        for (below, pair) in crossings.windows(2).enumerate() {
            winding += pair[0].1;
            if is_inside(winding, below + 1) {
                let [from, to] = [pair[0].0, pair[1].0].map(|z| z.ceil().max(0.0) as usize);
                for z in from..to.min(nz) {
                    inside[z * nx * ny + column] = true;
                }
            }
        }
    }
    inside
}

/// Height at which the column through `at` crosses a triangle, and the direction of the crossing
/// (negative where the triangle faces down). Both triangles of an edge agree on the side of the edge
/// on which the column lies, so no crossing is lost or counted twice.
fn crossing(triangle: &[u32; 3], corners: [DVec3; 3], at: DVec3) -> Option<(f64, i32)> {
    let mut areas = [0.0; 3];
    let mut left = [false; 3];
    for i in 0..3 {
        let j = (i + 1) % 3;
        let ascending = triangle[i] < triangle[j];
        let (from, to) = if ascending { (i, j) } else { (j, i) };
        let (edge, point) = (corners[to] - corners[from], at - corners[from]);
        let area = edge.x * point.y - edge.y * point.x;
        left[i] = (area > 0.0) == ascending;
        areas[(j + 1) % 3] = if ascending { area } else { -area };
    }
    let direction = match left {
        [true, true, true] => 1,
        [false, false, false] => -1,
        _ => return None,
    };
    let total: f64 = areas.iter().sum();
    let heights = (0..3).map(|i| areas[i] * corners[i].z);
    let height = heights.sum::<f64>() / total;
    Some((if height.is_finite() { height } else { corners[0].z }, direction))
}

/// Signed distance at the lattice points next to the surface, negative inside. Elsewhere only the
/// sign is meaningful. `distance` returns the distance of a point and the nearest triangle, which is
/// passed on as a first guess for the next point.
fn signed_distances(
    lattice: &Lattice,
    inside: &[bool],
    distance: impl Fn(DVec3, u32) -> (f64, u32) + Sync + Send,
) -> Vec<f64> {
    // The lattice is larger than the surface, so its last points are outside, as are their
    // neighbours.
    let mut near = vec![false; inside.len()];
    let [nx, ny, nz] = lattice.size;
    let steps = lattice.steps();
    for z in 0..nz - 1 {
        for y in 0..ny - 1 {
            let row = lattice.index([0, y, z]);
            for index in row..row + nx - 1 {
                for other in steps.map(|step| index + step) {
                    if inside[other] != inside[index] {
                        near[index] = true;
                        near[other] = true;
                    }
                }
            }
        }
    }
    let points: Vec<u32> = (0..inside.len() as u32).filter(|&index| near[index as usize]).collect();
    let distances = in_chunks(&points, |chunk| {
        let mut guess = 0;
        let distances = chunk.iter().map(|&index| {
            let position = lattice.position(lattice.point(index as usize));
            let (value, nearest) = distance(position, guess);
            guess = nearest;
            value
        });
        distances.collect()
    });
    let mut values: Vec<f64> = inside.iter().map(|&inside| if inside { -1.0 } else { 1.0 }).collect();
    for (&index, &distance) in points.iter().zip(&distances) {
        let value = &mut values[index as usize];
        *value *= if *value < 0.0 { distance.max(f64::MIN_POSITIVE) } else { distance };
    }
    values
}
