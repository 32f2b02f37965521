//! Surfaces in the space of their aligned eigenvectors, where points that correspond are near each other.

use crate::refine::{FunctionalMap, TASK};
use crate::shape::{Basis, Shape};
use gemcnn_kernels::{Destination, Matrix, MatrixMut, product};
use gemcnn_mesh::remesh::SurfacePoint;
use gemcnn_mesh::{Mesh, triangulate, vector_area};
use rayon::prelude::*;

/// Largest number of vertices around which the nearest point is searched.
const MAX_STEPS: usize = 16;
/// Numbers that are multiplied at a time.
const LANES: usize = 16;

/// A surface with a row of numbers for each vertex, linear on its triangles.
pub(crate) struct Embedding {
    /// Numbers in a row: a multiple of `LANES`.
    width: usize,
    rows: Vec<f32>,
    /// Squared length of every row.
    squares: Vec<f64>,
    /// Triangles, with the products of the rows of corners 0 and 1, 1 and 2, 2 and 0.
    triangles: Vec<([u32; 3], [f64; 3])>,
    /// Start of the triangles of every vertex in `around`.
    offsets: Vec<u32>,
    /// Triangles around every vertex.
    around: Vec<u32>,
}

/// The two surfaces of a functional map: rows `[Phi_A C, Phi_A]` and `[Phi_B, Phi_B C^T]`.
pub(crate) fn embeddings(a: &Shape, b: &Shape, map: &FunctionalMap) -> (Embedding, Embedding) {
    let matrix = map.matrix();
    rayon::join(
        || Embedding::new(a.surface(), rows(a.basis(), map.size, matrix, true), padded(map.size)),
        || Embedding::new(b.surface(), rows(b.basis(), map.size, matrix.transposed(), false), padded(map.size)),
    )
}

fn padded(size: usize) -> usize {
    (2 * size).next_multiple_of(LANES)
}

/// Eigenvectors that are aligned by a matrix, and as they are.
fn rows(basis: &Basis, size: usize, map: Matrix<'_, f32>, aligned_first: bool) -> Vec<f32> {
    let width = padded(size);
    let mut rows = vec![0.0; basis.mass.len() * width];
    rows.par_chunks_mut(TASK * width).enumerate().for_each(|(task, rows)| {
        let (first, count) = (task * TASK, rows.len() / width);
        let own = Matrix::new(&basis.vectors[first * basis.size..], count, size, basis.size);
        let (aligned, plain) = if aligned_first { (0, size) } else { (size, 0) };
        product(&mut MatrixMut::new(&mut rows[aligned..], count, size, width), Destination::Set, own, map);
        for (vertex, row) in (first..).zip(rows.chunks_exact_mut(width)) {
            row[plain..plain + size].copy_from_slice(&basis.vectors[vertex * basis.size..][..size]);
        }
    });
    rows
}

impl Embedding {
    fn new(mesh: &Mesh, rows: Vec<f32>, width: usize) -> Self {
        let row = |vertex: u32| &rows[vertex as usize * width..][..width];
        let corners = triangles(mesh);
        let mut offsets = vec![0; mesh.vertex_count() + 1];
        for &corner in corners.iter().flatten() {
            offsets[corner as usize + 1] += 1;
        }
        for vertex in 0..mesh.vertex_count() {
            offsets[vertex + 1] += offsets[vertex];
        }
        let mut next = offsets.clone();
        let mut around = vec![0; 3 * corners.len()];
        for (triangle, corners) in (0..).zip(&corners) {
            for &corner in corners {
                let place = &mut next[corner as usize];
                around[*place as usize] = triangle;
                *place += 1;
            }
        }
        let products =
            |&[u, v, w]: &[u32; 3]| ([u, v, w], [dot(row(u), row(v)), dot(row(v), row(w)), dot(row(w), row(u))]);
        let triangles = corners.par_iter().map(products).collect();
        let squares = rows.par_chunks(width).map(|row| dot(row, row)).collect();
        Self { width, squares, triangles, offsets, around, rows }
    }

    fn row(&self, vertex: u32) -> &[f32] {
        &self.rows[vertex as usize * self.width..][..self.width]
    }

    /// The point of this surface that is nearest to each of some points of another one. The search descends from a
    /// vertex: `starts` has one for each vertex of the other surface.
    pub(crate) fn nearest(&self, other: &Self, points: &[SurfacePoint], starts: &[u32]) -> Vec<SurfacePoint> {
        let find = |row: &mut Vec<f32>, point: &SurfacePoint| {
            row.fill(0.0);
            for (&corner, &weight) in point.corners.iter().zip(&point.weights) {
                if weight > 0.0 {
                    row.iter_mut().zip(other.row(corner)).for_each(|(sum, x)| *sum += weight as f32 * x);
                }
            }
            self.descend(row, starts[point.nearest_corner() as usize])
        };
        points.par_iter().map_init(|| vec![0.0; self.width], find).collect()
    }

