//! Base64 text of XML and JSON files.

use ::base64::Engine;
use ::base64::alphabet::STANDARD;
use ::base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::error::FileProblem;
use super::text::is_space;

/// Accepts text with and without padding, and unused bits that are not zero.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Encodes with padding.
pub(super) fn encode(bytes: &[u8]) -> String {
    ENGINE.encode(bytes)
}

/// Number of characters of `bytes` encoded bytes, with padding.
pub(super) fn encoded_length(bytes: u64) -> u64 {
    bytes.div_ceil(3).saturating_mul(4)
}

/// Decodes text without white space. Several encoded parts may follow each other, each with its
/// padding.
pub(super) fn decode(text: &[u8]) -> Result<Vec<u8>, FileProblem> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 3);
    let mut rest = text;
    while !rest.is_empty() {
        let data = rest.iter().position(|&c| c == b'=').unwrap_or(rest.len());
        let padding = rest[data..].iter().take_while(|&&c| c == b'=').count();
        let (part, after) = rest.split_at(data + padding);
        ENGINE.decode_vec(part, &mut bytes).map_err(|_| FileProblem::BadData { why: "the Base64 text is damaged" })?;
        rest = after;
    }
    Ok(bytes)
}

/// The text without white space.
pub(super) fn compact(text: &[u8]) -> Vec<u8> {
    text.iter().copied().filter(|&c| !is_space(c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_with_padding_are_joined() {
        for parts in [&[&b"abcd"[..], b"efg", b"h"][..], &[b""], &[b"abc"]] {
            let text: String = parts.iter().map(|part| encode(part)).collect();
            assert_eq!(decode(text.as_bytes()).unwrap(), parts.concat());
        }
        assert_eq!(decode(b"YWI").unwrap(), b"ab");
        for bad in [&b"Y"[..], b"YW!j", b"=", b"YWJj===="] {
            assert!(decode(bad).is_err());
        }
        assert_eq!(encoded_length(4), 8);
    }
}
