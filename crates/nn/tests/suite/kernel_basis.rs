//! The space of equivariant kernels between irreps: the table of the paper, its map to `K(0)`, and a
//! numeric solver of the constraint that needs no table.
//!
//! A neighbour kernel from order `n` to order `m` obeys `K(theta - g) = rho_m(-g) K(theta) rho_n(g)`.
//! With `c± = cos (m ± n) theta` and `s± = sin (m ± n) theta` its solutions are combinations of
//!
//! | from -> to | basis |
//! | --- | --- |
//! | 0 -> 0 | `(1)` |
//! | n -> 0 | `(cos n theta, sin n theta)`, `(sin n theta, -cos n theta)` |
//! | 0 -> m | `(cos m theta, sin m theta)^T`, `(sin m theta, -cos m theta)^T` |
//! | n -> m | `[[c-, -s-], [s-, c-]]`, `[[s-, c-], [-c-, s-]]`, `[[c+, s+], [s+, -c+]]`, `[[-s+, c+], [c+, s+]]` |
//!
//! and a self kernel commutes with `rho`: `(1)` for 0 -> 0, the identity and `[[0, 1], [-1, 0]]` for
//! n -> n, nothing between different orders.
//!
//! The constraint leaves `K(0)` free: `K(theta) = rho_m(theta) K(0) rho_n(-theta)`. Layers store
//! `K(0)`; [`kernel_at_zero`] and [`coefficients`] go between it and coefficients of the table.

use gemcnn_kernels::{FeatureType, irrep_dimension};

/// A small matrix: `rows` of the output irrep, `columns` of the input irrep.
#[derive(Debug, Clone, PartialEq)]
pub struct SmallMatrix {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
}

impl SmallMatrix {
    /// A matrix of the given values, row after row.
    ///
    /// # Panics
    /// If there are not `rows * columns` values.
    pub fn new(rows: usize, columns: usize, values: Vec<f64>) -> Self {
        assert_eq!(values.len(), rows * columns, "a {rows}x{columns} matrix");
        Self { rows, columns, values }
    }

    /// The irrep `rho_order(angle)`.
    pub fn irrep(order: usize, angle: f64) -> Self {
        if order == 0 {
            return Self::new(1, 1, vec![1.0]);
        }
        let (s, c) = (order as f64 * angle).sin_cos();
        Self::new(2, 2, vec![c, -s, s, c])
    }

    /// Its entries, row after row.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The matrix product.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn times(&self, other: &Self) -> Self {
        assert_eq!(self.columns, other.rows, "shapes of a product");
        let entry = |i: usize, j: usize| -> f64 {
            (0..self.columns).map(|k| self.values[i * self.columns + k] * other.values[k * other.columns + j]).sum()
        };
        let values = (0..self.rows * other.columns).map(|at| entry(at / other.columns, at % other.columns)).collect();
        Self::new(self.rows, other.columns, values)
    }
}

/// The neighbour kernels of the table from order `n` to order `m`, at one angle.
pub fn neighbour_basis(n: usize, m: usize, theta: f64) -> Vec<SmallMatrix> {
    let wave = |factor: f64| (factor * theta).sin_cos();
    let (rows, columns) = (irrep_dimension(m), irrep_dimension(n));
    let kernels: Vec<Vec<f64>> = match (n, m) {
        (0, 0) => vec![vec![1.0]],
        (n, 0) | (0, n) => {
            let (s, c) = wave(n as f64);
            vec![vec![c, s], vec![s, -c]]
        }
        (n, m) => {
            let (sm, cm) = wave(m as f64 - n as f64);
            let (sp, cp) = wave((m + n) as f64);
            vec![vec![cm, -sm, sm, cm], vec![sm, cm, -cm, sm], vec![cp, sp, sp, -cp], vec![-sp, cp, cp, sp]]
        }
    };
    let matrix = |values| SmallMatrix::new(rows, columns, values);
    kernels.into_iter().map(matrix).collect()
}