    fn descend(&self, row: &[f32], start: u32) -> SurfacePoint {
        let mut centre = start;
        // Squared distances without the squared length of the row itself.
        let mut best = (self.squares[start as usize] - 2.0 * dot(row, self.row(start)), SurfacePoint::vertex(start));
        for _ in 0..MAX_STEPS {
            let bounds = [0, 1].map(|end| self.offsets[centre as usize + end] as usize);
            for &triangle in &self.around[bounds[0]..bounds[1]] {
                let (corners, products) = &self.triangles[triangle as usize];
                let squares = corners.map(|corner| self.squares[corner as usize]);
                let (distance, weights) =
                    nearest_in_triangle(squares, *products, corners.map(|corner| dot(row, self.row(corner))));
                if distance < best.0 {
                    best = (distance, SurfacePoint { corners: *corners, weights });
                }
            }
            let next = best.1.nearest_corner();
            if next == centre {
                break;
            }
            centre = next;
        }
        best.1
    }
}

/// Weights of the point of a triangle that is nearest to another point, and its squared distance up to a constant. In:
/// the squares of the corners, the products of corners 0 and 1, 1 and 2, 2 and 0, and those with the point.
fn nearest_in_triangle(squares: [f64; 3], products: [f64; 3], with: [f64; 3]) -> (f64, [f64; 3]) {
    let [uv, vw, wu] = products;
    let value = |weights: [f64; 3]| {
        let [u, v, w] = weights;
        let own = u * u * squares[0] + v * v * squares[1] + w * w * squares[2];
        let mixed = u * v * uv + v * w * vw + w * u * wu;
        own + 2.0 * mixed - 2.0 * (u * with[0] + v * with[1] + w * with[2])
    };
    // Edges from corner 0, and the point seen from there.
    let (aa, bb) = (squares[1] - 2.0 * uv + squares[0], squares[2] - 2.0 * wu + squares[0]);
    let ab = vw - uv - wu + squares[0];
    let (pa, pb) = (with[1] - with[0] - uv + squares[0], with[2] - with[0] - wu + squares[0]);
    let determinant = aa * bb - ab * ab;
    let (v, w) = ((bb * pa - ab * pb) / determinant, (aa * pb - ab * pa) / determinant);
    if v >= 0.0 && w >= 0.0 && v + w <= 1.0 {
        let weights = [1.0 - v - w, v, w];
        return (value(weights), weights);
    }
    // Nearest points of the sides; a side without length gives its first corner.
    let share = |along: f64, length: f64| if length > 0.0 { (along / length).clamp(0.0, 1.0) } else { 0.0 };
    let (v, w) = (share(pa, aa), share(pb, bb));
    let opposite = share(pb - pa - ab + aa, aa - 2.0 * ab + bb);
    let sides = [[1.0 - v, v, 0.0], [1.0 - w, 0.0, w], [0.0, 1.0 - opposite, opposite]];
    let sides = sides.map(|weights| (value(weights), weights));
    sides.into_iter().reduce(|best, side| if side.0 < best.0 { side } else { best }).unwrap_or(sides[0])
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut sums = [0.0f32; LANES];
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().map(|&sum| f64::from(sum)).sum()
}

/// The triangles of a mesh.
pub(crate) fn triangles(mesh: &Mesh) -> Vec<[u32; 3]> {
    let mut corners = Vec::with_capacity(mesh.face_count());
    let mut found = Vec::new();
    for (number, face) in mesh.faces().iter().enumerate() {
        found.clear();
        let positions: Vec<_> = mesh.face_positions(number).collect();
        triangulate(&positions, vector_area(positions.iter().copied()), &mut found);
        corners.extend(found.iter().map(|triangle| triangle.map(|corner| face[corner])));
    }
    corners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_triangles_are_nearest() {
        let corners = [[0.0, 0.0, 1.0], [2.0, 0.0, 0.0], [0.5, 1.0, 0.0f64]];
        let product = |a: [f64; 3], b: [f64; 3]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
        let squares = corners.map(|corner| product(corner, corner));
        let products = [[0, 1], [1, 2], [2, 0]].map(|[i, j]| product(corners[i], corners[j]));
        let at = |[u, v, w]: [f64; 3]| [0, 1, 2].map(|i| u * corners[0][i] + v * corners[1][i] + w * corners[2][i]);
        for point in [[0.6, 0.3, 0.1], [3.0, 0.2, 0.0], [-1.0, -1.0, 2.0], [0.0, 3.0, 0.3], [1.0, -2.0, 0.7]] {
            let (found, weights) = nearest_in_triangle(squares, products, corners.map(|corner| product(corner, point)));
            let distance = |weights| {
                let difference: [f64; 3] = std::array::from_fn(|i| at(weights)[i] - point[i]);
                product(difference, difference)
            };
            assert!((distance(weights) - found - product(point, point)).abs() < 1e-12);
            for i in 0..=20 {
                for j in 0..=20 - i {
                    let other = [f64::from(i) / 20.0, f64::from(j) / 20.0, f64::from(20 - i - j) / 20.0];
                    assert!(distance(other) > distance(weights) - 1e-12, "{point:?}: {other:?} {weights:?}");
                }
            }
        }
    }
}
