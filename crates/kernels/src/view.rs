//! Device-generic arguments: borrowed memory on the host or on a GPU, and one dispatch for both.
//!
//! An operator has a CPU version `op::name(...)` and a CUDA version `op::cuda::name(device, ...)` with the
//! same arguments in the same order. Callers hold [`OnDevice`] values (a [`View`] of numbers, a graph,
//! weights) and call either version through [`dispatch!`](crate::dispatch). Views only borrow: they may
//! point to memory of another library ([`DeviceSlice::from_raw_parts`]).

use crate::cuda::Result;
use crate::cuda::{CudaDevice, DeviceSlice, DeviceSliceMut};
use crate::{KernelError, Real, Scratch};

/// One of two forms of the same thing: `H` on the host, `C` on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDevice<H, C> {
    /// In main memory.
    Host(H),
    /// In the memory of a GPU.
    Cuda(C),
}

/// Numbers to read. On a GPU they are always f32.
pub type View<'a, T> = OnDevice<&'a [T], DeviceSlice<'a, f32>>;
/// Numbers to write. On a GPU they are always f32.
pub type ViewMut<'a, T> = OnDevice<&'a mut [T], DeviceSliceMut<'a, f32>>;

/// Something that operators take in one form on the host and in another on a GPU.
pub trait Resolve {
    /// Form that CPU versions take.
    type Host;
    /// Form that CUDA versions take.
    type Cuda;

    /// The host form.
    ///
    /// # Errors
    /// [`KernelError::OtherDevice`] if it is on a GPU.
    fn host(self) -> Result<Self::Host, KernelError>;

    /// The GPU form.
    ///
    /// # Errors
    /// [`KernelError::OtherDevice`] if it is on the host.
    fn cuda(self) -> Result<Self::Cuda, KernelError>;
}

impl<H, C> Resolve for OnDevice<H, C> {
    type Host = H;
    type Cuda = C;

    fn host(self) -> Result<H, KernelError> {
        match self {
            Self::Host(value) => Ok(value),
            Self::Cuda(_) => Err(KernelError::OtherDevice),
        }
    }

    fn cuda(self) -> Result<C, KernelError> {
        match self {
            Self::Host(_) => Err(KernelError::OtherDevice),
            Self::Cuda(value) => Ok(value),
        }
    }
}

impl<S: Resolve> Resolve for Option<S> {
    type Host = Option<S::Host>;
    type Cuda = Option<S::Cuda>;

    fn host(self) -> Result<Self::Host, KernelError> {
        self.map(Resolve::host).transpose()
    }

    fn cuda(self) -> Result<Self::Cuda, KernelError> {
        self.map(Resolve::cuda).transpose()
    }
}

/// Functions of all fields of a struct whose fields have one type, such as a slice or a length, and its [`Resolve`].
macro_rules! fields {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl<S> $name<S> {
            /// References to all fields.
            pub fn each_ref(&self) -> $name<&S> {
                $name { $($field: &self.$field),* }
            }

            /// References to all fields, to change them.
            pub fn each_mut(&mut self) -> $name<&mut S> {
                $name { $($field: &mut self.$field),* }
            }

            /// Applies `each` to all fields in order.
            pub fn map<R>(self, mut each: impl FnMut(S) -> R) -> $name<R> {
                $name { $($field: each(self.$field)),* }
            }

            /// Applies `each` to all fields in order.
            ///
            /// # Errors
            /// The first error of `each`.
            pub fn try_map<R, E>(self, mut each: impl FnMut(S) -> Result<R, E>) -> Result<$name<R>, E> {
                Ok($name { $($field: each(self.$field)?),* })
            }

            /// The fields in order.
            pub fn into_array(self) -> [S; [$(stringify!($field)),*].len()] {
                [$(self.$field),*]
            }

            /// The inverse of [`into_array`](Self::into_array).
            pub fn from_array([$($field),*]: [S; [$(stringify!($field)),*].len()]) -> Self {
                Self { $($field),* }
            }
        }

        impl<S: $crate::view::Resolve> $crate::view::Resolve for $name<S> {
            type Host = $name<S::Host>;
            type Cuda = $name<S::Cuda>;

            fn host(self) -> Result<Self::Host, $crate::KernelError> {
                self.try_map(S::host)
            }

            fn cuda(self) -> Result<Self::Cuda, $crate::KernelError> {
                self.try_map(S::cuda)
            }
        }
    };
}
pub(crate) use fields;

impl<T> OnDevice<&[T], DeviceSlice<'_, f32>> {
    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::Host(values) => values.len(),
            Self::Cuda(values) => values.len(),
        }
    }

    /// True if there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where an operator runs: the CPU with its scratch memory, or a GPU.
