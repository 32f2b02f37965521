//! Compilation of CUDA C++ by NVRTC, and the cache on disk.
//!
//! A file of the cache is named by a hash of all that determines its content: source, options, architecture,
//! and the versions of NVRTC and driver. It holds a hash of its own content. If a file is damaged, or the
//! folder cannot be written, the source is compiled again.

use super::sources::hash;
use super::{CudaError, Define, KernelSource, Result, library};
use cudarc::nvrtc::sys::{self, nvrtcResult};
use std::ffi::CString;
use std::path::PathBuf;

/// Machine code (cubin), or PTX that the driver compiles.
pub(super) type Image = Vec<u8>;

/// Version of NVRTC: major and minor.
///
/// # Errors
/// [`CudaError::NoNvrtc`] if it is not found.
pub fn nvrtc_version() -> Result<(i32, i32)> {
    library::nvrtc()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is there, and both places outlive the call.
    check("nvrtcVersion", unsafe { sys::nvrtcVersion(&mut major, &mut minor) })?;
    Ok((major, minor))
}

/// Compiles a source for a compute capability, such as 90 for 9.0. Uses no cache and needs no device.
///
/// # Errors
/// [`CudaError::NoNvrtc`], or [`CudaError::Compile`] with the log of the compiler.
pub fn compile_for(source: KernelSource, defines: &[Define], capability: i32) -> Result<Vec<u8>> {
    nvrtc_version()?;
    let options = options(defines, capability)?;
    compile(source.name(), &source.text(), &options)
}

/// Options of the compiler; the architecture is the last one.
fn options(defines: &[Define], capability: i32) -> Result<Vec<String>> {
    let mut options = vec!["--std=c++17".to_string()];
    for (name, value) in defines {
        options.push(format!("-D{name}={value}"));
    }
    options.push(architecture(capability)?);
    Ok(options)
}

/// The architecture if this NVRTC supports it, else PTX for the newest supported one before it.
fn architecture(capability: i32) -> Result<String> {
    let mut count = 0;
    // SAFETY: the place outlives the call.
    check("nvrtcGetNumSupportedArchs", unsafe { sys::nvrtcGetNumSupportedArchs(&mut count) })?;
    let mut known = vec![0; count.max(0) as usize];
    if !known.is_empty() {
        // SAFETY: there is room for as many numbers as NVRTC said it has.
        check("nvrtcGetSupportedArchs", unsafe { sys::nvrtcGetSupportedArchs(known.as_mut_ptr()) })?;
    }
    if known.contains(&capability) {
        // With the instructions that only Hopper has.
        let own = if capability == 90 { "a" } else { "" };
        return Ok(format!("--gpu-architecture=sm_{capability}{own}"));
    }
    let nearest = known.into_iter().filter(|&arch| arch < capability).max();
    let nearest = nearest.unwrap_or(capability);
    Ok(format!("--gpu-architecture=compute_{nearest}"))
}

/// Takes a compiled source from the cache, or compiles it.
pub(super) fn compile_cached(source: KernelSource, defines: &[Define], capability: i32, driver: i32) -> Result<Image> {
    let (name, text) = (source.name(), source.text());
    let (major, minor) = nvrtc_version()?;
    let options = options(defines, capability)?;
    let key = hash([text.as_str(), &options.join("\n"), &format!("{major}.{minor} {driver}")].join("\n\n").as_bytes());
    let file = cache_folder().map(|folder| folder.join(format!("{name}-{key:032x}.bin")));
    if let Some(image) = file.as_ref().and_then(|file| std::fs::read(file).ok())
        && let Some(image) = unsealed(image)
    {
        return Ok(image);
    }
    let image = compile(name, &text, &options)?;
    if let Some(file) = file {
        // Without a cache the next run compiles again.
        let _ = store(&file, &image);
    }
    Ok(image)
}

