//! CUDA C++ sources of kernels.

/// The CUDA C++ source of one or more kernels, compiled by NVRTC for the device at first use.
///
/// The text is preceded by a prelude (`cuda/common.cu` of this crate): the types `u32` and `u64`, `item()`
/// (the index of the thread in a one-dimensional grid), `Phase` (a cosine and a sine) with `times` and
/// `multiple`, `in_batches`, `in_fours`, and `block_sum`. Kernels are `extern "C"`, so that they are found by name.
///
/// A whole element-wise operator, with the source in the Rust file for brevity (operators of this crate use
/// `include_str!`):
///
/// ```no_run
/// use gemcnn_kernels::cuda::{
///     CudaDevice, CudaError, DeviceSlice, DeviceSliceMut, KernelSource, check_length,
/// };
/// use gemcnn_kernels::kernel_args;
///
/// const SOURCE: KernelSource = KernelSource::new("scaled_square", r#"
///     extern "C" __global__ void scaled_square(const float *__restrict__ x, float scale,
///                                              float *__restrict__ y, u32 count) {
///         u64 i = item();
///         if (i < count) y[i] = SCALE * scale * x[i] * x[i];
///     }
/// "#);
///
/// /// `y = 2 scale x^2`.
/// fn scaled_square(
///     device: &CudaDevice,
///     scale: f32,
///     x: DeviceSlice<'_, f32>,
///     y: DeviceSliceMut<'_, f32>,
/// ) -> Result<(), CudaError> {
///     check_length("scaled_square", "y", y.view(), x.len())?;
///     let defines = [("SCALE", "2.0f".to_string())];
///     let kernel = device.function(SOURCE, &defines, "scaled_square")?;
///     // SAFETY: the arguments are those of the kernel, and both slices have as many numbers.
///     unsafe { kernel.over(x.len(), kernel_args![x, scale, &y, x.len()]) }
/// }
///
/// let device = CudaDevice::new(0)?;
/// let x = device.upload(&[1.0, 2.0, 3.0])?;
/// let mut y = device.buffer(x.len())?;
/// scaled_square(&device, 0.5, x.view(), y.view_mut())?;
/// assert_eq!(y.to_vec(&device)?, [1.0, 4.0, 9.0]);
/// # Ok::<(), CudaError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct KernelSource {
    name: &'static str,
    body: &'static str,
    digest: u128,
}

/// A macro of a kernel source and its value, as with the compiler option `-DNAME=VALUE`.
pub type Define = (&'static str, String);

impl KernelSource {
    /// A source with a name for messages and for files of the cache, without `.cu`.
    ///
    /// Sources of the same name are told apart by a hash of their text, which is computed here: make the
    /// source a constant.
    pub const fn new(name: &'static str, body: &'static str) -> Self {
        Self { name, body, digest: hash(body.as_bytes()) }
    }

    /// Name without `.cu`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The text that is compiled: the prelude, then the source, whose kernels begin with `start()`.
    pub fn text(&self) -> String {
        let prelude = include_str!("common.cu");
        let mut parts = self.body.split("__global__");
        let mut body = parts.next().unwrap_or_default().to_string();
        for kernel in parts {
            body += "__global__";
            body += &kernel.replacen('{', "{ start();", 1);
        }
        format!("{prelude}\n#line 1 \"{}.cu\"\n{body}", self.name)
    }

    /// What tells this source from others.
    pub(super) fn key(&self) -> (&'static str, u128) {
        (self.name, self.digest)
    }
}

/// FNV-1a of 128 bits.
pub(super) const fn hash(bytes: &[u8]) -> u128 {
    let mut sum = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    let mut place = 0;
    while place < bytes.len() {
        sum ^= bytes[place] as u128;
        sum = sum.wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b_u128);
        place += 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_begins_with_its_start() {
        let source = KernelSource::new("two", "__global__ a() { f({}); }\n__global__ b(\n) {\n}");
        let text = source.text();
        assert!(text.ends_with("__global__ a() { start(); f({}); }\n__global__ b(\n) { start();\n}"));
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(hash(b""), 0x6c62272e07bb014262b821756295c58d);
        assert_eq!(hash(b"a"), 0xd228cb696f1a8caf78912b704e4a8964);
    }
}
