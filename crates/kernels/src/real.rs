//! The numbers that operators work on: f32 and f64.

use bytemuck::Pod;
use num_traits::Float;
use std::fmt::{Debug, Display};
use std::iter::Sum;
use std::ops::{AddAssign, DivAssign, MulAssign, SubAssign};

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
    + sealed::Sealed
{
    /// `"f32"` or `"f64"`.
    const NAME: &'static str;

    /// The nearest value.
    fn of(value: f64) -> Self;

    /// The same value in f64.
    fn as_f64(self) -> f64;
}

mod sealed {
    /// What the operators need of f32 and f64 beyond arithmetic.
    pub trait Sealed: crate::simd::Lanes + crate::regular::Transforms {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

impl Real for f32 {
    const NAME: &'static str = "f32";

    #[inline(always)]
    fn of(value: f64) -> Self {
        value as f32
    }

    #[inline(always)]
    fn as_f64(self) -> f64 {
        f64::from(self)
    }
}

impl Real for f64 {
    const NAME: &'static str = "f64";

    #[inline(always)]
    fn of(value: f64) -> Self {
        value
    }

    #[inline(always)]
    fn as_f64(self) -> f64 {
        self
    }
}
