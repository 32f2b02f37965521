//! The mesh report: size, topology and the number of defects of each kind.
//!
//! The field docs of [`MeshReport`] define the terms; `docs/report.md` gives more detail.

use rayon::prelude::*;
use serde::Serialize;
use std::ops::Range;

use crate::classes::{Classes, bucket};
use crate::defects::{degeneracy_and_area, duplicate_faces, first_at_same_position};
use crate::edges::EdgeTable;
use crate::mesh::Mesh;
use crate::orientation::{Orientation, Volume, disagree};
use crate::repair::Repair;

/// Number of examples of each kind of defect in a report.
const EXAMPLES: usize = 5;

/// Size, topology and defects of a mesh.
///
/// A face with a repeated vertex is not part of the topology: it has no edges and connects nothing.
/// Keyhole polygons are the exception: faces with holes, each joined to the border by an edge that
/// the face runs along twice.
/// All other faces are called proper.
///
/// ```
/// use gemcnn_mesh::{DVec3, Mesh, MeshReport};
/// let tetrahedron = Mesh::new(
///     vec![DVec3::ZERO, DVec3::X, DVec3::Y, DVec3::Z],
///     [[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]].iter().collect(),
/// )?;
/// let report = MeshReport::new(&tetrahedron);
/// assert!(report.is_sound() && report.closed);
/// assert_eq!((report.edges, report.euler, report.genus), (6, 2, Some(0)));
/// # Ok::<(), gemcnn_mesh::MeshError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeshReport {
    /// Number of vertices, including unused ones.
    pub vertices: usize,
    /// Number of faces, including improper ones.
    pub faces: usize,
    /// Number of undirected edges of the proper faces.
    pub edges: usize,
    /// Faces with three corners.
    pub triangles: usize,
    /// Faces with four corners.
    pub quads: usize,
    /// Faces with more than four corners.
    pub polygons: usize,

    /// Connected components of the proper faces; a shared vertex connects two faces.
    pub components: usize,
    /// Euler characteristic: vertices of proper faces - edges + proper faces. Vertices outside the
    /// proper faces are not counted.
    pub euler: i64,
    /// Number of handles, summed over the components: half of `2 * components - euler -
    /// boundary_loops`. `None` if there is no proper face, or if the surface is not manifold or not
    /// orientable.
    pub genus: Option<usize>,
    /// Edges with exactly one face side.
    pub boundary_edges: usize,
    /// Number of closed curves formed by the boundary edges. Two boundary edges belong to the same
    /// curve if they meet at a vertex in the same fan (see
    /// [`nonmanifold_vertices`](Self::nonmanifold_vertices)).
    pub boundary_loops: usize,

    /// Edges with more than two face sides.
    pub nonmanifold_edges: usize,
    /// Pinched vertices: vertices with more than one fan. A fan is a set of proper faces around a
    /// vertex that are connected through shared edges at that vertex. A non-manifold edge alone
    /// does not make its end points pinched.
    pub nonmanifold_vertices: usize,
    /// Edges with exactly two sides that run in the same direction: the orientations of the two
    /// faces are inconsistent.
    pub inconsistent_edges: usize,
    /// Faces that [`Repair::Orient`] would reverse.
    pub misoriented_faces: usize,
    /// Components that cannot be oriented consistently, such as a Möbius strip.
    pub nonorientable_components: usize,
    /// Vertices that no face uses.
    pub isolated_vertices: usize,
    /// Faces with a repeated vertex or with zero area up to rounding. Faces of the second kind are
    /// proper.
    pub degenerate_faces: usize,
    /// Faces that repeat an earlier face up to the first corner and the orientation.
    pub duplicate_faces: usize,
    /// Vertices at exactly the position of an earlier vertex.
    pub coincident_vertices: usize,

    /// True if the faces can be oriented so that no edge is inconsistent.
    pub orientable: bool,
    /// True if no edge is inconsistent.
    pub consistently_oriented: bool,
    /// True if there is a proper face and no boundary edge.
    pub closed: bool,
    /// True if there are no non-manifold edges or vertices.
    pub manifold: bool,

    /// Sum of the areas of the faces. The area of a non-planar face is the length of its vector
    /// area.
    pub area: f64,
    /// Volume that the mesh bounds, negative if the faces point inwards. `None` unless every edge has two sides and all
    /// faces agree.
    pub volume: Option<f64>,
    /// True if `volume` is negative beyond rounding. Only the sum counts: a cavity may face inwards.
    pub inside_out: bool,
    /// Minimum and maximum coordinates over all vertices; `None` without vertices.
    pub bounds: Option<[[f64; 3]; 2]>,
    /// Mean edge length; this and the next two fields are 0 without edges.
    pub mean_edge_length: f64,
    /// Length of the shortest edge.
    pub min_edge_length: f64,
    /// Length of the longest edge.
    pub max_edge_length: f64,

    /// The first few defects of each kind.
    pub examples: TroubleExamples,
}

