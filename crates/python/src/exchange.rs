//! Tensors as DLPack describes them, through its functions in C. PyTorch has them from 2.10 on. They take a tenth of
//! the time of the methods of a tensor, which every operator calls for each of its tensors.

use pyo3::ffi::{PyObject, PyType_IsSubtype, PyTypeObject};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyType};
use std::ffi::{c_int, c_void};

/// What an operator has to know of a tensor.
pub struct Facts {
    /// Number type, by its name in PyTorch.
    pub dtype: &'static str,
    /// Ordinal of its GPU, or -1 for the CPU.
    pub ordinal: i64,
    pub is_contiguous: bool,
    pub address: usize,
    /// Number of elements.
    pub count: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: c_int,
    ordinal: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct NumberType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor` of DLPack 1.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    dtype: NumberType,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLPackExchangeAPI` of DLPack 1.
#[repr(C)]
struct Table {
    /// Major and minor.
    version: [u32; 2],
    _previous: usize,
    _managed: [usize; 3],
    describe: Option<unsafe extern "C" fn(*mut PyObject, *mut Tensor) -> c_int>,
    stream: Option<unsafe extern "C" fn(c_int, i32, *mut *mut c_void) -> c_int>,
}

const CPU: c_int = 1;
const CUDA: c_int = 2;

/// The functions of PyTorch, and its type of tensors.
struct Exchange {
    tensor: Py<PyType>,
    table: &'static Table,
}

/// `None` before PyTorch 2.10.
fn exchange(py: Python<'_>) -> Option<&'static Exchange> {
    static EXCHANGE: PyOnceLock<Option<Exchange>> = PyOnceLock::new();
    let find = || -> PyResult<Exchange> {
        let tensor = py.import("torch")?.getattr("Tensor")?.cast_into::<PyType>()?;
        let capsule = tensor.getattr("__dlpack_c_exchange_api__")?;
        let capsule = capsule.cast_into::<PyCapsule>()?;
        let table = capsule.pointer_checked(Some(c"dlpack_exchange_api"))?;
        Ok(Exchange {
            tensor: tensor.unbind(),
            // SAFETY: DLPack says that a capsule of this name has such a table, which lives as long as the process.
            table: unsafe { table.cast::<Table>().as_ref() },
        })
    };
    let found = EXCHANGE.get_or_init(py, || find().ok().filter(|found| found.table.version[0] == 1));
    found.as_ref()
}

/// The current stream of PyTorch on a GPU; `None` if only a function in Python knows it.
pub fn stream(py: Python<'_>, ordinal: usize) -> Option<usize> {
    let current = exchange(py)?.table.stream?;
    let mut stream = std::ptr::null_mut();
    // SAFETY: the function has this signature, and `stream` outlives the call.
    let status = unsafe { current(CUDA, i32::try_from(ordinal).ok()?, &mut stream) };
    if status != 0 {
        drop(PyErr::take(py));
        return None;
    }
    Some(stream as usize)
}

/// What a tensor is; `None` if only its methods know it.
pub fn facts(tensor: &Bound<'_, PyAny>) -> Option<Facts> {
    let py = tensor.py();
    let exchange = exchange(py)?;
    let wanted = exchange.tensor.as_ptr().cast::<PyTypeObject>();
    // SAFETY: both are types that are alive.
    if unsafe { PyType_IsSubtype(tensor.get_type_ptr(), wanted) } == 0 {
        return None;
    }
    let mut found = Tensor {
        data: std::ptr::null_mut(),
        device: Device { kind: 0, ordinal: 0 },
        dimensions: 0,
        dtype: NumberType { code: 0, bits: 0, lanes: 0 },
        shape: std::ptr::null(),
        strides: std::ptr::null(),
        byte_offset: 0,
    };
    // SAFETY: the object is a tensor, and `found` outlives the call.
    if unsafe { (exchange.table.describe?)(tensor.as_ptr(), &mut found) } != 0 {
        drop(PyErr::take(py));
        return None;
    }
    let dtype = match (found.dtype.code, found.dtype.bits, found.dtype.lanes) {
        (2, 32, 1) => "torch.float32",
        (2, 64, 1) => "torch.float64",
        (0, 32, 1) => "torch.int32",
        _ => return None,
    };
    let ordinal = match found.device {
        Device { kind: CPU, .. } => -1,
        Device { kind: CUDA, ordinal } => i64::from(ordinal),
        _ => return None,
    };
    let (mut count, mut is_contiguous) = (1, true);
    for dimension in (0..usize::try_from(found.dimensions).ok()?).rev() {
        // SAFETY: there is a size and, unless all are implied, a stride for each dimension. The tensor keeps them.
        let (size, stride) = unsafe {
            let stride = (!found.strides.is_null()).then(|| *found.strides.add(dimension));
            (*found.shape.add(dimension), stride)
        };
        is_contiguous &= size == 1 || stride.is_none_or(|stride| stride == count);
        count *= size;
    }
    Some(Facts {
        dtype,
        ordinal,
        // As in PyTorch, a tensor without elements is contiguous.
        is_contiguous: is_contiguous || count == 0,
        address: found.data as usize + usize::try_from(found.byte_offset).ok()?,
        count: usize::try_from(count).ok()?,
    })
}
