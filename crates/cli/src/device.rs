//! Where a command computes.

use crate::failure::Failure;
use crate::output::say;
use clap::{Args, ValueEnum};
use gemcnn_nn::{Device, DeviceChoice, ProductMode};

/// Options of every command that runs networks.
#[derive(Debug, Args)]
pub struct DeviceArgs {
    /// Where to compute: auto (a GPU if one works, else the CPU), cpu, cuda or cuda:N.
    #[arg(
        long,
        value_name = "DEVICE",
        default_value = "auto",
        help_heading = "Device"
    )]
    device: DeviceChoice,

    /// Matrix products on a GPU: tf32 uses its tensor cores with 10 bits of mantissa, f32 is exact to
    /// rounding [default: tf32; for a trained model that of its run]
    #[arg(long, value_enum, help_heading = "Device")]
    matmul: Option<Matmul>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Matmul {
    Tf32,
    F32,
}

impl DeviceArgs {
    /// The device, after one line on standard error that says what it is and why.
    pub fn open(&self, default: ProductMode) -> Result<Device, Failure> {
        let (device, reason) = self.choose(default)?;
        say(reason);
        Ok(device)
    }

    /// The device, without a word.
    pub fn open_quietly(&self, default: ProductMode) -> Result<Device, Failure> {
        Ok(self.choose(default)?.0)
    }

    /// The device, and one line that says what it is and why.
    fn choose(&self, default: ProductMode) -> Result<(Device, String), Failure> {
        let (device, reason) = self.device.open().map_err(Failure::input)?;
        if let Device::Cuda(cuda) = &device {
            cuda.set_product_mode(self.products().unwrap_or(default));
        }
        Ok((device, reason))
    }

    /// How matrix products are to be computed, if that was said.
    pub fn products(&self) -> Option<ProductMode> {
        self.matmul.map(|matmul| match matmul {
            Matmul::Tf32 => ProductMode::Tf32,
            Matmul::F32 => ProductMode::F32,
        })
    }
}
