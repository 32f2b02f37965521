//! Adjacency of vertices in compressed rows. Every directed edge stores the position of its
//! reverse.

use super::GeometryError;
use crate::classes::bucket;
use crate::{Mesh, Neighbour, PointIndex};
use glam::DVec3;
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};

/// Number of vertices per parallel task.
const BLOCK: usize = 1024;
/// Neighbours of a vertex with more neighbours than this do not reach each other through it.
const MAX_REACHED: usize = 64;
/// Rows longer than this are searched with a hash table instead of linearly.
const LONG_ROW: usize = 48;

/// Symmetric neighbourhoods of all vertices in compressed rows (CSR). Row `p` lists the neighbours
/// of `p`; every directed edge `p <- q` stores the position of its reverse `q <- p`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adjacency {
    pub(super) offsets: Vec<u32>,
    pub(super) neighbours: Vec<u32>,
    pub(super) reverse: Vec<u32>,
}

impl Adjacency {
    /// One-ring neighbourhoods: vertices that share an edge, also on open meshes. Every undirected
    /// edge gives two directed edges.
    ///
    /// Row `p` lists first the vertices that follow `p` in its faces, by face index, then those
    /// that only precede it. So the first neighbour is the vertex after `p` in the lowest-numbered
    /// face that contains `p`.
    ///
    /// # Errors
    /// There are more edges than 32-bit positions can address.
    pub fn one_ring(mesh: &Mesh) -> Result<Self, GeometryError> {
        Self::one_ring_from_corners(mesh, &CornerTable::new(mesh))
    }

    pub(super) fn one_ring_from_corners(mesh: &Mesh, table: &CornerTable) -> Result<Self, GeometryError> {
        Self::from_rows(mesh.vertex_count(), |vertices, rows| {
            let mut row = Vec::new();
            for vertex in vertices {
                table.neighbours(mesh, vertex, &mut row);
                rows.push(&row);
            }
        })
    }

    /// Radius neighbourhoods: points at most `radius` apart. Each row is sorted by index. With a
    /// `limit`, two points are neighbours if each is among the `limit` nearest points of the other;
    /// ties go to the lower index.
    ///
    /// # Errors
    /// The radius is negative or not finite, or there are too many edges for 32-bit positions.
    pub fn within_radius(points: &[DVec3], radius: f64, limit: usize) -> Result<Self, GeometryError> {
        if !(radius.is_finite() && radius >= 0.0) {
            return Err(GeometryError::BadRadius { radius });
        }
        let index = PointIndex::new(points);
        // The query also returns the point itself, not always first: other points may coincide with
        // it.
        let near = |vertex: usize, found: &mut Vec<Neighbour>| {
            index.within(points[vertex], radius, limit.saturating_add(1), found);
            match found.iter().position(|f| f.point as usize == vertex) {
                Some(own) => {
                    found.remove(own);
                }
                None => found.truncate(limit),
            }
        };
        let limited = limit < points.len();
        // Distance and index of the last neighbour that each point accepts.
        let last: Vec<Option<(f64, u32)>> = if limited {
            (0..points.len())
                .into_par_iter()
                .with_min_len(BLOCK)
                .map_init(Vec::new, |found, vertex| {
                    near(vertex, found);
                    found.last().map(|f| (f.squared_distance, f.point))
                })
                .collect()
        } else {
            Vec::new()
        };
        let accepts = |target: u32, squared_distance: f64, source: u32| {
            !limited || last[target as usize].is_some_and(|bound| (squared_distance, source) <= bound)
        };
        Self::from_rows(points.len(), |vertices, rows| {
            let mut found = Vec::new();
            let mut row = Vec::new();
            for vertex in vertices {
                near(vertex, &mut found);
                row.clear();
                row.extend(
                    found.iter().filter(|f| accepts(f.point, f.squared_distance, vertex as u32)).map(|f| f.point),
                );
                row.sort_unstable();
                rows.push(&row);
            }
        })
    }

