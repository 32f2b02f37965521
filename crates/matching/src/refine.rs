//! Bijective spectral refinement of maps in both directions.

use crate::MatchError;
use crate::shape::{Basis, Shape};
use gemcnn_kernels::best_pairs::BestPairs;
use gemcnn_kernels::{Destination, Matrix, MatrixMut, product};
use rayon::prelude::*;

/// Rows of a task. Sums over tasks are added in order, for any number of threads.
pub(crate) const TASK: usize = 512;

/// Options of [`refine`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RefineOptions {
    /// Number of eigenvectors of the first step (default 10).
    pub first: usize,
    /// Eigenvectors that each step adds (default 10).
    pub step: usize,
    /// Largest number of eigenvectors (default 150).
    pub last: usize,
    /// Weight `alpha` of the descriptors (default 1).
    pub alpha: f32,
}

impl Default for RefineOptions {
    fn default() -> Self {
        Self { first: 10, step: 10, last: 150, alpha: 1.0 }
    }
}

/// A linear map from functions on B to functions on A, as coefficients of eigenvectors.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionalMap {
    /// Number of eigenvectors of each surface.
    pub size: usize,
    /// Entries, `[size, size]`: a row for each eigenvector of A, a column for each of B.
    pub values: Vec<f32>,
}

impl FunctionalMap {
    pub(crate) fn matrix(&self) -> Matrix<'_, f32> {
        Matrix::new(&self.values, self.size, self.size, self.size)
    }
}

/// Maps between the surfaces of two shapes.
#[derive(Debug, Clone, PartialEq)]
pub struct Refined {
    /// Vertex of B for every vertex of A.
    pub forward: Vec<u32>,
    /// Vertex of A for every vertex of B.
    pub backward: Vec<u32>,
    /// The functional map of the last step.
    pub functional_map: FunctionalMap,
}

/// Refines the maps of nearest descriptors. Indices are those of vertices of [`Shape::surface`].
///
/// # Errors
/// Descriptors that are missing or of different widths.
pub fn refine(a: &Shape, b: &Shape, options: &RefineOptions) -> Result<Refined, MatchError> {
    let [width, other] = [a, b].map(|shape| shape.descriptors().width);
    if width != other || width == 0 {
        return Err(MatchError::DescriptorWidths { a: width, b: other });
    }
    let [m, n] = [a, b].map(|shape| shape.basis().mass.len());
    let (mut forward, mut backward) = (vec![0; m], vec![0; n]);
    BestPairs {
        width,
        a: &a.descriptors().rows,
        b: &b.descriptors().rows,
        cost_a: &vec![0.0; m],
        cost_b: &vec![0.0; n],
        for_a: &mut forward,
        for_b: &mut backward,
    }
    .on_host()?;
    refine_from(a, b, [forward, backward], options)
}

/// Refines maps in both directions. Both shapes have descriptors of the same width.
pub(crate) fn refine_from(
    a: &Shape,
    b: &Shape,
    [mut forward, mut backward]: [Vec<u32>; 2],
    options: &RefineOptions,
) -> Result<Refined, MatchError> {
    let last = options.last.min(a.basis().size).min(b.basis().size);
    let mut size = options.first.clamp(1, last);
    loop {
        let functional_map = coupled(a.basis(), b.basis(), &forward, &backward, size);
        search(a, b, &functional_map, options.alpha, &mut forward, &mut backward)?;
        if size == last {
            return Ok(Refined { forward, backward, functional_map });
        }
        size = (size + options.step.max(1)).min(last);
    }
}

/// `C = (C_AB + C_BA^T) / 2` of the first `size` eigenvectors.
fn coupled(a: &Basis, b: &Basis, forward: &[u32], backward: &[u32], size: usize) -> FunctionalMap {
    let (mut values, other) = rayon::join(|| pulled_back(a, forward, b, size), || pulled_back(b, backward, a, size));
    for (row, values) in values.chunks_exact_mut(size).enumerate() {
        for (column, value) in values.iter_mut().enumerate() {
            *value = 0.5 * (*value + other[column * size + row]);
        }
    }
    FunctionalMap { size, values }
}

