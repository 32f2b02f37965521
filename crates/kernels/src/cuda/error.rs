//! Errors of the GPU, with what to do about them.

use crate::KernelError;

/// The result of functions that fail with a [`CudaError`].
pub type Result<T, E = CudaError> = std::result::Result<T, E>;

/// Why a GPU cannot be used, or why work on it failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CudaError {
    /// The program was built without support for GPUs.
    #[error("this program was built without support for GPUs; build it with the feature `cuda`, or run on the CPU")]
    NotBuilt,
    /// The NVIDIA driver is not installed.
    #[error(
        "no NVIDIA driver: the library libcuda could not be loaded; install the NVIDIA driver (CUDA 12.0 or later), or run on the CPU"
    )]
    NoDriver,
    /// The driver is too old.
    #[error("the NVIDIA driver supports CUDA {}.{}, but 12.0 is needed; install a driver of version 525 or later", .version / 1000, .version % 1000 / 10)]
    OldDriver {
        /// CUDA version that the driver supports: 1000 major + 10 minor.
        version: i32,
    },
    /// The driver finds no device.
    #[error(
        "no CUDA device: {problem}; check that `nvidia-smi` lists a GPU, and that CUDA_VISIBLE_DEVICES does not hide it"
    )]
    NoDevice {
        /// The message of the driver.
        problem: String,
    },
    /// The device number is too large.
    #[error("there is no CUDA device {ordinal}: {count} found, counted from 0")]
    Ordinal {
        /// The requested number.
        ordinal: usize,
        /// Number of devices.
        count: usize,
    },
    /// The GPU is too old.
    #[error("{name} has compute capability {}.{}, but 7.5 (Turing, 2018) or later is needed; run on the CPU", .capability.0, .capability.1)]
    Capability {
        /// Name of the GPU.
        name: String,
        /// Major and minor number.
        capability: (i32, i32),
    },
    /// NVRTC, the run-time compiler, is not installed.
    #[error(
        "NVRTC, which compiles the GPU kernels, was not found (searched {searched}); install the CUDA toolkit's runtime compiler, or `pip install nvidia-cuda-nvrtc` and set LD_LIBRARY_PATH to the folder of libnvrtc.so"
    )]
    NoNvrtc {
        /// The searched places.
        searched: String,
    },
    /// cuBLAS is not installed.
    #[error(
        "cuBLAS, which multiplies matrices on the GPU, was not found (searched {searched}); install the CUDA toolkit's cuBLAS, or `pip install nvidia-cublas` and set LD_LIBRARY_PATH to the folder of libcublas.so"
    )]
    NoCublas {
        /// The searched places.
        searched: String,
    },
    /// A kernel source does not compile.
    #[error("the kernel source `{source_name}` does not compile for {architecture}:\n{log}")]
    Compile {
        /// Name of the source.
        source_name: String,
        /// Architecture it was compiled for.
        architecture: String,
        /// Log of the compiler.
        log: String,
    },
    /// The driver cannot load a compiled source.
    #[error(
        "the driver cannot load the compiled kernels of `{source_name}` ({problem}); NVRTC may be newer than the driver: update the driver, or use the NVRTC of an earlier CUDA version"
    )]
    Load {
        /// Name of the source.
        source_name: String,
        /// The message of the driver.
        problem: String,
    },
    /// The device is out of memory.
    #[error(
        "out of GPU memory: {asked} bytes requested, {free} of {total} free; use smaller batches, or a GPU with more memory"
    )]
    OutOfMemory {
        /// Requested bytes.
        asked: usize,
        /// Free bytes on the device.
        free: usize,
        /// Bytes of memory of the device.
        total: usize,
    },
    /// Something that cannot be captured in a CUDA graph.
    #[error("cannot be captured in a CUDA graph: {what}")]
    Capture {
        /// What was attempted.
        what: &'static str,
    },
    /// A call of a CUDA library failed.
    #[error("{call} failed: {problem}")]
    Call {
        /// Name of the call.
        call: &'static str,
        /// The message of the library.
        problem: String,
    },
    /// An operator rejected its arguments.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}
