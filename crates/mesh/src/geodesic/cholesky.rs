//! Sparse symmetric matrices and their factors `L D L^T`.

/// A symmetric matrix: the diagonal, and the entries to its left in compressed rows.
#[derive(Debug, Clone)]
pub(super) struct LowerRows {
    diagonal: Vec<f64>,
    offsets: Vec<u32>,
    columns: Vec<u32>,
    values: Vec<f64>,
}

impl LowerRows {
    /// A matrix of zeros with room for an entry at each of the edges, which are distinct, sorted and
    /// have their lower end first.
    pub(super) fn new(size: usize, edges: &[[u32; 2]]) -> Self {
        // Edges are sorted by their lower end, and so are the rows of their higher ends.
        let by_row = edges.iter().map(|&[lower, higher]| (higher, lower));
        let (offsets, columns) = crate::classes::bucket(size, by_row);
        Self {
            diagonal: vec![0.0; size],
            values: vec![0.0; columns.len()],
            offsets,
            columns,
        }
    }

    /// Adds to an entry of the diagonal or of one of the edges, in either order.
    pub(super) fn add(&mut self, row: u32, column: u32, value: f64) {
        if row == column {
            self.diagonal[row as usize] += value;
            return;
        }
        let range = self.row(row.max(column) as usize);
        if let Ok(place) = self.columns[range.clone()].binary_search(&row.min(column)) {
            self.values[range.start + place] += value;
        }
    }

    /// Multiplies all entries.
    pub(super) fn scale(&mut self, factor: f64) {
        for value in self.diagonal.iter_mut().chain(&mut self.values) {
            *value *= factor;
        }
    }

    /// Puts `value` where the diagonal is zero.
    pub(super) fn fill_empty_diagonal(&mut self, value: f64) {
        for entry in self.diagonal.iter_mut().filter(|entry| **entry == 0.0) {
            *entry = value;
        }
    }

    /// Replaces the equations of the `held` rows by `x = right-hand side`, and their unknowns by zero in
    /// all others.
    pub(super) fn hold(&mut self, held: impl Fn(usize) -> bool) {
        for row in 0..self.diagonal.len() {
            if held(row) {
                self.diagonal[row] = 1.0;
            }
            for place in self.row(row) {
                if held(row) || held(self.columns[place] as usize) {
                    self.values[place] = 0.0;
                }
            }
        }
    }

    fn row(&self, row: usize) -> std::ops::Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }
}

/// Why a matrix has no factors.
#[derive(Debug)]
pub(super) enum Failure {
    /// There is no room for them.
    OutOfMemory { bytes: usize },
    /// The matrix is not positive definite beyond rounding: at this row.
    Pivot { row: usize },
}

/// The factors of a positive definite matrix, `L D L^T` with ones on the diagonal of `L`.
#[derive(Debug, Clone)]
pub(super) struct Cholesky {
    /// Start of each column of `L`, and the number of entries at the end.
    offsets: Vec<usize>,
    rows: Vec<u32>,
    values: Vec<f64>,
    inverse_diagonal: Vec<f64>,
}

/// No parent in the elimination tree.
const ROOT: u32 = u32::MAX;
/// A pivot smaller than this part of its diagonal entry is nothing but rounding.
const LEAST_PIVOT: f64 = 1e-14;

impl Cholesky {
    pub(super) fn new(matrix: &LowerRows) -> Result<Self, Failure> {
        let size = matrix.diagonal.len();
        let (parent, offsets) = eliminate(matrix);
        let entries = offsets[size];
        let (mut rows, mut values) = (Vec::<u32>::new(), Vec::<f64>::new());
        let no_room = |_| Failure::OutOfMemory {
            bytes: entries.saturating_mul(size_of::<u32>() + size_of::<f64>()),
        };
        rows.try_reserve_exact(entries).map_err(no_room)?;
        values.try_reserve_exact(entries).map_err(no_room)?;
        rows.resize(entries, 0);
        values.resize(entries, 0.0);
        let mut factors = Self {
            rows,
            values,
            inverse_diagonal: vec![0.0; size],
            offsets,
        };
        factors.fill(matrix, &parent)?;
        Ok(factors)
    }

    /// Row after row: row `k` of `L D` solves a triangular system with the rows before, whose nonzeros
    /// are the vertices on the way from the entries of row `k` up the elimination tree.
    fn fill(&mut self, matrix: &LowerRows, parent: &[u32]) -> Result<(), Failure> {
        let size = matrix.diagonal.len();
        let mut end = self.offsets[..size].to_vec();
        let mut work = vec![0.0; size];
        let mut met = vec![ROOT; size];
        let (mut path, mut pattern) = (Vec::<u32>::new(), Vec::<u32>::new());
        for row in 0..size {
            met[row] = row as u32;
            pattern.clear();
            for place in matrix.row(row) {
                let mut vertex = matrix.columns[place];
                work[vertex as usize] = matrix.values[place];
                path.clear();
                while met[vertex as usize] != row as u32 {
                    met[vertex as usize] = row as u32;
                    path.push(vertex);
                    vertex = parent[vertex as usize];
                }
                // Reversed at the end: each path before those that it leads into.
                pattern.extend(path.iter().rev());
            }
            let mut pivot = matrix.diagonal[row];
            for &column in pattern.iter().rev() {
                let column = column as usize;
                let value = std::mem::take(&mut work[column]);
                let filled = self.offsets[column]..end[column];
                let below = &self.rows[filled.clone()];
                for (&at, entry) in below.iter().zip(&self.values[filled]) {
                    work[at as usize] -= entry * value;
                }
                let entry = value * self.inverse_diagonal[column];
                pivot -= entry * value;
                self.rows[end[column]] = row as u32;
                self.values[end[column]] = entry;
                end[column] += 1;
            }
            if pivot.is_nan() || pivot <= LEAST_PIVOT * matrix.diagonal[row] {
                return Err(Failure::Pivot { row });
            }
            self.inverse_diagonal[row] = pivot.recip();
        }
        Ok(())
    }

