//! Matrix products with cuBLAS.

use super::pool::Pool;
use super::products::{Operand, Product, ProductMode};
use super::{CudaDevice, CudaError, DeviceBuffer, DeviceSlice, Result};
use cudarc::cublas::sys::{self, cublasOperation_t, cublasStatus_t};
use std::sync::{Arc, Mutex, PoisonError};

/// The library's handle. Its workspace is fixed, so the same product always takes the same path.
#[derive(Debug)]
pub(super) struct Handle {
    handle: Mutex<Placed>,
    workspace: DeviceBuffer<u8>,
}

#[derive(Debug)]
struct Placed {
    handle: sys::cublasHandle_t,
    /// False after a product on a stream of a foreign.
    on_own_stream: bool,
}

const WORKSPACE: usize = 32 << 20;

impl Handle {
    /// On a stream; the context is current.
    pub fn new(pool: &Arc<Pool>, stream: cudarc::driver::sys::CUstream) -> Result<Self> {
        let workspace = DeviceBuffer::new(pool, WORKSPACE)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the library is there and the context current; the workspace lives as long as the
        // handle, and both are used on this stream alone.
        unsafe {
            check("cublasCreate", sys::cublasCreate_v2(&mut handle))?;
            Self::place(handle, stream, workspace.view())?;
        }
        Ok(Self { handle: Mutex::new(Placed { handle, on_own_stream: true }), workspace })
    }

    /// Sets stream and workspace of the products that follow.
    ///
    /// # Safety
    /// The stream is alive. The workspace is used on this stream only, until other ones are set.
    unsafe fn place(
        handle: sys::cublasHandle_t,
        stream: cudarc::driver::sys::CUstream,
        workspace: DeviceSlice<'_, u8>,
    ) -> Result<()> {
        // SAFETY: as above; the library is there and the context current.
        unsafe {
            check("cublasSetStream", sys::cublasSetStream_v2(handle, stream.cast()))?;
            let address = workspace.address as *mut std::ffi::c_void;
            check("cublasSetWorkspace", sys::cublasSetWorkspace_v2(handle, address, workspace.len()))
        }
    }

    /// Destroys the handle; it is not used again.
    pub fn destroy(&self) {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: created once, destroyed once.
        unsafe { sys::cublasDestroy_v2(handle.handle) };
    }
}

fn check(call: &'static str, status: cublasStatus_t) -> Result<()> {
    if status == cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    Err(CudaError::Call { call, problem: format!("{status:?}") })
}

impl CudaDevice {
    /// Computes a product that is not empty and whose matrices fit in their slices.
    pub(in crate::cuda) fn multiply(
        &self,
        product: &Product<'_>,
        c: DeviceSlice<'_, f32>,
        (stride, batch_stride): (usize, usize),
    ) -> Result<()> {
        let &Product { m, n, k, batches, .. } = product;
        let compute = match self.product_mode() {
            ProductMode::Tf32 | ProductMode::Bf16 if self.capability() >= (8, 0) => {
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32
            }
            _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let operation = |operand: &Operand<'_>| {
            if operand.transposed { cublasOperation_t::CUBLAS_OP_T } else { cublasOperation_t::CUBLAS_OP_N }
        };
        let size = |value: usize| {
            i32::try_from(value).map_err(|_| CudaError::Call {
                call: "cublasGemmStridedBatchedEx",
                problem: format!("a size of {value} is more than it can count"),
            })
        };
        let (one, zero) = (1.0f32, 0.0f32);
        let beta = if product.add { &one } else { &zero };
        let pointer = |value: &f32| std::ptr::from_ref(value).cast::<std::ffi::c_void>();
        self.bind()?;
        // Streams of other libraries run beside each other, so each of their products has a workspace of its own.
        let workspace: DeviceBuffer<u8> = self.buffer(if self.is_foreign() { WORKSPACE } else { 0 })?;
        let blas = self.blas();
        let mut placed = blas.handle.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_foreign() || !placed.on_own_stream {
            let space = if self.is_foreign() { workspace.view() } else { blas.workspace.view() };
            // SAFETY: the stream of the device is alive, and its next product sets both again.
            unsafe { Handle::place(placed.handle, self.stream(), space)? };
            placed.on_own_stream = !self.is_foreign();
        }
        // cuBLAS sees row-major matrices as their transposes, and `c^T = b^T a^T`.
        // SAFETY: the matrices lie in their slices, as checked above, and the slices are alive until
        // the work on the stream is done, because memory given back is reused on this stream only.
        check("cublasGemmStridedBatchedEx", unsafe {
            sys::cublasGemmStridedBatchedEx(
                placed.handle,
                operation(&product.b),
                operation(&product.a),
                size(n)?,
                size(m)?,
                size(k)?,
                pointer(&one),
                product.b.data.address as *const _,
                sys::cudaDataType_t::CUDA_R_32F,
                size(product.b.stride)?,
                product.b.batch_stride as i64,
                product.a.data.address as *const _,
                sys::cudaDataType_t::CUDA_R_32F,
                size(product.a.stride)?,
                product.a.batch_stride as i64,
                pointer(beta),
                c.address as *mut _,
                sys::cudaDataType_t::CUDA_R_32F,
                size(stride)?,
                batch_stride as i64,
                size(batches)?,
                compute,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DFALT,
            )
        })
    }
}
