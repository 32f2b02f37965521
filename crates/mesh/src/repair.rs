//! Mesh repairs: weld vertices, drop degenerate faces, duplicate faces and isolated vertices, and
//! orient faces. Each repair is requested explicitly and reports its effect.

use std::fmt;
use std::str::FromStr;

use glam::DVec3;
use serde::{Serialize, Serializer};

use crate::defects::{degeneracy_and_area, duplicate_faces, first_at_same_position};
use crate::edges::EdgeTable;
use crate::mesh::{Faces, Mesh, MeshError};
use crate::orientation::Orientation;
use crate::points::PointIndex;

/// A mesh repair. `Display` and `FromStr` use one word: `weld`, `weld=1e-6`, `degenerate`,
/// `duplicates`, `isolated`, `orient`.
///
/// ```
/// use gemcnn_mesh::Repair;
/// let repair: Repair = "weld=1e-6".parse()?;
/// assert_eq!(repair, Repair::Weld { tolerance: 1e-6 });
/// assert_eq!(repair.to_string(), "weld=1e-6");
/// # Ok::<(), gemcnn_mesh::RepairError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Repair {
    /// `weld`: merges vertices at most `tolerance` apart. 0 merges vertices at exactly the same
    /// position.
    ///
    /// The algorithm is greedy in vertex order: a vertex merges into the lowest kept vertex within
    /// the tolerance, and is kept if there is none. Kept vertices do not move and are more than the
    /// tolerance apart. Faces are renumbered; some may collapse and become degenerate.
    Weld {
        /// Largest distance at which vertices merge, in the units of the mesh.
        tolerance: f64,
    },
    /// `degenerate`: drops faces with a repeated vertex, except polygons with holes, and faces with zero
    /// area up to rounding. Vertices
    /// are kept.
    DropDegenerateFaces,
    /// `duplicates`: drops faces that repeat an earlier face up to the first corner and the
    /// orientation.
    DropDuplicateFaces,
    /// `isolated`: drops vertices that no face uses.
    DropIsolatedVertices,
    /// `orient`: reverses faces so that any two faces that share an edge with no third face have
    /// consistent orientations.
    ///
    /// In every patch of faces connected through such edges, the smaller part is reversed; of two
    /// equal parts, the one without the first face. A non-orientable patch is not changed. A
    /// reversed face keeps its first corner.
    Orient,
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weld { tolerance } if *tolerance != 0.0 => write!(f, "weld={tolerance:?}"),
            _ => f.write_str(Self::ALL.iter().find(|(_, repair)| repair == self).map_or("", |(word, _)| word)),
        }
    }
}

impl Repair {
    /// All repairs with their words, in the order in which to apply them.
    pub const ALL: [(&str, Self); 5] = [
        ("weld", Self::Weld { tolerance: 0.0 }),
        ("degenerate", Self::DropDegenerateFaces),
        ("duplicates", Self::DropDuplicateFaces),
        ("isolated", Self::DropIsolatedVertices),
        ("orient", Self::Orient),
    ];

    /// The words of all repairs, for a message.
    pub fn words() -> String {
        format!("{} or weld=DISTANCE", Self::ALL.map(|(word, _)| word).join(", "))
    }
}

impl FromStr for Repair {
    type Err = RepairError;

    fn from_str(word: &str) -> Result<Self, RepairError> {
        if let Some(&(_, repair)) = Self::ALL.iter().find(|(name, _)| *name == word) {
            return Ok(repair);
        }
        let unknown = || RepairError::Unknown { word: word.into() };
        let number = word.strip_prefix("weld=").ok_or_else(unknown)?;
        let tolerance = number.parse().map_err(|_| unknown())?;
        check_tolerance(tolerance)?;
        Ok(Self::Weld { tolerance })
    }
}

