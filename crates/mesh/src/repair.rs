//! Repairs, each explicit and reported: weld, drop degenerate and duplicate faces, drop isolated
//! vertices, orient.

use std::fmt;
use std::str::FromStr;

use glam::DVec3;
use serde::{Serialize, Serializer};

use crate::defects::{degeneracy_and_area, duplicate_faces, first_at_same_position};
use crate::edges::EdgeTable;
use crate::mesh::{Faces, Mesh, MeshError};
use crate::orientation::Orientation;
use crate::points::PointIndex;

/// One change that makes a mesh sounder. It is written and read as a word: `weld`, `weld=1e-6`,
/// `degenerate`, `duplicates`, `isolated`, `orient`.
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
    /// `weld`: merges vertices that are at most `tolerance` apart; 0 merges those at exactly the
    /// same position.
    ///
    /// Greedy in the order of the vertices: a vertex goes to the lowest vertex within the tolerance
    /// that was itself kept, and is kept if there is none. Kept vertices stay where they are, and
    /// are more than the tolerance apart. Faces are renumbered; some may collapse and become
    /// degenerate.
    Weld {
        /// The largest distance at which vertices merge, in the units of the mesh.
        tolerance: f64,
    },
    /// `degenerate`: drops faces that repeat a vertex or have no area beyond rounding. The vertices
    /// stay.
    DropDegenerateFaces,
    /// `duplicates`: drops faces that repeat an earlier one up to the start and the direction of
    /// their corner cycle.
    DropDuplicateFaces,
    /// `isolated`: drops vertices that are in no face.
    DropIsolatedVertices,
    /// `orient`: turns faces so that any two that share an edge with no third agree about what is
    /// up.
    ///
    /// In every patch of faces connected through such edges the smaller part is turned, and of two
    /// equal parts the one without the first face. A patch that cannot be oriented is left alone.
    /// A turned face keeps its first corner.
    Orient,
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weld { tolerance: 0.0 } => f.write_str("weld"),
            Self::Weld { tolerance } => write!(f, "weld={tolerance:?}"),
            Self::DropDegenerateFaces => f.write_str("degenerate"),
            Self::DropDuplicateFaces => f.write_str("duplicates"),
            Self::DropIsolatedVertices => f.write_str("isolated"),
            Self::Orient => f.write_str("orient"),
        }
    }
}

impl FromStr for Repair {
    type Err = RepairError;

    fn from_str(word: &str) -> Result<Self, RepairError> {
        match word {
            "weld" => Ok(Self::Weld { tolerance: 0.0 }),
            "degenerate" => Ok(Self::DropDegenerateFaces),
            "duplicates" => Ok(Self::DropDuplicateFaces),
            "isolated" => Ok(Self::DropIsolatedVertices),
            "orient" => Ok(Self::Orient),
            _ => {
                let unknown = || RepairError::Unknown { word: word.into() };
                let number = word.strip_prefix("weld=").ok_or_else(unknown)?;
                let tolerance = number.parse().map_err(|_| unknown())?;
                check_tolerance(tolerance)?;
                Ok(Self::Weld { tolerance })
            }
        }
    }
}

impl Serialize for Repair {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Why a repair cannot be done.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RepairError {
    /// A weld tolerance is negative, infinite or NaN.
    #[error("weld tolerance {tolerance} is not a distance: give a finite number, 0 or more")]
    Tolerance {
        /// The tolerance.
        tolerance: f64,
    },
    /// A word names no repair.
    #[error(
        "'{word}' names no repair: use weld, weld=DISTANCE, degenerate, duplicates, isolated or orient"
    )]
    Unknown {
        /// The word.
        word: String,
    },
    /// The repaired parts do not make a mesh.
    #[error(transparent)]
    Mesh(#[from] MeshError),
}

fn check_tolerance(tolerance: f64) -> Result<(), RepairError> {
    if tolerance.is_finite() && tolerance >= 0.0 {
        Ok(())
    } else {
        Err(RepairError::Tolerance { tolerance })
    }
}

/// A repaired mesh, and how its vertices relate to those of the mesh it was made from.
#[derive(Debug, Clone, PartialEq)]
pub struct Repaired {
    /// The mesh.
    pub mesh: Mesh,
    /// For each new vertex the old one it came from; ascending.
    pub vertex_origin: Vec<u32>,
    /// For each old vertex the new one it became (several may become one), none if it was dropped.
    pub vertex_map: Vec<Option<u32>>,
    /// What each repair did, in order.
    pub steps: Vec<RepairStep>,
}

