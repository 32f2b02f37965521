//! Vectors of f32 or f64 under one name, over the instruction sets that `pulp` finds at run time.

use pulp::Simd;

/// A number type with vectors of as many lanes as the instruction set `S` has.
pub trait Lanes: Sized {
    /// One register of numbers.
    type Vector<S: Simd>: Copy;

    /// Numbers in one register.
    fn lanes<S: Simd>() -> usize;

    /// The same number in every lane.
    fn splat<S: Simd>(simd: S, value: Self) -> Self::Vector<S>;

    /// `a b`.
    fn times<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;

    /// `a b + c`, fused where the CPU has an instruction for it.
    fn add_product<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
        c: Self::Vector<S>,
    ) -> Self::Vector<S>;

    /// `c - a b`, fused where the CPU has an instruction for it.
    fn subtract_product<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
        c: Self::Vector<S>,
    ) -> Self::Vector<S>;

    /// The numbers of a slice of at most one register; zeros beyond its end.
    fn partial_load<S: Simd>(simd: S, from: &[Self]) -> Self::Vector<S>;

    /// Writes the first lanes to a slice of at most one register.
    fn partial_store<S: Simd>(simd: S, to: &mut [Self], values: Self::Vector<S>);

    /// One register from memory, which need not be aligned to it.
    ///
    /// # Safety
    /// `from` is valid for reads of `lanes()` numbers.
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const Self) -> Self::Vector<S> {
        // SAFETY: a vector is `lanes()` numbers in memory, any bits are a value of it, and the
        // caller vouches for the memory.
        unsafe { from.cast::<Self::Vector<S>>().read_unaligned() }
    }

    /// One register to memory, which need not be aligned to it.
    ///
    /// # Safety
    /// `to` is valid for writes of `lanes()` numbers.
    #[inline(always)]
    unsafe fn store<S: Simd>(to: *mut Self, values: Self::Vector<S>) {
        // SAFETY: as for `load`.
        unsafe { to.cast::<Self::Vector<S>>().write_unaligned(values) }
    }
}

macro_rules! lanes {
    ($number:ty, $vector:ident, $lanes:ident, $splat:ident, $mul:ident, $mul_add:ident,
     $negate_mul_add:ident, $partial_load:ident, $partial_store:ident) => {
        impl Lanes for $number {
            type Vector<S: Simd> = S::$vector;

            #[inline(always)]
            fn lanes<S: Simd>() -> usize {
                S::$lanes
            }

            #[inline(always)]
            fn splat<S: Simd>(simd: S, value: Self) -> S::$vector {
                simd.$splat(value)
            }

            #[inline(always)]
            fn times<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$mul(a, b)
            }

            #[inline(always)]
            fn add_product<S: Simd>(
                simd: S,
                a: S::$vector,
                b: S::$vector,
                c: S::$vector,
            ) -> S::$vector {
                simd.$mul_add(a, b, c)
            }

            #[inline(always)]
            fn subtract_product<S: Simd>(
                simd: S,
                a: S::$vector,
                b: S::$vector,
                c: S::$vector,
            ) -> S::$vector {
                simd.$negate_mul_add(a, b, c)
            }

            #[inline(always)]
            fn partial_load<S: Simd>(simd: S, from: &[Self]) -> S::$vector {
                simd.$partial_load(from)
            }

            #[inline(always)]
            fn partial_store<S: Simd>(simd: S, to: &mut [Self], values: S::$vector) {
                simd.$partial_store(to, values)
            }
        }
    };
}

lanes!(
    f32,
    f32s,
    F32_LANES,
    splat_f32s,
    mul_f32s,
    mul_add_e_f32s,
    negate_mul_add_e_f32s,
    partial_load_f32s,
    partial_store_f32s
);
lanes!(
    f64,
    f64s,
    F64_LANES,
    splat_f64s,
    mul_f64s,
    mul_add_e_f64s,
    negate_mul_add_e_f64s,
    partial_load_f64s,
    partial_store_f64s
);
