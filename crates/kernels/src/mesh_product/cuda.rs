//! Products with the bases of meshes on a GPU: one or two products for each mesh.

use super::{Expand, MeshProduct, Project, meshes};
use crate::Gpu;
use crate::cuda::{
    CudaDevice, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, Operand, Product, Result, args,
};

pub(crate) const SOURCE: KernelSource = KernelSource::new("mesh_product", include_str!("mesh_product.cu"));

impl MeshProduct {
    /// `to = w x`, in place if `x` is `to`.
    fn weigh(
        &self,
        device: &CudaDevice,
        weights: DeviceSlice<'_, f32>,
        x: DeviceSlice<'_, f32>,
        to: &DeviceSliceMut<'_, f32>,
    ) -> Result<()> {
        let width = self.features.dimension();
        let function = device.function(SOURCE, &[], "weigh")?;
        // SAFETY: both are rows of the width, and there is a weight for each.
        unsafe { function.over(x.len(), args![weights, x, to, width, x.len() as u64]) }
    }

    /// `sign i w x`; empty weights are ones.
    fn times_i(
        &self,
        device: &CudaDevice,
        weights: DeviceSlice<'_, f32>,
        sign: f32,
        x: DeviceSlice<'_, f32>,
    ) -> Result<DeviceBuffer<f32>> {
        let mut turned: DeviceBuffer<f32> = device.buffer(x.len())?;
        let width = self.features.dimension();
        let function = device.function(SOURCE, &[], "weigh_times_i")?;
        // SAFETY: as in `weigh`; empty weights are a null pointer, which the kernel does not read.
        unsafe {
            function.over(x.len(), args![weights, sign, x, &turned.view_mut(), width, x.len() as u64])?;
        }
        Ok(turned)
    }
}

pub(super) fn project(device: &CudaDevice, pass: Project<'_, Gpu>) -> Result<()> {
    let Project { op, mesh_offsets, basis, weights, x, mut y } = pass;
    let (width, stride, k) = (op.features.dimension(), op.stride(), op.columns);
    if meshes(mesh_offsets).any(|range| range.is_empty()) {
        device.clear(y.reborrow())?;
    }
    let weighted = match weights {
        Some(weights) => {
            let mut weighted = device.buffer(x.len())?;
            op.weigh(device, weights, x, &weighted.view_mut())?;
            Some(weighted)
        }
        None => None,
    };
    let ones = DeviceSlice::empty();
    let turned = if op.complex { Some(op.times_i(device, weights.unwrap_or(ones), -1.0, x)?) } else { None };
    let x = weighted.as_ref().map_or(x, DeviceBuffer::view);
    let terms = [Some(x), turned.as_ref().map(DeviceBuffer::view)];
    for (mesh, range) in meshes(mesh_offsets).enumerate() {
        for (part, x) in terms.into_iter().flatten().enumerate() {
            let b = basis.slice(range.start * stride + part * k..range.end * stride);
            let a = Operand::new(b, stride).transposed();
            let b = Operand::new(x.slice(range.start * width..range.end * width), width);
            let product = Product { m: k, n: width, k: range.len(), a, b, add: part > 0, batches: 1 };
            product.run(device, &part_of(&mut y, mesh * k * width, k * width), (width, 0))?;
        }
    }
    Ok(())
}

pub(super) fn expand(device: &CudaDevice, pass: Expand<'_, Gpu>) -> Result<()> {
    let Expand { op, mesh_offsets, basis, weights, y, mut x } = pass;
    let (width, stride, k) = (op.features.dimension(), op.stride(), op.columns);
    if k == 0 {
        return device.clear(x);
    }
    let turned = if op.complex { Some(op.times_i(device, DeviceSlice::empty(), 1.0, y)?) } else { None };
    let terms = [Some(y), turned.as_ref().map(DeviceBuffer::view)];
    for (mesh, range) in meshes(mesh_offsets).enumerate() {
        for (part, y) in terms.into_iter().flatten().enumerate() {
            let b = basis.slice(range.start * stride + part * k..range.end * stride);
            let a = Operand::new(b, stride);
            let b = Operand::new(y.slice(mesh * k * width..(mesh + 1) * k * width), width);
            let product = Product { m: range.len(), n: width, k, a, b, add: part > 0, batches: 1 };
            product.run(device, &part_of(&mut x, range.start * width, range.len() * width), (width, 0))?;
        }
    }
    match weights {
        Some(weights) => op.weigh(device, weights, x.view(), &x),
        None => Ok(()),
    }
}

/// `count` numbers starting at one place.
fn part_of<'a>(slice: &'a mut DeviceSliceMut<'_, f32>, start: usize, count: usize) -> DeviceSliceMut<'a, f32> {
    slice.reborrow().slice(start..start + count)
}