/// What one repair did. Its [`Display`](fmt::Display) is a sentence such as
/// `weld: merged 24 vertices into 8`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RepairStep {
    /// The repair.
    pub repair: Repair,
    /// How many vertices it removed (weld, isolated), or how many faces it dropped or turned.
    pub changed: usize,
    /// How many vertices or faces, respectively, there were before.
    pub total: usize,
    /// How many patches of faces [`Repair::Orient`] left alone because they cannot be oriented.
    pub nonorientable: usize,
}

impl fmt::Display for RepairStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            repair,
            changed,
            total,
            nonorientable,
        } = self;
        write!(f, "{repair}: ")?;
        match repair {
            Repair::Weld { .. } if *changed == 0 => f.write_str("no vertices to merge"),
            Repair::Weld { .. } => write!(
                f,
                "merged {total} vertices into {}",
                total.saturating_sub(*changed)
            ),
            Repair::DropDegenerateFaces | Repair::DropDuplicateFaces => {
                write!(f, "dropped {changed} of {total} faces")
            }
            Repair::DropIsolatedVertices => write!(f, "dropped {changed} of {total} vertices"),
            Repair::Orient => write!(f, "turned {changed} of {total} faces"),
        }?;
        match nonorientable {
            0 => Ok(()),
            1 => f.write_str("; left 1 non-orientable patch as it is"),
            _ => write!(
                f,
                "; left {nonorientable} non-orientable patches as they are"
            ),
        }
    }
}

/// Applies repairs in the order given. What is not repaired stays as it is and in its order.
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
/// A weld tolerance that is negative, infinite or NaN; nothing is done then.
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
                let drop: Vec<bool> = (0..faces)
                    .map(|face| degeneracy_and_area(&self.mesh, face).0)
                    .collect();
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
                let orientation = Orientation::new(faces, &EdgeTable::new(&self.mesh));
                nonorientable = orientation.nonorientable.len();
                self.turn_faces(&orientation.turn)?;
                (orientation.turn.len(), faces)
            }
        };
        self.steps.push(RepairStep {
            repair,
            changed,
            total,
            nonorientable,
        });
        Ok(())
    }

    /// Replaces every vertex by `target` of it, which is itself or a lower vertex that is its own
    /// target, or drops it where there is none. Returns how many went.
    fn merge_vertices(
        &mut self,
        target: impl Fn(u32) -> Option<u32>,
    ) -> Result<usize, RepairError> {
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
        self.vertex_origin = kept
            .iter()
            .map(|&v| self.vertex_origin[v as usize])
            .collect();
        for vertex in &mut self.vertex_map {
            *vertex = vertex.and_then(|v| renumbered[v as usize]);
        }
        Ok(gone)
    }

    /// Drops the marked faces and returns how many there were.
    fn drop_faces(&mut self, drop: &[bool]) -> Result<usize, RepairError> {
        let faces = self.mesh.faces();
        let kept: Faces = faces
            .iter()
            .zip(drop)
            .filter(|&(_, &drop)| !drop)
            .map(|(face, _)| face)
            .collect();
        let gone = faces.len() - kept.len();
        self.mesh = Mesh::new(self.mesh.vertices().to_vec(), kept)?;
        Ok(gone)
    }

    /// Reverses the listed faces, ascending, about their first corners.
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

/// For every point the lowest kept point within the tolerance, itself if it is kept.
fn weld_targets(points: &[DVec3], tolerance: f64) -> Vec<u32> {
    if tolerance == 0.0 {
        return first_at_same_position(points);
    }
    let index = PointIndex::new(points);
    let mut target: Vec<Option<u32>> = vec![None; points.len()];
    let mut near = Vec::new();
    // Kept points are more than the tolerance apart, so that only a few of them can reach the same
    // point: all searches together find a bounded number of points for each point.
    for (point, &position) in (0u32..).zip(points) {
        if target[point as usize].is_some() {
            continue;
        }
        index.within(position, tolerance, usize::MAX, &mut near);
        for found in &near {
            target[found.point as usize].get_or_insert(point);
        }
    }
    target
        .into_iter()
        .zip(0..)
        .map(|(target, own)| target.unwrap_or(own))
        .collect()
}