    /// Neighbourhoods of [`Neighbourhood::Patch`](super::Neighbourhood::Patch): the given one-rings, then further
    /// vertices by index.
    pub(super) fn patches(one_ring: &Self, points: &[DVec3], radius: f64, limit: usize) -> Result<Self, GeometryError> {
        if !(radius.is_finite() && radius >= 0.0) {
            return Err(GeometryError::BadRadius { radius });
        }
        let index = PointIndex::new(points);
        // The vertices beyond the one-ring, nearest first.
        let beyond = |vertex: usize, found: &mut Vec<Neighbour>, near: &mut Vec<(f64, u32)>| {
            let (own, ring) = (vertex as u32, one_ring.neighbours_of(vertex));
            // The query also returns the vertex itself and its one-ring.
            let most = limit.saturating_add(ring.len() + 1);
            index.within(points[vertex], radius, most, found);
            let passable = |&&q: &&u32| one_ring.row(q as usize).len() <= MAX_REACHED;
            let second = ring.iter().filter(passable);
            let second = second.flat_map(|&q| one_ring.neighbours_of(q as usize));
            let all = found.iter().map(|f| f.point).chain(second.copied());
            near.clear();
            near.extend(all.filter(|&q| q != own).map(|q| {
                let distance = points[vertex].distance_squared(points[q as usize]);
                (distance, q)
            }));
            near.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            near.dedup();
            near.retain(|(_, q)| !ring.contains(q));
            near.truncate(limit);
        };
        // Distance and index of the last vertex that a full row accepts.
        let last: Vec<Option<(f64, u32)>> = (0..points.len())
            .into_par_iter()
            .with_min_len(BLOCK)
            .map_init(
                || (Vec::new(), Vec::new()),
                |(found, near), vertex| {
                    beyond(vertex, found, near);
                    (near.len() >= limit).then(|| near.last().copied().unwrap_or((-1.0, 0)))
                },
            )
            .collect();
        Self::from_rows(points.len(), |vertices, rows| {
            let (mut found, mut near, mut row) = (Vec::new(), Vec::new(), Vec::new());
            for vertex in vertices {
                beyond(vertex, &mut found, &mut near);
                near.retain(|&(distance, q)| last[q as usize].is_none_or(|bound| (distance, vertex as u32) <= bound));
                let ring = one_ring.neighbours_of(vertex);
                row.clear();
                row.extend_from_slice(ring);
                row.extend(near.iter().map(|&(_, q)| q));
                row[ring.len()..].sort_unstable();
                rows.push(&row);
            }
        })
    }

    /// The same rows with the vertex itself at the end of each row that is not empty.
    pub(super) fn with_own(&self) -> Result<Self, GeometryError> {
        Self::from_rows(self.vertex_count(), |vertices, rows| {
            let mut row = Vec::new();
            for vertex in vertices {
                row.clear();
                row.extend_from_slice(self.neighbours_of(vertex));
                if !row.is_empty() {
                    row.push(vertex as u32);
                }
                rows.push(&row);
            }
        })
    }

    /// Creates an adjacency from compressed rows and validates them. The neighbours in a row must
    /// be distinct and differ from the vertex of the row, and `p` must be in the row of each of its
    /// neighbours.
    ///
    /// # Errors
    /// [`GeometryError::BadGraph`] with the violated condition and its location.
    pub fn new(offsets: Vec<u32>, neighbours: Vec<u32>) -> Result<Self, GeometryError> {
        Self::checked(offsets, neighbours, false)
    }

    /// As [`new`](Self::new). With `own`, rows may contain their vertex.
    pub(super) fn checked(offsets: Vec<u32>, neighbours: Vec<u32>, own: bool) -> Result<Self, GeometryError> {
        let bad = |problem: String| Err(GeometryError::BadGraph { problem });
        let Some((&first, &last)) = offsets.first().zip(offsets.last()) else {
            return bad("the row offsets are empty; even a graph without vertices has one offset".into());
        };
        if first != 0 || last as usize != neighbours.len() {
            return bad(format!(
                "row offsets range from {first} to {last}; they must range from 0 to {}",
                neighbours.len()
            ));
        }
        let vertices = offsets.len() - 1;
        let mut seen = HashSet::new();
        for vertex in 0..vertices {
            let (start, end) = (offsets[vertex] as usize, offsets[vertex + 1] as usize);
            if start > end || end > neighbours.len() {
                return bad(format!("the offsets of row {vertex} are {start} and {end}"));
            }
            seen.clear();
            for &neighbour in &neighbours[start..end] {
                if neighbour as usize >= vertices || (neighbour as usize == vertex && !own) {
                    return bad(format!("row {vertex} of {vertices} contains the invalid neighbour {neighbour}"));
                }
                if !seen.insert(neighbour) {
                    return bad(format!("row {vertex} contains the neighbour {neighbour} twice"));
                }
            }
        }
        let reverse = reverse_edges(&offsets, &neighbours);
        if let Some(edge) = reverse.iter().position(|&r| r == NO_REVERSE) {
            let vertex = offsets.partition_point(|&o| o as usize <= edge) - 1;
            return bad(format!("{} is a neighbour of {vertex}, but not vice versa", neighbours[edge]));
        }
        Ok(Self { offsets, neighbours, reverse })
    }

