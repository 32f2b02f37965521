//! Sizes of kernels that hold rows of edges in registers (`tiles.cu`).

use super::{CudaDevice, Define, ProductMode};

/// Channels that a warp multiplies together.
pub(crate) const OCTET: usize = 8;
/// Most numbers of a row, which stay in registers.
pub(crate) const MAX_NUMBERS: usize = 80;
/// Warps of a block that compute rows: forward, and at most backward.
pub(crate) const FORWARD_WARPS: usize = 12;
pub(crate) const BACKWARD_WARPS: usize = 6;
/// Rows that a warp computes together.
pub(crate) const WARP_ROWS: usize = 16;
/// Warps of a block that sum up gradients of weights.
pub(crate) const COLLECTORS: usize = 6;

/// Octets of each component, and components, of features and of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Octets {
    pub input: [usize; 2],
    pub output: [usize; 2],
}

impl Octets {
    pub fn input_width(&self) -> usize {
        OCTET * self.input[0] * self.input[1]
    }

    pub fn width(&self) -> usize {
        OCTET * self.output[0] * self.output[1]
    }

    /// True if rows stay in registers, and the device multiplies on tensor cores.
    pub fn fit(&self, device: &CudaDevice) -> bool {
        let fits = |width: usize| (1..=MAX_NUMBERS).contains(&width);
        device.product_mode() != ProductMode::F32
            && device.capability() >= (8, 0)
            && fits(self.input_width())
            && fits(self.width())
    }

    /// Numbers of a row in shared memory, of the features or of a result.
    pub fn row(&self) -> usize {
        self.width().next_multiple_of(16).max(self.input_width()) + 4
    }

    /// Numbers of a row of results of a forward pass in shared memory.
    pub fn staged_row(&self) -> usize {
        self.width().next_multiple_of(16) + 8
    }

    /// Macros of `tiles.cu`, except `COMPONENTS`.
    pub fn defines(&self, warps: usize, is_backward: bool, rows_are_vertices: bool) -> Vec<Define> {
        let numbers = [
            ("TENSOR", 1),
            ("THREADS", 32 * warps),
            ("WARPS", warps),
            ("COLLECTORS", COLLECTORS),
            ("IN_OCTETS", self.input[0]),
            ("IN_COMPONENTS", self.input[1]),
            ("OCTETS", self.output[0]),
            ("ROWS_ARE_VERTICES", usize::from(rows_are_vertices)),
            ("BACKWARD", usize::from(is_backward)),
        ];
        let text = |(name, value): (&'static str, usize)| (name, value.to_string());
        numbers.map(text).into()
    }
}
