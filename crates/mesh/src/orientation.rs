//! Consistent orientation: which faces to turn so that neighbours agree, and where that cannot be.
//!
//! Two faces agree across an edge that exactly the two of them share when they run along it in
//! opposite directions. A patch is a class of faces connected through such edges.

use crate::classes::Classes;
use crate::edges::{EdgeTable, Side};

/// Whether two sides run along their edge in the same direction, so that their faces disagree.
pub(crate) fn disagree(sides: &[Side; 2]) -> bool {
    sides[0].forward == sides[1].forward
}

/// How the faces of a mesh can be brought to agree.
pub(crate) struct Orientation {
    /// The faces to turn, ascending: in every orientable patch the smaller of the two sides that
    /// disagree, and of two equal sides the one without the first face.
    pub(crate) turn: Vec<u32>,
    /// The first face of every patch that cannot be oriented.
    pub(crate) nonorientable: Vec<u32>,
}

impl Orientation {
    pub(crate) fn new(faces: usize, edges: &EdgeTable) -> Self {
        // The orientation double cover: sheet 2f is face f as it is, sheet 2f + 1 is face f turned.
        // A patch is orientable if its cover falls into two classes, not orientable if into one.
        // With f the first face of the patch, these are named 2f and 2f + 1, or 2f alone.
        let mut sheets = Classes::new(2 * faces);
        for (_, sides) in edges.two_sided() {
            let (a, b) = (2 * sides[0].face, 2 * sides[1].face);
            let turned = u32::from(disagree(sides));
            sheets.join(a, b + turned);
            sheets.join(a + 1, b + 1 - turned);
        }
        let class: Vec<u32> = (0..faces as u32)
            .map(|face| sheets.find(2 * face))
            .collect();
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
            let smaller = if size[against_first as usize] <= size[with_first as usize] {
                against_first
            } else {
                with_first
            };
            if class == smaller {
                turn.push(face);
            }
        }
        Self {
            turn,
            nonorientable,
        }
    }
}