/// The first five defects of each kind. Indices start at 0; an edge is a pair of vertices.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TroubleExamples {
    /// Edges with exactly one side.
    pub boundary_edges: Vec<[u32; 2]>,
    /// Edges with more than two sides.
    pub nonmanifold_edges: Vec<[u32; 2]>,
    /// Pinched vertices.
    pub nonmanifold_vertices: Vec<u32>,
    /// Edges between two faces with inconsistent orientations.
    pub inconsistent_edges: Vec<[u32; 2]>,
    /// The lowest vertex of each non-orientable component.
    pub nonorientable_components: Vec<u32>,
    /// Vertices that no face uses.
    pub isolated_vertices: Vec<u32>,
    /// Faces with a repeated vertex or without area.
    pub degenerate_faces: Vec<u32>,
    /// Pairs of a face and a later face that repeats it.
    pub duplicate_faces: Vec<[u32; 2]>,
    /// Pairs of a vertex and a later vertex at the same position.
    pub coincident_vertices: Vec<[u32; 2]>,
}

/// A count with the first few examples.
struct Tally<T> {
    count: usize,
    examples: Vec<T>,
}

impl<T> FromIterator<T> for Tally<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut items = items.into_iter();
        let examples: Vec<T> = items.by_ref().take(EXAMPLES).collect();
        Self { count: examples.len() + items.count(), examples }
    }
}

impl MeshReport {
    /// Analyses a mesh in time about linear in its size.
    pub fn new(mesh: &Mesh) -> Self {
        let (topology, (duplicates, coincident)) = rayon::join(
            || Topology::new(mesh),
            || rayon::join(|| duplicate_faces(mesh).into_iter().collect::<Tally<_>>(), || coincident_vertices(mesh)),
        );
        let (degenerate, area) = degenerate_faces_and_area(mesh);
        let [mean_edge_length, min_edge_length, max_edge_length] = mean_min_max(&edge_lengths(mesh, &topology.edges));

        let corner_counts = mesh.faces().iter().map(<[u32]>::len);
        let triangles = corner_counts.clone().filter(|&n| n == 3).count();
        let quads = corner_counts.filter(|&n| n == 4).count();

        let euler = topology.vertices as i64 - topology.edges.len() as i64 + topology.faces as i64;
        let manifold = topology.nonmanifold_edges.count == 0 && topology.nonmanifold_vertices.count == 0;
        let orientable = topology.nonorientable_components.count == 0;
        let twice_genus = 2 * topology.components as i64 - euler - topology.boundary_loops as i64;

        let agree = topology.inconsistent_edges.count == 0;
        let volume = if agree { Volume::new(mesh, &topology.edges, &[]) } else { None };

        Self {
            vertices: mesh.vertex_count(),
            faces: mesh.face_count(),
            edges: topology.edges.len(),
            triangles,
            quads,
            polygons: mesh.face_count() - triangles - quads,
            components: topology.components,
            euler,
            genus: (topology.faces > 0 && manifold && orientable)
                .then(|| usize::try_from(twice_genus / 2).ok())
                .flatten(),
            boundary_edges: topology.boundary_edges.count,
            boundary_loops: topology.boundary_loops,
            nonmanifold_edges: topology.nonmanifold_edges.count,
            nonmanifold_vertices: topology.nonmanifold_vertices.count,
            inconsistent_edges: topology.inconsistent_edges.count,
            misoriented_faces: topology.misoriented_faces,
            nonorientable_components: topology.nonorientable_components.count,
            isolated_vertices: topology.isolated_vertices.count,
            degenerate_faces: degenerate.count,
            duplicate_faces: duplicates.count,
            coincident_vertices: coincident.count,
            orientable,
            consistently_oriented: agree,
            closed: topology.faces > 0 && topology.boundary_edges.count == 0,
            manifold,
            area,
            inside_out: volume.as_ref().is_some_and(Volume::is_inside_out),
            volume: volume.map(|volume| volume.signed),
            bounds: mesh.bounds().map(|ends| ends.map(|end| end.to_array())),
            mean_edge_length,
            min_edge_length,
            max_edge_length,
            examples: TroubleExamples {
                boundary_edges: topology.boundary_edges.examples,
                nonmanifold_edges: topology.nonmanifold_edges.examples,
                nonmanifold_vertices: topology.nonmanifold_vertices.examples,
                inconsistent_edges: topology.inconsistent_edges.examples,
                nonorientable_components: topology.nonorientable_components.examples,
                isolated_vertices: topology.isolated_vertices.examples,
                degenerate_faces: degenerate.examples,
                duplicate_faces: duplicates.examples,
                coincident_vertices: coincident.examples,
            },
        }
    }

