//! Memory of PyTorch tensors as views that operators take.
//!
//! Only tensor objects come in, never addresses, and each is checked here: type, device, layout and alignment. A view
//! borrows its tensor, which is alive for the whole call.

use crate::cuda;
use crate::errors;
use crate::exchange::{Facts, facts};
use gemcnn_kernels::cuda::{CudaDevice, CudaError, DeviceSlice, DeviceSliceMut};
use gemcnn_kernels::{Executor, HostScratch, KernelError, OnDevice, Real, Scratch, View, ViewMut};
use pyo3::intern;
use pyo3::prelude::*;
use std::borrow::Cow;
use std::cell::RefCell;

/// A number type of tensors and operators.
pub trait Scalar: Real {
    /// Name in PyTorch.
    const DTYPE: &'static str;

    /// The scratch memory of this type.
    fn narrow(memory: &mut Memory) -> HostScratch<'_, Self>;
}

/// Scratch memory of operators on the CPU, kept by each thread of Python.
#[derive(Default)]
pub struct Memory {
    single: Scratch<f32>,
    double: Scratch<f64>,
    wide: Scratch<f64>,
}

impl Scalar for f32 {
    const DTYPE: &'static str = "torch.float32";

    fn narrow(memory: &mut Memory) -> HostScratch<'_, Self> {
        HostScratch { narrow: &mut memory.single, wide: &mut memory.wide }
    }
}

impl Scalar for f64 {
    const DTYPE: &'static str = "torch.float64";

    fn narrow(memory: &mut Memory) -> HostScratch<'_, Self> {
        HostScratch { narrow: &mut memory.double, wide: &mut memory.wide }
    }
}

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::default();
}

/// Where the tensors of a call are.
pub enum Place {
    Host,
    Cuda(CudaDevice),
}

/// Why an operator failed.
#[derive(Debug)]
pub enum Failure {
    Kernel(KernelError),
    Cuda(CudaError),
}

impl From<KernelError> for Failure {
    fn from(error: KernelError) -> Self {
        Self::Kernel(error)
    }
}

impl From<CudaError> for Failure {
    fn from(error: CudaError) -> Self {
        match error {
            CudaError::Kernel(error) => Self::Kernel(error),
            error => Self::Cuda(error),
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Kernel(error) => errors::operator(error),
            Failure::Cuda(error) => errors::cuda(error),
        }
    }
}

