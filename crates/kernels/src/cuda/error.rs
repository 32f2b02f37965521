//! Why a device cannot be used, and what to do about it.

use crate::KernelError;

/// Why a GPU could not be used, or an operator not run on it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CudaError {
    /// The driver's library is not there.
    #[error(
        "no NVIDIA driver: the library libcuda could not be loaded; install the NVIDIA driver (CUDA 12.0 or later), or run on the CPU"
    )]
    NoDriver,
    /// A driver that is too old.
    #[error("the NVIDIA driver supports CUDA {}.{}, but 12.0 is needed; install a driver of version 525 or later", .version / 1000, .version % 1000 / 10)]
    OldDriver {
        /// What the driver says it supports: 1000 times the major plus 10 times the minor version.
        version: i32,
    },
    /// The driver is there, but no device.
    #[error(
        "no CUDA device: {problem}; check that `nvidia-smi` lists a card, and that CUDA_VISIBLE_DEVICES does not hide it"
    )]
    NoDevice {
        /// What the driver said.
        problem: String,
    },
    /// A device number that is too large.
    #[error("there is no CUDA device {ordinal}: {count} found, counted from 0")]
    Ordinal {
        /// The number asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// A card that is too old.
    #[error("{name} has compute capability {}.{}, but 7.5 (Turing, 2018) or later is needed; run on the CPU", .capability.0, .capability.1)]
    Capability {
        /// Name of the card.
        name: String,
        /// Major and minor number.
        capability: (i32, i32),
    },
    /// The run-time compiler is not there.
    #[error(
        "NVRTC, which compiles the GPU kernels, was not found (searched {searched}); install the CUDA toolkit's runtime compiler, or `pip install nvidia-cuda-nvrtc` and set LD_LIBRARY_PATH to the folder of libnvrtc.so"
    )]
    NoNvrtc {
        /// Where it was looked for.
        searched: String,
    },
    /// The matrix library is not there.
    #[error(
        "cuBLAS, which multiplies matrices on the GPU, was not found (searched {searched}); install the CUDA toolkit's cuBLAS, or `pip install nvidia-cublas` and set LD_LIBRARY_PATH to the folder of libcublas.so"
    )]
    NoCublas {
        /// Where it was looked for.
        searched: String,
    },
    /// A kernel that does not compile.
    #[error("the kernel source `{source_name}` does not compile for {architecture}:\n{log}")]
    Compile {
        /// Name of the source.
        source_name: String,
        /// What it was compiled for.
        architecture: String,
        /// What the compiler said.
        log: String,
    },
    /// A compiled kernel that the driver does not take.
    #[error(
        "the driver refuses the compiled kernels of `{source_name}` ({problem}); NVRTC may be newer than the driver: update the driver, or use the NVRTC of an earlier CUDA version"
    )]
    Load {
        /// Name of the source.
        source_name: String,
        /// What the driver said.
        problem: String,
    },
    /// Not enough memory on the device.
    #[error(
        "out of GPU memory: {asked} bytes asked for, {free} of {total} free; take smaller batches, or a card with more memory"
    )]
    OutOfMemory {
        /// Bytes asked for.
        asked: usize,
        /// Bytes free on the device.
        free: usize,
        /// Bytes of the device.
        total: usize,
    },
    /// Something that cannot be captured in a CUDA graph.
    #[error("cannot be captured in a CUDA graph: {what}")]
    Capture {
        /// What was tried.
        what: &'static str,
    },
    /// A call that failed.
    #[error("{call} failed: {problem}")]
    Call {
        /// Name of the call.
        call: &'static str,
        /// What the library said.
        problem: String,
    },
    /// Sizes or settings that an operator refuses.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// Turns the answer of a driver call into a result.
pub(super) fn driver(
    call: &'static str,
    status: cudarc::driver::sys::CUresult,
) -> Result<(), CudaError> {
    status.result().map_err(|error| CudaError::Call {
        call,
        problem: describe(&error),
    })
}

/// What the driver says about an error of its own.
pub(super) fn describe(error: &cudarc::driver::DriverError) -> String {
    match error.error_string() {
        Ok(text) => format!("{} ({:?})", text.to_string_lossy(), error.0),
        Err(_) => format!("{:?}", error.0),
    }
}