    /// True if the mesh has no defects: it has faces, it is manifold, consistently oriented and not inside out, and
    /// it has no isolated or coincident vertices and no degenerate or duplicate faces. A boundary
    /// is not a defect.
    pub fn is_sound(&self) -> bool {
        self.faces > 0
            && self.manifold
            && self.consistently_oriented
            && !self.inside_out
            && self.isolated_vertices == 0
            && self.degenerate_faces == 0
            && self.duplicate_faces == 0
            && self.coincident_vertices == 0
    }

    /// The applicable repairs, in the order in which to apply them.
    ///
    /// A repair that may expose another defect is followed by the repair for that defect. Welding
    /// can collapse faces, create duplicate faces and join faces with inconsistent orientations.
    /// Dropping faces can leave vertices unused and edges with two inconsistent sides. After these
    /// repairs, no repair is suggested any more. There is no repair for non-manifold edges and
    /// vertices and for non-orientable components.
    pub fn suggested_repairs(&self) -> Vec<Repair> {
        let weld = self.coincident_vertices > 0;
        let degenerate = weld || self.degenerate_faces > 0;
        let duplicates = weld || self.duplicate_faces > 0;
        let isolated = degenerate || self.isolated_vertices > 0;
        let orient = degenerate || duplicates || self.misoriented_faces > 0;
        let suggested = [weld, degenerate, duplicates, isolated, orient].into_iter().zip(Repair::ALL);
        suggested.filter_map(|(wanted, (_, repair))| wanted.then_some(repair)).collect()
    }
}

/// Properties that depend on the face indices only.
struct Topology {
    edges: EdgeTable,
    /// Number of proper faces.
    faces: usize,
    /// Number of vertices of proper faces.
    vertices: usize,
    components: usize,
    boundary_loops: usize,
    boundary_edges: Tally<[u32; 2]>,
    nonmanifold_edges: Tally<[u32; 2]>,
    nonmanifold_vertices: Tally<u32>,
    inconsistent_edges: Tally<[u32; 2]>,
    isolated_vertices: Tally<u32>,
    nonorientable_components: Tally<u32>,
    misoriented_faces: usize,
}

impl Topology {
    fn new(mesh: &Mesh) -> Self {
        let edges = EdgeTable::new(mesh);
        let corners = mesh.faces().corners();
        let proper_faces = || {
            mesh.faces()
                .offsets()
                .windows(2)
                .enumerate()
                .filter(|&(face, _)| edges.takes_part(face))
                .map(|(_, bounds)| bounds[0]..bounds[1])
        };

        let (orientation, (fan_count, boundary_loops)) = rayon::join(
            || Orientation::new(mesh, &edges),
            || {
                let fans = fans(mesh, proper_faces());
                let mut count = vec![0u32; mesh.vertex_count()];
                for corner in proper_faces().flatten() {
                    if fans[corner as usize] == corner {
                        count[corners[corner as usize] as usize] += 1;
                    }
                }
                (count, boundary_loops(&fans, &edges))
            },
        );

        let mut components = Classes::new(mesh.vertex_count());
        for face in proper_faces() {
            let first = corners[face.start as usize];
            for corner in face.start + 1..face.end {
                components.join(first, corners[corner as usize]);
            }
        }
        let mut nonorientable: Vec<u32> =
            orientation.nonorientable.iter().map(|&face| components.find(mesh.face(face as usize)[0])).collect();
        nonorientable.sort_unstable();
        nonorientable.dedup();

        let mut in_a_face = vec![false; mesh.vertex_count()];
        for &vertex in corners {
            in_a_face[vertex as usize] = true;
        }
        let proper_vertices = || (0u32..).zip(&fan_count).filter(|&(_, &fans)| fans > 0);
        let edges_where = |wanted: fn(usize) -> bool| {
            edges.iter().filter(move |(_, sides)| wanted(sides.len())).map(|(ends, _)| ends).collect()
        };

        Self {
            faces: proper_faces().count(),
            vertices: proper_vertices().count(),
            components: proper_vertices().filter(|&(vertex, _)| components.find(vertex) == vertex).count(),
            boundary_loops,
            boundary_edges: edges_where(|sides| sides == 1),
            nonmanifold_edges: edges_where(|sides| sides > 2),
            nonmanifold_vertices: proper_vertices().filter(|&(_, &fans)| fans > 1).map(|(vertex, _)| vertex).collect(),
            inconsistent_edges: edges.two_sided().filter(|(_, sides)| disagree(sides)).map(|(ends, _)| ends).collect(),
            isolated_vertices: (0u32..).zip(&in_a_face).filter(|&(_, &used)| !used).map(|(vertex, _)| vertex).collect(),
            nonorientable_components: nonorientable.into_iter().collect(),
            misoriented_faces: orientation.turn.len(),
            edges,
        }
    }
}

