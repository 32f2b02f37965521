//! Decompression of zlib and gzip data within a limit.

use std::io::Read;

use flate2::read::{GzDecoder, ZlibDecoder};

use super::error::FileProblem;

/// Bytes that may be inflated for each byte of the file. Zlib itself reaches 1,000 with constant
/// data; meshes with fields stay below 20.
const MAX_PER_BYTE: u64 = 64;
/// Bytes that may be inflated in addition, for small files.
const MAX_FIXED: u64 = 1 << 20;

/// The bytes that may still be inflated from a file.
pub(super) struct Inflater {
    left: u64,
}

impl Inflater {
    pub(super) fn new(file_size: usize) -> Self {
        Self { left: (file_size as u64).saturating_mul(MAX_PER_BYTE).saturating_add(MAX_FIXED) }
    }

    /// Appends the inflated `data` to `out`. Gzip is recognised by its signature.
    pub(super) fn inflate(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), FileProblem> {
        let before = out.len();
        let limit = self.left + 1;
        let result = if data.starts_with(b"\x1f\x8b") {
            GzDecoder::new(data).take(limit).read_to_end(out)
        } else {
            ZlibDecoder::new(data).take(limit).read_to_end(out)
        };
        if result.is_err() {
            return Err(FileProblem::BadData { why: "compressed data are damaged" });
        }
        let inflated = (out.len() - before) as u64;
        self.left = self.left.checked_sub(inflated).ok_or(FileProblem::ExpandsTooMuch)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn data_inflate_up_to_the_limit_in_all() {
        let deflate = |bytes: &[u8]| {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), Default::default());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        };
        let half = deflate(&vec![7; 700_000]);
        let mut inflater = Inflater::new(100);
        let mut out = Vec::new();
        inflater.inflate(&half, &mut out).unwrap();
        assert_eq!(out, vec![7; 700_000]);
        assert!(matches!(inflater.inflate(&half, &mut Vec::new()), Err(FileProblem::ExpandsTooMuch)));
        assert!(matches!(
            Inflater::new(100).inflate(&half[..half.len() / 2], &mut out),
            Err(FileProblem::BadData { .. })
        ));
    }
}