    /// Collects symmetric rows that blocks of vertices write in parallel.
    fn from_rows(
        vertices: usize,
        write: impl Fn(std::ops::Range<usize>, &mut Rows) + Sync,
    ) -> Result<Self, GeometryError> {
        let blocks: Vec<Rows> = (0..vertices.div_ceil(BLOCK))
            .into_par_iter()
            .map(|index| {
                let range = block(index, vertices);
                let mut rows =
                    Rows { degrees: Vec::with_capacity(range.len()), neighbours: Vec::with_capacity(8 * range.len()) };
                write(range, &mut rows);
                rows
            })
            .collect();
        let edges = blocks.iter().map(|block| block.neighbours.len()).sum();
        if edges >= u32::MAX as usize {
            return Err(GeometryError::TooManyEdges { edges });
        }
        let mut offsets = Vec::with_capacity(vertices + 1);
        let mut neighbours = Vec::with_capacity(edges);
        offsets.push(0);
        let mut end = 0;
        for block in blocks {
            for degree in block.degrees {
                end += degree;
                offsets.push(end);
            }
            neighbours.extend_from_slice(&block.neighbours);
        }
        let reverse = reverse_edges(&offsets, &neighbours);
        debug_assert!(!reverse.contains(&NO_REVERSE));
        Ok(Self { offsets, neighbours, reverse })
    }

    /// Number of vertices.
    pub fn vertex_count(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Number of directed edges.
    pub fn edge_count(&self) -> usize {
        self.neighbours.len()
    }

    /// Start of each row, followed by the number of edges.
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// Neighbour `q` of every directed edge `p <- q`, in row order.
    pub fn neighbours(&self) -> &[u32] {
        &self.neighbours
    }

    /// Position of the reverse `q <- p` of every directed edge `p <- q`.
    pub fn reverse(&self) -> &[u32] {
        &self.reverse
    }

    /// Positions of the edges of one row.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn row(&self, vertex: usize) -> std::ops::Range<usize> {
        self.offsets[vertex] as usize..self.offsets[vertex + 1] as usize
    }

    /// The neighbours of one vertex.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn neighbours_of(&self, vertex: usize) -> &[u32] {
        &self.neighbours[self.row(vertex)]
    }
}

/// Rows of one block of vertices.
struct Rows {
    degrees: Vec<u32>,
    neighbours: Vec<u32>,
}

impl Rows {
    fn push(&mut self, row: &[u32]) {
        self.degrees.push(row.len() as u32);
        self.neighbours.extend_from_slice(row);
    }
}

const NO_REVERSE: u32 = u32::MAX;

pub(super) fn reverse_edges(offsets: &[u32], neighbours: &[u32]) -> Vec<u32> {
    let row = |vertex: usize| offsets[vertex] as usize..offsets[vertex + 1] as usize;
    let vertices = offsets.len() - 1;
    let long_rows: HashMap<u32, HashMap<u32, u32>> = (0..vertices)
        .filter(|&vertex| row(vertex).len() > LONG_ROW)
        .map(|vertex| {
            let places = row(vertex).map(|edge| (neighbours[edge], edge as u32));
            (vertex as u32, places.collect())
        })
        .collect();
    let find = |target: u32, source: u32| -> u32 {
        let range = row(target as usize);
        if range.len() > LONG_ROW {
            return *long_rows[&target].get(&source).unwrap_or(&NO_REVERSE);
        }
        let start = range.start as u32;
        neighbours[range].iter().position(|&q| q == source).map_or(NO_REVERSE, |at| start + at as u32)
    };
    let mut reverse = vec![NO_REVERSE; neighbours.len()];
    split_blocks(offsets, &mut reverse).into_par_iter().enumerate().for_each(|(index, reverse)| {
        let edges =
            block(index, vertices).flat_map(|vertex| row(vertex).map(move |edge| (neighbours[edge], vertex as u32)));
        for (place, (neighbour, vertex)) in reverse.iter_mut().zip(edges) {
            *place = find(neighbour, vertex);
        }
    });
    reverse
}

