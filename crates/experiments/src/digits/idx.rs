//! The part of the IDX format that the digits use: big-endian sizes, then bytes.

use super::files::Content;
use super::{CLASSES, MnistError};

/// Rows and columns of a digit.
pub const SIDE: usize = 28;
/// Pixels of a digit.
pub const PIXELS: usize = SIDE * SIDE;

/// First word of a file of images (three-dimensional bytes).
const IMAGES: u32 = 0x0000_0803;
/// First word of a file of labels (one-dimensional bytes).
const LABELS: u32 = 0x0000_0801;

/// Images of digits with their labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digits {
    pixels: Vec<u8>,
    labels: Vec<u8>,
}

impl Digits {
    /// Parses a file of images and a file of labels.
    pub(super) fn parse(images: &Content, labels: &Content) -> Result<Self, MnistError> {
        let refuse = |problem: String| MnistError::Format { path: labels.path.clone(), problem };
        let side = SIDE as u32;
        let pixels = items(images, IMAGES, &[side, side])?;
        let names = items(labels, LABELS, &[])?;
        if pixels.len() != names.len() * PIXELS {
            return Err(refuse(format!(
                "{} labels, but {} holds {} digits",
                names.len(),
                images.path.display(),
                pixels.len() / PIXELS
            )));
        }
        if let Some(place) = names.iter().position(|&l| usize::from(l) >= CLASSES) {
            return Err(refuse(format!("label {place} is {}, which is not a digit", names[place])));
        }
        Ok(Self { pixels: pixels.to_vec(), labels: names.to_vec() })
    }

    /// Number of digits.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// True if there are no digits.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Labels, 0 to 9.
    pub fn labels(&self) -> &[u8] {
        &self.labels
    }

    /// Pixels of one digit, row by row from the top, from 0 (paper) to 255 (ink).
    ///
    /// # Panics
    /// If there is no such digit.
    pub fn image(&self, digit: usize) -> &[u8] {
        &self.pixels[digit * PIXELS..(digit + 1) * PIXELS]
    }

    /// Pixels of all digits, one digit after the other.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// Copies a range of digits, clipped to those that exist.
    pub fn range(&self, range: std::ops::Range<usize>) -> Self {
        let end = range.end.min(self.len());
        let start = range.start.min(end);
        Self { pixels: self.pixels[start * PIXELS..end * PIXELS].to_vec(), labels: self.labels[start..end].to_vec() }
    }
}

/// Checks the header of a file (first word, number of items, size of each item) and returns the rest.
fn items<'c>(Content { path, bytes }: &'c Content, first: u32, sizes: &[u32]) -> Result<&'c [u8], MnistError> {
    let bad = |problem: String| MnistError::Format { path: path.clone(), problem };
    let header = 8 + 4 * sizes.len();
    let words: Vec<u32> = bytes
        .chunks_exact(4)
        .take(header / 4)
        .map(|word| word.iter().fold(0, |all, &byte| all << 8 | u32::from(byte)))
        .collect();
    if let Some(&found) = words.first()
        && found != first
    {
        return Err(bad(format!("not an IDX file of this kind: it starts with {found:#010x}, expected {first:#010x}")));
    }
    let (Some(&count), Some(found_sizes)) = (words.get(1), words.get(2..header / 4)) else {
        return Err(bad(format!("{} bytes are too few for an IDX file", bytes.len())));
    };
    if found_sizes != sizes {
        return Err(bad(format!("its items have the sizes {found_sizes:?}, expected {sizes:?}")));
    }
    let item: u64 = sizes.iter().map(|&size| u64::from(size)).product();
    let content = &bytes[header..];
    if content.len() as u64 != u64::from(count) * item {
        return Err(bad(format!(
            "{} bytes follow the header, but {count} items have {}",
            content.len(),
            u64::from(count) * item
        )));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn file(words: &[u32], content: &[u8]) -> Vec<u8> {
        let words = words.iter().flat_map(|word| word.to_be_bytes());
        words.chain(content.iter().copied()).collect()
    }

    fn parse(images: &[u8], labels: &[u8]) -> Result<Digits, MnistError> {
        let content = |path: &str, bytes: &[u8]| Content { path: path.into(), bytes: bytes.to_vec() };
        Digits::parse(&content("images", images), &content("labels", labels))
    }

    #[test]
    fn digits_are_read_and_cut_out() {
        let mut pixels = vec![0; 3 * PIXELS];
        pixels[PIXELS + 5] = 9;
        let images = file(&[IMAGES, 3, 28, 28], &pixels);
        let digits = parse(&images, &file(&[LABELS, 3], &[7, 0, 9])).unwrap();
        assert_eq!((digits.len(), digits.labels()), (3, &[7, 0, 9][..]));
        assert_eq!(digits.image(1)[5], 9);
        let last = digits.range(1..8);
        assert_eq!((last.len(), last.labels()[0], last.image(0)[5]), (2, 0, 9));
        assert!(digits.range(3..3).is_empty());
    }

    #[test]
    fn errors_name_the_file_and_the_numbers() {
        let images = file(&[IMAGES, 1, 28, 28], &[0; PIXELS]);
        let labels = file(&[LABELS, 1], &[3]);
        for (images, labels, at, number) in [
            (&images[..15], &labels[..], "images", "15"),
            (&labels, &labels, "images", "0x00000803"),
            (&images[..700], &labels, "images", "684"),
            (&images, &labels[..8], "labels", "0"),
            (&images, &file(&[LABELS, 1], &[10]), "labels", "10"),
            (&images, &file(&[LABELS, 2], &[1, 2]), "labels", "2"),
            (&file(&[IMAGES, 1, 32, 32], &[0; 1024]), &labels, "images", "[32, 32]"),
            (&file(&[IMAGES, u32::MAX, 28, 28], &[]), &labels, "images", "4294967295"),
        ] {
            match parse(images, labels).unwrap_err() {
                MnistError::Format { path, problem } => {
                    assert_eq!(path, Path::new(at));
                    assert!(problem.contains(number), "{problem}");
                }
                other => panic!("{other}"),
            }
        }
    }
}
