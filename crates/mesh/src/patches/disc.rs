//! Geodesic discs in log map coordinates.

use crate::GaugeGraph;
use rayon::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Paths along edges are up to this much longer than geodesics, on meshes that are not too uneven.
const DETOUR: f64 = 1.25;
/// Vertices that a front may reach, per vertex that a disc may have.
const FRONT: usize = 3;

/// The geodesic disc around every vertex of a graph: its vertices with coordinates of the log map.
///
/// Coordinates are those of a discrete exponential map (Schmidt, Grimm and Wyvill 2006). A front passes the vertices in
/// the order of their distance along edges. A neighbour of the centre has the coordinates of the graph. Any other
/// vertex takes the mean, by inverse length, of those that its neighbours behind the front give: their own coordinates
/// plus the edge to the vertex, transported to the centre along the front. Coordinates rotate with the frame of the
/// centre and depend on no other frame.
///
/// ```
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, patches::Discs, shapes};
/// let graph = GaugeGraph::new(&shapes::icosphere(3)?, &GeometryOptions::default())?;
/// let discs = Discs::new(&graph, 0.3, 64);
/// assert_eq!(discs.vertices[discs.row(7).start], 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Discs {
    /// Start of the disc of each vertex, and the number of entries at the end.
    pub offsets: Vec<u32>,
    /// Vertex of every entry. The first of a disc is its centre; the others follow by distance.
    pub vertices: Vec<u32>,
    /// Coordinates of every entry in the frame of the centre, in lengths of the mesh.
    pub coordinates: Vec<[f64; 2]>,
}

/// A vertex behind the front: its coordinates, and the rotation from its frame to that of the centre.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: [f64; 2],
    turn: f64,
}

/// Working memory of a front, as long as the graph.
struct Front {
    distance: Vec<f64>,
    place: Vec<Option<Place>>,
    touched: Vec<u32>,
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Discs {
    /// The discs of a radius, in lengths of the mesh, with at most `limit` vertices each.
    pub fn new(graph: &GaugeGraph, radius: f64, limit: usize) -> Self {
        let count = graph.vertex_count();
        let front = || Front {
            distance: vec![f64::INFINITY; count],
            place: vec![None; count],
            touched: Vec::new(),
            heap: BinaryHeap::new(),
        };
        let discs: Vec<Vec<(u32, [f64; 2])>> = (0..count as u32)
            .into_par_iter()
            .map_init(front, |front, centre| front.disc(graph, centre, radius, limit))
            .collect();
        let mut offsets = vec![0];
        offsets.extend(discs.iter().scan(0, |end, disc| {
            *end += disc.len() as u32;
            Some(*end)
        }));
        let (vertices, coordinates) = discs.into_iter().flatten().unzip();
        Self { offsets, vertices, coordinates }
    }

    /// Number of discs.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// True if there are no discs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries of the disc of a vertex.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn row(&self, vertex: usize) -> Range<usize> {
        self.offsets[vertex] as usize..self.offsets[vertex + 1] as usize
    }
}

impl Front {
    fn disc(&mut self, graph: &GaugeGraph, centre: u32, radius: f64, limit: usize) -> Vec<(u32, [f64; 2])> {
        let mut disc: Vec<(u32, [f64; 2])> = Vec::new();
        self.reach(centre, 0.0);
        let mut passed = 0;
        while let Some(Reverse((bits, vertex))) = self.heap.pop() {
            let distance = f64::from_bits(bits);
            if distance > DETOUR * radius || passed >= FRONT * limit {
                break;
            }
            if self.place[vertex as usize].is_some() {
                continue;
            }
            let place = self.placed(graph, centre, vertex);
            self.place[vertex as usize] = Some(place);
            passed += 1;
            if place.at[0].hypot(place.at[1]) <= radius {
                disc.push((vertex, place.at));
            }
            for edge in graph.row(vertex as usize) {
                let further = distance + graph.radius()[edge];
                self.reach(graph.neighbours()[edge], further);
            }
        }
        self.heap.clear();
        for vertex in self.touched.drain(..) {
            self.distance[vertex as usize] = f64::INFINITY;
            self.place[vertex as usize] = None;
        }
        let length = |(_, at): &(u32, [f64; 2])| at[0].hypot(at[1]);
        let is_other = |entry: &(u32, [f64; 2])| entry.0 != centre;
        disc.sort_by(|a, b| {
            let by_length = length(a).total_cmp(&length(b));
            is_other(a).cmp(&is_other(b)).then(by_length)
        });
        disc.truncate(limit.max(1));
        disc
    }

    fn reach(&mut self, vertex: u32, distance: f64) {
        let best = &mut self.distance[vertex as usize];
        if distance < *best {
            if *best == f64::INFINITY {
                self.touched.push(vertex);
            }
            *best = distance;
            // The bits of positive numbers are ordered as the numbers are.
            self.heap.push(Reverse((distance.to_bits(), vertex)));
        }
    }

    fn placed(&self, graph: &GaugeGraph, centre: u32, vertex: u32) -> Place {
        let (mut sum, mut total) = ([0.0; 2], 0.0);
        let (mut nearest, mut turn) = (f64::INFINITY, 0.0);
        for edge in graph.row(vertex as usize) {
            let from = graph.neighbours()[edge];
            let Some(place) = self.place[from as usize] else { continue };
            // The edge from the neighbour to the vertex, as the neighbour sees it.
            let edge = graph.reverse()[edge] as usize;
            let length = graph.radius()[edge];
            let (sine, cosine) = (graph.theta()[edge] + place.turn).sin_cos();
            let at = [place.at[0] + length * cosine, place.at[1] + length * sine];
            let turned = place.turn + graph.transport()[edge];
            if from == centre {
                return Place { at, turn: turned };
            }
            let weight = length.max(f64::MIN_POSITIVE).recip().min(f64::MAX.sqrt());
            sum = [sum[0] + weight * at[0], sum[1] + weight * at[1]];
            total += weight;
            let distance = self.distance[from as usize] + length;
            if distance < nearest {
                (nearest, turn) = (distance, turned);
            }
        }
        let scale = if total > 0.0 { total.recip() } else { 0.0 };
        Place { at: sum.map(|s| s * scale), turn }
    }
}
