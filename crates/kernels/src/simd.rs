//! SIMD vectors of f32 or f64, as wide as the CPU supports, for loops generic over both.

use bytemuck::Pod;
use pulp::{Arch, Simd, WithSimd};

/// Runs an `#[inline(always)]` closure, compiled for the instruction set of the CPU. [`Arch::dispatch`] alone calls a
/// closure through `FnOnce::call_once`, which the compiler does not always inline: then its loops stay scalar.
pub(crate) fn vectorised(work: impl FnMut()) {
    struct Work<F>(F);
    impl<F: FnMut()> WithSimd for Work<F> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(mut self, _: S) {
            (self.0)();
        }
    }
    Arch::new().dispatch(Work(work));
}

/// Asks for memory that will be read soon.
#[inline(always)]
pub(crate) fn prefetch<T>(values: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in values.chunks_exact(64 / size_of::<T>()) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which reads nothing; every x86-64 has the instruction.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = values;
}

/// The vector operations that the operators use, for one number type.
pub trait Lanes: Pod {
    /// A vector on the instruction set `S`.
    type Vector<S: Simd>: Pod;

    /// Lanes of a vector.
    #[inline(always)]
    fn count<S: Simd>() -> usize {
        size_of::<Self::Vector<S>>() / size_of::<Self>()
    }

    /// The same value in every lane.
    fn splat<S: Simd>(simd: S, value: Self) -> Self::Vector<S>;
    /// Loads at most [`Lanes::count`] values; the remaining lanes are zero.
    fn load<S: Simd>(simd: S, values: &[Self]) -> Self::Vector<S>;
    /// Stores the first lanes.
    fn store<S: Simd>(simd: S, values: &mut [Self], vector: Self::Vector<S>);
    /// `a + b`.
    fn plus<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `a - b`.
    fn minus<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `a b`.
    fn times<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `a b + c`, rounded once where the CPU can do that.
    fn times_plus<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>, c: Self::Vector<S>) -> Self::Vector<S>;
    /// `c - a b`, rounded once where the CPU can do that.
    fn minus_times<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>, c: Self::Vector<S>) -> Self::Vector<S>;
    /// `values` where `condition` is above zero, else zero.
    fn where_positive<S: Simd>(simd: S, condition: Self::Vector<S>, values: Self::Vector<S>) -> Self::Vector<S>;
    /// The sum of all lanes.
    fn sum_lanes<S: Simd>(simd: S, vector: Self::Vector<S>) -> Self;
    /// The upper half of the lanes, then the lower half.
    fn swap_halves<S: Simd>(simd: S, vector: Self::Vector<S>) -> Self::Vector<S>;
    /// Bit `i` is set unless lane `i` is zero.
    fn nonzero<S: Simd>(simd: S, vector: Self::Vector<S>) -> u64;
    /// The lanes, with zero in place of negative ones.
    fn without_negative<S: Simd>(simd: S, vector: Self::Vector<S>) -> Self::Vector<S>;

    /// One vector from memory, which need not be aligned to it.
    ///
    /// # Safety
    /// `from` is valid for reads of [`Lanes::count`] numbers.
    #[inline(always)]
    unsafe fn load_from<S: Simd>(from: *const Self) -> Self::Vector<S> {
        // SAFETY: a vector is `count()` numbers in memory, any bits are a value of it, and the
        // caller vouches for the memory.
        unsafe { from.cast::<Self::Vector<S>>().read_unaligned() }
    }

    /// One vector to memory, which need not be aligned to it.
    ///
    /// # Safety
    /// `to` is valid for writes of [`Lanes::count`] numbers.
    #[inline(always)]
    unsafe fn store_to<S: Simd>(to: *mut Self, vector: Self::Vector<S>) {
        // SAFETY: as for `load_from`.
        unsafe { to.cast::<Self::Vector<S>>().write_unaligned(vector) }
    }
}

/// The lanes of a mask as bits. A mask has one bit for each lane, or as many bytes as a lane.
#[inline(always)]
fn mask_bits<M: bytemuck::NoUninit>(mask: M, lanes: usize) -> u64 {
    let bytes = bytemuck::bytes_of(&mask);
    match *bytes {
        [byte] => u64::from(byte),
        [low, high] => u64::from(u16::from_le_bytes([low, high])),
        _ => {
            let each = bytes.len() / lanes;
            let bit = |bits: u64, lane: usize| bits | u64::from(bytes[lane * each] & 1) << lane;
            (0..lanes).fold(0, bit)
        }
    }
}