impl Serialize for Repair {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Error of [`repair()`] and of parsing a [`Repair`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RepairError {
    /// A weld tolerance is negative, infinite or NaN.
    #[error("weld tolerance {tolerance} is not a distance: use a finite number of at least 0")]
    Tolerance {
        /// The invalid tolerance.
        tolerance: f64,
    },
    /// A word is not the name of a repair.
    #[error("'{word}' is not a repair: use {}", Repair::words())]
    Unknown {
        /// The word.
        word: String,
    },
    /// The repaired vertices and faces are not a valid mesh.
    #[error(transparent)]
    Mesh(#[from] MeshError),
}

fn check_tolerance(tolerance: f64) -> Result<(), RepairError> {
    if tolerance.is_finite() && tolerance >= 0.0 { Ok(()) } else { Err(RepairError::Tolerance { tolerance }) }
}

/// A repaired mesh and the relation of its vertices and faces to those of the original mesh.
#[derive(Debug, Clone, PartialEq)]
pub struct Repaired {
    /// The repaired mesh.
    pub mesh: Mesh,
    /// For each new vertex, the old vertex it comes from; ascending.
    pub vertex_origin: Vec<u32>,
    /// For each old vertex, its new index, or `None` if it was removed. Several old vertices may
    /// share one new index.
    pub vertex_map: Vec<Option<u32>>,
    /// For each new face, the old face it comes from; ascending.
    pub face_origin: Vec<u32>,
    /// Effect of each repair, in order.
    pub steps: Vec<RepairStep>,
}

/// The effect of one repair. Its [`Display`](fmt::Display) is a line such as `weld: merged 24
/// vertices into 8`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RepairStep {
    /// The repair.
    pub repair: Repair,
    /// Number of vertices removed (weld, isolated), or of faces dropped or reversed.
    pub changed: usize,
    /// Number of vertices (weld, isolated) or faces before the repair.
    pub total: usize,
    /// Number of non-orientable patches that [`Repair::Orient`] did not change.
    pub nonorientable: usize,
}

impl fmt::Display for RepairStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { repair, changed, total, nonorientable } = self;
        write!(f, "{repair}: ")?;
        match repair {
            Repair::Weld { .. } if *changed == 0 => f.write_str("no vertices to merge"),
            Repair::Weld { .. } => write!(f, "merged {total} vertices into {}", total.saturating_sub(*changed)),
            Repair::DropDegenerateFaces | Repair::DropDuplicateFaces => {
                write!(f, "dropped {changed} of {total} faces")
            }
            Repair::DropIsolatedVertices => write!(f, "dropped {changed} of {total} vertices"),
            Repair::Orient => write!(f, "reversed {changed} of {total} faces"),
        }?;
        match nonorientable {
            0 => Ok(()),
            1 => f.write_str("; 1 non-orientable patch unchanged"),
            _ => write!(f, "; {nonorientable} non-orientable patches unchanged"),
        }
    }
}

/// Applies repairs in the given order. Other vertices and faces are kept, in their order.
///
/// ```
/// use gemcnn_mesh::{DVec3, Mesh, Repair, repair};
/// // Two triangles of a square that have their own corners each.
/// let soup = Mesh::new(
///     vec![DVec3::ZERO, DVec3::X, DVec3::Y, DVec3::Y, DVec3::X, DVec3::ONE],
///     [[0, 1, 2], [3, 4, 5]].iter().collect(),
/// )?;
/// let repaired = repair(&soup, &[Repair::Weld { tolerance: 0.0 }])?;
/// assert_eq!(repaired.mesh.face(1), [2, 1, 3]);
/// assert_eq!(repaired.vertex_origin, [0, 1, 2, 5]);
/// assert_eq!(repaired.steps[0].to_string(), "weld: merged 6 vertices into 4");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A weld tolerance is negative, infinite or NaN. No repair is applied then.
pub fn repair(mesh: &Mesh, repairs: &[Repair]) -> Result<Repaired, RepairError> {
    for repair in repairs {
        if let Repair::Weld { tolerance } = *repair {
            check_tolerance(tolerance)?;
        }
    }
    let all = 0..mesh.vertex_count() as u32;
    let mut repaired = Repaired {
        mesh: mesh.clone(),
        vertex_origin: all.clone().collect(),
        vertex_map: all.map(Some).collect(),
        face_origin: (0..mesh.face_count() as u32).collect(),
        steps: Vec::with_capacity(repairs.len()),
    };
    for &repair in repairs {
        repaired.apply(repair)?;
    }
    Ok(repaired)
}

impl Repaired {
    fn apply(&mut self, repair: Repair) -> Result<(), RepairError> {
        let (vertices, faces) = (self.mesh.vertex_count(), self.mesh.face_count());
        let mut nonorientable = 0;
        let (changed, total) = match repair {
            Repair::Weld { tolerance } => {
                let kept = weld_targets(self.mesh.vertices(), tolerance);
                (self.merge_vertices(|v| Some(kept[v as usize]))?, vertices)
            }
            Repair::DropIsolatedVertices => {
                let mut used = vec![false; vertices];
                for &vertex in self.mesh.faces().corners() {
                    used[vertex as usize] = true;
                }
                let changed = self.merge_vertices(|v| used[v as usize].then_some(v))?;
                (changed, vertices)
            }
            Repair::DropDegenerateFaces => {
                let drop: Vec<bool> = (0..faces).map(|face| degeneracy_and_area(&self.mesh, face).0).collect();
                (self.drop_faces(&drop)?, faces)
            }
            Repair::DropDuplicateFaces => {
                let mut drop = vec![false; faces];
                for [_, repetition] in duplicate_faces(&self.mesh) {
                    drop[repetition as usize] = true;
                }
                (self.drop_faces(&drop)?, faces)
            }
            Repair::Orient => {
                let orientation = Orientation::new(&self.mesh, &EdgeTable::new(&self.mesh));
                nonorientable = orientation.nonorientable.len();
                self.turn_faces(&orientation.turn)?;
                (orientation.turn.len(), faces)
            }
        };
        self.steps.push(RepairStep { repair, changed, total, nonorientable });
        Ok(())
    }

