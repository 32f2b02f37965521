//! Limit on allocations: the elements that a header declares must fit in the remaining bytes.

use super::error::{FileProblem, quote};

/// Bytes of a file that are not yet claimed by declared elements.
pub(super) struct ByteBudget {
    left: u64,
    file_size: usize,
}

impl ByteBudget {
    /// Creates a budget of `left` bytes in a file of `file_size` bytes.
    pub(super) fn new(left: usize, file_size: usize) -> Self {
        Self { left: left as u64, file_size }
    }

    /// Claims the bytes of `count` elements of at least `bytes` bytes each. Returns the count,
    /// which is then safe to allocate.
    pub(super) fn claim(&mut self, element: &[u8], count: u64, bytes: u64) -> Result<usize, FileProblem> {
        let needed = count.checked_mul(bytes).filter(|&n| n <= self.left);
        match (needed, usize::try_from(count)) {
            (Some(needed), Ok(count)) => {
                self.left -= needed;
                Ok(count)
            }
            _ => Err(FileProblem::CountTooLarge {
                element: quote(element),
                declared: count,
                capacity: self.left.checked_div(bytes).unwrap_or(0),
                file_size: self.file_size,
            }),
        }
    }
}