fn compile(name: &str, text: &str, options: &[String]) -> Result<Image> {
    let architecture = options.last().cloned().unwrap_or_default();
    let broken = |what: &str| CudaError::Compile {
        source_name: name.into(),
        architecture: architecture.clone(),
        log: format!("{what} contains a zero byte"),
    };
    let text = CString::new(text).map_err(|_| broken("the source"))?;
    let title = CString::new(format!("{name}.cu")).map_err(|_| broken("the name"))?;
    let options: Vec<CString> = options
        .iter()
        .map(|option| CString::new(option.as_str()).map_err(|_| broken("an option")))
        .collect::<Result<_, _>>()?;
    let program = Program::new(&text, &title)?;
    let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
    // SAFETY: the program is alive, and the options outlive the call.
    let status = unsafe { sys::nvrtcCompileProgram(program.0, pointers.len() as i32, pointers.as_ptr()) };
    if status == nvrtcResult::NVRTC_ERROR_COMPILATION {
        let log = program.bytes(sys::nvrtcGetProgramLogSize, sys::nvrtcGetProgramLog)?;
        return Err(CudaError::Compile {
            source_name: name.into(),
            architecture,
            log: String::from_utf8_lossy(&log).trim_end_matches('\0').to_string(),
        });
    }
    check("nvrtcCompileProgram", status)?;
    if architecture.contains("=sm_") {
        program.bytes(sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN)
    } else {
        program.bytes(sys::nvrtcGetPTXSize, sys::nvrtcGetPTX)
    }
}

struct Program(sys::nvrtcProgram);

impl Program {
    fn new(text: &CString, title: &CString) -> Result<Self> {
        let mut program = std::ptr::null_mut();
        // SAFETY: both texts end in a zero byte, and NVRTC copies them.
        check("nvrtcCreateProgram", unsafe {
            sys::nvrtcCreateProgram(&mut program, text.as_ptr(), title.as_ptr(), 0, std::ptr::null(), std::ptr::null())
        })?;
        Ok(Self(program))
    }

    /// An output of NVRTC, which takes two calls: one for its size, one for its bytes.
    fn bytes(
        &self,
        size: unsafe fn(sys::nvrtcProgram, *mut usize) -> nvrtcResult,
        fill: unsafe fn(sys::nvrtcProgram, *mut std::ffi::c_char) -> nvrtcResult,
    ) -> Result<Vec<u8>> {
        let mut count = 0;
        // SAFETY: the program is alive.
        check("nvrtcGetSize", unsafe { size(self.0, &mut count) })?;
        let mut bytes = vec![0u8; count];
        // SAFETY: there is room for as many bytes as NVRTC said.
        check("nvrtcGet", unsafe { fill(self.0, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program is destroyed once.
        unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

fn check(call: &'static str, status: nvrtcResult) -> Result<()> {
    if status == nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    Err(CudaError::Call { call, problem: format!("{status:?}") })
}

/// `$XDG_CACHE_HOME/gemcnn/kernels`, else `~/.cache/gemcnn/kernels`.
fn cache_folder() -> Option<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME") {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ => std::env::home_dir()?.join(".cache"),
    };
    Some(base.join("gemcnn").join("kernels"))
}

const MAGIC: &[u8; 16] = b"gemcnn kernels 1";

/// Writes under another name and renames, so that readers see the whole file or none.
fn store(file: &std::path::Path, image: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let part = file.with_extension(format!("part{}", std::process::id()));
    let sealed = [&MAGIC[..], &hash(image).to_le_bytes(), image].concat();
    std::fs::write(&part, sealed)?;
    std::fs::rename(&part, file).inspect_err(|_| {
        let _ = std::fs::remove_file(&part);
    })
}

/// The image in a file of the cache, if the file is complete.
fn unsealed(mut file: Vec<u8>) -> Option<Image> {
    let head = MAGIC.len() + size_of::<u128>();
    let seal = file.get(MAGIC.len()..head)?;
    let image = file.get(head..)?;
    let whole = file.starts_with(MAGIC) && seal == hash(image).to_le_bytes();
    whole.then(|| file.split_off(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_files_are_taken_from_the_cache() {
        let folder = std::env::temp_dir().join(format!("gemcnn-cache-{}", std::process::id()));
        let file = folder.join("deep").join("kernel.bin");
        store(&file, b"machine code").unwrap();
        let bytes = std::fs::read(&file).unwrap();
        assert_eq!(unsealed(bytes.clone()).unwrap(), b"machine code");
        for cut in [0, 8, 20, bytes.len() - 1] {
            assert_eq!(unsealed(bytes[..cut].to_vec()), None);
        }
        for place in [0, 17, bytes.len() - 1] {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1;
            assert_eq!(unsealed(damaged), None);
        }
        assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
