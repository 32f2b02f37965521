//! Consistent orientation: which faces to reverse so that adjacent faces agree, and which patches
//! are not orientable.
//!
//! Two faces that share an edge with no third face agree if they traverse it in opposite
//! directions. A patch is a set of faces connected through such edges.

use crate::classes::Classes;
use crate::edges::{EdgeTable, Side};
use crate::{DVec3, Mesh};

/// True if two sides traverse their edge in the same direction, so that their faces disagree.
pub(crate) fn disagree(sides: &[Side; 2]) -> bool {
    sides[0].forward == sides[1].forward
}

/// Result of the orientation of a mesh.
pub(crate) struct Orientation {
    /// Faces to reverse, ascending: in every orientable patch the smaller of the two parts that
    /// disagree; of two equal parts, the one without the first face. Those of the other faces if a closed
    /// mesh would face inwards.
    pub(crate) turn: Vec<u32>,
    /// The first face of every non-orientable patch.
    pub(crate) nonorientable: Vec<u32>,
}

impl Orientation {
    pub(crate) fn new(mesh: &Mesh, edges: &EdgeTable) -> Self {
        let mut found = Self::consistent(mesh.face_count(), edges);
        if found.nonorientable.is_empty() && Volume::new(mesh, edges, &found.turn).is_some_and(|v| v.is_inside_out()) {
            let mut turned = found.turn.iter().copied().peekable();
            let others = (0..mesh.face_count() as u32).filter(|face| turned.next_if_eq(face).is_none());
            found.turn = others.filter(|&face| edges.takes_part(face as usize)).collect();
        }
        found
    }

    fn consistent(faces: usize, edges: &EdgeTable) -> Self {
        if !edges.two_sided().any(|(_, sides)| disagree(sides)) {
            return Self { turn: Vec::new(), nonorientable: Vec::new() };
        }
        // The orientation double cover: sheet 2f is face f as given, sheet 2f + 1 is face f
        // reversed. The cover of an orientable patch has two classes, that of a non-orientable
        // patch has one. If f is the first face of the patch, their representatives are 2f and 2f +
        // 1, or 2f alone.
        let mut sheets = Classes::new(2 * faces);
        for (_, sides) in edges.two_sided() {
            let (a, b) = (2 * sides[0].face, 2 * sides[1].face);
            let turned = u32::from(disagree(sides));
            sheets.join(a, b + turned);
            sheets.join(a + 1, b + 1 - turned);
        }
        let class: Vec<u32> = (0..faces as u32).map(|face| sheets.find(2 * face)).collect();
        let mut size = vec![0u32; 2 * faces];
        for &class in &class {
            size[class as usize] += 1;
        }
        let (mut turn, mut nonorientable) = (Vec::new(), Vec::new());
        for (face, &class) in (0u32..).zip(&class) {
            let [with_first, against_first] = [class & !1, class | 1];
            if sheets.find(against_first) == with_first {
                if face == with_first / 2 {
                    nonorientable.push(face);
                }
                continue;
            }
            let smaller =
                if size[against_first as usize] <= size[with_first as usize] { against_first } else { with_first };
            if class == smaller {
                turn.push(face);
            }
        }
        Self { turn, nonorientable }
    }
}

/// The volume that a closed mesh with consistent orientation bounds.
pub(crate) struct Volume {
    /// Volume, negative if the faces point inwards.
    pub(crate) signed: f64,
    /// Sum of the magnitudes that were added.
    magnitude: f64,
}

impl Volume {
    /// The volume with the faces `turn` (ascending) reversed; `None` if an edge does not have two sides. Polygons are cut
    /// into triangles at their first corner.
    pub(crate) fn new(mesh: &Mesh, edges: &EdgeTable, turn: &[u32]) -> Option<Self> {
        if edges.len() == 0 || edges.two_sided().count() < edges.len() {
            return None;
        }
        let centre = mesh.bounds().map_or(DVec3::ZERO, |[low, high]| 0.5 * (low + high));
        let at = |vertex: u32| mesh.vertices()[vertex as usize] - centre;
        let mut turned = turn.iter().copied().peekable();
        let mut volume = Self { signed: 0.0, magnitude: 0.0 };
        for (face, corners) in (0u32..).zip(mesh.faces().iter()) {
            let sign = if turned.next_if_eq(&face).is_some() { -1.0 } else { 1.0 };
            if !edges.takes_part(face as usize) {
                continue;
            }
            for &[b, c] in corners[1..].array_windows() {
                let part = at(corners[0]).dot(at(b).cross(at(c))) / 6.0;
                volume.signed += sign * part;
                volume.magnitude += part.abs();
            }
        }
        Some(volume)
    }

    /// True if the volume is negative beyond rounding.
    pub(crate) fn is_inside_out(&self) -> bool {
        self.signed < -1e-9 * self.magnitude
    }
}
