//! Matrix products on row-major matrices.

use super::{CudaDevice, CudaError, DeviceSlice, DeviceSliceMut, Result};
use crate::KernelError;

/// Precision of matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum ProductMode {
    /// Factors and sums in f32.
    F32 = 0,
    /// On tensor cores: factors rounded to 10 bits of mantissa, sums in f32. Devices below compute
    /// capability 8.0 compute in f32 instead. The classifier and blocks of DiffusionNet on Hopper take fp16 with
    /// scales, which has the same mantissa.
    #[default]
    Tf32 = 1,
    /// As `Tf32`, and the products of the classifiers and of the blocks of DiffusionNet that have kernels of their own on
    /// Hopper on factors rounded to bf16, which has 7 bits of mantissa. Sums, logits and softmax stay in f32.
    Bf16 = 2,
}

/// A factor of a [`Product`]: a row-major matrix, used as it is or transposed.
#[derive(Debug, Clone, Copy)]
pub struct Operand<'a> {
    pub(super) data: DeviceSlice<'a, f32>,
    pub(super) stride: usize,
    pub(super) transposed: bool,
    pub(super) batch_stride: usize,
}

impl<'a> Operand<'a> {
    /// The matrix that starts at the first number, with `stride` numbers from one row to the next.
    pub fn new(data: DeviceSlice<'a, f32>, stride: usize) -> Self {
        Self { data, stride, transposed: false, batch_stride: 0 }
    }

    /// The transposed matrix.
    pub fn transposed(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }

    /// The same with `batch_stride` numbers from one matrix of a batch to the next; 0 if all products
    /// share one matrix.
    pub fn batched(self, batch_stride: usize) -> Self {
        Self { batch_stride, ..self }
    }

    /// Numbers from the first to the last one used by a `rows x columns` matrix.
    fn extent(&self, rows: usize, columns: usize, batches: usize) -> usize {
        let (rows, columns) = if self.transposed { (columns, rows) } else { (rows, columns) };
        extent((rows, columns, batches), (self.stride, self.batch_stride))
    }
}

/// Numbers from the first to the last one of a batch of matrices, none of whose sizes is zero.
fn extent((rows, columns, batches): (usize, usize, usize), (stride, batch_stride): (usize, usize)) -> usize {
    let last = (batches - 1).saturating_mul(batch_stride);
    last.saturating_add((rows - 1).saturating_mul(stride)).saturating_add(columns)
}

/// A batch of matrix products `c = a b` or `c += a b`, `[m, k] x [k, n]`, computed by cuBLAS in the
/// [`ProductMode`] of the device.
#[derive(Debug)]
pub struct Product<'a> {
    /// Rows of `a` and `c`.
    pub m: usize,
    /// Columns of `b` and `c`.
    pub n: usize,
    /// Columns of `a`, rows of `b`.
    pub k: usize,
    /// Left factor.
    pub a: Operand<'a>,
    /// Right factor.
    pub b: Operand<'a>,
    /// True to add to `c`, false to overwrite it.
    pub add: bool,
    /// Number of products.
    pub batches: usize,
}

impl Product<'_> {
    /// Computes the product into `c`, with `stride` numbers from one row to the next and `batch_stride`
    /// from one matrix to the next. An empty product (also `k = 0`) leaves `c` as it is.
    ///
    /// # Errors
    /// A matrix that does not fit in its slice, or a failed call of cuBLAS.
    pub fn run(
        self,
        device: &CudaDevice,
        c: &DeviceSliceMut<'_, f32>,
        (stride, batch_stride): (usize, usize),
    ) -> Result<()> {
        let Self { m, n, k, batches, .. } = self;
        if m == 0 || n == 0 || batches == 0 || k == 0 {
            return Ok(());
        }
        let fits = self.a.extent(m, k, batches) <= self.a.data.len()
            && self.b.extent(k, n, batches) <= self.b.data.len()
            && extent((m, n, batches), (stride, batch_stride)) <= c.len();
        if !fits {
            return Err(CudaError::Kernel(KernelError::Setting {
                operator: "matrix product",
                problem: format!(
                    "{batches} x [{m}, {k}] x [{k}, {n}] does not fit in slices of {}, {} and {} numbers",
                    self.a.data.len(),
                    self.b.data.len(),
                    c.len()
                ),
            }));
        }
        device.multiply(&self, c.view(), (stride, batch_stride))
    }
}