/// The self kernels of the table from order `n` to order `m`.
pub fn self_basis(n: usize, m: usize) -> Vec<SmallMatrix> {
    match (n, m) {
        (0, 0) => vec![SmallMatrix::new(1, 1, vec![1.0])],
        (n, m) if n == m => {
            vec![SmallMatrix::new(2, 2, vec![1.0, 0.0, 0.0, 1.0]), SmallMatrix::new(2, 2, vec![0.0, 1.0, -1.0, 0.0])]
        }
        _ => Vec::new(),
    }
}

/// `K(0)` of the kernel with the given coefficients of the table.
///
/// # Panics
/// If there are not as many coefficients as kernels in the table.
pub fn kernel_at_zero(n: usize, m: usize, coefficients: &[f64]) -> SmallMatrix {
    let basis = neighbour_basis(n, m, 0.0);
    assert_eq!(basis.len(), coefficients.len(), "coefficients of {n} -> {m}");
    let mut sum = vec![0.0; irrep_dimension(n) * irrep_dimension(m)];
    for (kernel, c) in basis.iter().zip(coefficients) {
        for (total, value) in sum.iter_mut().zip(kernel.values()) {
            *total += c * value;
        }
    }
    SmallMatrix::new(irrep_dimension(m), irrep_dimension(n), sum)
}

/// Coefficients of the table of the kernel with the given `K(0)`: the inverse of
/// [`kernel_at_zero`]. At angle 0 the kernels of the table are orthogonal, so each coefficient is an
/// inner product.
///
/// # Panics
/// If the matrix is not of the shape of a kernel from `n` to `m`.
pub fn coefficients(n: usize, m: usize, at_zero: &SmallMatrix) -> Vec<f64> {
    let shape = (irrep_dimension(m), irrep_dimension(n));
    assert_eq!((at_zero.rows, at_zero.columns), shape, "K(0) of {n} -> {m}");
    let inner = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    neighbour_basis(n, m, 0.0)
        .iter()
        .map(|kernel| inner(kernel.values(), at_zero.values()) / inner(kernel.values(), kernel.values()))
        .collect()
}

/// How many free numbers a convolution between two types has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelCount {
    /// In the neighbour kernel (of one ring).
    pub neighbour: usize,
    /// In the self kernel.
    pub own: usize,
}

/// Free numbers of a convolution.
pub fn count_kernels(input: &FeatureType, output: &FeatureType) -> KernelCount {
    let mut count = KernelCount { neighbour: 0, own: 0 };
    for (n, inputs) in input.orders() {
        for (m, outputs) in output.orders() {
            count.neighbour += inputs * outputs * neighbour_basis(n, m, 0.0).len();
            count.own += inputs * outputs * self_basis(n, m).len();
        }
    }
    count
}

/// A kernel as a Fourier series: `K(theta) = A_0 + sum_k A_k cos k theta + B_k sin k theta`.
#[derive(Debug, Clone, PartialEq)]
pub struct FourierKernel {
    rows: usize,
    columns: usize,
    /// `A_0, A_1, B_1, A_2, B_2, ...`, each matrix row after row.
    terms: Vec<f64>,
}

impl FourierKernel {
    /// The kernel at an angle.
    pub fn at(&self, theta: f64) -> SmallMatrix {
        let size = self.rows * self.columns;
        let mut sum = vec![0.0; size];
        for (place, term) in self.terms.chunks_exact(size).enumerate() {
            let (s, c) = (place.div_ceil(2) as f64 * theta).sin_cos();
            let wave = if place % 2 == 0 && place > 0 { s } else { c };
            for (total, value) in sum.iter_mut().zip(term) {
                *total += wave * value;
            }
        }
        SmallMatrix::new(self.rows, self.columns, sum)
    }
}

/// All neighbour kernels from order `n` to order `m`, without the table: the derivative of the
/// constraint at `g = 0` is `K'(theta) = L_m K(theta) - K(theta) L_n` with `L_n = rho_n'(0)`, which is
/// linear in the Fourier coefficients of `K`. Its null space among series up to `highest` is
/// returned as a basis.
pub fn solve_neighbour_constraint(n: usize, m: usize, highest: usize) -> Vec<FourierKernel> {
    let (rows, columns) = (irrep_dimension(m), irrep_dimension(n));
    let size = rows * columns;
    let unknowns = (2 * highest + 1) * size;
    // One equation for each unknown: the same place of `L_m K - K L_n - K'`.
    let mut equations = vec![vec![0.0; unknowns]; unknowns];
    for place in 0..2 * highest + 1 {
        for entry in 0..size {
            let column = place * size + entry;
            for (target, value) in lie_action(n, m, entry) {
                equations[place * size + target][column] += value;
            }
            // (cos k)' = -k sin k, (sin k)' = k cos k
            let k = place.div_ceil(2) as f64;
            if place > 0 {
                let (other, slope) = if place % 2 == 1 { (place + 1, -k) } else { (place - 1, k) };
                equations[other * size + entry][column] -= slope;
            }
        }
    }
    let kernel = |terms| FourierKernel { rows, columns, terms };
    null_space(equations, unknowns).into_iter().map(kernel).collect()
}

