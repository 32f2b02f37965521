//! Every kernel compiles for the supported architectures. This needs NVRTC but no GPU:
//! `pip install nvidia-cuda-nvrtc` in a virtual environment is enough.

use super::available;
use crate::cuda::{CudaError, KernelSource, compile_for, nvrtc_version};
use crate::kernel_sources;

fn nvrtc_is_there() -> bool {
    available(nvrtc_version()).is_some()
}

#[test]
fn every_kernel_compiles_for_turing_ampere_and_hopper() {
    if !nvrtc_is_there() {
        return;
    }
    let mut compiled = 0;
    for (source, variants) in kernel_sources() {
        assert!(!variants.is_empty(), "{} has no variant", source.name());
        for variant in variants {
            for capability in [75, 80, 90] {
                let image =
                    compile_for(source, &variant, capability).unwrap_or_else(|error| panic!("{variant:?}: {error}"));
                assert_eq!(&image[..4], b"\x7fELF", "{} is no machine code", source.name());
                compiled += 1;
            }
        }
    }
    println!("{compiled} images");
}

#[test]
fn an_architecture_after_the_compiler_becomes_assembly() {
    if !nvrtc_is_there() {
        return;
    }
    let (source, variants) = kernel_sources().remove(0);
    let image = compile_for(source, &variants[0], 9999).unwrap();
    assert!(String::from_utf8_lossy(&image).contains(".version"));
}

/// On Hopper a kernel is launched before the one before it has ended: it must not read its results before `start()` has
/// waited.
#[test]
fn no_kernel_reads_memory_before_its_start() {
    if !nvrtc_is_there() {
        return;
    }
    for (source, variants) in kernel_sources() {
        for variant in variants {
            let image = compile_for(source, &variant, 9999).unwrap();
            let text = String::from_utf8_lossy(&image);
            for kernel in text.split(".entry").skip(1) {
                let name = kernel.split_whitespace().next().unwrap_or_default();
                let before = kernel.split("griddepcontrol.wait").next().unwrap_or_default();
                let reads = ["ld.global", "ld.volatile", "cp.async", "atom.", "red."];
                assert!(before.len() < kernel.len(), "{name} does not wait");
                for read in reads {
                    assert!(!before.contains(read), "{name} reads before it waits: {before}");
                }
            }
        }
    }
}

#[test]
fn errors_of_the_compiler_are_told_with_name_and_line() {
    if !nvrtc_is_there() {
        return;
    }
    let broken = KernelSource::new("broken", "\n\n\n\n\n\nint x = ;");
    let error = compile_for(broken, &[], 80).unwrap_err();
    let CudaError::Compile { log, .. } = &error else {
        panic!("{error}");
    };
    assert!(log.contains("broken.cu(7)"), "{log}");
}
