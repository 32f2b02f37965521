//! The number types of operators: f32 and f64.

use crate::simd::Lanes;
use bytemuck::Pod;
use num_traits::Float;
use std::fmt::{Debug, Display};
use std::iter::Sum;
use std::ops::{AddAssign, DivAssign, MulAssign, SubAssign};

/// A matrix product of the `gemm` crates: sizes `m`, `n`, `k`; destination with its column and row stride,
/// and whether it is read; both factors with their strides; factors of the destination and of the product;
/// conjugations, which mean nothing here; parallelism.
pub type Gemm<T> = unsafe fn(
    usize,
    usize,
    usize,
    *mut T,
    isize,
    isize,
    bool,
    *const T,
    isize,
    isize,
    *const T,
    isize,
    isize,
    T,
    T,
    bool,
    bool,
    bool,
    gemm_common::Parallelism,
);

/// f32 or f64.
pub trait Real:
    Float
    + Pod
    + Default
    + Debug
    + Display
    + Sum
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + Send
    + Sync
    + 'static
    + Lanes
    + sealed::Sealed
{
    /// `"f32"` or `"f64"`.
    const NAME: &'static str;

    /// The nearest value.
    fn of(value: f64) -> Self;

    /// The same value in f64.
    fn as_f64(self) -> f64;

    /// `exp(x)` for `x <= 0`, within two units in the last place, branch-free so that loops over it
    /// vectorise. Results below the normal numbers are 0; NaN stays NaN.
    fn exp_of_negative(self) -> Self;

    #[doc(hidden)]
    fn gemm() -> Gemm<Self>;

    #[doc(hidden)]
    fn compiled<C: Compiled>() -> C::Function<Self>;

    #[doc(hidden)]
    fn power_and_rest(self) -> (Self, Self);

    /// `exp(x) - 1` for `x <= 0`, within three units in the last place, likewise branch-free.
    fn exp_m1_of_negative(self) -> Self;

    /// `tanh(x)`, within a few units in the last place, likewise branch-free.
    #[inline(always)]
    fn fast_tanh(self) -> Self {
        let less = (Self::of(-2.0) * self.abs()).exp_m1_of_negative();
        let size = -less / (less + Self::of(2.0));
        if self < Self::zero() { -size } else { size }
    }
}

/// A function for each number type.
///
/// A generic function is compiled anew in every crate that calls it, with the settings of that crate. Operators are
/// large, and have to be fast also in tests: the functions that do the work are compiled here, once, and found through
/// [`Real::compiled`].
pub trait Compiled {
    /// The function for `T`.
    type Function<T: Real>;

    /// The function for f32.
    fn f32() -> Self::Function<f32>;

    /// The function for f64.
    fn f64() -> Self::Function<f64>;
}

/// The function for the number type `T` in scope, as compiled in the crate that defines it: `compiled!(function as
/// fn(&[T], usize))`.
#[doc(hidden)]
#[macro_export]
macro_rules! compiled {
    ($function:path as $signature:ty) => {{
        struct Here;
        impl $crate::Compiled for Here {
            type Function<T: $crate::Real> = $signature;

            // Otherwise the function would be compiled where it is called.
            #[inline(never)]
            fn f32() -> Self::Function<f32> {
                $function
            }

            #[inline(never)]
            fn f64() -> Self::Function<f64> {
                $function
            }
        }
        T::compiled::<Here>()
    }};
}
pub(crate) use compiled;

