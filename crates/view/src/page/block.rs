//! Columns of integers in a compressed block.
//!
//! A column stores the difference of each number from the one before, with the sign in the lowest bit, as planes of
//! bytes: first the lowest byte of every number, then the next. Neighbouring vertices of most meshes have near numbers,
//! so the higher planes are nearly constant and compress well.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde::Serialize;
use std::io::Write;

/// A column in the bytes of a block: place of its first byte, number of values, and number of planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Column(usize, usize, usize);

/// The columns of a mesh.
#[derive(Debug, Default)]
pub(super) struct Block {
    bytes: Vec<u8>,
}

impl Block {
    /// Appends a column.
    pub(super) fn push(&mut self, values: impl ExactSizeIterator<Item = i32>) -> Column {
        let mut last = 0i32;
        let mut largest = 0;
        let steps: Vec<u32> = values
            .map(|value| {
                let step = value.wrapping_sub(last);
                last = value;
                let folded = ((step << 1) ^ (step >> 31)) as u32;
                largest = largest.max(folded);
                folded
            })
            .collect();
        let planes = (4 - largest.leading_zeros() as usize / 8).max(1);
        let column = Column(self.bytes.len(), steps.len(), planes);
        for plane in 0..planes {
            let byte = |step: &u32| (step >> (8 * plane)) as u8;
            self.bytes.extend(steps.iter().map(byte));
        }
        column
    }

    /// The block, [`packed`].
    pub(super) fn finish(self) -> String {
        packed(&self.bytes)
    }
}

/// Bytes as base64 of a raw deflate stream.
pub(super) fn packed(bytes: &[u8]) -> String {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    let compressed = encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("writing to memory cannot fail");
    BASE64_STANDARD.encode(compressed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// The inverse, as the page does it.
    fn decode(bytes: &[u8], Column(start, count, planes): Column) -> Vec<i32> {
        let mut last = 0i32;
        (0..count)
            .map(|index| {
                let byte = |plane: usize| u32::from(bytes[start + plane * count + index]);
                let folded = (0..planes).fold(0, |sum, plane| sum | byte(plane) << (8 * plane));
                last = last.wrapping_add((folded >> 1) as i32 ^ -((folded & 1) as i32));
                last
            })
            .collect()
    }

    #[test]
    fn columns_come_back_from_the_block() {
        let columns: [&[i32]; 4] = [&[0, 1, -1, 127, -128], &[i32::MAX, i32::MIN, -1, 0, 65_535], &[], &[7; 300]];
        let mut block = Block::default();
        let places = columns.map(|column| block.push(column.iter().copied()));
        assert_eq!(places.map(|Column(_, _, planes)| planes), [2, 4, 1, 1]);
        let packed = BASE64_STANDARD.decode(block.finish()).unwrap();
        let mut bytes = Vec::new();
        let mut decoder = flate2::read::DeflateDecoder::new(&*packed);
        decoder.read_to_end(&mut bytes).unwrap();
        for (column, place) in columns.iter().zip(places) {
            assert_eq!(decode(&bytes, place), *column);
        }
    }
}
