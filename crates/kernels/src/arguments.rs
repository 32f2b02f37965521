//! Passes of operators: structs of named buffers, in main memory or on a GPU.
//!
//! `arguments!` declares a pass once. From the declaration come a struct that is generic over a [`Memory`], the checks of
//! all lengths, the calls on the host and on a GPU, the choice between them, and the way to take the buffers from another
//! language by name ([`Take`]). This declaration
//!
//! ```text
//! arguments! {
//!     /// `y` = the norm of every irrep.
//!     Norm = norm(OPERATOR) {
//!         features: &'a FeatureType, epsilon: f64, rows: usize;
//!         x: read[rows, features.dimension()],
//!         y: write[rows, Grouping::Irreps.count(features)];
//!         check_epsilon(epsilon)?;
//!     }
//! }
//! ```
//!
//! has settings, buffers and checks, and expands to
//!
//! ```text
//! /// `y` = the norm of every irrep.
//! pub struct Norm<'a, M: Memory> {
//!     pub features: &'a FeatureType,
//!     pub epsilon: f64,
//!     pub rows: usize,
//!     pub x: M::Of<'a, Read>,       // &[T], DeviceSlice<f32>, or View<T>
//!     pub y: M::Of<'a, Write>,
//! }
//!
//! impl<T: Real> Norm<'_, Host<T>> {
//!     fn check(&self) -> Result<(), KernelError> {
//!         let Self { features, epsilon, rows, x, y } = self;       // settings by value
//!         check_epsilon(epsilon)?;
//!         check_shape(OPERATOR, "x", x, &[rows, features.dimension()])?;
//!         check_shape(OPERATOR, "y", y, &[rows, Grouping::Irreps.count(features)])
//!     }
//!     /// Checks the arguments and calls `fast::norm`, as it was compiled in this crate.
//!     pub fn compute(self, scratch: HostScratch<'_, T>) -> Result<(), KernelError>;
//!     /// The same, with scratch memory of its own.
//!     pub fn on_host(self) -> Result<(), KernelError>;
//! }
//!
//! impl Norm<'_, Gpu> {
//!     fn check(&self) -> Result<(), KernelError>;                   // as above
//!     /// Checks the arguments and calls `cuda::norm`.
//!     pub fn launch(self, device: &CudaDevice) -> Result<(), CudaError>;
//! }
//!
//! impl<'a, T: Real> Norm<'a, Anywhere<T>> {
//!     /// Computes where the buffers are: `compute` or `launch`.
//!     pub fn run(self, run: &mut Executor<'_, T>) -> Result<(), CudaError>;
//!     /// Takes `x`, then `y`.
//!     pub fn take<S>(settings: (&'a FeatureType, f64, usize), source: &mut S) -> Result<Self, S::Error>
//!     where
//!         S: Take<'a, T, Read> + Take<'a, T, Write>;
//! }
//! ```
//!
//! The two functions are written by hand, in the modules `fast` and `cuda` of the operator:
//! `fn norm<T: Real>(pass: Norm<'_, Host<T>>)` and `fn norm(device: &CudaDevice, pass: Norm<'_, Gpu>) -> Result<(), CudaError>`.
//! The one on the host returns nothing or a `Result`. With `Norm = norm(OPERATOR, scratch)` it also takes the scratch memory.
//!
//! A buffer is `read`, `write` (overwritten) or `add` (added to), each with its shape; `read_if` and `write_if` are options. Any
//! other word is a kind of [`Argument`], such as `Graph`. Shapes may name the settings, the other arguments, and what the
//! checks bind, which run first.

use crate::cuda::{DeviceGraphView, DeviceSlice, DeviceSliceMut};
use crate::error::check_count;
use crate::{GraphView, KernelError, OnDevice, Real};
use std::marker::PhantomData;

/// A kind of argument, which has one form in main memory and another on a GPU.
pub trait Argument {
    /// Form in main memory, with numbers of type `T`.
    type Host<'a, T: Real>;
    /// Form on a GPU.
    type Cuda<'a>;
}

/// Where the arguments of a pass are.
pub trait Memory {
    /// The form of a kind of argument.
    type Of<'a, K: Argument>;
}

/// Main memory, with numbers of type `T`.
#[derive(Debug)]
pub struct Host<T>(PhantomData<T>);
/// The memory of a GPU.
#[derive(Debug)]
pub struct Gpu;
/// Either of the two ([`OnDevice`]).
#[derive(Debug)]
pub struct Anywhere<T>(PhantomData<T>);

impl<T: Real> Memory for Host<T> {
    type Of<'a, K: Argument> = K::Host<'a, T>;
}

impl Memory for Gpu {
    type Of<'a, K: Argument> = K::Cuda<'a>;
}

impl<T: Real> Memory for Anywhere<T> {
    type Of<'a, K: Argument> = OnDevice<K::Host<'a, T>, K::Cuda<'a>>;
}

