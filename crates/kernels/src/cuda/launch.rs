//! Kernels: functions of compiled sources, their arguments and their launches.

use super::device::locked;
use super::error::{describe, driver};
use super::sources::KernelSource;
use super::{CudaDevice, CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut, compiler};
use bytemuck::Pod;
use cudarc::driver::sys;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex};

/// A macro of a kernel source and its value.
pub(crate) type Define = (&'static str, String);

/// A compiled source on the device.
#[derive(Debug)]
pub(super) struct Module {
    handle: sys::CUmodule,
    functions: Mutex<HashMap<&'static str, usize>>,
}

impl Module {
    /// Unloads the module; it is not used again and the context is current.
    pub fn unload(&self) {
        // SAFETY: loaded once, unloaded once.
        unsafe { sys::cuModuleUnload(self.handle) };
    }
}

/// Compiled sources by name and macros.
pub(super) type Modules = HashMap<(&'static str, Vec<Define>), Arc<Module>>;

// SAFETY: a module may be used from any thread with the context current.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl CudaDevice {
    /// A function of a source, compiled with these macros.
    pub(crate) fn function(
        &self,
        source: KernelSource,
        defines: &[Define],
        name: &'static str,
    ) -> Result<Launch<'_>, CudaError> {
        self.expect_own_capture()?;
        self.bind()?;
        let module = self.module(source, defines)?;
        let mut functions = locked(&module.functions);
        let function = match functions.get(name) {
            Some(&function) => function,
            None => {
                let text = CString::new(name).unwrap_or_default();
                let mut function = std::ptr::null_mut();
                // SAFETY: the module is alive, and the places outlive the call.
                driver("cuModuleGetFunction", unsafe {
                    sys::cuModuleGetFunction(&mut function, module.handle, text.as_ptr())
                })?;
                functions.insert(name, function as usize);
                function as usize
            }
        };
        Ok(Launch {
            device: self,
            function: function as sys::CUfunction,
            shared_bytes: 0,
        })
    }

    /// A function whose blocks have this much shared memory beside what it declares.
    pub(crate) fn function_with_shared(
        &self,
        source: KernelSource,
        defines: &[Define],
        name: &'static str,
        shared_bytes: usize,
    ) -> Result<Launch<'_>, CudaError> {
        let launch = self.function(source, defines, name)?;
        let attribute =
            sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is one of a module that is loaded.
        driver("cuFuncSetAttribute", unsafe {
            sys::cuFuncSetAttribute(launch.function, attribute, shared_bytes as i32)
        })?;
        Ok(Launch {
            shared_bytes,
            ..launch
        })
    }

    fn module(&self, source: KernelSource, defines: &[Define]) -> Result<Arc<Module>, CudaError> {
        let key = (source.name, defines.to_vec());
        let mut modules = locked(&self.inner.modules);
        if let Some(module) = modules.get(&key) {
            return Ok(Arc::clone(module));
        }
        let defines: Vec<(String, String)> = defines
            .iter()
            .map(|(name, value)| (name.to_string(), value.clone()))
            .collect();
        let (major, minor) = self.inner.capability;
        let image = compiler::compile_cached(
            source.name,
            &source.text(),
            &defines,
            10 * major + minor,
            self.inner.driver,
        )?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the image is a whole cubin, or PTX that ends in a zero byte, as NVRTC made it.
        let status = unsafe { sys::cuModuleLoadData(&mut handle, image.as_ptr().cast()) };
        status.result().map_err(|error| CudaError::Load {
            source_name: source.name.into(),
            problem: describe(&error),
        })?;
        let module = Arc::new(Module {
            handle,
            functions: Mutex::default(),
        });
        modules.insert(key, Arc::clone(&module));
        Ok(module)
    }
}

/// An argument of a kernel, as the eight bytes that its first bytes are read from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arg(u64);

impl From<u32> for Arg {
    fn from(value: u32) -> Self {
        Self(u64::from(value))
    }
}

impl From<u64> for Arg {
    fn from(value: u64) -> Self {
        Self(value)
    }
}

impl From<f32> for Arg {
    fn from(value: f32) -> Self {
        Self(u64::from(value.to_bits()))
    }
}

impl From<f64> for Arg {
    fn from(value: f64) -> Self {
        Self(value.to_bits())
    }
}

impl<T> From<DeviceSlice<'_, T>> for Arg {
    fn from(slice: DeviceSlice<'_, T>) -> Self {
        Self(slice.address)
    }
}

impl<T> From<&DeviceSliceMut<'_, T>> for Arg {
    fn from(slice: &DeviceSliceMut<'_, T>) -> Self {
        Self(slice.address)
    }
}

impl<T: Pod> From<&DeviceBuffer<T>> for Arg {
    fn from(buffer: &DeviceBuffer<T>) -> Self {
        Self(buffer.view().address)
    }
}

/// The arguments of a kernel, in order.
macro_rules! args {
    ($($value:expr),* $(,)?) => { &[$($crate::cuda::Arg::from($value)),*] };
}
pub(crate) use args;

/// A kernel that is ready to run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch<'a> {
    device: &'a CudaDevice,
    function: sys::CUfunction,
    shared_bytes: usize,
}

impl Launch<'_> {
    /// Most arguments of a kernel.
    const MOST: usize = 28;

    /// Runs the kernel on `blocks` (x, y) of `threads` (x, y). Nothing runs on no blocks.
    ///
    /// # Safety
    /// The arguments must be those of the kernel in number, order and size, and the kernel must stay
    /// within the buffers.
    pub unsafe fn run(
        self,
        blocks: (usize, usize),
        threads: (usize, usize),
        arguments: &[Arg],
    ) -> Result<(), CudaError> {
        if blocks.0 == 0 || blocks.1 == 0 {
            return Ok(());
        }
        assert!(arguments.len() <= Self::MOST, "too many kernel arguments");
        let mut pointers = [std::ptr::null_mut(); Self::MOST];
        for (pointer, argument) in pointers.iter_mut().zip(arguments) {
            *pointer = std::ptr::from_ref(&argument.0).cast_mut().cast();
        }
        let [blocks_x, blocks_y] = [blocks.0, blocks.1].map(|n| n as u32);
        let [threads_x, threads_y] = [threads.0, threads.1].map(|n| n as u32);
        // SAFETY: the caller vouches for the arguments; the context is current since `function`.
        driver("cuLaunchKernel", unsafe {
            sys::cuLaunchKernel(
                self.function,
                blocks_x,
                blocks_y,
                1,
                threads_x,
                threads_y,
                1,
                self.shared_bytes as u32,
                self.device.stream(),
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        })
    }

    /// Runs a kernel whose thread `i` works on item `i` of `count`, 256 threads to a block.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    pub unsafe fn over(self, count: usize, arguments: &[Arg]) -> Result<(), CudaError> {
        // SAFETY: the caller vouches for it.
        unsafe { self.run((count.div_ceil(256), 1), (256, 1), arguments) }
    }
}