/// Splits values of edges into one slice per [`block`] of vertices.
pub(super) fn split_blocks<'a, T>(offsets: &[u32], values: &'a mut [T]) -> Vec<&'a mut [T]> {
    let vertices = offsets.len() - 1;
    let mut rest = values;
    (0..vertices.div_ceil(BLOCK))
        .map(|index| {
            let range = block(index, vertices);
            let edges = (offsets[range.end] - offsets[range.start]) as usize;
            rest.split_off_mut(..edges).unwrap_or_default()
        })
        .collect()
}

/// Range of vertices of one block.
pub(super) fn block(index: usize, vertices: usize) -> std::ops::Range<usize> {
    index * BLOCK..vertices.min((index + 1) * BLOCK)
}

/// Table of the face corners at every vertex, in face order.
pub(super) struct CornerTable {
    offsets: Vec<u32>,
    corners: Vec<u32>,
    faces: CornerFaces,
}

/// Map from corners to faces.
enum CornerFaces {
    /// All faces have this many corners.
    Uniform(u32),
    /// Face of every corner.
    Listed(Vec<u32>),
}

impl CornerTable {
    pub(super) fn new(mesh: &Mesh) -> Self {
        let corners = mesh.faces().corners();
        let by_vertex = corners.iter().copied().zip(0u32..);
        let (offsets, sorted) = bucket(mesh.vertex_count(), by_vertex);
        let mut sizes = mesh.faces().iter().map(<[u32]>::len);
        let first = sizes.next().unwrap_or(3);
        let faces = if sizes.all(|size| size == first) {
            CornerFaces::Uniform(first as u32)
        } else {
            let mut listed = Vec::with_capacity(corners.len());
            for (face, corners) in mesh.faces().iter().enumerate() {
                listed.extend(std::iter::repeat_n(face as u32, corners.len()));
            }
            CornerFaces::Listed(listed)
        };
        Self { offsets, corners: sorted, faces }
    }

    /// Positions of the corners at a vertex, in the corner list of the mesh.
    pub(super) fn corners_of(&self, vertex: usize) -> impl ExactSizeIterator<Item = usize> + Clone {
        self.corners[self.offsets[vertex] as usize..self.offsets[vertex + 1] as usize]
            .iter()
            .map(|&corner| corner as usize)
    }

    /// The face of a corner.
    pub(super) fn face_of(&self, corner: usize) -> usize {
        match &self.faces {
            CornerFaces::Uniform(3) => corner / 3,
            CornerFaces::Uniform(size) => corner / *size as usize,
            CornerFaces::Listed(faces) => faces[corner] as usize,
        }
    }

    /// The previous and the next vertex of a corner in its face.
    pub(super) fn around(&self, mesh: &Mesh, corner: usize) -> (u32, u32) {
        let face = self.face_of(corner);
        let start = mesh.faces().offsets()[face] as usize;
        let corners = mesh.face(face);
        let at = corner - start;
        let before = if at == 0 { corners.len() - 1 } else { at - 1 };
        let after = if at + 1 == corners.len() { 0 } else { at + 1 };
        (corners[before], corners[after])
    }

    /// Replaces `row` by the distinct neighbours of a vertex: successors first, then predecessors.
    fn neighbours(&self, mesh: &Mesh, vertex: usize, row: &mut Vec<u32>) {
        row.clear();
        let corners = self.corners_of(vertex);
        let own = vertex as u32;
        let after = corners.clone().map(|corner| self.around(mesh, corner).1);
        let before = corners.clone().map(|corner| self.around(mesh, corner).0);
        let candidates = after.chain(before).filter(|&v| v != own);
        if 2 * corners.len() > LONG_ROW {
            let mut seen = HashSet::with_capacity(corners.len() + 1);
            row.extend(candidates.filter(|&v| seen.insert(v)));
        } else {
            for neighbour in candidates {
                if !row.contains(&neighbour) {
                    row.push(neighbour);
                }
            }
        }
    }
}
