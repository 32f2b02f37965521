//! One row of logits, in loops that vectorise when called under [`pulp::Arch::dispatch`].

use crate::Real;

/// Number of independent partial results, one for each lane of a vector register.
const LANES: usize = 16;

/// The largest logit and its first index. NaN is never larger. A row that is empty or all minus infinity
/// gives `(-inf, 0)`.
#[inline(always)]
pub(crate) fn peak<T: Real>(row: &[T]) -> (T, usize) {
    let larger = |a: T, b: T| if b > a { b } else { a };
    let mut lanes = [T::neg_infinity(); LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for (most, &value) in lanes.iter_mut().zip(chunk) {
            *most = larger(*most, value);
        }
    }
    let most = lanes.iter().chain(rest).fold(T::neg_infinity(), |a, &b| larger(a, b));
    // Without an early exit within a chunk, so that the loop vectorises.
    let holds = |values: &[T]| values.iter().fold(false, |found, &z| found | (z == most));
    let chunk = chunks.iter().position(|chunk| holds(chunk));
    let start = LANES * chunk.unwrap_or(chunks.len());
    let place = row[start..].iter().position(|&z| z == most);
    (most, place.map_or(0, |place| start + place))
}

/// `sum_k exp(z_k - shift)`, `shift` being the peak.
#[inline(always)]
pub(crate) fn sum_of_exponentials<T: Real>(row: &[T], peak: T) -> T {
    let shift = finite_shift(peak);
    let mut lanes = [T::zero(); LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for (sum, &value) in lanes.iter_mut().zip(chunk) {
            *sum += (value - shift).exp_of_negative();
        }
    }
    let tail: T = rest.iter().map(|&z| (z - shift).exp_of_negative()).sum();
    lanes.iter().copied().sum::<T>() + tail
}

/// `sum_k z_k`.
#[inline(always)]
pub(crate) fn sum_of_logits<T: Real>(row: &[T]) -> T {
    let mut lanes = [T::zero(); LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for (sum, &value) in lanes.iter_mut().zip(chunk) {
            *sum += value;
        }
    }
    lanes.iter().chain(rest).copied().sum()
}

/// Replaces every logit by `exp(z_k - peak)` and returns the sum of these.
#[inline(always)]
pub(crate) fn exponentials<T: Real>(row: &mut [T], peak: T) -> T {
    let shift = finite_shift(peak);
    let mut lanes = [T::zero(); LANES];
    let (chunks, rest) = row.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for (sum, value) in lanes.iter_mut().zip(chunk) {
            *value = (*value - shift).exp_of_negative();
            *sum += *value;
        }
    }
    let mut tail = T::zero();
    for value in rest {
        *value = (*value - shift).exp_of_negative();
        tail += *value;
    }
    lanes.iter().copied().sum::<T>() + tail
}

/// The exponentials of a row of minus infinities are 0, not `exp(-inf + inf)`.
#[inline(always)]
fn finite_shift<T: Real>(peak: T) -> T {
    if peak == T::neg_infinity() { T::zero() } else { peak }
}
