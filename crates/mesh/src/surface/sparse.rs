//! Hermitian sparse matrices and their Cholesky factors.
//!
//! `faer` analyses and factors a matrix in supernodes: groups of columns with the same pattern,
//! stored as dense panels. The triangular solves are written here, for many right-hand sides in
//! row-major order: every factor entry then updates a row of contiguous numbers.

use super::SurfaceError;
pub(crate) use super::scalar::Scalar;
use bytemuck::{Pod, Zeroable};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::solvers::LltError;
use faer::sparse::linalg::SupernodalThreshold;
use faer::sparse::linalg::cholesky::{
    CholeskySymbolicParams, SymbolicCholeskyRaw, SymmetricOrdering, factorize_symbolic_cholesky,
    supernodal::SupernodalLltRef,
};
use faer::sparse::{SparseColMatRef, SymbolicSparseColMatRef};
use faer::{Par, Side};

/// Number of right-hand sides that one pass over the factor solves for.
pub(crate) const LANES: usize = 8;
/// Number of panel rows that are processed together.
const ROWS: usize = 4;
/// A pivot below this fraction of its diagonal entry consists of rounding errors.
const MIN_PIVOT: f64 = 1e-14;

/// A Hermitian matrix: its real diagonal and one entry per pair of rows.
#[derive(Debug, Clone)]
pub(crate) struct Hermitian<T> {
    /// Diagonal entries.
    pub(crate) diagonal: Vec<f64>,
    /// Row and column of every entry above the diagonal; distinct, the row is lower.
    pub(crate) pairs: Vec<[u32; 2]>,
    /// The entries at `pairs`. The entries below the diagonal are their conjugates.
    pub(crate) values: Vec<T>,
}

impl<T: Scalar> Hermitian<T> {
    /// The upper triangle in compressed columns, with rows and columns moved to `place`.
    fn upper_columns(&self, place: &[u32]) -> (Vec<u32>, Vec<u32>, Vec<T>) {
        let diagonal = (0u32..).zip(&self.diagonal);
        let diagonal = diagonal.map(|(row, &value)| {
            let at = place[row as usize];
            (at, Entry::new(at, T::new(value, 0.0)))
        });
        let pairs = self.pairs.iter().zip(&self.values);
        let off_diagonal = pairs.map(|(&[row, column], &value)| {
            let (row, column) = (place[row as usize], place[column as usize]);
            if row < column { (column, Entry::new(row, value)) } else { (row, Entry::new(column, value.conjugate())) }
        });
        let (offsets, mut entries) = crate::classes::bucket(self.diagonal.len(), diagonal.chain(off_diagonal));
        for column in offsets.windows(2) {
            entries[column[0] as usize..column[1] as usize].sort_unstable_by_key(|e| e.row);
        }
        let rows = entries.iter().map(|entry| entry.row).collect();
        let values = entries.iter().map(|e| T::new(e.parts[0], e.parts[1])).collect();
        (offsets, rows, values)
    }
}

/// One entry of a column.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
struct Entry {
    row: u32,
    padding: u32,
    parts: [f64; 2],
}

impl Entry {
    fn new<T: Scalar>(row: u32, value: T) -> Self {
        Self { row, padding: 0, parts: [value.real_part(), value.imaginary_part()] }
    }
}

/// Cholesky factor `L` of a Hermitian positive definite matrix, `L L^H`, in a given elimination
/// order.
#[derive(Debug, Clone)]
pub(crate) struct Cholesky<T> {
    size: usize,
    supernodes: Vec<Supernode>,
    /// Rows of all supernodes below their diagonal blocks.
    rows: Vec<u32>,
    /// Panels of all supernodes in row-major order: the diagonal block, then the rows below it.
    values: Vec<T>,
    /// Inverses of the diagonal of `L`.
    inverse_diagonal: Vec<f64>,
}

/// Columns of the factor with the same pattern.
#[derive(Debug, Clone, Copy)]
struct Supernode {
    /// First column.
    start: usize,
    columns: usize,
    /// Start in `rows`.
    rows: usize,
    row_count: usize,
    /// Start in `values`.
    values: usize,
}