/// The name of the type of a tensor.
pub fn dtype(tensor: &Bound<'_, PyAny>) -> PyResult<Cow<'static, str>> {
    if let Some(facts) = facts(tensor) {
        return Ok(facts.dtype.into());
    }
    let name = tensor.getattr(intern!(tensor.py(), "dtype"))?.str()?;
    Ok(name.to_string().into())
}

/// The ordinal of the GPU of a tensor, or -1.
fn ordinal(tensor: &Bound<'_, PyAny>) -> PyResult<i64> {
    if let Some(facts) = facts(tensor) {
        return Ok(facts.ordinal);
    }
    tensor.call_method0(intern!(tensor.py(), "get_device"))?.extract()
}

/// The number of elements of a tensor.
pub fn count(tensor: &Bound<'_, PyAny>) -> PyResult<usize> {
    if let Some(facts) = facts(tensor) {
        return Ok(facts.count);
    }
    tensor.call_method0(intern!(tensor.py(), "numel"))?.extract()
}

/// Asks the system for huge pages for a new tensor of many pages. PyTorch gets memory of this size from the system each
/// time, and the first write to each small page would take as long as the computation of some of the results on it.
fn prefer_huge_pages(address: usize, bytes: usize) {
    #[cfg(target_os = "linux")]
    {
        /// The C library keeps smaller blocks that are freed.
        const LARGE: usize = 32 << 20;
        const HUGE_PAGE: usize = 2 << 20;
        if bytes >= LARGE {
            let start = address.next_multiple_of(HUGE_PAGE);
            let length = (address + bytes - start) / HUGE_PAGE * HUGE_PAGE;
            // SAFETY: the pages are within the tensor, and advice changes no contents. Small pages do as well.
            unsafe { libc::madvise(start as *mut _, length, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (address, bytes);
}

impl Place {
    /// The place of a tensor: the CPU, or a GPU with the current stream and the memory of PyTorch.
    pub fn of(tensor: &Bound<'_, PyAny>) -> PyResult<Self> {
        match usize::try_from(ordinal(tensor)?) {
            Err(_) => Ok(Self::Host),
            Ok(ordinal) => cuda::device(tensor.py(), ordinal).map(Self::Cuda),
        }
    }

    /// Runs an operator here, without the GIL.
    pub fn run<T: Scalar>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(Executor<'_, T>) -> Result<(), Failure> + Send,
    ) -> PyResult<()> {
        match self {
            Self::Host => MEMORY
                .with_borrow_mut(|memory| crate::threads::operate(py, || call(Executor::Host(T::narrow(memory)))))??,
            Self::Cuda(device) => py.detach(|| call(Executor::Cuda(device)))?,
        }
        Ok(())
    }

    /// The ordinal of the GPU, or -1.
    fn ordinal(&self) -> i64 {
        match self {
            Self::Host => -1,
            Self::Cuda(device) => device.ordinal() as i64,
        }
    }

    /// True if nothing is wrong with a tensor.
    fn takes(&self, facts: &Facts, kind: &str, alignment: usize) -> bool {
        facts.dtype == kind
            && facts.ordinal == self.ordinal()
            && facts.is_contiguous
            && (facts.address != 0 || facts.count == 0)
            && facts.address.is_multiple_of(alignment)
    }

    /// Checks a tensor, and gives its address and number of elements.
    fn check(&self, name: &str, kind: &str, tensor: &Bound<'_, PyAny>, alignment: usize) -> PyResult<(usize, usize)> {
        if let Some(facts) = facts(tensor)
            && self.takes(&facts, kind, alignment)
        {
            return Ok((facts.address, facts.count));
        }
        let py = tensor.py();
        let refuse = |problem: String| Err(errors::operator(format!("`{name}` {problem}")));
        let found = dtype(tensor)?;
        if found != kind {
            return refuse(format!("is {found}, but must be {kind}"));
        }
        let (found, wanted) = (ordinal(tensor)?, self.ordinal());
        if found != wanted {
            let word = |ordinal: i64| match ordinal {
                -1 => "the CPU".to_owned(),
                ordinal => format!("cuda:{ordinal}"),
            };
            return refuse(format!("is on {}, but the features are on {}", word(found), word(wanted)));
        }
        let contiguous = tensor.call_method0(intern!(py, "is_contiguous"))?;
        if !contiguous.extract::<bool>()? {
            return refuse("is not contiguous: call .contiguous()".into());
        }
        let address: usize = tensor.call_method0(intern!(py, "data_ptr"))?.extract()?;
        let count = count(tensor)?;
        if address == 0 && count > 0 {
            return refuse("has no memory: its device is not supported".into());
        }
        if !address.is_multiple_of(alignment) {
            return refuse(format!("is not aligned to {alignment} bytes: call .clone()"));
        }
        Ok((address, count))
    }

    /// Numbers of a tensor on the host, or their slice on the device; `T` and `C` have the same layout there.
    fn slice<'a, T, C>(
        &self,
        name: &str,
        kind: &str,
        tensor: &Bound<'a, PyAny>,
        parts: usize,
    ) -> PyResult<OnDevice<&'a [T], DeviceSlice<'a, C>>> {
        match self {
            Self::Host => {
                let (address, count) = self.check(name, kind, tensor, align_of::<T>())?;
                if count == 0 {
                    return Ok(OnDevice::Host(&[]));
                }
                // SAFETY: the tensor is contiguous, aligned, of this type and in main memory. The caller holds it
                // for `'a`. Nothing writes it meanwhile, unless another thread of Python does, which PyTorch leaves to
                // its users in all operators.
                let values = unsafe { std::slice::from_raw_parts(address as *const T, count / parts) };
                Ok(OnDevice::Host(values))
            }
            Self::Cuda(_) => {
                let (address, count) = self.check(name, kind, tensor, size_of::<C>())?;
                // SAFETY: as above, on the device. PyTorch keeps freed memory for the stream that used it.
                let values = unsafe { DeviceSlice::from_raw_parts(address as u64, count / parts) };
                Ok(OnDevice::Cuda(values))
            }
        }
    }

    /// A tensor of numbers.
    pub fn view<'a, T: Scalar>(&self, name: &str, tensor: &Bound<'a, PyAny>) -> PyResult<View<'a, T>> {
        self.slice::<T, f32>(name, T::DTYPE, tensor, 1)
    }

    /// A tensor of numbers; no numbers for `None`.
    pub fn optional<'a, T: Scalar>(&self, name: &str, tensor: Option<&Bound<'a, PyAny>>) -> PyResult<View<'a, T>> {
        match (tensor, self) {
            (Some(tensor), _) => self.view(name, tensor),
            (None, Self::Host) => Ok(OnDevice::Host(&[])),
            (None, Self::Cuda(_)) => Ok(OnDevice::Cuda(DeviceSlice::empty())),
        }
    }

    /// A tensor of indices. They are unsigned here: a negative one is out of every range.
    pub fn indices<'a>(
        &self,
        name: &str,
        tensor: &Bound<'a, PyAny>,
    ) -> PyResult<OnDevice<&'a [u32], DeviceSlice<'a, u32>>> {
        self.slice(name, "torch.int32", tensor, 1)
    }

    /// A tensor of float64 numbers, also on a GPU.
    pub fn wide<'a>(
        &self,
        name: &str,
        tensor: &Bound<'a, PyAny>,
    ) -> PyResult<OnDevice<&'a [f64], DeviceSlice<'a, f64>>> {
        self.slice(name, f64::DTYPE, tensor, 1)
    }

    /// A tensor of float64 numbers to be written, which the caller just made.
    pub fn wide_mut<'a>(
        &self,
        name: &str,
        tensor: &Bound<'a, PyAny>,
    ) -> PyResult<OnDevice<&'a mut [f64], DeviceSliceMut<'a, f64>>> {
        self.slice_mut(name, f64::DTYPE, tensor)
    }

    /// A tensor of groups of numbers: `H` on the host, and `C` on the device.
    pub fn groups<'a, T: Scalar, H, C>(
        &self,
        name: &str,
        tensor: &Bound<'a, PyAny>,
    ) -> PyResult<OnDevice<&'a [H], DeviceSlice<'a, C>>> {
        let parts = size_of::<H>() / size_of::<T>();
        let count = count(tensor)?;
        if !count.is_multiple_of(parts) {
            return Err(errors::operator(format!("`{name}` has {count} numbers, which are no groups of {parts}")));
        }
        self.slice(name, T::DTYPE, tensor, parts)
    }

    /// A tensor to be written, which nothing else uses during the call.
    pub fn view_mut<'a, T: Scalar>(&self, name: &str, tensor: &Bound<'a, PyAny>) -> PyResult<ViewMut<'a, T>> {
        self.slice_mut::<T, f32>(name, T::DTYPE, tensor)
    }

    fn slice_mut<'a, T, C>(
        &self,
        name: &str,
        kind: &str,
        tensor: &Bound<'a, PyAny>,
    ) -> PyResult<OnDevice<&'a mut [T], DeviceSliceMut<'a, C>>> {
        match self {
            Self::Host => {
                let (address, count) = self.check(name, kind, tensor, align_of::<T>())?;
                if count == 0 {
                    return Ok(OnDevice::Host(&mut []));
                }
                prefer_huge_pages(address, count * size_of::<T>());
                // SAFETY: as in `slice`; results are new tensors, or running statistics, which nothing else refers to.
                let values = unsafe { std::slice::from_raw_parts_mut(address as *mut T, count) };
                Ok(OnDevice::Host(values))
            }
            Self::Cuda(_) => {
                let (address, count) = self.check(name, kind, tensor, size_of::<C>())?;
                // SAFETY: as above.
                let values = unsafe { DeviceSliceMut::from_raw_parts(address as u64, count) };
                Ok(OnDevice::Cuda(values))
            }
        }
    }

    /// A tensor that an operator adds to, which the caller just made. It is set to zero.
    pub fn zeros<'a, T: Scalar>(&self, name: &str, tensor: &Bound<'a, PyAny>) -> PyResult<ViewMut<'a, T>> {
        let mut values = self.view_mut::<T>(name, tensor)?;
        match (&mut values, self) {
            (OnDevice::Host(values), _) => values.fill(T::zero()),
            (OnDevice::Cuda(values), Self::Cuda(device)) => {
                device.clear(values.reborrow()).map_err(Failure::from)?;
            }
            (OnDevice::Cuda(_), Self::Host) => {
                return Err(Failure::Kernel(KernelError::OtherDevice).into());
            }
        }
        Ok(values)
    }

    /// As [`zeros`](Self::zeros); no numbers for `None`.
    pub fn optional_zeros<'a, T: Scalar>(
        &self,
        name: &str,
        tensor: Option<&Bound<'a, PyAny>>,
    ) -> PyResult<ViewMut<'a, T>> {
        match (tensor, self) {
            (Some(tensor), _) => self.zeros(name, tensor),
            (None, Self::Host) => Ok(OnDevice::Host(&mut [])),
            (None, Self::Cuda(_)) => Ok(OnDevice::Cuda(DeviceSliceMut::empty())),
        }
    }
}