/// All self kernels from order `n` to order `m`, without the table: the null space of
/// `L_m K - K L_n`.
pub fn solve_self_constraint(n: usize, m: usize) -> Vec<SmallMatrix> {
    let (rows, columns) = (irrep_dimension(m), irrep_dimension(n));
    let size = rows * columns;
    let mut equations = vec![vec![0.0; size]; size];
    for (entry, actions) in (0..size).map(|entry| (entry, lie_action(n, m, entry))) {
        for (target, value) in actions {
            equations[target][entry] += value;
        }
    }
    null_space(equations, size).into_iter().map(|values| SmallMatrix::new(rows, columns, values)).collect()
}

/// `L_m E - E L_n` for the matrix `E` with a one at `entry`: places and values.
fn lie_action(n: usize, m: usize, entry: usize) -> Vec<(usize, f64)> {
    let columns = irrep_dimension(n);
    let (i, j) = (entry / columns, entry % columns);
    let mut values = Vec::new();
    if m > 0 {
        // L_m = m [[0, -1], [1, 0]]: row i goes to row 1 - i.
        let sign = if i == 0 { 1.0 } else { -1.0 };
        values.push(((1 - i) * columns + j, sign * m as f64));
    }
    if n > 0 {
        // (E L_n): column j goes to column 1 - j.
        let sign = if j == 0 { -1.0 } else { 1.0 };
        values.push((i * columns + (1 - j), -sign * n as f64));
    }
    values
}

/// A basis of the solutions of `equations x = 0`, by elimination with the largest pivot.
fn null_space(mut equations: Vec<Vec<f64>>, unknowns: usize) -> Vec<Vec<f64>> {
    const ZERO: f64 = 1e-10;
    let mut pivot_columns = Vec::new();
    let mut rank = 0;
    for column in 0..unknowns {
        let size = |row: &usize| equations[*row][column].abs();
        let best = (rank..equations.len()).max_by(|a, b| size(a).total_cmp(&size(b)));
        let Some(best) = best.filter(|row| size(row) > ZERO) else {
            continue;
        };
        equations.swap(rank, best);
        let pivot = equations[rank][column];
        equations[rank].iter_mut().for_each(|v| *v /= pivot);
        let pivot_row = equations[rank].clone();
        for (row, equation) in equations.iter_mut().enumerate() {
            let factor = equation[column];
            if row != rank && factor != 0.0 {
                for (value, p) in equation.iter_mut().zip(&pivot_row) {
                    *value -= factor * p;
                }
            }
        }
        pivot_columns.push(column);
        rank += 1;
    }
    let free = (0..unknowns).filter(|column| !pivot_columns.contains(column));
    free.map(|free| {
        let mut solution = vec![0.0; unknowns];
        solution[free] = 1.0;
        for (row, &column) in pivot_columns.iter().enumerate() {
            solution[column] = -equations[row][free];
        }
        solution
    })
    .collect()
}

const ANGLES: [f64; 7] = [-3.0, -1.7, -0.4, 0.0, 0.9, 1.3, 2.6];

fn rank(vectors: &[Vec<f64>]) -> usize {
    let unknowns = vectors.first().map_or(0, Vec::len);
    unknowns - null_space(vectors.to_vec(), unknowns).len()
}

/// The kernels side by side as vectors of their values at many angles.
fn sampled<K>(kernels: &[K], at: impl Fn(&K, f64) -> SmallMatrix) -> Vec<Vec<f64>> {
    let sample = |kernel| (0..32).flat_map(|i| at(kernel, i as f64 * 0.39).values().to_vec()).collect();
    kernels.iter().map(sample).collect()
}

