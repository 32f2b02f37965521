//! Peak memory.

use gemcnn_nn::Device;
use std::fs;

/// Watches the peak memory of a device.
#[derive(Debug)]
pub struct PeakMemory {
    device: Device,
}

impl PeakMemory {
    /// Resets the peak to the memory in use now, if the system allows it.
    pub fn watch(device: &Device) -> Self {
        match device {
            // If this cannot be written, the peak is that of the whole process so far.
            Device::Cpu => drop(fs::write("/proc/self/clear_refs", "5")),
            Device::Cuda(device) => device.reset_peak_memory(),
        }
        Self { device: device.clone() }
    }

    /// Peak in bytes: of the whole process on the CPU, if the system reports it, and of the memory pool on a
    /// GPU.
    pub fn bytes(&self) -> Option<usize> {
        match &self.device {
            Device::Cpu => resident_peak(&fs::read_to_string("/proc/self/status").ok()?),
            Device::Cuda(device) => Some(device.memory().peak),
        }
    }
}

/// Finds the peak resident size in the text of `/proc/self/status`.
fn resident_peak(text: &str) -> Option<usize> {
    let size = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: usize = size.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_found() {
        let text = "Name:\tgemcnn\nVmPeak:\t  999 kB\nVmHWM:\t  141312 kB\nVmRSS:\t 12 kB\n";
        assert_eq!(resident_peak(text), Some(141_312 * 1024));
        assert_eq!(resident_peak("Name:\tgemcnn\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn used_memory_is_reported() {
        let watch = PeakMemory::watch(&Device::Cpu);
        let before = watch.bytes().unwrap();
        let touched = std::hint::black_box(vec![1u8; 64 << 20]);
        let after = watch.bytes().unwrap();
        assert!(after >= touched.len(), "{before} {after}");
    }
}