    /// Replaces the right-hand side by the solution.
    pub(super) fn solve(&self, x: &mut [f64]) {
        let column = |at: usize| {
            let range = self.offsets[at]..self.offsets[at + 1];
            self.rows[range.clone()].iter().zip(&self.values[range])
        };
        for at in 0..x.len() {
            let value = x[at];
            if value != 0.0 {
                for (&row, entry) in column(at) {
                    x[row as usize] -= entry * value;
                }
            }
        }
        for at in (0..x.len()).rev() {
            let mut value = x[at] * self.inverse_diagonal[at];
            for (&row, entry) in column(at) {
                value -= entry * x[row as usize];
            }
            x[at] = value;
        }
    }

    /// Entries of `L` below its diagonal.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.values.len()
    }
}

/// The elimination tree (the parent of each row: the first below it that depends on it) and the starts
/// of the columns of `L`.
fn eliminate(matrix: &LowerRows) -> (Vec<u32>, Vec<usize>) {
    let size = matrix.diagonal.len();
    let mut parent = vec![ROOT; size];
    let mut met = vec![ROOT; size];
    let mut offsets = vec![0usize; size + 1];
    for row in 0..size {
        met[row] = row as u32;
        for place in matrix.row(row) {
            let mut vertex = matrix.columns[place] as usize;
            while met[vertex] != row as u32 {
                met[vertex] = row as u32;
                offsets[vertex + 1] += 1;
                if parent[vertex] == ROOT {
                    parent[vertex] = row as u32;
                }
                vertex = parent[vertex] as usize;
            }
        }
    }
    for row in 0..size {
        offsets[row + 1] += offsets[row];
    }
    (parent, offsets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// A random matrix with about three entries in a row, and positive definite: its diagonal outweighs
    /// the rest.
    fn random_matrix(size: u32, rng: &mut ChaCha8Rng) -> LowerRows {
        let mut edges: Vec<[u32; 2]> = (0..2 * size)
            .map(|_| [rng.random_range(0..size), rng.random_range(0..size)])
            .filter(|[a, b]| a < b)
            .collect();
        edges.sort_unstable();
        edges.dedup();
        let mut matrix = LowerRows::new(size as usize, &edges);
        for [a, b] in edges {
            let value = rng.random::<f64>() - 0.5;
            matrix.add(a, b, value);
            matrix.add(a, a, value.abs() + 0.01);
            matrix.add(b, b, value.abs() + 0.01);
        }
        matrix.fill_empty_diagonal(1.0);
        matrix
    }

    fn product(matrix: &LowerRows, x: &[f64]) -> Vec<f64> {
        let mut y: Vec<f64> = x.iter().zip(&matrix.diagonal).map(|(x, d)| x * d).collect();
        for row in 0..x.len() {
            for place in matrix.row(row) {
                let column = matrix.columns[place] as usize;
                y[row] += matrix.values[place] * x[column];
                y[column] += matrix.values[place] * x[row];
            }
        }
        y
    }

    #[test]
    fn solutions_solve_the_equations() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        for size in [1, 2, 7, 60, 300] {
            let matrix = random_matrix(size, &mut rng);
            let right: Vec<f64> = (0..size).map(|_| rng.random::<f64>() - 0.5).collect();
            let mut x = right.clone();
            Cholesky::new(&matrix).unwrap().solve(&mut x);
            for (ours, expected) in product(&matrix, &x).iter().zip(&right) {
                assert!((ours - expected).abs() < 1e-11, "size {size}");
            }
        }
    }

    #[test]
    fn held_unknowns_are_what_the_right_hand_side_says() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let matrix = random_matrix(40, &mut rng);
        let mut held = matrix.clone();
        held.hold(|row| row == 3 || row == 30);
        let mut x = vec![0.0; 40];
        x[7] = 1.0;
        Cholesky::new(&held).unwrap().solve(&mut x);
        assert_eq!((x[3], x[30]), (0.0, 0.0));
        for (row, value) in product(&matrix, &x).into_iter().enumerate() {
            let expected = if row == 7 { 1.0 } else { 0.0 };
            assert!(row == 3 || row == 30 || (value - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn matrices_that_are_not_positive_definite_are_refused() {
        let mut matrix = LowerRows::new(2, &[[0, 1]]);
        matrix.add(0, 0, 1.0);
        matrix.add(1, 1, 1.0);
        matrix.add(1, 0, 1.0);
        assert!(matches!(
            Cholesky::new(&matrix),
            Err(Failure::Pivot { row: 1 })
        ));
        matrix.add(0, 0, f64::NAN);
        assert!(matches!(
            Cholesky::new(&matrix),
            Err(Failure::Pivot { row: 0 })
        ));
    }
}
