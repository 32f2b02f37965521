//! Measured memory bandwidth and matrix product speed of this machine: the limits that operators are compared
//! with.
//!
//! Both return the fastest of a few repeats after a warm-up, with the memory and the threads that operators
//! use. They take some tenths of a second; the copy needs half a gigabyte of memory.

pub mod cuda;

use crate::KernelError;
use crate::linear::{self, Linear};
use crate::parallel::Loop;
use rayon::prelude::*;
use std::convert::Infallible;
use std::time::Instant;

/// Values of a copy: 256 MiB, more than the caches hold.
const COPIED: usize = 1 << 26;
/// Side of the square matrices of a product. Not a power of two, so that rows do not share cache sets.
const SIDE: usize = 2000;
const REPEATS: usize = 5;

/// Bytes per second, read and written together, of a large copy by the threads of the current rayon pool.
pub fn copy_rate() -> f64 {
    let from = vec![1.0f32; COPIED];
    let mut to = vec![0.0f32; COPIED];
    let piece = COPIED.div_ceil(rayon::current_num_threads());
    let Ok(seconds) = fastest(|| {
        let start = Instant::now();
        (to.par_chunks_mut(piece).zip(from.par_chunks(piece))).run(|(to, from)| to.copy_from_slice(from));
        std::hint::black_box(&to);
        Ok::<_, Infallible>(start.elapsed().as_secs_f64())
    });
    copied_bytes(COPIED) / seconds
}

/// Operations per second, two for each multiply-add, of a large square product in f32, made as linear
/// maps make theirs.
///
/// # Errors
/// None in practice: the sizes fit.
pub fn product_rate() -> Result<f64, KernelError> {
    let op = square_map(SIDE);
    let (x, weight) = (noise(SIDE * SIDE, 1), noise(SIDE * SIDE, 2));
    let (bias, mut y) = (&[][..], vec![0.0f32; SIDE * SIDE]);
    let seconds = fastest(|| {
        let start = Instant::now();
        linear::Forward { op: &op, rows: SIDE, x: &x[..], weight: &weight[..], bias, y: &mut y[..] }.on_host()?;
        Ok::<_, KernelError>(start.elapsed().as_secs_f64())
    })?;
    Ok(product_operations(SIDE) / seconds)
}

/// The shortest of a few times, after a warm-up.
fn fastest<E>(mut seconds: impl FnMut() -> Result<f64, E>) -> Result<f64, E> {
    seconds()?;
    (0..REPEATS).try_fold(f64::INFINITY, |best, _| Ok(seconds()?.min(best)))
}

fn copied_bytes(numbers: usize) -> f64 {
    2.0 * (numbers * size_of::<f32>()) as f64
}

fn product_operations(side: usize) -> f64 {
    2.0 * (side as f64).powi(3)
}

fn square_map(side: usize) -> Linear {
    Linear { inputs: side, outputs: side, bias: false }
}

/// Pseudo-random values in [-1, 1).
fn noise(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(1);
    let number = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_positive_and_finite() {
        for rate in [copy_rate(), product_rate().unwrap()] {
            assert!(rate.is_finite() && rate > 0.0, "{rate}");
        }
    }

    #[test]
    fn a_copy_counts_twice_and_a_multiply_add_as_two() {
        assert_eq!(copied_bytes(3), 24.0);
        assert_eq!(product_operations(10), 2000.0);
    }

    #[test]
    fn noise_fills_its_range() {
        let values = noise(10_000, 7);
        let mean = values.iter().sum::<f32>() / 1e4;
        assert!(values.iter().all(|v| (-1.0..1.0).contains(v)));
        assert!(mean.abs() < 0.05, "{mean}");
    }
}