mod sealed {
    /// Requirements of the operators beyond arithmetic.
    pub trait Sealed: crate::simd::Lanes {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// `exp(x) = 2^n exp(r)` with `n` the integer nearest to `x / ln 2`, so `|r| <= ln 2 / 2`, where the
/// Taylor polynomial of the given degree is exact to rounding. Adding `ROUND` leaves `n` in the low
/// bits of the mantissa, whence it is shifted into the exponent; `ln 2` comes in two parts so that
/// `n` times the first one is exact.
macro_rules! exponentials_of_negative {
    ($float:ident, ROUND = $round:expr, LN_2 = ($high:expr, $low:expr), LOWEST = $lowest:expr,
     MANTISSA_BITS = $bits:expr, DEGREE = $degree:expr) => {
        #[inline(always)]
        fn exp_of_negative(self) -> Self {
            let (power, rest) = self.power_and_rest();
            let value = power + power * rest;
            if self < $lowest { 0.0 } else { value }
        }

        #[inline(always)]
        fn exp_m1_of_negative(self) -> Self {
            // For small x the power is 1, and nothing cancels.
            let (power, rest) = self.power_and_rest();
            let value = (power - 1.0) + power * rest;
            if self < $lowest { -1.0 } else { value }
        }

        /// `2^n` and `exp(r) - 1`.
        #[inline(always)]
        fn power_and_rest(self) -> (Self, Self) {
            const INVERSE_FACTORIALS: [$float; $degree + 1] = {
                let mut inverse = [1.0; $degree + 1];
                let mut k = 1;
                while k <= $degree {
                    inverse[k] = inverse[k - 1] / k as $float;
                    k += 1;
                }
                inverse
            };
            // Not `max`, which would drop NaN.
            let x = if self < $lowest { $lowest } else { self };
            let rounded: $float = x * std::$float::consts::LOG2_E + $round;
            let n = rounded - $round;
            let r = x - n * $high - n * $low;
            let mut sum = INVERSE_FACTORIALS[$degree];
            let mut k = $degree;
            while k > 1 {
                k -= 1;
                sum = sum * r + INVERSE_FACTORIALS[k];
            }
            let one: $float = 1.0;
            let power = (rounded.to_bits() << $bits).wrapping_add(one.to_bits());
            ($float::from_bits(power), sum * r)
        }
    };
}

impl Real for f32 {
    const NAME: &'static str = "f32";

    fn gemm() -> Gemm<Self> {
        gemm_f32::gemm::f32::get_gemm_fn()
    }

    fn compiled<C: Compiled>() -> C::Function<Self> {
        C::f32()
    }

    #[inline(always)]
    fn of(value: f64) -> Self {
        value as f32
    }

    #[inline(always)]
    fn as_f64(self) -> f64 {
        f64::from(self)
    }

    exponentials_of_negative!(
        f32,
        ROUND = 12_582_912.0, // 1.5 * 2^23
        LN_2 = (355.0 / 512.0, -2.121_944_4e-4),
        LOWEST = -87.3,
        MANTISSA_BITS = 23,
        DEGREE = 7
    );
}

impl Real for f64 {
    const NAME: &'static str = "f64";

    fn gemm() -> Gemm<Self> {
        gemm_f64::gemm::f64::get_gemm_fn()
    }

    fn compiled<C: Compiled>() -> C::Function<Self> {
        C::f64()
    }

    #[inline(always)]
    fn of(value: f64) -> Self {
        value
    }

    #[inline(always)]
    fn as_f64(self) -> f64 {
        self
    }

    exponentials_of_negative!(
        f64,
        ROUND = 6_755_399_441_055_744.0, // 1.5 * 2^52
        LN_2 = (0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10),
        LOWEST = -708.3,
        MANTISSA_BITS = 52,
        DEGREE = 13
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Real>(lowest: f64) {
        let ulp = T::epsilon().as_f64();
        for step in 0..=200_000 {
            let x = T::of(lowest * f64::from(step) / 200_000.0);
            let exact = x.as_f64().exp();
            let found = x.exp_of_negative().as_f64();
            assert!((found - exact).abs() <= 2.0 * ulp * exact, "{} at {x}: {found} is not {exact}", T::NAME);
        }
        for step in -200_000..=200_000 {
            // Denser towards zero, where relative accuracy is easily lost.
            let x = T::of((f64::from(step) / 60_000.0).powi(3));
            let close = |found: T, exact: f64, ulps: f64| {
                let error = (found.as_f64() - exact).abs();
                assert!(error <= ulps * ulp * exact.abs(), "{} at {x}: {found} is not {exact}", T::NAME);
            };
            close(x.fast_tanh(), x.as_f64().tanh(), 4.0);
            if x <= T::zero() {
                close(x.exp_m1_of_negative(), x.as_f64().exp_m1(), 3.0);
            }
        }
        assert!(T::nan().fast_tanh().is_nan() && T::nan().exp_m1_of_negative().is_nan());
        assert_eq!(T::neg_infinity().fast_tanh(), -T::one());
        assert_eq!(T::zero().exp_of_negative(), T::one());
        assert_eq!(T::neg_infinity().exp_of_negative(), T::zero());
        assert_eq!(T::of(2.0 * lowest).exp_of_negative(), T::zero());
        assert!(T::nan().exp_of_negative().is_nan());
    }

    #[test]
    fn exponentials_are_right_to_two_units_in_the_last_place() {
        check::<f32>(-87.2);
        check::<f64>(-708.0);
    }
}
