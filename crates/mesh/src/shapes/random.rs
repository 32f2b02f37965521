//! Seeded uniform numbers whose values stay the same from version to version: ChaCha with eight
//! rounds, and a conversion to f64 that is ours.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A stream of uniform numbers.
pub(super) struct Uniform(ChaCha8Rng);

impl Uniform {
    pub(super) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// One of many independent streams of the same seed; stream 0 is that of [`Uniform::new`].
    pub(super) fn of_stream(seed: u64, stream: u64) -> Self {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(stream);
        Self(generator)
    }

    /// The next number, uniform in `[-1, 1)`.
    pub(super) fn signed(&mut self) -> f64 {
        // The top 53 bits fill the mantissa: multiples of 2^-52.
        (self.0.next_u64() >> 11) as f64 * 2.0_f64.powi(-52) - 1.0
    }
}
