//! Matrix products with cuBLAS, on row-major matrices.

use super::pool::Pool;
use super::{CudaDevice, CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut};
use crate::KernelError;
use cudarc::cublas::sys::{self, cublasOperation_t, cublasStatus_t};
use std::sync::{Arc, Mutex, PoisonError};

/// Precision of matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum ProductMode {
    /// Factors and sums in f32.
    F32 = 0,
    /// On tensor cores: factors rounded to 10 bits of mantissa, sums in f32. Devices below compute
    /// capability 8.0 compute in f32 instead.
    #[default]
    Tf32 = 1,
    /// As `Tf32`, and the products of the classifier on factors rounded to bf16, which has 7 bits of mantissa. Sums,
    /// logits and softmax stay in f32.
    Bf16 = 2,
}

/// The library's handle. Its workspace is fixed, so the same product always takes the same path.
#[derive(Debug)]
pub(super) struct Handle {
    handle: Mutex<Placed>,
    workspace: DeviceBuffer<u8>,
}

#[derive(Debug)]
struct Placed {
    handle: sys::cublasHandle_t,
    /// False after a product on a stream of a guest.
    at_home: bool,
}

const WORKSPACE: usize = 32 << 20;

impl Handle {
    /// On a stream; the context is current.
    pub fn new(pool: &Arc<Pool>, stream: cudarc::driver::sys::CUstream) -> Result<Self, CudaError> {
        let workspace = DeviceBuffer::new(pool, WORKSPACE)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the library is there and the context current; the workspace lives as long as the
        // handle, and both are used on this stream alone.
        unsafe {
            check("cublasCreate", sys::cublasCreate_v2(&mut handle))?;
            Self::place(handle, stream, workspace.view())?;
        }
        Ok(Self {
            handle: Mutex::new(Placed {
                handle,
                at_home: true,
            }),
            workspace,
        })
    }

    /// Sets stream and workspace of the products that follow.
    ///
    /// # Safety
    /// The stream is alive. The workspace is used on this stream only, until other ones are set.
    unsafe fn place(
        handle: sys::cublasHandle_t,
        stream: cudarc::driver::sys::CUstream,
        workspace: DeviceSlice<'_, u8>,
    ) -> Result<(), CudaError> {
        // SAFETY: as above; the library is there and the context current.
        unsafe {
            check(
                "cublasSetStream",
                sys::cublasSetStream_v2(handle, stream.cast()),
            )?;
            let address = workspace.address as *mut std::ffi::c_void;
            check(
                "cublasSetWorkspace",
                sys::cublasSetWorkspace_v2(handle, address, workspace.len()),
            )
        }
    }

    /// Destroys the handle; it is not used again.
    pub fn destroy(&self) {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: created once, destroyed once.
        unsafe { sys::cublasDestroy_v2(handle.handle) };
    }
}

fn check(call: &'static str, status: cublasStatus_t) -> Result<(), CudaError> {
    if status == cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    Err(CudaError::Call {
        call,
        problem: format!("{status:?}"),
    })
}

/// A factor of a [`Product`]: a row-major matrix, used as it is or transposed.
#[derive(Debug, Clone, Copy)]
pub struct Operand<'a> {
    data: Numbers<'a>,
    stride: usize,
    transposed: bool,
    batch_stride: usize,
}

/// The numbers of a matrix.
#[derive(Debug, Clone, Copy)]
enum Numbers<'a> {
    F32(DeviceSlice<'a, f32>),
    Bf16(DeviceSlice<'a, u16>),
}

impl Numbers<'_> {
    fn len(&self) -> usize {
        match self {
            Self::F32(numbers) => numbers.len(),
            Self::Bf16(numbers) => numbers.len(),
        }
    }

    fn address(&self) -> *const std::ffi::c_void {
        let address = match self {
            Self::F32(numbers) => numbers.address,
            Self::Bf16(numbers) => numbers.address,
        };
        address as *const _
    }

    fn kind(&self) -> sys::cudaDataType_t {
        match self {
            Self::F32(_) => sys::cudaDataType_t::CUDA_R_32F,
            Self::Bf16(_) => sys::cudaDataType_t::CUDA_R_16BF,
        }
    }
}

impl<'a> Operand<'a> {
    /// The matrix that starts at the first number, with `stride` numbers from one row to the next.
    pub fn new(data: DeviceSlice<'a, f32>, stride: usize) -> Self {
        Self::of(Numbers::F32(data), stride)
    }

    /// The same of numbers in bf16: the upper halves of f32. Both factors of a product must be in bf16.
    pub fn bf16(data: DeviceSlice<'a, u16>, stride: usize) -> Self {
        Self::of(Numbers::Bf16(data), stride)
    }

