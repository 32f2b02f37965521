//! Device options.

use crate::failure::Failure;
use crate::kinds::{PRECISIONS, word};
use crate::output::say;
use clap::Args;
use gemcnn_nn::{Device, DeviceChoice, ProductMode};
use gemcnn_tasks::train::Precision;

/// Options of every command that runs networks.
#[derive(Debug, Args)]
pub struct DeviceArgs {
    /// Device: auto (a GPU if there is one, otherwise the CPU), cpu, cuda or cuda:N.
    #[arg(long, value_name = "DEVICE", default_value = "auto", help_heading = "Device")]
    device: DeviceChoice,

    /// Precision of matrix products on a GPU: tf32 (tensor cores, 10 bits of mantissa), f32, or bf16 (tf32, but 7 bits
    /// of mantissa in the last layer of a classifier during training, also on CPUs with AVX512-BF16) [default: tf32;
    /// for a trained model, the precision of its run]
    #[arg(long, value_parser = word::<Precision>(PRECISIONS), help_heading = "Device")]
    matmul: Option<Precision>,
}

impl DeviceArgs {
    /// Opens the device, and prints its name and the reason for the choice to standard error.
    pub fn open(&self, default: ProductMode) -> Result<Device, Failure> {
        let (device, reason) = self.choose(default)?;
        say(reason);
        Ok(device)
    }

    /// Opens the device without a message.
    pub fn open_quietly(&self, default: ProductMode) -> Result<Device, Failure> {
        Ok(self.choose(default)?.0)
    }

    /// Opens the device, and returns the message about it.
    fn choose(&self, default: ProductMode) -> Result<(Device, String), Failure> {
        let (device, reason) = self.device.open().map_err(Failure::input)?;
        if let Device::Cuda(cuda) = &device {
            cuda.set_product_mode(self.products().unwrap_or(default));
        }
        Ok((device, reason))
    }

    /// The precision of matrix products, if it was given.
    pub fn products(&self) -> Option<ProductMode> {
        self.matmul.map(ProductMode::from)
    }
}
