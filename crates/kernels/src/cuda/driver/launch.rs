//! Kernels: functions of compiled sources, their arguments and their launches.

use super::device::{Lane, locked};
use super::status::{describe, driver};
use super::{Arg, CudaDevice, CudaError, Define, KernelSource, Result, compiler, uncountable};
use cudarc::driver::sys;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex};

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

/// Compiled sources by name, hash of the text, and macros.
pub(super) type Modules = HashMap<((&'static str, u128), Vec<Define>), Arc<Module>>;

// SAFETY: a module may be used from any thread with the context current.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl CudaDevice {
    /// A kernel of a source, compiled with these macros. Compiled sources are kept, in memory and on disk.
    ///
    /// # Errors
    /// [`CudaError::Compile`] or [`CudaError::Load`] for a source that does not compile or load,
    /// [`CudaError::Capture`] while another thread captures a CUDA graph, or a name that the source lacks.
    pub fn function(&self, source: KernelSource, defines: &[Define], name: &'static str) -> Result<Launch<'_>> {
        self.expect_own_capture()?;
        let module = self.module(source, defines)?;
        let mut functions = locked(&module.functions);
        let function = match functions.get(name) {
            Some(&function) => function,
            None => {
                self.bind()?;
                let text = CString::new(name).unwrap_or_default();
                let mut function = std::ptr::null_mut();
                // SAFETY: the module is alive, and `text` and `function` outlive the call.
                driver("cuModuleGetFunction", unsafe {
                    sys::cuModuleGetFunction(&mut function, module.handle, text.as_ptr())
                })?;
                functions.insert(name, function as usize);
                function as usize
            }
        };
        Ok(Launch { device: self, name, function: function as sys::CUfunction, shared_bytes: 0 })
    }

    /// A kernel whose blocks get `shared_bytes` of dynamic shared memory.
    ///
    /// # Errors
    /// As [`function`](Self::function), or more shared memory than the device has.
    pub fn function_with_shared(
        &self,
        source: KernelSource,
        defines: &[Define],
        name: &'static str,
        shared_bytes: usize,
    ) -> Result<Launch<'_>> {
        let launch = self.function(source, defines, name)?;
        self.bind()?;
        let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = i32::try_from(shared_bytes).unwrap_or(i32::MAX);
        // SAFETY: the function is one of a module that is loaded.
        driver("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(launch.function, attribute, bytes) })?;
        Ok(Launch { shared_bytes, ..launch })
    }

    /// True if a kernel may start before the previous one on the stream has ended: on Hopper and later, with
    /// drivers that can capture it.
    fn launches_early(&self) -> bool {
        matches!(self.lane, Lane::Compute) && self.inner.capability >= (9, 0) && self.inner.driver >= 12_030
    }

    fn module(&self, source: KernelSource, defines: &[Define]) -> Result<Arc<Module>> {
        let key = (source.key(), defines.to_vec());
        let mut modules = locked(&self.inner.modules);
        if let Some(module) = modules.get(&key) {
            return Ok(Arc::clone(module));
        }
        self.bind()?;
        if let Lane::Foreign(foreign) = &self.lane {
            foreign.expect_no_capture("loading a kernel; run the operator once before")?;
        }
        let (major, minor) = self.inner.capability;
        let capability = 10 * major + minor;
        let image = compiler::compile_cached(source, defines, capability, self.inner.driver)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the image is a whole cubin, or PTX that ends in a zero byte, as NVRTC made it.
        let status = unsafe { sys::cuModuleLoadData(&mut handle, image.as_ptr().cast()) };
        status
            .result()
            .map_err(|error| CudaError::Load { source_name: source.name().into(), problem: describe(&error) })?;
        let module = Arc::new(Module { handle, functions: Mutex::default() });
        modules.insert(key, Arc::clone(&module));
        Ok(module)
    }
}

/// A kernel that is ready to be launched on the stream of its device.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    device: &'a CudaDevice,
    name: &'static str,
    function: sys::CUfunction,
    shared_bytes: usize,
}

impl Launch<'_> {
    /// Largest number of arguments of a kernel.
    const MAX_ARGUMENTS: usize = 32;

    /// Launches a grid of `blocks` (x, y) with `threads` (x, y) each. An empty grid is not launched.
    ///
    /// # Safety
    /// The arguments must match those of the kernel in number, order and type, and the kernel must stay
    /// within the buffers they point to.
    pub unsafe fn run(self, blocks: (usize, usize), threads: (usize, usize), arguments: &[Arg]) -> Result<()> {
        if blocks.0 == 0 || blocks.1 == 0 {
            return Ok(());
        }
        let refused = |problem: String| CudaError::Call { call: "cuLaunchKernelEx", problem };
        let size = |n: usize| u32::try_from(n).map_err(|_| refused(format!("a grid of {n} blocks is too large")));
        let mut pointers = [std::ptr::null_mut(); Self::MAX_ARGUMENTS];
        if arguments.len() > pointers.len() {
            return Err(refused(format!("{} arguments, at most {} are possible", arguments.len(), pointers.len())));
        }
        for (pointer, argument) in pointers.iter_mut().zip(arguments) {
            *pointer = std::ptr::from_ref(&argument.bits).cast_mut().cast();
        }
        if let Some(count) = arguments.iter().find_map(|argument| argument.too_large) {
            return Err(uncountable(self.name, count).into());
        }
        self.device.bind()?;
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: size(blocks.0)?,
            gridDimY: size(blocks.1)?,
            gridDimZ: 1,
            blockDimX: size(threads.0)?,
            blockDimY: size(threads.1)?,
            blockDimZ: 1,
            sharedMemBytes: self.shared_bytes as u32,
            hStream: self.device.stream(),
            attrs: &mut attribute,
            numAttrs: u32::from(self.device.launches_early()),
        };
        // SAFETY: the caller vouches for the arguments; the context is current, and what `config` points to outlives
        // the call. Every kernel begins with `start()`, so it may be launched before the one before it has ended.
        driver("cuLaunchKernelEx", unsafe {
            sys::cuLaunchKernelEx(&config, self.function, pointers.as_mut_ptr(), std::ptr::null_mut())
        })
    }

    /// Launches one thread for each of `count` items, in blocks of 256. The last block may have threads
    /// beyond `count`: the kernel compares `item()` with it.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    pub unsafe fn over(self, count: usize, arguments: &[Arg]) -> Result<()> {
        // SAFETY: the caller vouches for it.
        unsafe { self.run((count.div_ceil(256), 1), (256, 1), arguments) }
    }

    /// As [`over`](Self::over), with four items for each thread: the kernel goes through them with `in_fours`.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    pub unsafe fn over_fours(self, count: usize, arguments: &[Arg]) -> Result<()> {
        // SAFETY: the caller vouches for it.
        unsafe { self.run((count.div_ceil(4 * 256), 1), (256, 1), arguments) }
    }
}
