//! A counter-based random number generator: the same numbers on every device and for any number of threads.
//!
//! The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as
//! 1, 2, 3, 2011). Word `i` of the stream of a `seed` and a `step` is word `i mod 4` of
//! `philox4x32_10(counter, key)` with, least significant words first,
//!
//! ```text
//! counter = (i/4 low, i/4 high, step low, step high),   key = (seed low, seed high).
//! ```
//!
//! The definition is stable: a seed gives the same numbers in all versions.

/// The stream of random words of one seed and step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// Seed: one for each layer and run.
    pub seed: u64,
    /// Step: one for each training step.
    pub step: u64,
}

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Counters that [`Stream::fill`] processes at a time, as lanes of vectors.
const SIDE_BY_SIDE: usize = 16;

/// Four words from a counter and a key.
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    philox_lanes(counter.map(|word| [word]), key).map(|[word]| word)
}

/// The same for several counters: word by word, one lane for each counter.
#[inline(always)]
fn philox_lanes<const LANES: usize>(
    [mut c0, mut c1, mut c2, mut c3]: [[u32; LANES]; 4],
    mut key: [u32; 2],
) -> [[u32; LANES]; 4] {
    for _ in 0..ROUNDS {
        for lane in 0..LANES {
            let first = u64::from(MULTIPLIERS[0]) * u64::from(c0[lane]);
            let second = u64::from(MULTIPLIERS[1]) * u64::from(c2[lane]);
            c0[lane] = (second >> 32) as u32 ^ c1[lane] ^ key[0];
            c1[lane] = second as u32;
            c2[lane] = (first >> 32) as u32 ^ c3[lane] ^ key[1];
            c3[lane] = first as u32;
        }
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    [c0, c1, c2, c3]
}

fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

impl Stream {
    /// The words of consecutive blocks of four, starting at block `first`, one lane for each block.
    #[inline(always)]
    fn blocks<const LANES: usize>(&self, first: u64) -> [[u32; LANES]; 4] {
        let [s0, s1] = halves(self.step);
        let block = |lane: usize| halves(first.wrapping_add(lane as u64));
        let counters = [
            std::array::from_fn(|lane| block(lane)[0]),
            std::array::from_fn(|lane| block(lane)[1]),
            [s0; LANES],
            [s1; LANES],
        ];
        philox_lanes(counters, halves(self.seed))
    }

    /// One word.
    ///
    /// ```
    /// use gemcnn_kernels::random::Stream;
    /// let stream = Stream { seed: 0, step: 0 };
    /// assert_eq!(stream.word(1), 0xe169c58d);
    /// ```
    pub fn word(&self, index: u64) -> u32 {
        let [word] = self.blocks(index / 4)[(index % 4) as usize];
        word
    }

    /// Consecutive words, starting at word `first`.
    #[inline(always)]
    pub fn fill(&self, first: u64, words: &mut [u32]) {
        let before_whole_blocks = ((4 - first % 4) % 4) as usize;
        let (head, rest) = words.split_at_mut(words.len().min(before_whole_blocks));
        for (word, index) in head.iter_mut().zip(first..) {
            *word = self.word(index);
        }
        let mut block = first.div_ceil(4);
        for words in rest.chunks_mut(4 * SIDE_BY_SIDE) {
            let lanes = self.blocks::<SIDE_BY_SIDE>(block);
            for (at, word) in words.iter_mut().enumerate() {
                *word = lanes[at % 4][at / 4];
            }
            block = block.wrapping_add(SIDE_BY_SIDE as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers published with the algorithm.
    #[test]
    fn known_answers() {
        let ones = u32::MAX;
        for (counter, key, words) in [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([ones; 4], [ones; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ] {
            assert_eq!(philox4x32_10(counter, key), words);
        }
    }

    #[test]
    fn words_are_a_function_of_seed_step_and_index() {
        let stream = Stream { seed: 0x299f_31d0_a409_3822, step: 0x0370_7344_1319_8a2e };
        let index = 4 * 0x05a3_08d3_243f_6a88 + 2;
        assert_eq!(
            stream.word(index),
            philox4x32_10([0x243f_6a88, 0x05a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0])[2]
        );
        for first in 0..9 {
            for count in [0, 1, 2, 3, 5, 63, 64, 65, 150] {
                let mut words = vec![0; count];
                stream.fill(first, &mut words);
                let expected: Vec<u32> = (first..first + count as u64).map(|i| stream.word(i)).collect();
                assert_eq!(words, expected);
            }
        }
    }
}