#[derive(Debug)]
pub enum Executor<'e, T> {
    /// The current rayon thread pool.
    Host(HostScratch<'e, T>),
    /// The stream of a GPU.
    Cuda(&'e CudaDevice),
}

/// Scratch memory of CPU operators, kept from call to call.
#[derive(Debug)]
pub struct HostScratch<'e, T> {
    /// In the precision of the features.
    pub narrow: &'e mut Scratch<T>,
    /// In f64, for statistics and long sums.
    pub wide: &'e mut Scratch<f64>,
}

impl<T> HostScratch<'_, T> {
    /// The same memory for a call.
    pub fn reborrow(&mut self) -> HostScratch<'_, T> {
        HostScratch { narrow: self.narrow, wide: self.wide }
    }
}

impl<'e, T: Real> Executor<'e, T> {
    /// An argument of this device that may be missing.
    pub fn option<H, C>(&self, argument: Option<OnDevice<H, C>>) -> OnDevice<Option<H>, Option<C>> {
        match (argument, self) {
            (Some(OnDevice::Host(argument)), _) => OnDevice::Host(Some(argument)),
            (Some(OnDevice::Cuda(argument)), _) => OnDevice::Cuda(Some(argument)),
            (None, Self::Host(_)) => OnDevice::Host(None),
            (None, Self::Cuda(_)) => OnDevice::Cuda(None),
        }
    }

    /// The CPU's scratch memory, for an operator without a CUDA version.
    ///
    /// # Errors
    /// [`KernelError::NoCudaVersion`] on a GPU, with the name of the operator.
    pub fn cpu_only(self, operator: &'static str) -> Result<HostScratch<'e, T>, KernelError> {
        match self {
            Self::Host(scratch) => Ok(scratch),
            Self::Cuda(_) => Err(KernelError::NoCudaVersion { operator }),
        }
    }
}

/// Calls `module::operator` on the CPU or `module::cuda::operator` on a GPU.
///
/// Settings come first and are passed on as they are; after the `;` come arguments that differ between
/// devices ([`Resolve`](crate::Resolve)). `; scratch` or `; wide_scratch` at the end adds the scratch memory that the
/// CPU version takes. Errors are returned with `?`.
///
/// ```
/// use gemcnn_kernels::{Executor, HostScratch, KernelError, OnDevice, Scratch, View, ViewMut, dispatch};
///
/// mod shift {
///     use gemcnn_kernels::{KernelError, cuda::{CudaDevice, CudaError, DeviceSlice, DeviceSliceMut}};
///
///     pub fn forward(by: f32, x: &[f32], y: &mut [f32]) -> Result<(), KernelError> {
///         Ok(y.iter_mut().zip(x).for_each(|(y, x)| *y = x + by))
///     }
///
///     pub mod cuda {
///         use super::*;
///         type Done = Result<(), CudaError>;
///         // A real one launches a kernel.
///         pub fn forward(_: &CudaDevice, _: f32, _: DeviceSlice<'_, f32>, _: DeviceSliceMut<'_, f32>) -> Done {
///             Err(CudaError::NotBuilt)
///         }
///     }
/// }
///
/// let (mut narrow, mut wide) = (Scratch::<f32>::new(), Scratch::new());
/// let run = Executor::Host(HostScratch { narrow: &mut narrow, wide: &mut wide });
/// let mut result = [0.0f32; 2];
/// let (x, y): (View<'_, f32>, ViewMut<'_, f32>) = (OnDevice::Host(&[1.0, 2.0]), OnDevice::Host(&mut result));
/// dispatch!(run, shift::forward(0.5; x, y));
/// assert_eq!(result, [1.5, 2.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[macro_export]
macro_rules! dispatch {
    ($run:expr, $module:ident::$operator:ident($($setting:expr),*; $($argument:expr),* $(,)?)) => {
        match $run {
            $crate::Executor::Host(_) => {
                $module::$operator($($setting,)* $($crate::Resolve::host($argument)?),*)?
            }
            $crate::Executor::Cuda(device) => {
                $module::cuda::$operator(device, $($setting,)* $($crate::Resolve::cuda($argument)?),*)?
            }
        }
    };
    ($run:expr, $module:ident::$operator:ident($($setting:expr),*; $($argument:expr),*; scratch)) => {
        match $run {
            $crate::Executor::Host(scratch) => $module::$operator(
                $($setting,)* $($crate::Resolve::host($argument)?,)* scratch.narrow
            )?,
            $crate::Executor::Cuda(device) => {
                $module::cuda::$operator(device, $($setting,)* $($crate::Resolve::cuda($argument)?),*)?
            }
        }
    };
    ($run:expr, $module:ident::$operator:ident($($setting:expr),*; $($argument:expr),*; wide_scratch)) => {
        match $run {
            $crate::Executor::Host(scratch) => $module::$operator(
                $($setting,)* $($crate::Resolve::host($argument)?,)* scratch.wide
            )?,
            $crate::Executor::Cuda(device) => {
                $module::cuda::$operator(device, $($setting,)* $($crate::Resolve::cuda($argument)?),*)?
            }
        }
    };
}