    /// Replaces every vertex by its `target`, or drops it if there is none. A target is the vertex
    /// itself or a lower vertex that is its own target. Returns the number of vertices removed.
    fn merge_vertices(&mut self, target: impl Fn(u32) -> Option<u32>) -> Result<usize, RepairError> {
        let old = self.mesh.vertices();
        let mut kept = Vec::with_capacity(old.len());
        let mut renumbered: Vec<Option<u32>> = Vec::with_capacity(old.len());
        for vertex in 0..old.len() as u32 {
            let number = match target(vertex) {
                Some(own) if own == vertex => {
                    kept.push(vertex);
                    Some(kept.len() as u32 - 1)
                }
                Some(lower) => renumbered[lower as usize],
                None => None,
            };
            renumbered.push(number);
        }
        let gone = old.len() - kept.len();
        let positions = kept.iter().map(|&v| old[v as usize]).collect();
        let faces = self.mesh.faces();
        let mut renamed = Faces::with_capacity(faces.len(), faces.corners().len());
        for face in faces.iter() {
            for vertex in face.iter().filter_map(|&v| renumbered[v as usize]) {
                renamed.push_corner(vertex);
            }
            renamed.close_face();
        }
        self.mesh = Mesh::new(positions, renamed)?;
        self.vertex_origin = kept.iter().map(|&v| self.vertex_origin[v as usize]).collect();
        for vertex in &mut self.vertex_map {
            *vertex = vertex.and_then(|v| renumbered[v as usize]);
        }
        Ok(gone)
    }

    /// Drops the marked faces and returns their number.
    fn drop_faces(&mut self, drop: &[bool]) -> Result<usize, RepairError> {
        let faces = self.mesh.faces();
        let kept: Faces = faces.iter().zip(drop).filter(|&(_, &drop)| !drop).map(|(face, _)| face).collect();
        let gone = faces.len() - kept.len();
        let mut dropped = drop.iter();
        (self.face_origin).retain(|_| dropped.next().is_none_or(|drop| !drop));
        self.mesh = Mesh::new(self.mesh.vertices().to_vec(), kept)?;
        Ok(gone)
    }

    /// Reverses the listed faces, given in ascending order, about their first corners.
    fn turn_faces(&mut self, turn: &[u32]) -> Result<(), RepairError> {
        let faces = self.mesh.faces();
        let mut turned = Faces::with_capacity(faces.len(), faces.corners().len());
        let mut turn = turn.iter().peekable();
        for (face, corners) in (0u32..).zip(faces.iter()) {
            if turn.next_if_eq(&&face).is_some() {
                turned.push_corner(corners[0]);
                for &vertex in corners[1..].iter().rev() {
                    turned.push_corner(vertex);
                }
                turned.close_face();
            } else {
                turned.push(corners);
            }
        }
        self.mesh = Mesh::new(self.mesh.vertices().to_vec(), turned)?;
        Ok(())
    }
}

/// For every point, the lowest kept point within the tolerance; a kept point is its own target.
fn weld_targets(points: &[DVec3], tolerance: f64) -> Vec<u32> {
    if tolerance == 0.0 {
        return first_at_same_position(points);
    }
    let index = PointIndex::new(points);
    let mut target: Vec<Option<u32>> = vec![None; points.len()];
    let mut near = Vec::new();
    // Kept points are more than the tolerance apart, so only a few of them are within reach of a
    // point: all queries together return O(n) points.
    for (point, &position) in (0u32..).zip(points) {
        if target[point as usize].is_some() {
            continue;
        }
        index.within(position, tolerance, usize::MAX, &mut near);
        for found in &near {
            target[found.point as usize].get_or_insert(point);
        }
    }
    target.into_iter().zip(0..).map(|(target, own)| target.unwrap_or(own)).collect()
}
