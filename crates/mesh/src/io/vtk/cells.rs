//! Cells of VTK files, which become faces.

use crate::io::error::{FileProblem, Location};
use crate::io::{Tally, push_strip, vertex_index};
use crate::{AttributeValues, Faces, VertexAttribute};

/// Numbers of cell types with corners in the order of a polygon, and their number of corners; 0 for
/// any number. Nodes on sides and inside follow the corners and are left out.
const POLYGONS: [(i64, usize); 6] = [(5, 3), (7, 0), (9, 4), (22, 3), (23, 4), (28, 4)];
/// Cell type of a triangle strip.
pub(super) const STRIP: i64 = 6;
/// Cell type of a polygon.
pub(super) const POLYGON: i64 = 7;
/// Cell type of an axis-aligned rectangle, whose corners are in the order of rows.
const PIXEL: i64 = 8;

/// Faces made from cells.
pub(super) struct Cells {
    /// Number of vertices.
    vertices: usize,
    pub(super) faces: Faces,
    /// The cell of each face.
    cell_of_face: Vec<u32>,
    /// Number of cells so far, with those that are no faces.
    cells: usize,
    pub(super) skipped: Tally,
    pub(super) short: Tally,
    corners: Vec<u32>,
}

impl Cells {
    pub(super) fn new(vertices: usize) -> Self {
        Self {
            vertices,
            faces: Faces::new(),
            cell_of_face: Vec::new(),
            cells: 0,
            skipped: Tally::default(),
            short: Tally::default(),
            corners: Vec::new(),
        }
    }

    /// Number of cells so far.
    pub(super) fn count(&self) -> usize {
        self.cells
    }

    /// Skips points and lines.
    pub(super) fn skip(&mut self, cells: usize) {
        self.cells = self.cells.saturating_add(cells);
    }

    /// Appends a cell with the given type and points.
    pub(super) fn push(&mut self, kind: i64, points: impl Iterator<Item = i64>) -> Result<(), FileProblem> {
        let cell = self.cells;
        self.cells = self.cells.saturating_add(1);
        let location = || Location::Element { kind: "cell".to_owned(), index: cell as u64, byte: 0 };
        let is_face = kind == STRIP || kind == PIXEL || POLYGONS.iter().any(|&(k, _)| k == kind);
        if !is_face {
            self.skipped.add(location);
            return Ok(());
        }
        self.corners.clear();
        for point in points {
            self.corners.push(vertex_index(point, self.vertices)?);
        }
        let count = match POLYGONS.iter().find(|&&(k, _)| k == kind) {
            Some(&(_, count)) if count > 0 => count,
            _ if kind == PIXEL => 4,
            _ => self.corners.len(),
        };
        if self.corners.len() < count.max(3) {
            self.short.add(location);
            return Ok(());
        }
        self.corners.truncate(count);
        let before = self.faces.len();
        match kind {
            STRIP => push_strip(&self.corners, &mut self.faces),
            PIXEL => {
                self.corners.swap(2, 3);
                self.faces.push(&self.corners);
            }
            _ => self.faces.push(&self.corners),
        }
        let cell = u32::try_from(cell).unwrap_or(u32::MAX);
        self.cell_of_face.extend((before..self.faces.len()).map(|_| cell));
        Ok(())
    }

    /// Appends cells of one type from an array of points and the end of each cell in it. A leading
    /// 0 among the ends, which newer files have, is left out.
    pub(super) fn push_arrays(
        &mut self,
        kinds: Kinds,
        points: &AttributeValues,
        ends: &AttributeValues,
        leading_zero: bool,
    ) -> Result<(), FileProblem> {
        const WHY: &str = "the offsets of the cells are not ascending or exceed the connectivity";
        let mut start = 0;
        for (cell, end) in ends.iter_f64().skip(usize::from(leading_zero)).enumerate() {
            let end = end as usize;
            let kind = kinds.of(cell).filter(|_| start <= end && end <= points.len());
            let kind = kind.ok_or(FileProblem::bad_data(WHY))?;
            self.push(kind, (start..end).map(|at| points.to_f64(at) as i64))?;
            start = end;
        }
        Ok(())
    }

    /// Appends cells from an array in which the points of each cell follow their number.
    pub(super) fn push_counted(
        &mut self,
        kinds: Kinds,
        cells: usize,
        values: &AttributeValues,
    ) -> Result<(), FileProblem> {
        let mut at = 0;
        for cell in 0..cells {
            let bad = FileProblem::bad_data("the sizes of the cells do not match their total");
            if at >= values.len() {
                return Err(bad);
            }
            let count = values.to_f64(at);
            let start = at + 1;
            if !(0.0..=(values.len() - start) as f64).contains(&count) {
                return Err(bad);
            }
            at = start + count as usize;
            self.push(kinds.of(cell).ok_or(bad)?, (start..at).map(|at| values.to_f64(at) as i64))?;
        }
        Ok(())
    }

    /// The columns of the faces, from those of the cells.
    pub(super) fn of_faces(&self, mut columns: Vec<VertexAttribute>) -> Vec<VertexAttribute> {
        let mut cells = self.cell_of_face.iter().enumerate();
        if self.faces.len() != self.cells || cells.any(|(face, &cell)| face != cell as usize) {
            columns.iter_mut().for_each(|column| column.values = column.values.gather(&self.cell_of_face));
        }
        columns
    }

    /// Notes about cells that are no faces.
    pub(super) fn notes(&self) -> Vec<String> {
        let skipped = self.skipped.note("cell(s) that are no surface elements are skipped");
        let short = self.short.note("face(s) with too few corners are skipped");
        skipped.into_iter().chain(short).collect()
    }
}

/// Types of cells.
#[derive(Clone, Copy)]
pub(super) enum Kinds<'a> {
    /// All have the same type.
    All(i64),
    /// One type each.
    Each(&'a AttributeValues),
}

impl Kinds<'_> {
    fn of(self, cell: usize) -> Option<i64> {
        match self {
            Self::All(kind) => Some(kind),
            Self::Each(kinds) => (cell < kinds.len()).then(|| kinds.to_f64(cell) as i64),
        }
    }
}