    fn of(data: Numbers<'a>, stride: usize) -> Self {
        Self {
            data,
            stride,
            transposed: false,
            batch_stride: 0,
        }
    }

    /// The transposed matrix.
    pub fn transposed(self) -> Self {
        Self {
            transposed: !self.transposed,
            ..self
        }
    }

    /// The same with `batch_stride` numbers from one matrix of a batch to the next; 0 if all products
    /// share one matrix.
    pub fn batched(self, batch_stride: usize) -> Self {
        Self {
            batch_stride,
            ..self
        }
    }

    /// Numbers from the first to the last one used by a `rows x columns` matrix.
    fn extent(&self, rows: usize, columns: usize, batches: usize) -> usize {
        let (rows, columns) = if self.transposed {
            (columns, rows)
        } else {
            (rows, columns)
        };
        extent((rows, columns, batches), (self.stride, self.batch_stride))
    }
}

/// Numbers from the first to the last one of a batch of matrices, none of whose sizes is zero.
fn extent(
    (rows, columns, batches): (usize, usize, usize),
    (stride, batch_stride): (usize, usize),
) -> usize {
    let last = (batches - 1).saturating_mul(batch_stride);
    last.saturating_add((rows - 1).saturating_mul(stride))
        .saturating_add(columns)
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
        strides: (usize, usize),
    ) -> Result<(), CudaError> {
        self.run_into(device, Numbers::F32(c.view()), strides)
    }

    /// The same for factors in bf16, with sums in f32 that are rounded to bf16 at the end.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_to_bf16(
        self,
        device: &CudaDevice,
        c: &DeviceSliceMut<'_, u16>,
        strides: (usize, usize),
    ) -> Result<(), CudaError> {
        self.run_into(device, Numbers::Bf16(c.view()), strides)
    }

    fn run_into(
        self,
        device: &CudaDevice,
        c: Numbers<'_>,
        (stride, batch_stride): (usize, usize),
    ) -> Result<(), CudaError> {
        let Self {
            m, n, k, batches, ..
        } = self;
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
        let compute = match (self.a.data, device.product_mode()) {
            (Numbers::F32(_), ProductMode::Tf32 | ProductMode::Bf16)
                if device.capability() >= (8, 0) =>
            {
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32
            }
            _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let operation = |operand: &Operand<'_>| {
            if operand.transposed {
                cublasOperation_t::CUBLAS_OP_T
            } else {
                cublasOperation_t::CUBLAS_OP_N
            }
        };
        let size = |value: usize| {
            i32::try_from(value).map_err(|_| CudaError::Call {
                call: "cublasGemmStridedBatchedEx",
                problem: format!("a size of {value} is more than it can count"),
            })
        };
        let (one, zero) = (1.0f32, 0.0f32);
        let beta = if self.add { &one } else { &zero };
        let pointer = |value: &f32| std::ptr::from_ref(value).cast::<std::ffi::c_void>();
        device.bind()?;
        // Streams of guests run beside each other, so each of their products has a workspace of its own.
        let workspace: DeviceBuffer<u8> =
            device.buffer(if device.is_guest() { WORKSPACE } else { 0 })?;
        let blas = device.blas();
        let mut placed = blas.handle.lock().unwrap_or_else(PoisonError::into_inner);
        if device.is_guest() || !placed.at_home {
            let space = match device.is_guest() {
                true => workspace.view(),
                false => blas.workspace.view(),
            };
            // SAFETY: the stream of the device is alive, and its next product sets both again.
            unsafe { Handle::place(placed.handle, device.stream(), space)? };
            placed.at_home = !device.is_guest();
        }
        // cuBLAS sees row-major matrices as their transposes, and `c^T = b^T a^T`.
        // SAFETY: the matrices lie in their slices, as checked above, and the slices are alive until
        // the work on the stream is done, because memory given back is reused on this stream only.
        check("cublasGemmStridedBatchedEx", unsafe {
            sys::cublasGemmStridedBatchedEx(
                placed.handle,
                operation(&self.b),
                operation(&self.a),
                size(n)?,
                size(m)?,
                size(k)?,
                pointer(&one),
                self.b.data.address(),
                self.b.data.kind(),
                size(self.b.stride)?,
                self.b.batch_stride as i64,
                self.a.data.address(),
                self.a.data.kind(),
                size(self.a.stride)?,
                self.a.batch_stride as i64,
                pointer(beta),
                c.address().cast_mut(),
                c.kind(),
                size(stride)?,
                batch_stride as i64,
                size(batches)?,
                compute,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DFALT,
            )
        })
    }
}
