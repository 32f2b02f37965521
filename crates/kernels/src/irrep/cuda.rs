//! Norms, dot products and products with invariants on a GPU.

use super::{Dot, Grouping, Norm, NormBackward, Scale};
use crate::Gpu;
use crate::cuda::{CudaDevice, KernelSource, Result, Share, args, over_irreps};

pub(crate) const SOURCE: KernelSource = KernelSource::new("irrep", include_str!("irrep.cu"));

pub(super) fn norm(device: &CudaDevice, Norm { features, epsilon, rows, x, y }: Norm<'_, Gpu>) -> Result<()> {
    let arguments = args![x, x, 1u32, epsilon as f32, &y];
    // SAFETY: lengths were checked.
    unsafe { over_irreps(device, (SOURCE, "dot_irreps"), features, Share::Irreps, rows, arguments) }
}

pub(super) fn norm_backward(device: &CudaDevice, pass: NormBackward<'_, Gpu>) -> Result<()> {
    let NormBackward { features, epsilon, rows, x, dy, dx } = pass;
    let arguments = args![x, epsilon as f32, dy, &dx];
    // SAFETY: lengths were checked.
    unsafe { over_irreps(device, (SOURCE, "norm_backward"), features, Share::Irreps, rows, arguments) }
}

pub(super) fn dot(device: &CudaDevice, pass: Dot<'_, Gpu>) -> Result<()> {
    let Dot { features, grouping, rows, a, b, y } = pass;
    // SAFETY: lengths were checked, and every head has the same number of irreps.
    unsafe {
        match grouping {
            Grouping::Irreps => {
                let arguments = args![a, b, 0u32, 0.0f32, &y];
                over_irreps(device, (SOURCE, "dot_irreps"), features, Share::Irreps, rows, arguments)
            }
            Grouping::Heads(heads) => {
                let arguments = args![a, b, &y, heads];
                over_irreps(device, (SOURCE, "dot_heads"), features, Share::WarpOfHead(heads), rows, arguments)
            }
        }
    }
}

pub(super) fn scale(device: &CudaDevice, pass: Scale<'_, Gpu>) -> Result<()> {
    let Scale { features, grouping, rows, x, factors, y } = pass;
    let share = match grouping {
        Grouping::Irreps => Share::Irreps,
        Grouping::Heads(heads) => Share::IrrepsOfHeads(heads),
    };
    let arguments = args![x, factors, &y, grouping.count(features)];
    // SAFETY: lengths were checked.
    unsafe { over_irreps(device, (SOURCE, "scale"), features, share, rows, arguments) }
}
