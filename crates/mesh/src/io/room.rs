//! The check that keeps memory in proportion: what a header declares must fit in the bytes left.

use super::error::{FileProblem, quote};

/// Bytes of a file that no declared element needs yet.
pub(super) struct Room {
    left: u64,
    file_size: usize,
}

impl Room {
    /// `left` bytes of a file of `file_size` bytes.
    pub(super) fn new(left: usize, file_size: usize) -> Self {
        Self {
            left: left as u64,
            file_size,
        }
    }

    /// Sets aside the bytes of `count` elements of at least `bytes` bytes each, and gives the
    /// count back as a number that it is safe to allocate for.
    pub(super) fn claim(
        &mut self,
        element: &[u8],
        count: u64,
        bytes: u64,
    ) -> Result<usize, FileProblem> {
        let needed = count.checked_mul(bytes).filter(|&n| n <= self.left);
        match (needed, usize::try_from(count)) {
            (Some(needed), Ok(count)) => {
                self.left -= needed;
                Ok(count)
            }
            _ => Err(FileProblem::CountTooLarge {
                element: quote(element),
                declared: count,
                room: self.left.checked_div(bytes).unwrap_or(0),
                file_size: self.file_size,
            }),
        }
    }
}
