//! Elements, of which those of surfaces become faces.

use std::collections::HashMap;

use super::input::Input;
use crate::Faces;
use crate::io::Tally;
use crate::io::error::{FileProblem, Location, Parsed};

/// Number of nodes of the element types up to 31.
const NODES: [usize; 32] =
    [0, 2, 3, 4, 4, 8, 6, 5, 3, 6, 9, 10, 27, 18, 14, 1, 8, 20, 15, 13, 9, 10, 12, 15, 15, 21, 4, 5, 6, 20, 35, 56];

/// The faces of a file, with one entry of each list per face.
#[derive(Default)]
pub(super) struct Elements {
    pub(super) faces: Faces,
    pub(super) tags: Vec<u64>,
    pub(super) groups: Vec<i32>,
    pub(super) entities: Vec<i32>,
    skipped: Tally,
}

/// An element type: its number of nodes, and of those that are corners if it is a surface element, otherwise 0. The corners
/// come first.
#[derive(Clone, Copy)]
struct Kind {
    nodes: usize,
    corners: usize,
}

fn kind(number: i64) -> Option<Kind> {
    let nodes = match number {
        1..32 => NODES[number as usize],
        36 => 16,
        37 => 25,
        92 => 64,
        93 => 125,
        _ => return None,
    };
    let corners = match number {
        2 | 9 | 20..=25 => 3,
        3 | 10 | 16 | 36 | 37 => 4,
        _ => 0,
    };
    Some(Kind { nodes, corners })
}

impl Elements {
    pub(super) fn read_v2(&mut self, input: &mut Input, nodes: &HashMap<u64, u32>) -> Parsed<()> {
        let total = input.counted()?;
        let mut read = 0;
        while read < total {
            if !input.is_binary {
                let tag = input.tag()?;
                let number = input.int()?;
                let tags = input.int()?;
                self.element_v2(input, nodes, tag, kind(number), tags)?;
                read += 1;
                continue;
            }
            // A header for elements of one type.
            let number = input.int()?;
            let kind = known(input, number)?;
            let count = input.int()?;
            let tags = input.int()?;
            for _ in 0..count.max(0) {
                let tag = input.tag()?;
                self.element_v2(input, nodes, tag, Some(kind), tags)?;
            }
            read = read.saturating_add(count.max(1).unsigned_abs());
        }
        Ok(())
    }

    /// The tags of an element, of which the first two are group and entity, and its nodes.
    fn element_v2(
        &mut self,
        input: &mut Input,
        nodes: &HashMap<u64, u32>,
        tag: u64,
        kind: Option<Kind>,
        tags: i64,
    ) -> Parsed<()> {
        let mut places = [0; 2];
        for place in 0..tags.max(0) {
            let value = input.int()?;
            if let Some(slot) = places.get_mut(place as usize) {
                *slot = value;
            }
        }
        let [group, entity] = places;
        self.nodes(input, nodes, tag, kind, (group, entity), Input::tag)
    }

    pub(super) fn read_v4(
        &mut self,
        input: &mut Input,
        nodes: &HashMap<u64, u32>,
        groups: &HashMap<i64, i64>,
    ) -> Parsed<()> {
        input.start();
        let blocks = input.size()?;
        for _ in 0..3 {
            input.size()?;
        }
        for _ in 0..blocks {
            let dimension = input.int()?;
            let entity = input.int()?;
            let number = input.int()?;
            let kind = if input.is_binary { Some(known(input, number)?) } else { kind(number) };
            let group = groups.get(&entity).filter(|_| dimension == 2);
            let group = group.copied().unwrap_or(0);
            for _ in 0..input.size()? {
                let tag = input.size()?;
                self.nodes(input, nodes, tag, kind, (group, entity), Input::size)?;
            }
        }
        Ok(())
    }

    fn nodes<'i>(
        &mut self,
        input: &mut Input<'i>,
        nodes: &HashMap<u64, u32>,
        tag: u64,
        kind: Option<Kind>,
        (group, entity): (i64, i64),
        node: impl Fn(&mut Input<'i>) -> Parsed<u64>,
    ) -> Parsed<()> {
        let Some(kind) = kind else {
            // An unknown type: in text its nodes are on the same line.
            input.bytes.end_line();
            self.skip(tag);
            return Ok(());
        };
        for place in 0..kind.nodes {
            let tag = node(input)?;
            if place < kind.corners {
                let vertex = nodes.get(&tag).copied().ok_or_else(|| {
                    input.fail(FileProblem::IndexOutOfRange {
                        index: i64::try_from(tag).unwrap_or(i64::MAX),
                        vertices: nodes.len(),
                        first: 1,
                    })
                })?;
                self.faces.push_corner(vertex);
            }
        }
        if kind.corners == 0 {
            self.skip(tag);
            return Ok(());
        }
        self.faces.close_face();
        self.tags.push(tag);
        let narrow = |value: i64| i32::try_from(value).unwrap_or(0);
        self.groups.push(narrow(group));
        self.entities.push(narrow(entity));
        Ok(())
    }

    fn skip(&mut self, tag: u64) {
        self.skipped.add(|| Location::Element { kind: "element".to_owned(), index: tag, byte: 0 });
    }

    pub(super) fn note(&self) -> Option<String> {
        self.skipped.note("element(s) that are no surface elements are skipped")
    }
}

fn known(input: &Input, number: i64) -> Parsed<Kind> {
    kind(number).ok_or_else(|| {
        let problem = FileProblem::unsupported(format!("Gmsh element type {number}"));
        input.fail(problem)
    })
}