impl<T: Scalar> Cholesky<T> {
    /// Factors a matrix. `order` lists the rows in the order of elimination; the factor and its
    /// right-hand sides are numbered by place in this order.
    ///
    /// # Errors
    /// The matrix is not positive definite up to rounding, or memory is exhausted.
    pub(crate) fn new(matrix: &Hermitian<T>, order: &[u32]) -> Result<Self, SurfaceError> {
        let size = matrix.diagonal.len();
        if size == 0 {
            return Ok(Self {
                size,
                supernodes: Vec::new(),
                rows: Vec::new(),
                values: Vec::new(),
                inverse_diagonal: Vec::new(),
            });
        }
        let mut place = vec![0; size];
        for (at, &row) in (0u32..).zip(order) {
            place[row as usize] = at;
        }
        let (offsets, rows, values) = matrix.upper_columns(&place);
        let out_of_memory =
            |entries: usize| SurfaceError::OutOfMemory { bytes: entries.saturating_mul(2 * size_of::<T>()) };
        let symbolic_matrix = SymbolicSparseColMatRef::new_checked(size, size, &offsets, None, &rows);
        let parameters = CholeskySymbolicParams {
            supernodal_flop_ratio_threshold: SupernodalThreshold::FORCE_SUPERNODAL,
            ..Default::default()
        };
        let identity = SymmetricOrdering::Identity;
        let symbolic = factorize_symbolic_cholesky(symbolic_matrix, Side::Upper, identity, parameters)
            .map_err(|_| out_of_memory(rows.len()))?;
        let entries = symbolic.len_val();
        let mut panels = Vec::new();
        panels.try_reserve_exact(entries).map_err(|_| out_of_memory(entries))?;
        panels.resize(entries, T::new(0.0, 0.0));
        let scratch = symbolic.factorize_numeric_llt_scratch::<T>(Par::Seq, Default::default());
        let mut memory = MemBuffer::try_new(scratch).map_err(|_| out_of_memory(entries))?;
        let pivot_error = |at: usize| SurfaceError::IllConditioned { vertex: order[at] as usize };
        symbolic
            .factorize_numeric_llt(
                &mut panels,
                SparseColMatRef::new(symbolic_matrix, &values),
                Side::Upper,
                Default::default(),
                Par::Seq,
                MemStack::new(&mut memory),
                Default::default(),
            )
            .map_err(|LltError::NonPositivePivot { index }| pivot_error(index.min(size - 1)))?;
        let SymbolicCholeskyRaw::Supernodal(structure) = symbolic.raw() else {
            unreachable!("the supernodal factorisation was requested");
        };
        let factor = Self::from_panels(SupernodalLltRef::new(structure, &panels), size);
        for (at, &inverse) in factor.inverse_diagonal.iter().enumerate() {
            let least = MIN_PIVOT * matrix.diagonal[order[at] as usize];
            // Not a number fails the comparison.
            let is_precise = inverse.powi(-2) > least;
            if !is_precise {
                return Err(pivot_error(at));
            }
        }
        Ok(factor)
    }

    /// Copies the panels to row-major order.
    fn from_panels(panels: SupernodalLltRef<'_, u32, T>, size: usize) -> Self {
        let structure = panels.symbolic();
        let mut factor = Self {
            size,
            supernodes: Vec::with_capacity(structure.n_supernodes()),
            rows: Vec::with_capacity(structure.row_idx().len()),
            values: Vec::with_capacity(panels.values().len()),
            inverse_diagonal: Vec::with_capacity(size),
        };
        for index in 0..structure.n_supernodes() {
            let panel = panels.supernode(index);
            let columns = panel.val().ncols();
            factor.supernodes.push(Supernode {
                start: panel.start(),
                columns,
                rows: factor.rows.len(),
                row_count: panel.pattern().len(),
                values: factor.values.len(),
            });
            factor.rows.extend_from_slice(panel.pattern());
            let values = panel.val();
            for row in 0..values.nrows() {
                factor.values.extend((0..columns).map(|column| values[(row, column)]));
            }
            let diagonal = (0..columns).map(|at| values[(at, at)].real_part().recip());
            factor.inverse_diagonal.extend(diagonal);
        }
        factor
    }

    /// Replaces right-hand sides by solutions. `x` has shape `[size, PARTS, columns]` and is
    /// numbered by place in the elimination order.
    pub(crate) fn solve(&self, x: &mut [f64], columns: usize) {
        debug_assert_eq!(x.len(), self.size * T::PARTS * columns);
        let mut first = 0;
        while columns - first >= 2 {
            self.solve_lanes::<LANES>(x, columns, first);
            first = columns.min(first + LANES);
        }
        while first < columns {
            self.solve_lanes::<1>(x, columns, first);
            first += 1;
        }
    }