macro_rules! lanes {
    ($real:ident, $vector:ident, $as_simd:ident, $as_mut_simd:ident, $splat:ident, $load:ident, $store:ident, $add:ident, $sub:ident,
     $mul:ident, $mul_add:ident, $negate_mul_add:ident, $greater:ident, $equal:ident, $select:ident,
     $sum:ident, $rotate:ident) => {
        impl Lanes for $real {
            type Vector<S: Simd> = S::$vector;

            #[inline(always)]
            fn splat<S: Simd>(simd: S, value: Self) -> S::$vector {
                simd.$splat(value)
            }
            #[inline(always)]
            fn load<S: Simd>(simd: S, values: &[Self]) -> S::$vector {
                match S::$as_simd(values) {
                    ([whole], []) => *whole,
                    _ => simd.$load(values),
                }
            }
            #[inline(always)]
            fn store<S: Simd>(simd: S, values: &mut [Self], vector: S::$vector) {
                match S::$as_mut_simd(values) {
                    ([whole], []) => *whole = vector,
                    _ => simd.$store(values, vector),
                }
            }
            #[inline(always)]
            fn plus<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$add(a, b)
            }
            #[inline(always)]
            fn minus<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$sub(a, b)
            }
            #[inline(always)]
            fn times<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$mul(a, b)
            }
            #[inline(always)]
            fn times_plus<S: Simd>(simd: S, a: S::$vector, b: S::$vector, c: S::$vector) -> S::$vector {
                simd.$mul_add(a, b, c)
            }
            #[inline(always)]
            fn minus_times<S: Simd>(simd: S, a: S::$vector, b: S::$vector, c: S::$vector) -> S::$vector {
                simd.$negate_mul_add(a, b, c)
            }
            #[inline(always)]
            fn where_positive<S: Simd>(simd: S, condition: S::$vector, values: S::$vector) -> S::$vector {
                let zero = simd.$splat(0.0);
                simd.$select(simd.$greater(condition, zero), values, zero)
            }
            #[inline(always)]
            fn sum_lanes<S: Simd>(simd: S, vector: S::$vector) -> Self {
                simd.$sum(vector)
            }
            #[inline(always)]
            fn swap_halves<S: Simd>(simd: S, vector: S::$vector) -> S::$vector {
                simd.$rotate(vector, Self::count::<S>() / 2)
            }
            #[inline(always)]
            fn nonzero<S: Simd>(simd: S, vector: S::$vector) -> u64 {
                let lanes = Self::count::<S>();
                let zeros = simd.$equal(vector, simd.$splat(0.0));
                !mask_bits(zeros, lanes) & (u64::MAX >> (64 - lanes))
            }
            #[inline(always)]
            fn without_negative<S: Simd>(simd: S, vector: S::$vector) -> S::$vector {
                // With this comparison NaN stays NaN, and is not hidden as a zero.
                let zero = simd.$splat(0.0);
                simd.$select(simd.$greater(zero, vector), zero, vector)
            }
        }
    };
}

lanes!(
    f32,
    f32s,
    as_simd_f32s,
    as_mut_simd_f32s,
    splat_f32s,
    partial_load_f32s,
    partial_store_f32s,
    add_f32s,
    sub_f32s,
    mul_f32s,
    mul_add_e_f32s,
    negate_mul_add_e_f32s,
    greater_than_f32s,
    equal_f32s,
    select_f32s,
    reduce_sum_f32s,
    rotate_left_f32s
);
lanes!(
    f64,
    f64s,
    as_simd_f64s,
    as_mut_simd_f64s,
    splat_f64s,
    partial_load_f64s,
    partial_store_f64s,
    add_f64s,
    sub_f64s,
    mul_f64s,
    mul_add_e_f64s,
    negate_mul_add_e_f64s,
    greater_than_f64s,
    equal_f64s,
    select_f64s,
    reduce_sum_f64s,
    rotate_left_f64s
);
