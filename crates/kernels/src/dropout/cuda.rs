//! Dropout on a GPU, with the same masks as on the CPU.

use super::{DropMeshes, DropUnits, DropoutUnit, scale, threshold};
use crate::Gpu;
use crate::cuda::{CudaDevice, DeviceBuffer, DeviceSlice, KernelSource, Result, args, irrep_rows, key};
use crate::random::Stream;

pub(crate) const SOURCE: KernelSource =
    KernelSource::new("dropout", concat!(include_str!("philox.cu"), include_str!("dropout.cu")));

/// A [`Stream`] in device memory, so that a captured step can be replayed with another stream.
#[derive(Debug)]
pub struct DeviceStream {
    seed_and_step: DeviceBuffer<u64>,
}

impl DeviceStream {
    /// Copies a stream to a device.
    pub fn new(device: &CudaDevice, stream: Stream) -> Result<Self> {
        Ok(Self { seed_and_step: device.upload(&[stream.seed, stream.step])? })
    }

    /// Address in device memory.
    pub fn address(&self) -> u64 {
        self.seed_and_step.view().address()
    }

    /// Seed and step.
    pub(crate) fn view(&self) -> DeviceSlice<'_, u64> {
        self.seed_and_step.view()
    }

    /// Replaces the stream for all work that follows.
    pub fn set(&self, device: &CudaDevice, stream: Stream) -> Result<()> {
        let sent = device.upload(&[stream.seed, stream.step])?;
        self.seed_and_step.overwrite(device, &sent)
    }
}

pub(super) fn drop_units(device: &CudaDevice, pass: DropUnits<'_, Gpu>) -> Result<()> {
    let DropUnits { op: config, rows: vertices, stream: (stream, salt), x, y } = pass;
    let (units, width) = (config.units()?, config.kind.dimension());
    let (limit, scale) = (threshold(config.probability), scale(config.probability) as f32);
    let irreps: usize = config.kind.orders().map(|(_, channels)| channels).sum();
    let by_fours = units == irreps && (config.kind.orders()).all(|(_, channels)| channels.is_multiple_of(4));
    if by_fours && x.is_aligned(4) && y.view().is_aligned(4) {
        let runs =
            device.table("dropout runs", key(&[&config.kind]), || device.upload(&irrep_rows(&config.kind, 4)))?;
        let count = vertices * runs.len();
        let function = device.function(SOURCE, &[], "dropout_fours")?;
        let arguments =
            args![x, &y, &*runs, runs.len(), width, &stream.seed_and_step, salt, limit, scale, count as u64];
        // SAFETY: lengths and alignment were checked.
        return unsafe { function.over(count, arguments) };
    }
    let mut settings = key(&[&config.kind]);
    settings.push(usize::from(config.unit == DropoutUnit::Channel));
    let table = device.table("dropout units", settings, || {
        let mut rows = irrep_rows(&config.kind, 1);
        if config.unit == DropoutUnit::Channel {
            for row in &mut rows {
                row[3] %= units as u32;
            }
        }
        device.upload(&rows)
    })?;
    let function = device.function(SOURCE, &[], "dropout")?;
    let count = table.len();
    let arguments = args![x, &y, &*table, count, units, width, &stream.seed_and_step, salt, limit, scale, vertices];
    // SAFETY: lengths were checked.
    unsafe { function.over(vertices * count, arguments) }
}

/// Blocks for each mesh.
const PIECES: usize = 32;

pub(super) fn drop_meshes(device: &CudaDevice, pass: DropMeshes<'_, Gpu>) -> Result<()> {
    let DropMeshes { probability, width, stream: (stream, salt), meshes, x, y } = pass;
    let function = device.function(SOURCE, &[], "drop_meshes")?;
    let (offsets, limit, scale) = (meshes.device_mesh_offsets(), threshold(probability), scale(probability) as f32);
    let arguments = args![x, &y, offsets, width, &stream.seed_and_step, salt, limit, scale];
    // SAFETY: lengths were checked.
    unsafe { function.run((PIECES, meshes.mesh_count()), (256, 1), arguments) }
}
