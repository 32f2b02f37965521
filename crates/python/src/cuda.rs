//! GPUs as PyTorch uses them: its current stream and its memory.

use crate::errors;
use gemcnn_kernels::cuda::{CudaDevice, DeviceMemory, ProductMode};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Functions of PyTorch.
struct Torch {
    /// `(ordinal) -> stream`
    stream: Py<PyAny>,
    /// `(bytes, ordinal, stream) -> address`
    allocate: Py<PyAny>,
    /// `(address)`
    free: Py<PyAny>,
    /// `() -> "highest"`, `"high"` or `"medium"`
    precision: Py<PyAny>,
}

static TORCH: PyOnceLock<Torch> = PyOnceLock::new();

/// Devices, and their guests by stream. They are kept until the process ends: streams of PyTorch are.
static DEVICES: Mutex<Option<Devices>> = Mutex::new(None);

#[derive(Default)]
struct Devices {
    owners: HashMap<usize, CudaDevice>,
    guests: HashMap<(usize, usize), CudaDevice>,
}

/// The caching allocator of PyTorch.
#[derive(Debug)]
struct TorchMemory {
    ordinal: usize,
}

// SAFETY: the allocator returns memory of the device, aligned to 512 bytes, and keeps it until it is freed. It reuses
// freed memory for the same stream only.
unsafe impl DeviceMemory for TorchMemory {
    fn allocate(&self, bytes: usize, stream: *mut std::ffi::c_void) -> Result<u64, String> {
        Python::attach(|py| {
            let torch = TORCH.get(py).ok_or("gemcnn.torch is not imported")?;
            let arguments = (bytes, self.ordinal, stream as usize);
            let address = torch.allocate.call1(py, arguments);
            let address = address.and_then(|address| address.extract(py));
            address.map_err(|error| error.to_string())
        })
    }

    fn free(&self, address: u64) {
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
    let stream: usize = torch.stream.call1(py, (ordinal,))?.extract(py)?;
    let precision = torch.precision.call0(py)?;
    let mode = match precision.extract::<&str>(py)? {
        "highest" => ProductMode::F32,
        _ => ProductMode::Tf32,
    };
    // The lock is held without the GIL only while a device is opened.
    let device = py.detach(|| {
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        let devices = devices.get_or_insert_default();
        if let Some(guest) = devices.guests.get(&(ordinal, stream)) {
            return Ok(guest.clone());
        }
        let owner = match devices.owners.get(&ordinal) {
            Some(owner) => owner.clone(),
            None => {
                let owner = CudaDevice::new(ordinal)?;
                devices.owners.insert(ordinal, owner.clone());
                owner
            }
        };
        let memory = Arc::new(TorchMemory { ordinal });
        // SAFETY: the stream is one of PyTorch, which keeps its streams and uses the primary context.
        let guest = unsafe { owner.guest(stream as *mut _, memory) };
        devices.guests.insert((ordinal, stream), guest.clone());
        Ok(guest)
    });
    let device = device.map_err(|error: gemcnn_kernels::cuda::CudaError| errors::cuda(error))?;
    device.set_product_mode(mode);
    Ok(device)
}

/// Sets the functions of PyTorch that GPUs are used with.
#[pyfunction]
pub fn use_torch(
    py: Python<'_>,
    stream: Py<PyAny>,
    allocate: Py<PyAny>,
    free: Py<PyAny>,
    precision: Py<PyAny>,
) {
    let torch = Torch {
        stream,
        allocate,
        free,
        precision,
    };
    // A second import of `gemcnn.torch` changes nothing.
    let _ = TORCH.set(py, torch);
}