/// Fans as the lowest corner of each: two corners at a vertex are in one fan if they are connected by a
/// chain of faces in which consecutive faces share an edge at that vertex.
fn fans(mesh: &Mesh, faces: impl Iterator<Item = Range<u32>> + Clone) -> Vec<u32> {
    let corners = mesh.faces().corners();
    // Each corner with the vertices before and after it, by its own vertex.
    let around = faces.flat_map(|face| {
        face.clone().map(move |corner| {
            let before = if corner == face.start { face.end } else { corner } - 1;
            let after = if corner + 1 == face.end { face.start } else { corner + 1 };
            let ends = [before, after].map(|end| corners[end as usize]);
            (corners[corner as usize], (corner, ends))
        })
    });
    let (starts, around) = bucket(mesh.vertex_count(), around);
    let lowest: Vec<u32> = (0..mesh.vertex_count())
        .into_par_iter()
        .with_min_len(4096)
        .map_init(Vec::new, |sides, vertex| {
            let around = &around[starts[vertex] as usize..starts[vertex + 1] as usize];
            sides.clear();
            for (place, (_, ends)) in (0u32..).zip(around) {
                sides.extend(ends.map(|end| (end, place)));
            }
            sides.sort_unstable();
            let mut classes = Classes::new(around.len());
            for &[(a, first), (b, second)] in sides.array_windows() {
                if a == b {
                    classes.join(first, second);
                }
            }
            let lowest = |place: usize| around[classes.find(place as u32) as usize].0;
            (0..around.len()).map(lowest).collect::<Vec<u32>>()
        })
        .flatten_iter()
        .collect();
    let mut fans = vec![0; corners.len()];
    for (&(corner, _), lowest) in around.iter().zip(lowest) {
        fans[corner as usize] = lowest;
    }
    fans
}

/// Number of boundary loops. The boundary edges form a graph whose nodes are the fans; the loops
/// are its components with at least one edge.
fn boundary_loops(fans: &[u32], edges: &EdgeTable) -> usize {
    let boundary: Vec<[u32; 2]> = edges
        .iter()
        .filter_map(|(_, sides)| match sides {
            [side] => Some(side.corners().map(|corner| fans[corner as usize])),
            _ => None,
        })
        .collect();
    if boundary.is_empty() {
        return 0;
    }
    let mut loops = Classes::new(fans.len());
    for &[lower, higher] in &boundary {
        loops.join(lower, higher);
    }
    let mut names: Vec<u32> = boundary.iter().map(|&[fan, _]| loops.find(fan)).collect();
    names.sort_unstable();
    names.dedup();
    names.len()
}

fn coincident_vertices(mesh: &Mesh) -> Tally<[u32; 2]> {
    first_at_same_position(mesh.vertices())
        .into_iter()
        .zip(0u32..)
        .filter(|(first, vertex)| first != vertex)
        .map(|(first, vertex)| [first, vertex])
        .collect()
}

fn degenerate_faces_and_area(mesh: &Mesh) -> (Tally<u32>, f64) {
    let faces: Vec<(bool, f64)> =
        (0..mesh.face_count()).into_par_iter().map(|face| degeneracy_and_area(mesh, face)).collect();
    let degenerate = (0u32..).zip(&faces).filter(|(_, (degenerate, _))| *degenerate).map(|(face, _)| face).collect();
    // Sum in face order, so that the result does not depend on the number of threads.
    (degenerate, faces.iter().fold(0.0, |sum, (_, area)| sum + area))
}

fn edge_lengths(mesh: &Mesh, edges: &EdgeTable) -> Vec<f64> {
    let at = |vertex: u32| mesh.vertices()[vertex as usize];
    edges.ends().par_iter().map(|&[a, b]| at(a).distance(at(b))).collect()
}

fn mean_min_max(lengths: &[f64]) -> [f64; 3] {
    if lengths.is_empty() {
        return [0.0; 3];
    }
    [
        lengths.iter().sum::<f64>() / lengths.len() as f64,
        lengths.iter().copied().fold(f64::INFINITY, f64::min),
        lengths.iter().copied().fold(0.0, f64::max),
    ]
}
