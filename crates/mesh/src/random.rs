//! Seeded uniform random numbers with stable values across versions: ChaCha with eight rounds and
//! our own conversion to f64.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A random number generator of uniform numbers.
pub(crate) struct Uniform(ChaCha8Rng);

impl Uniform {
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// One of many independent streams of a seed; stream 0 is that of [`Uniform::new`].
    pub(crate) fn of_stream(seed: u64, stream: u64) -> Self {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(stream);
        Self(generator)
    }

    /// The next random number, uniform in `[-1, 1)`.
    pub(crate) fn signed(&mut self) -> f64 {
        // The top 53 bits fill the mantissa: multiples of 2^-52.
        (self.0.next_u64() >> 11) as f64 * 2.0_f64.powi(-52) - 1.0
    }

    /// The next random number, uniform in `[0, 1)`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * 2.0_f64.powi(-53)
    }

    /// The next two random numbers as a uniform point of a triangle: its weights at two of the corners.
    pub(crate) fn in_triangle(&mut self) -> [f64; 2] {
        let [s, t] = [self.unit(), self.unit()];
        if s + t > 1.0 { [1.0 - s, 1.0 - t] } else { [s, t] }
    }

    /// The next random index below `count`, or 0 if `count` is 0.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        ((self.unit() * count as f64) as usize).min(count.saturating_sub(1))
    }
}
