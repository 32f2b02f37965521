//! The machine of a benchmark and its limits.

use super::Cost;
use gemcnn_kernels::machine;
use gemcnn_nn::{CudaDevice, Device, NnError, ProductMode};
use gemcnn_tasks::TaskError;
use serde::Serialize;
use std::fs;

/// The machine of a benchmark.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// Model of the processor, if the system reports it.
    pub cpu: Option<String>,
    /// Processors that this process may use.
    pub cores: usize,
    /// Worker threads.
    pub threads: usize,
    /// The GPU, if the benchmark runs on one.
    pub gpu: Option<Gpu>,
}

/// A GPU and its driver.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gpu {
    /// Name of the card.
    pub name: String,
    /// Version of the driver, if the system reports it.
    pub driver: Option<String>,
    /// Latest CUDA version that the driver supports.
    pub cuda: String,
    /// Bytes of memory on the card.
    pub memory_bytes: usize,
}

impl Machine {
    /// Describes this machine, with the GPU if `device` is one.
    pub fn new(device: &Device) -> Self {
        let cores = std::thread::available_parallelism();
        Self {
            cpu: fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| model_name(&text)),
            cores: cores.map_or(1, usize::from),
            threads: rayon::current_num_threads(),
            gpu: match device {
                Device::Cpu => None,
                Device::Cuda(device) => Some(Gpu::new(device)),
            },
        }
    }
}

impl Gpu {
    fn new(device: &CudaDevice) -> Self {
        let (major, minor) = device.driver_version();
        let driver = fs::read_to_string("/sys/module/nvidia/version");
        Self {
            name: device.name().to_owned(),
            driver: driver.ok().map(|text| text.trim().to_owned()),
            cuda: format!("{major}.{minor}"),
            memory_bytes: device.total_memory(),
        }
    }
}

/// Finds the processor in the text of `/proc/cpuinfo`.
fn model_name(text: &str) -> Option<String> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, name) = fields.find(|(key, _)| key.trim() == "model name")?;
    Some(name.trim().to_owned())
}

/// Rates of a device, measured in the same run: the limits that work is compared with.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limits {
    /// The device: `cpu` or `cuda:N`.
    pub device: String,
    /// Precision of matrix products: `f32`, `tf32` or `bf16`.
    pub matmul: &'static str,
    /// Bytes per second of a large copy, reads and writes together.
    pub copy_bytes_per_s: f64,
    /// Operations per second of a large square product.
    pub product_flops_per_s: f64,
}

impl Limits {
    /// Measures the limits.
    ///
    /// # Errors
    /// Work on a GPU that failed, or too little memory.
    pub fn measure(device: &Device) -> Result<Self, TaskError> {
        let (copy, product) = match device {
            Device::Cpu => (machine::copy_rate(), machine::product_rate().map_err(NnError::from)?),
            Device::Cuda(device) => (
                machine::cuda::copy_rate(device).map_err(NnError::from)?,
                machine::cuda::product_rate(device).map_err(NnError::from)?,
            ),
        };
        Ok(Self {
            device: name_of(device),
            matmul: matmul(device),
            copy_bytes_per_s: copy,
            product_flops_per_s: product,
        })
    }

    /// Least time in seconds: that of its bytes or of its products, whichever is longer.
    pub fn seconds(&self, cost: Cost) -> f64 {
        let copy = cost.bytes as f64 / self.copy_bytes_per_s;
        let product = cost.flops as f64 / self.product_flops_per_s;
        copy.max(product)
    }
}

/// `cpu` or `cuda:N`.
fn name_of(device: &Device) -> String {
    match device {
        Device::Cpu => "cpu".into(),
        Device::Cuda(device) => format!("cuda:{}", device.ordinal()),
    }
}

fn matmul(device: &Device) -> &'static str {
    match device {
        Device::Cpu => "f32",
        Device::Cuda(device) => match device.product_mode() {
            ProductMode::F32 => "f32",
            ProductMode::Tf32 => "tf32",
            ProductMode::Bf16 => "bf16",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_found() {
        let text = "processor\t: 0\nmodel\t\t: 143\nmodel name\t: Some CPU @ 2.80GHz\nflags : a b\n";
        assert_eq!(model_name(text).as_deref(), Some("Some CPU @ 2.80GHz"));
        assert_eq!(model_name("processor : 0\nBogoMIPS : 50\n"), None);
    }

    #[test]
    fn the_tighter_limit_counts() {
        let limits =
            Limits { device: "cpu".into(), matmul: "f32", copy_bytes_per_s: 100.0, product_flops_per_s: 1000.0 };
        let cost = |bytes, flops| Cost { bytes, flops };
        assert_eq!(limits.seconds(cost(200, 1000)), 2.0);
        assert_eq!(limits.seconds(cost(200, 3000)), 3.0);
    }
}
