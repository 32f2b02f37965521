//! GPUs as PyTorch uses them: its current stream and its memory.

use crate::errors;
use crate::exchange;
use gemcnn_kernels::cuda::{CudaDevice, DeviceMemory, ProductMode};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

/// Functions of PyTorch.
struct Torch {
    /// `()`, before the first GPU is opened
    prepare: Py<PyAny>,
    /// `(ordinal) -> stream`
    stream: Py<PyAny>,
    /// `(bytes, ordinal, stream) -> address`
    allocate: Py<PyAny>,
    /// `(address)`
    free: Py<PyAny>,
    /// `() -> "highest"`, `"high"` or `"medium"`
    precision: Py<PyAny>,
    native: Option<Allocator>,
}

/// The same as `allocate` for the current device and stream, and as `free`, as functions in C. Both return 0 if they
/// succeed.
#[derive(Debug, Clone, Copy)]
struct Allocator {
    allocate: AllocateFunction,
    free: FreeFunction,
}

type AllocateFunction = unsafe extern "C" fn(u64, *mut *mut c_void) -> i32;
type FreeFunction = unsafe extern "C" fn(*mut c_void) -> i32;

static TORCH: PyOnceLock<Torch> = PyOnceLock::new();

/// Devices, and those of streams of PyTorch by device and stream. They are kept until the process ends: streams of PyTorch are.
static DEVICES: Mutex<Option<Devices>> = Mutex::new(None);

#[derive(Default)]
struct Devices {
    owners: HashMap<usize, CudaDevice>,
    streams: HashMap<(usize, usize), CudaDevice>,
}

/// The caching allocator of PyTorch.
#[derive(Debug)]
struct TorchMemory {
    ordinal: usize,
    native: Option<Allocator>,
}

// SAFETY: the allocator returns memory of the device, aligned to 512 bytes, and keeps it until it is freed. It reuses
// freed memory for the same stream only.
unsafe impl DeviceMemory for TorchMemory {
    fn allocate(&self, bytes: usize, stream: *mut c_void) -> Result<u64, String> {
        if let Some(native) = self.native {
            let mut address = std::ptr::null_mut();
            // SAFETY: a function of PyTorch with this signature. The device is current here, and so is the stream in
            // the thread of the call that allocates.
            if unsafe { (native.allocate)(bytes as u64, &mut address) } == 0 {
                return Ok(address as u64);
            }
        }
        Python::attach(|py| {
            let torch = TORCH.get(py).ok_or("gemcnn.torch is not imported")?;
            let arguments = (bytes, self.ordinal, stream as usize);
            let address = torch.allocate.call1(py, arguments);
            let address = address.and_then(|address| address.extract(py));
            address.map_err(|error| error.to_string())
        })
    }

    fn free(&self, address: u64) {
        if let Some(native) = self.native {
            // SAFETY: as above. What it returns says nothing about memory of the other function, which it takes as
            // well.
            unsafe { (native.free)(address as *mut c_void) };
            return;
        }
        // Nothing is freed while Python ends.
        let freed = Python::try_attach(|py| match TORCH.get(py) {
            Some(torch) => torch.free.call1(py, (address,)).map(|_| ()),
            None => Ok(()),
        });
        if let Some(Err(error)) = freed {
            Python::attach(|py| error.write_unraisable(py, None));
        }
    }
}

/// The GPU with the current stream of PyTorch.
pub fn device(py: Python<'_>, ordinal: usize) -> PyResult<CudaDevice> {
    let missing = || errors::cuda("gemcnn.torch is not imported");
    let torch = TORCH.get(py).ok_or_else(missing)?;
    static PREPARED: PyOnceLock<()> = PyOnceLock::new();
    PREPARED.get_or_try_init(py, || torch.prepare.call0(py).map(|_| ()))?;
    let stream = match exchange::stream(py, ordinal) {
        Some(stream) => stream,
        None => torch.stream.call1(py, (ordinal,))?.extract(py)?,
    };
    let precision = torch.precision.call0(py)?;
    let mode = match precision.extract::<&str>(py)? {
        "highest" => ProductMode::F32,
        _ => ProductMode::Tf32,
    };
    // The lock is held without the GIL only while a device is opened.
    let device = py.detach(|| {
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        let devices = devices.get_or_insert_default();
        if let Some(device) = devices.streams.get(&(ordinal, stream)) {
            return Ok(device.clone());
        }
        let owner = match devices.owners.get(&ordinal) {
            Some(owner) => owner.clone(),
            None => {
                let owner = CudaDevice::new(ordinal)?;
                devices.owners.insert(ordinal, owner.clone());
                owner
            }
        };
        let native = torch.native;
        let memory = Arc::new(TorchMemory { ordinal, native });
        // SAFETY: the stream is one of PyTorch, which keeps its streams and uses the primary context.
        let device = unsafe { owner.foreign(stream as *mut _, memory) };
        devices.streams.insert((ordinal, stream), device.clone());
        Ok(device)
    });
    let device = device.map_err(|error: gemcnn_kernels::cuda::CudaError| errors::cuda(error))?;
    device.set_product_mode(mode);
    Ok(device)
}

/// Sets the functions of PyTorch that GPUs are used with.
#[pyfunction]
pub fn use_torch(
    py: Python<'_>,
    prepare: Py<PyAny>,
    stream: Py<PyAny>,
    allocate: Py<PyAny>,
    free: Py<PyAny>,
    precision: Py<PyAny>,
    native: Option<(usize, usize)>,
) {
    let torch = Torch {
        prepare,
        stream,
        allocate,
        free,
        precision,
        // SAFETY: the addresses are those of these functions of PyTorch.
        native: native.map(|(allocate, free)| unsafe {
            Allocator {
                allocate: std::mem::transmute::<*const (), AllocateFunction>(allocate as *const ()),
                free: std::mem::transmute::<*const (), FreeFunction>(free as *const ()),
            }
        }),
    };
    // A second import of `gemcnn.torch` changes nothing.
    let _ = TORCH.set(py, torch);
}