/// Defines kinds of arguments: the form in main memory, and the form on a GPU.
macro_rules! kinds {
    ($($(#[$meta:meta])* $Kind:ident = $host:ty, $cuda:ty;)*) => {$(
        $(#[$meta])*
        #[derive(Debug)]
        pub struct $Kind;

        impl $crate::arguments::Argument for $Kind {
            type Host<'a, T: $crate::Real> = $host;
            type Cuda<'a> = $cuda;
        }
    )*};
}
pub(crate) use kinds;

kinds! {
    /// Numbers to read.
    Read = &'a [T], DeviceSlice<'a, f32>;
    /// Numbers to overwrite.
    Write = &'a mut [T], DeviceSliceMut<'a, f32>;
    /// Numbers to add to.
    Add = &'a mut [T], DeviceSliceMut<'a, f32>;
    /// Indices to read.
    Indices = &'a [u32], DeviceSlice<'a, u32>;
    /// Indices to overwrite.
    WriteIndices = &'a mut [u32], DeviceSliceMut<'a, u32>;
    /// A graph.
    Graph = GraphView<'a, T>, DeviceGraphView<'a>;
    /// First vertex of each mesh of a batch, then the number of vertices.
    Meshes = &'a [u32], DeviceGraphView<'a>;
}

/// [`Meshes`] in main memory, as those on a GPU.
pub(crate) trait MeshOffsets {
    fn mesh_offsets(&self) -> &[u32];
}

impl MeshOffsets for [u32] {
    fn mesh_offsets(&self) -> &[u32] {
        self
    }
}

/// A source of buffers, such as the arguments of a function of another language.
pub trait Source {
    /// A buffer that is missing or not suitable.
    type Error;
}

/// Gives arguments of a kind, one after the other.
#[allow(clippy::type_complexity)]
pub trait Take<'a, T: Real, K: Argument>: Source {
    /// The next argument; its name is for messages.
    fn take(&mut self, name: &'static str) -> Result<OnDevice<K::Host<'a, T>, K::Cuda<'a>>, Self::Error>;

    /// The next argument, or `None` in its place.
    fn take_if(&mut self, name: &'static str) -> Result<Option<OnDevice<K::Host<'a, T>, K::Cuda<'a>>>, Self::Error> {
        self.take(name).map(Some)
    }
}

/// A buffer, or an option of one.
pub(crate) trait Counted {
    /// Number of values, if there is a buffer.
    fn count(&self) -> Option<usize>;
}

macro_rules! counted {
    ($($buffer:ty),*) => {$(
        impl<T> Counted for $buffer {
            fn count(&self) -> Option<usize> {
                Some(self.len())
            }
        }
    )*};
}
counted!(&[T], &mut [T], DeviceSlice<'_, T>, DeviceSliceMut<'_, T>);

impl<B: Counted> Counted for Option<B> {
    fn count(&self) -> Option<usize> {
        self.as_ref().and_then(B::count)
    }
}

/// Checks that a buffer has as many values as its shape says.
pub(crate) fn check_shape(
    operator: &'static str,
    name: &'static str,
    buffer: &impl Counted,
    shape: &[usize],
) -> Result<(), KernelError> {
    let expected = shape.iter().fold(1, |product: usize, &n| product.saturating_mul(n));
    buffer.count().map_or(Ok(()), |found| check_count(operator, name, found, expected))
}

/// What a function on the host returns.
pub(crate) trait Outcome {
    fn result(self) -> Result<(), KernelError>;
}

impl Outcome for () {
    fn result(self) -> Result<(), KernelError> {
        Ok(())
    }
}

impl Outcome for Result<(), KernelError> {
    fn result(self) -> Result<(), KernelError> {
        self
    }
}

/// The kind of a buffer that is read, written or added to, and of any other argument.
macro_rules! kind {
    (read) => {
        $crate::arguments::Read
    };
    (read_if) => {
        $crate::arguments::Read
    };
    (write) => {
        $crate::arguments::Write
    };
    (write_if) => {
        $crate::arguments::Write
    };
    (add) => {
        $crate::arguments::Add
    };
    ($Kind:ident) => {
        $Kind
    };
}
pub(crate) use kind;

/// The type of a field.
macro_rules! field {
    ($M:ident read_if) => { Option<$M::Of<'a, $crate::arguments::Read>> };
    ($M:ident write_if) => { Option<$M::Of<'a, $crate::arguments::Write>> };
    ($M:ident $form:ident) => { $M::Of<'a, $crate::arguments::kind!($form)> };
}
pub(crate) use field;

/// Declares passes; see the documentation of this module.
macro_rules! arguments {
    ($(
        $(#[$meta:meta])*
        $Name:ident = $function:ident($operator:expr $(, $scratch:ident)?) {
            $($setting:ident: $type:ty),*;
            $($field:ident: $form:ident $([$($length:expr),+])?),* $(,)? $(; $($check:tt)*)?
        }
    )*) => {$(
        $(#[$meta])*
        #[allow(missing_docs)]
        pub struct $Name<'a, M: $crate::arguments::Memory> {
            $(pub $setting: $type,)*
            $(pub $field: $crate::arguments::field!(M $form),)*
        }

        const _: () = {
            use $crate::arguments::{Anywhere, Gpu, Host, Outcome, Source, Take, check_shape};
            use $crate::cuda::{CudaDevice, CudaError};
            use $crate::{Executor, HostScratch, KernelError, Real, Resolve, Scratch};

            $crate::arguments::arguments!(@check [T: Real] $Name<Host<T>>: $operator;
                $($setting)*; $($field $([$($length),+])?),*; $($($check)*)?);
            $crate::arguments::arguments!(@check [] $Name<Gpu>: $operator;
                $($setting)*; $($field $([$($length),+])?),*; $($($check)*)?);

            impl<T: Real> $Name<'_, Host<T>> {
                /// Checks the arguments and computes.
                ///
                /// # Errors
                /// Invalid settings, or buffers of the wrong length.
                pub fn compute(self, scratch: HostScratch<'_, T>) -> Result<(), KernelError> {
                    #[allow(unused_variables)]
                    fn host<T: Real>(pass: $Name<'_, Host<T>>, scratch: HostScratch<'_, T>) -> Result<(), KernelError> {
                        Outcome::result($crate::arguments::arguments!(@host $function(pass, scratch) $($scratch)?))
                    }
                    self.check()?;
                    $crate::real::compiled!(
                        host as fn($Name<'_, Host<T>>, HostScratch<'_, T>) -> Result<(), KernelError>
                    )(self, scratch)
                }

                /// As `compute`, with scratch memory of its own.
                ///
                /// # Errors
                /// As `compute`.
                pub fn on_host(self) -> Result<(), KernelError> {
                    self.compute(HostScratch { narrow: &mut Scratch::new(), wide: &mut Scratch::new() })
                }
            }

            impl $Name<'_, Gpu> {
                /// Checks the arguments and queues the work.
                ///
                /// # Errors
                /// Invalid settings, buffers of the wrong length, or a failed call.
                pub fn launch(self, device: &CudaDevice) -> Result<(), CudaError> {
                    self.check()?;
                    cuda::$function(device, self)
                }
            }

            impl<'a, T: Real> $Name<'a, Anywhere<T>> {
                /// Computes where the buffers are.
                ///
                /// # Errors
                /// As `compute` and `launch`, or an argument on another device.
                pub fn run(self, run: &mut Executor<'_, T>) -> Result<(), CudaError> {
                    match run {
                        Executor::Host(scratch) => {
                            let pass = $Name::<Host<T>> {
                                $($setting: self.$setting,)* $($field: Resolve::host(self.$field)?,)*
                            };
                            Ok(pass.compute(scratch.reborrow())?)
                        }
                        Executor::Cuda(device) => $Name::<Gpu> {
                            $($setting: self.$setting,)* $($field: Resolve::cuda(self.$field)?,)*
                        }
                        .launch(device),
                    }
                }

                /// Takes the buffers in the order of their declaration.
                ///
                /// # Errors
                /// A buffer that is missing or not suitable.
                pub fn take<S>(($($setting,)*): ($($type,)*), source: &mut S) -> Result<Self, S::Error>
                where
                    S: Source $(+ Take<'a, T, $crate::arguments::kind!($form)>)*,
                {
                    Ok(Self {
                        $($setting,)*
                        $($field: $crate::arguments::arguments!(@take $form source stringify!($field))?,)*
                    })
                }
            }
        };
    )*};
    (@check [$($real:tt)*] $Name:ident<$Memory:ty>: $operator:expr;
        $($setting:ident)*; $($field:ident $([$($length:expr),+])?),*; $($check:tt)*) => {
        impl<$($real)*> $Name<'_, $Memory> {
            #[allow(unused_variables)]
            fn check(&self) -> Result<(), KernelError> {
                let Self { $($setting,)* $($field,)* } = self;
                $(let $setting = *$setting;)*
                $($check)*
                $($(check_shape($operator, stringify!($field), $field, &[$($length),+])?;)?)*
                Ok(())
            }
        }
    };
    (@host $function:ident($pass:ident, $unused:ident)) => { fast::$function($pass) };
    (@host $function:ident($pass:ident, $with:ident) scratch) => { fast::$function($pass, $with) };
    (@take read_if $source:ident $name:expr) => { Take::<'a, T, $crate::arguments::Read>::take_if($source, $name) };
    (@take write_if $source:ident $name:expr) => { Take::<'a, T, $crate::arguments::Write>::take_if($source, $name) };
    (@take $form:ident $source:ident $name:expr) => {
        Take::<'a, T, $crate::arguments::kind!($form)>::take($source, $name)
    };
}
pub(crate) use arguments;