/// `Phi_A^T M_A Phi_B[T]`.
fn pulled_back(a: &Basis, map: &[u32], b: &Basis, size: usize) -> Vec<f32> {
    let tasks: Vec<Vec<f32>> = (map.par_chunks(TASK).enumerate())
        .map(|(task, images)| {
            let (mut left, mut right) = (Vec::with_capacity(TASK * size), Vec::with_capacity(TASK * size));
            for (vertex, &image) in (task * TASK..).zip(images) {
                let mass = a.mass[vertex];
                left.extend(a.vectors[vertex * a.size..][..size].iter().map(|x| mass * x));
                right.extend_from_slice(&b.vectors[image as usize * b.size..][..size]);
            }
            let [left, right] = [&left, &right].map(|rows| Matrix::new(rows, images.len(), size, size));
            let mut sum = vec![0.0; size * size];
            product(&mut MatrixMut::new(&mut sum, size, size, size), Destination::Set, left.transposed(), right);
            sum
        })
        .collect();
    let mut tasks = tasks.into_iter();
    let mut total = tasks.next().unwrap_or_else(|| vec![0.0; size * size]);
    for task in tasks {
        total.iter_mut().zip(&task).for_each(|(sum, term)| *sum += term);
    }
    total
}

/// The maps that fit a functional map and the descriptors best.
pub(crate) fn maps_of(a: &Shape, b: &Shape, map: &FunctionalMap, alpha: f32) -> Result<[Vec<u32>; 2], MatchError> {
    let [mut forward, mut backward] = [a, b].map(|shape| vec![0; shape.basis().mass.len()]);
    search(a, b, map, alpha, &mut forward, &mut backward)?;
    Ok([forward, backward])
}

/// Both maps that fit a functional map and the descriptors best.
fn search(
    a: &Shape,
    b: &Shape,
    map: &FunctionalMap,
    alpha: f32,
    forward: &mut [u32],
    backward: &mut [u32],
) -> Result<(), MatchError> {
    let size = map.size;
    let weight = alpha * (2.0 * size as f32).sqrt();
    let (left, right) = rayon::join(
        || Rows::new(a, size, map.matrix(), Use { aligned: true, weight }),
        || Rows::new(b, size, map.matrix().transposed(), Use { aligned: false, weight: 1.0 }),
    );
    Ok(BestPairs {
        width: size + a.descriptors().width,
        a: &left.rows,
        b: &right.rows,
        cost_a: &left.costs,
        cost_b: &right.costs,
        for_a: forward,
        for_b: backward,
    }
    .on_host()?)
}

/// What stands in the rows of a product.
struct Use {
    /// Twice the aligned eigenvectors, or the eigenvectors as they are.
    aligned: bool,
    /// Factor of the descriptors.
    weight: f32,
}

/// Factors of the scores: rows `[2 P, w F]` or `[Phi, F]`, and the costs `(|P|^2 + |Phi|^2) / 2`.
struct Rows {
    rows: Vec<f32>,
    costs: Vec<f32>,
}

impl Rows {
    fn new(shape: &Shape, size: usize, map: Matrix<'_, f32>, Use { aligned, weight }: Use) -> Self {
        let (basis, descriptors) = (shape.basis(), shape.descriptors());
        let width = size + descriptors.width;
        let vertices = basis.mass.len();
        let (mut rows, mut costs) = (vec![0.0; vertices * width], vec![0.0; vertices]);
        let tasks = rows.par_chunks_mut(TASK * width).zip(costs.par_chunks_mut(TASK)).enumerate();
        tasks.for_each(|(task, (rows, costs))| {
            let (first, count) = (task * TASK, costs.len());
            let own = Matrix::new(&basis.vectors[first * basis.size..], count, size, basis.size);
            product(&mut MatrixMut::new(rows, count, size, width), Destination::Set, own, map);
            for (vertex, (row, cost)) in (first..).zip(rows.chunks_exact_mut(width).zip(costs)) {
                let (row, described) = row.split_at_mut(size);
                let own = &basis.vectors[vertex * basis.size..][..size];
                *cost = 0.5 * (squared_norm(row) + squared_norm(own));
                match aligned {
                    true => row.iter_mut().for_each(|x| *x *= 2.0),
                    false => row.copy_from_slice(own),
                }
                let values = &descriptors.rows[vertex * descriptors.width..][..descriptors.width];
                described.iter_mut().zip(values).for_each(|(to, x)| *to = weight * x);
            }
        });
        Self { rows, costs }
    }
}

fn squared_norm(row: &[f32]) -> f32 {
    row.iter().map(|x| x * x).sum()
}