    /// Number of stored entries.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        self.values.len()
    }

    /// Solves for up to `W` columns starting at `first`.
    fn solve_lanes<const W: usize>(&self, x: &mut [f64], columns: usize, first: usize) {
        let lanes = W.min(columns - first);
        let mut block = vec![T::zeros::<W>(); self.size];
        for (row, values) in block.iter_mut().zip(x.chunks_exact(T::PARTS * columns)) {
            for part in 0..T::PARTS {
                let from = part * columns + first;
                T::part_mut(row, part)[..lanes].copy_from_slice(&values[from..from + lanes]);
            }
        }
        match pulp::Arch::new() {
            pulp::Arch::Scalar => {
                self.forward::<false, W>(&mut block);
                self.backward::<false, W>(&mut block);
            }
            arch => arch.dispatch(FusedSolve { factor: self, block: &mut block }),
        }
        for (row, values) in block.iter().zip(x.chunks_exact_mut(T::PARTS * columns)) {
            for part in 0..T::PARTS {
                let to = part * columns + first;
                values[to..to + lanes].copy_from_slice(&T::part(row, part)[..lanes]);
            }
        }
    }

    /// `x <- L^-1 x`.
    #[inline(always)]
    fn forward<const F: bool, const W: usize>(&self, x: &mut [T::Row<W>]) {
        for node in &self.supernodes {
            let (diagonal, below) = self.panel(node);
            let (before, after) = x.split_at_mut(node.start + node.columns);
            let own = &mut before[node.start..];
            for (row, entries) in diagonal.chunks_exact(node.columns).enumerate() {
                let (solved, rest) = own.split_at_mut(row);
                for (&entry, value) in entries.iter().zip(solved.iter()) {
                    T::subtract::<F, W>(&mut rest[0], entry, value);
                }
                T::scale(&mut rest[0], self.inverse_diagonal[node.start + row]);
            }
            let first = node.start + node.columns;
            let rows = &self.rows[node.rows..node.rows + node.row_count];
            let own = &*own;
            let mut row_groups = rows.chunks_exact(ROWS);
            let mut entry_groups = below.chunks_exact(ROWS * node.columns);
            for (rows, entries) in (&mut row_groups).zip(&mut entry_groups) {
                let places: [usize; ROWS] = std::array::from_fn(|r| rows[r] as usize - first);
                let mut sums: [T::Row<W>; ROWS] = std::array::from_fn(|r| after[places[r]]);
                let lines: [&[T]; ROWS] = std::array::from_fn(|r| &entries[r * node.columns..(r + 1) * node.columns]);
                for (column, value) in own.iter().enumerate() {
                    for r in 0..ROWS {
                        T::subtract::<F, W>(&mut sums[r], lines[r][column], value);
                    }
                }
                for r in 0..ROWS {
                    after[places[r]] = sums[r];
                }
            }
            let rest = entry_groups.remainder().chunks_exact(node.columns);
            for (&row, entries) in row_groups.remainder().iter().zip(rest) {
                let sum = &mut after[row as usize - first];
                for (&entry, value) in entries.iter().zip(own) {
                    T::subtract::<F, W>(sum, entry, value);
                }
            }
        }
    }

    /// `x <- L^-H x`.
    #[inline(always)]
    fn backward<const F: bool, const W: usize>(&self, x: &mut [T::Row<W>]) {
        for node in self.supernodes.iter().rev() {
            let (diagonal, below) = self.panel(node);
            let (before, after) = x.split_at_mut(node.start + node.columns);
            let own = &mut before[node.start..];
            let first = node.start + node.columns;
            let rows = &self.rows[node.rows..node.rows + node.row_count];
            let mut row_groups = rows.chunks_exact(ROWS);
            let mut entry_groups = below.chunks_exact(ROWS * node.columns);
            for (rows, entries) in (&mut row_groups).zip(&mut entry_groups) {
                let known: [T::Row<W>; ROWS] = std::array::from_fn(|r| after[rows[r] as usize - first]);
                let lines: [&[T]; ROWS] = std::array::from_fn(|r| &entries[r * node.columns..(r + 1) * node.columns]);
                for (column, value) in own.iter_mut().enumerate() {
                    let mut sum = *value;
                    for r in 0..ROWS {
                        T::subtract_conjugate::<F, W>(&mut sum, lines[r][column], &known[r]);
                    }
                    *value = sum;
                }
            }
            let rest = entry_groups.remainder().chunks_exact(node.columns);
            for (&row, entries) in row_groups.remainder().iter().zip(rest) {
                let known = &after[row as usize - first];
                for (&entry, value) in entries.iter().zip(own.iter_mut()) {
                    T::subtract_conjugate::<F, W>(value, entry, known);
                }
            }
            for (row, entries) in diagonal.chunks_exact(node.columns).enumerate().rev() {
                let (rest, solved) = own.split_at_mut(row);
                T::scale(&mut solved[0], self.inverse_diagonal[node.start + row]);
                for (&entry, value) in entries.iter().zip(rest) {
                    T::subtract_conjugate::<F, W>(value, entry, &solved[0]);
                }
            }
        }
    }

    /// The diagonal block of a supernode and the rows below it.
    #[inline(always)]
    fn panel(&self, node: &Supernode) -> (&[T], &[T]) {
        let length = (node.columns + node.row_count) * node.columns;
        self.values[node.values..node.values + length].split_at(node.columns * node.columns)
    }
}

