//! The flat pixel grid, and the connectivity shared by its bent and rough variants.

use glam::DVec3;

use super::{Cells, ShapeError, product, require, require_size};
use crate::{Faces, Mesh};

/// A flat grid of `rows` times `columns` vertices with unit spacing in the plane z = 0.
///
/// The vertex in row `r` and column `c` has index `r * columns + c` and position `(c, rows - 1 - r,
/// 0)`. Seen from +z, with x to the right and y up, row 0 is at the top, as in an image. Faces are
/// counterclockwise in this view, so normals are +z. Triangles are cut from upper left to lower
/// right.
///
/// ```
/// use gemcnn_mesh::DVec3;
/// use gemcnn_mesh::shapes::{Cells, grid};
/// let mesh = grid(2, 3, Cells::Quads)?;
/// assert_eq!(mesh.vertices()[0], DVec3::new(0.0, 1.0, 0.0));
/// assert_eq!(mesh.vertices()[1 * 3 + 2], DVec3::new(2.0, 0.0, 0.0));
/// assert_eq!(mesh.face(0), [0, 3, 4, 1]);
/// # Ok::<(), gemcnn_mesh::shapes::ShapeError>(())
/// ```
///
/// # Errors
/// There are fewer than two rows or columns, or more cells than 32-bit indices can address.
pub fn grid(rows: usize, columns: usize, cells: Cells) -> Result<Mesh, ShapeError> {
    sheet(rows, columns, cells, |row, column| DVec3::new(column as f64, (rows - 1 - row) as f64, 0.0))
}

/// A mesh with the connectivity of the flat grid and vertices at `place(row, column)`.
pub(super) fn sheet(
    rows: usize,
    columns: usize,
    cells: Cells,
    place: impl Fn(usize, usize) -> DVec3,
) -> Result<Mesh, ShapeError> {
    require_grid(rows, columns, cells)?;
    let mut vertices = Vec::with_capacity(rows * columns);
    for row in 0..rows {
        vertices.extend((0..columns).map(|column| place(row, column)));
    }
    let cell_count = (rows - 1) * (columns - 1);
    let corner_count = cell_count * cells.corners() as usize;
    let mut faces = Faces::with_capacity(corner_count / 3, corner_count);
    let index = |row: usize, column: usize| (row * columns + column) as u32;
    for row in 0..rows - 1 {
        for column in 0..columns - 1 {
            let cell = [index(row, column), index(row + 1, column), index(row + 1, column + 1), index(row, column + 1)];
            cells.push(&mut faces, cell);
        }
    }
    Ok(Mesh::new(vertices, faces)?)
}

/// Returns an error if a grid has no cell or is too large to address.
pub(super) fn require_grid(rows: usize, columns: usize, cells: Cells) -> Result<(), ShapeError> {
    require(rows >= 2, "rows", rows, "at least 2")?;
    require(columns >= 2, "columns", columns, "at least 2")?;
    require_size(product(&[rows, columns]), product(&[rows - 1, columns - 1]).saturating_mul(cells.corners()))
}