#[test]
fn the_table_is_correct() {
    for (n, m) in (0..=4).flat_map(|n| (0..=4).map(move |m| (n, m))) {
        for theta in ANGLES {
            for g in ANGLES {
                let rotated = neighbour_basis(n, m, theta - g);
                for (before, after) in neighbour_basis(n, m, theta).iter().zip(&rotated) {
                    let expected = SmallMatrix::irrep(m, -g).times(before).times(&SmallMatrix::irrep(n, g));
                    for (a, b) in after.values().iter().zip(expected.values()) {
                        assert!((a - b).abs() < 1e-12, "{n} -> {m} at {theta}, {g}");
                    }
                }
            }
            for kernel in self_basis(n, m) {
                let left = SmallMatrix::irrep(m, theta).times(&kernel);
                let right = kernel.times(&SmallMatrix::irrep(n, theta));
                for (a, b) in left.values().iter().zip(right.values()) {
                    assert!((a - b).abs() < 1e-12, "self {n} -> {m}");
                }
            }
        }
    }
}

#[test]
fn the_table_is_complete() {
    for (n, m) in (0..=4).flat_map(|n| (0..=4).map(move |m| (n, m))) {
        // Two orders more than needed: nothing new appears there.
        for highest in [n + m, n + m + 2] {
            let solved = solve_neighbour_constraint(n, m, highest);
            let count = neighbour_basis(n, m, 0.0).len();
            assert_eq!(solved.len(), count, "{n} -> {m}");
            let places: Vec<usize> = (0..count).collect();
            let table = sampled(&places, |&i, theta| neighbour_basis(n, m, theta)[i].clone());
            let solved = sampled(&solved, FourierKernel::at);
            assert_eq!(rank(&table), count, "the table of {n} -> {m} is independent");
            assert_eq!(rank(&solved), count);
            let both = [table, solved].concat();
            assert_eq!(rank(&both), count, "{n} -> {m}: the same space");
        }
        let solved = solve_self_constraint(n, m);
        let table = self_basis(n, m);
        let count = table.len();
        let values = |list: &[SmallMatrix]| -> Vec<Vec<f64>> { list.iter().map(|k| k.values().to_vec()).collect() };
        assert_eq!(solved.len(), count, "self {n} -> {m}");
        assert_eq!(rank(&values(&table)), count);
        assert_eq!(rank(&[values(&table), values(&solved)].concat()), count);
    }
}

#[test]
fn coefficients_and_kernels_at_zero_are_inverse() {
    for (n, m) in (0..=3).flat_map(|n| (0..=3).map(move |m| (n, m))) {
        let count = neighbour_basis(n, m, 0.0).len();
        let given: Vec<f64> = (0..count).map(|i| 0.7 - 0.4 * i as f64).collect();
        let at_zero = kernel_at_zero(n, m, &given);
        for (a, b) in coefficients(n, m, &at_zero).iter().zip(&given) {
            assert!((a - b).abs() < 1e-15);
        }
        for theta in ANGLES {
            let rotated = SmallMatrix::irrep(m, theta).times(&at_zero).times(&SmallMatrix::irrep(n, -theta));
            let mut sum = vec![0.0; rotated.values().len()];
            for (kernel, c) in neighbour_basis(n, m, theta).iter().zip(&given) {
                for (total, v) in sum.iter_mut().zip(kernel.values()) {
                    *total += c * v;
                }
            }
            for (a, b) in rotated.values().iter().zip(&sum) {
                assert!((a - b).abs() < 1e-12, "{n} -> {m}");
            }
        }
    }
}

#[test]
fn counts_add_up() {
    assert_eq!(neighbour_basis(0, 0, 1.0).len(), 1);
    assert_eq!(neighbour_basis(0, 2, 1.0).len(), 2);
    assert_eq!(neighbour_basis(1, 2, 1.0).len(), 4);
    let (input, output) = ("1x0 + 2x1".parse().unwrap(), "1x1 + 1x3".parse().unwrap());
    let expected = KernelCount { neighbour: 20, own: 4 };
    assert_eq!(count_kernels(&input, &output), expected);
}