/// Both triangular solves, compiled for the vector instructions of the processor. A closure would not
/// always be inlined there, and every fused product would then be a call.
struct FusedSolve<'a, T: Scalar, const W: usize> {
    factor: &'a Cholesky<T>,
    block: &'a mut [T::Row<W>],
}

impl<T: Scalar, const W: usize> pulp::NullaryFnOnce for FusedSolve<'_, T, W> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.factor.forward::<true, W>(self.block);
        self.factor.backward::<true, W>(self.block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faer::c64;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// A random diagonally dominant matrix with about four entries per row.
    fn random_matrix<T: Scalar>(size: u32, rng: &mut ChaCha8Rng) -> Hermitian<T> {
        let mut pairs: Vec<[u32; 2]> = (0..4 * size)
            .map(|_| [rng.random_range(0..size), rng.random_range(0..size)])
            .filter(|[a, b]| a < b)
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        let mut diagonal = vec![0.01; size as usize];
        let mut values = Vec::new();
        for pair in &pairs {
            let [re, im] = [(); 2].map(|()| rng.random::<f64>() - 0.5);
            values.push(T::new(re, im));
            for row in pair {
                diagonal[*row as usize] += re.abs() + im.abs();
            }
        }
        Hermitian { diagonal, pairs, values }
    }

    /// `A x` for one column by parts.
    fn product<T: Scalar>(matrix: &Hermitian<T>, x: &[T]) -> Vec<T> {
        let diagonal = matrix.diagonal.iter().zip(x);
        let mut y: Vec<T> = diagonal.map(|(&d, &x)| T::new(d, 0.0) * x).collect();
        for (&[row, column], &value) in matrix.pairs.iter().zip(&matrix.values) {
            let (row, column) = (row as usize, column as usize);
            y[row] += value * x[column];
            y[column] += value.conjugate() * x[row];
        }
        y
    }

    fn check<T: Scalar>() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        for (size, columns) in [(1, 1), (2, 3), (7, 8), (60, 9), (300, 17)] {
            let matrix = random_matrix::<T>(size, &mut rng);
            let order: Vec<u32> = (0..size).rev().collect();
            let factor = Cholesky::new(&matrix, &order).unwrap();
            let length = size as usize * T::PARTS * columns;
            let right: Vec<f64> = (0..length).map(|_| rng.random::<f64>() - 0.5).collect();
            let mut x = right.clone();
            factor.solve(&mut x, columns);
            // Rows are numbered by place in the reversed order.
            let column = |values: &[f64], column: usize| -> Vec<T> {
                let rows = values.chunks_exact(T::PARTS * columns).rev();
                rows.map(|row| T::new(row[column], row[(T::PARTS - 1) * columns + column])).collect()
            };
            for index in 0..columns {
                let found = product(&matrix, &column(&x, index));
                for (found, expected) in found.iter().zip(column(&right, index)) {
                    let error =
                        [found.real_part() - expected.real_part(), found.imaginary_part() - expected.imaginary_part()];
                    assert!(error.iter().all(|e| e.abs() < 1e-11), "size {size}");
                }
            }
        }
    }

    #[test]
    fn solutions_solve_real_and_complex_equations() {
        check::<f64>();
        check::<c64>();
    }

    #[test]
    fn pivots_without_precision_are_refused_by_row() {
        let mut matrix = Hermitian { diagonal: vec![1.0, 2.0, 1.0], pairs: vec![[0, 2]], values: vec![1.0] };
        let order = [0, 1, 2];
        let error = Cholesky::new(&matrix, &order).unwrap_err();
        assert_eq!(error, SurfaceError::IllConditioned { vertex: 2 });
        let error = Cholesky::new(&matrix, &[2, 1, 0]).unwrap_err();
        assert_eq!(error, SurfaceError::IllConditioned { vertex: 0 });
        matrix.diagonal[1] = f64::NAN;
        matrix.diagonal[2] = 5.0;
        let error = Cholesky::new(&matrix, &order).unwrap_err();
        assert_eq!(error, SurfaceError::IllConditioned { vertex: 1 });
    }
}
