//! Devices: the CPU or an NVIDIA GPU, and how one is selected.

use crate::{NnError, Result};
use gemcnn_kernels::Real;
use gemcnn_kernels::cuda::{CudaDevice, CudaError, Event};
use std::any::{Any, TypeId};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

/// The device that stores features and runs operators.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Device {
    /// Main memory, and the threads of the current rayon pool.
    #[default]
    Cpu,
    /// An NVIDIA GPU, in f32 only.
    Cuda(CudaDevice),
}

impl Device {
    /// The first GPU if it works, else the CPU, and one line that names the device and the reason.
    ///
    /// ```
    /// let (device, reason) = gemcnn_nn::Device::auto();
    /// println!("{reason}");
    /// # assert!(reason.starts_with(if device == gemcnn_nn::Device::Cpu { "CPU" } else { "GPU" }));
    /// ```
    pub fn auto() -> (Self, String) {
        match CudaDevice::new(0) {
            Ok(device) => {
                let reason = format!("{}: it works", describe(&device));
                (Self::Cuda(device), reason)
            }
            Err(CudaError::NoDriver) => (Self::Cpu, "CPU: there is no NVIDIA driver".into()),
            Err(problem) => (Self::Cpu, format!("CPU: no GPU can be used: {problem}")),
        }
    }

    /// Runs work on tapes of this device: on the CPU on a thread of the current rayon pool, on a GPU in the calling
    /// thread. From a thread outside of the pool, every loop of an operator would wake threads and wait to be woken. In
    /// the work, do not wait for other threads that use the same pool.
    ///
    /// ```
    /// use gemcnn_nn::{Device, FeatureType, Parameters, Tape, Workspace};
    /// let device = Device::Cpu;
    /// let mut workspace = Workspace::<f32>::new(device.clone());
    /// let parameters = Parameters::new();
    /// let rows = device.run(|| {
    ///     let mut tape = Tape::inference(&mut workspace, &parameters);
    ///     Ok::<_, gemcnn_nn::NnError>(tape.input(FeatureType::scalars(2), &[1.0; 6])?.rows())
    /// })?;
    /// assert_eq!(rows, 3);
    /// # Ok::<(), gemcnn_nn::NnError>(())
    /// ```
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match self {
            Self::Cpu => rayon::scope(|_| work()),
            Self::Cuda(_) => work(),
        }
    }
}

fn describe(device: &CudaDevice) -> String {
    let (major, minor) = device.capability();
    let gigabytes = device.total_memory() as f64 / 1e9;
    let (ordinal, name) = (device.ordinal(), device.name());
    format!("GPU {ordinal} ({name}, compute capability {major}.{minor}, {gigabytes:.0} GB)")
}

/// A device selected on a command line: `auto`, `cpu`, `cuda` or `cuda:N`.
///
/// ```
/// use gemcnn_nn::DeviceChoice;
/// assert_eq!("cuda:1".parse::<DeviceChoice>()?, DeviceChoice::Cuda(1));
/// assert!("gpu".parse::<DeviceChoice>().is_err());
/// # Ok::<(), gemcnn_nn::NnError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// A GPU if one works.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU with this index.
    Cuda(usize),
}

