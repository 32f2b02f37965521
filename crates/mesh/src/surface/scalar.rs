//! Real and complex entries of matrices, and the row operations of the triangular solves.

use faer::c64;
use faer::traits::ComplexField;

/// Entries of a Hermitian matrix: real numbers, or complex numbers as two parts.
pub(crate) trait Scalar: ComplexField<Real = f64> + Copy + Send + Sync {
    /// Number of real parts: 1 or 2.
    const PARTS: usize;
    /// A row of `W` numbers, stored by parts.
    type Row<const W: usize>: Copy;
    /// A row of zeros.
    fn zeros<const W: usize>() -> Self::Row<W>;
    /// The real parts of all numbers, or the imaginary parts.
    fn part<const W: usize>(row: &Self::Row<W>, part: usize) -> &[f64; W];
    /// The same, to write to.
    fn part_mut<const W: usize>(row: &mut Self::Row<W>, part: usize) -> &mut [f64; W];
    /// `row -= factor * other`, with fused products if `F`.
    fn subtract<const F: bool, const W: usize>(row: &mut Self::Row<W>, factor: Self, other: &Self::Row<W>);
    /// `row -= conj(factor) * other`, with fused products if `F`.
    fn subtract_conjugate<const F: bool, const W: usize>(row: &mut Self::Row<W>, factor: Self, other: &Self::Row<W>);
    /// `row *= factor`.
    fn scale<const W: usize>(row: &mut Self::Row<W>, factor: f64);
    /// The number with the given parts. A real number ignores the second.
    fn new(real: f64, imaginary: f64) -> Self;
    /// Real part.
    fn real_part(self) -> f64;
    /// Imaginary part.
    fn imaginary_part(self) -> f64;
    /// Complex conjugate.
    fn conjugate(self) -> Self {
        Self::new(self.real_part(), -self.imaginary_part())
    }
}

impl Scalar for f64 {
    const PARTS: usize = 1;
    type Row<const W: usize> = [f64; W];

    #[inline(always)]
    fn zeros<const W: usize>() -> [f64; W] {
        [0.0; W]
    }

    #[inline(always)]
    fn part<const W: usize>(row: &[f64; W], _: usize) -> &[f64; W] {
        row
    }

    #[inline(always)]
    fn part_mut<const W: usize>(row: &mut [f64; W], _: usize) -> &mut [f64; W] {
        row
    }

    #[inline(always)]
    fn subtract<const F: bool, const W: usize>(row: &mut [f64; W], factor: f64, other: &[f64; W]) {
        for lane in 0..W {
            row[lane] = multiply_add::<F>(-factor, other[lane], row[lane]);
        }
    }

    #[inline(always)]
    fn subtract_conjugate<const F: bool, const W: usize>(row: &mut [f64; W], factor: f64, other: &[f64; W]) {
        Self::subtract::<F, W>(row, factor, other);
    }

    #[inline(always)]
    fn scale<const W: usize>(row: &mut [f64; W], factor: f64) {
        for value in row {
            *value *= factor;
        }
    }

    #[inline(always)]
    fn new(real: f64, _: f64) -> Self {
        real
    }

    #[inline(always)]
    fn real_part(self) -> f64 {
        self
    }

    #[inline(always)]
    fn imaginary_part(self) -> f64 {
        0.0
    }
}

impl Scalar for c64 {
    const PARTS: usize = 2;
    type Row<const W: usize> = [[f64; W]; 2];

    #[inline(always)]
    fn zeros<const W: usize>() -> [[f64; W]; 2] {
        [[0.0; W]; 2]
    }

    #[inline(always)]
    fn part<const W: usize>(row: &[[f64; W]; 2], part: usize) -> &[f64; W] {
        &row[part]
    }

    #[inline(always)]
    fn part_mut<const W: usize>(row: &mut [[f64; W]; 2], part: usize) -> &mut [f64; W] {
        &mut row[part]
    }

    #[inline(always)]
    fn subtract<const F: bool, const W: usize>(row: &mut [[f64; W]; 2], factor: c64, other: &[[f64; W]; 2]) {
        let [real, imaginary] = row;
        for lane in 0..W {
            let re = multiply_add::<F>(-factor.re, other[0][lane], real[lane]);
            let im = multiply_add::<F>(-factor.re, other[1][lane], imaginary[lane]);
            real[lane] = multiply_add::<F>(factor.im, other[1][lane], re);
            imaginary[lane] = multiply_add::<F>(-factor.im, other[0][lane], im);
        }
    }

    #[inline(always)]
    fn subtract_conjugate<const F: bool, const W: usize>(row: &mut [[f64; W]; 2], factor: c64, other: &[[f64; W]; 2]) {
        Self::subtract::<F, W>(row, c64::new(factor.re, -factor.im), other);
    }

    #[inline(always)]
    fn scale<const W: usize>(row: &mut [[f64; W]; 2], factor: f64) {
        for value in row.as_flattened_mut() {
            *value *= factor;
        }
    }

    #[inline(always)]
    fn new(real: f64, imaginary: f64) -> Self {
        c64::new(real, imaginary)
    }

    #[inline(always)]
    fn real_part(self) -> f64 {
        self.re
    }

    #[inline(always)]
    fn imaginary_part(self) -> f64 {
        self.im
    }
}

/// `a * b + c`, rounded once if `F`. That is fast only where the machine has the instruction; WebAssembly has none.
#[inline(always)]
fn multiply_add<const F: bool>(a: f64, b: f64, c: f64) -> f64 {
    if F && !cfg!(target_family = "wasm") { a.mul_add(b, c) } else { a * b + c }
}