impl DeviceChoice {
    /// The device, and one line that names it and the reason.
    ///
    /// # Errors
    /// A requested GPU that does not work: what is missing, and how to install it.
    pub fn open(self) -> Result<(Device, String)> {
        match self {
            Self::Auto => Ok(Device::auto()),
            Self::Cpu => Ok((Device::Cpu, "CPU: as requested".into())),
            Self::Cuda(ordinal) => {
                let device = CudaDevice::new(ordinal)?;
                let reason = format!("{}: as requested", describe(&device));
                Ok((Device::Cuda(device), reason))
            }
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = NnError;

    fn from_str(text: &str) -> Result<Self> {
        let number = match text {
            "auto" => return Ok(Self::Auto),
            "cpu" => return Ok(Self::Cpu),
            "cuda" => Some(0),
            _ => text.strip_prefix("cuda:").and_then(|n| n.parse().ok()),
        };
        number.map(Self::Cuda).ok_or_else(|| {
            NnError::setting(
                "device",
                format!("`{text}` is not one of auto, cpu, cuda and cuda:N, where N is the index of a GPU"),
            )
        })
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// A value of precision `T` as one of f32, the only precision on a GPU.
pub(crate) fn as_f32<S: Any, U: Any>(value: &U) -> Result<&S> {
    (value as &dyn Any).downcast_ref().ok_or_else(only_f32)
}

/// Values as f32.
pub(crate) fn f32_slice<T: Real>(values: &[T]) -> Result<&[f32]> {
    expect_f32::<T>()?;
    Ok(bytemuck::cast_slice(values))
}

/// Values as f32, to be written.
pub(crate) fn f32_slice_mut<T: Real>(values: &mut [T]) -> Result<&mut [f32]> {
    expect_f32::<T>()?;
    Ok(bytemuck::cast_slice_mut(values))
}

/// Fails unless `T` is f32.
pub(crate) fn expect_f32<T: Real>() -> Result<()> {
    if TypeId::of::<T>() == TypeId::of::<f32>() { Ok(()) } else { Err(only_f32()) }
}

fn only_f32() -> NnError {
    NnError::setting("device", "a GPU computes in f32 only; build the model in f32, or run on the CPU")
}

/// A cached copy of a value on a GPU.
#[derive(Debug)]
pub(crate) struct DeviceCopy<V> {
    place: Mutex<Option<Copied<V>>>,
}

#[derive(Debug)]
struct Copied<V> {
    device: CudaDevice,
    value: Arc<V>,
    /// The end of asynchronous copies, which the first use has to wait for.
    ready: Option<Arc<Event>>,
}

// A derived implementation would require `V: Clone`.
impl<V> Clone for Copied<V> {
    fn clone(&self) -> Self {
        Self { device: self.device.clone(), value: self.value.clone(), ready: self.ready.clone() }
    }
}

impl<V> DeviceCopy<V> {
    /// A value that is on a device already.
    pub fn holding(device: &CudaDevice, value: V) -> Self {
        Self { place: Mutex::new(Some(Copied { device: device.clone(), value: Arc::new(value), ready: None })) }
    }

    /// The value on the device, copied there by `send` if it is not there yet. The device waits for asynchronous
    /// copies before the first use.
    pub fn to(&self, device: &CudaDevice, send: impl FnOnce() -> Result<V>) -> Result<Arc<V>> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sent) = &mut *place
            && sent.device == *device
        {
            if !device.is_ahead()
                && let Some(ready) = &sent.ready
            {
                device.wait_for(ready)?;
                sent.ready = None;
            }
            return Ok(sent.value.clone());
        }
        let value = Arc::new(send()?);
        let ready = if device.is_ahead() { Some(Arc::new(device.event()?)) } else { None };
        *place = Some(Copied { device: device.clone(), value: value.clone(), ready });
        Ok(value)
    }
}

impl<V> Default for DeviceCopy<V> {
    fn default() -> Self {
        Self { place: Mutex::new(None) }
    }
}

impl<V> Clone for DeviceCopy<V> {
    fn clone(&self) -> Self {
        let place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        Self { place: Mutex::new(place.clone()) }
    }
}

impl From<CudaError> for NnError {
    fn from(error: CudaError) -> Self {
        match error {
            CudaError::Kernel(error) => Self::Kernel(error),
            error => Self::Cuda(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_parsed_and_printed() {
        for text in ["auto", "cpu", "cuda:0", "cuda:12"] {
            let choice: DeviceChoice = text.parse().unwrap();
            assert_eq!(choice.to_string(), text);
        }
        assert_eq!("cuda".parse::<DeviceChoice>().unwrap(), DeviceChoice::Cuda(0));
        for text in ["", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:x"] {
            let error = text.parse::<DeviceChoice>().unwrap_err();
            assert!(matches!(error, NnError::Setting { .. }), "{error}");
        }
        assert_eq!(DeviceChoice::Cpu.open().unwrap().0, Device::Cpu);
    }

    #[test]
    fn work_on_the_cpu_is_on_a_thread_of_the_current_pool() {
        assert_eq!(rayon::current_thread_index(), None);
        let index = Device::Cpu.run(rayon::current_thread_index);
        assert!(index.is_some());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
        let threads = || (std::thread::current().id(), rayon::current_num_threads());
        pool.unwrap().install(|| {
            let here = threads();
            assert_eq!(Device::Cpu.run(threads), here);
        });
    }

    #[test]
    fn only_f32_goes_to_a_gpu() {
        assert!(f32_slice(&[1.0f32]).is_ok());
        assert!(f32_slice(&[1.0f64]).is_err());
        assert!(as_f32::<Vec<f32>, _>(&vec![1.0f64]).is_err());
    }
}
