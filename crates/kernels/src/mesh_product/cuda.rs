//! Products with the bases of meshes on a GPU: one or two products for each mesh.

use super::{MeshProduct, OPERATOR, meshes};
use crate::cuda::{
    CudaDevice, CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, Operand, Product, args, to_u32,
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
    ) -> Result<(), CudaError> {
        let width = to_u32(OPERATOR, self.features.dimension())?;
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
    ) -> Result<DeviceBuffer<f32>, CudaError> {
        let mut turned: DeviceBuffer<f32> = device.buffer(x.len())?;
        let width = to_u32(OPERATOR, self.features.dimension())?;
        let function = device.function(SOURCE, &[], "weigh_times_i")?;
        // SAFETY: as in `weigh`; empty weights are a null pointer, which the kernel does not read.
        unsafe {
            function.over(x.len(), args![weights, sign, x, &turned.view_mut(), width, x.len() as u64])?;
        }
        Ok(turned)
    }

    fn project(
        &self,
        device: &CudaDevice,
        mesh_offsets: &[u32],
        basis: DeviceSlice<'_, f32>,
        weights: Option<DeviceSlice<'_, f32>>,
        x: DeviceSlice<'_, f32>,
        mut y: DeviceSliceMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let (width, stride, k) = (self.features.dimension(), self.stride(), self.columns);
        if meshes(mesh_offsets).any(|range| range.is_empty()) {
            device.clear(y.reborrow())?;
        }
        let weighted = match weights {
            Some(weights) => {
                let mut weighted = device.buffer(x.len())?;
                self.weigh(device, weights, x, &weighted.view_mut())?;
                Some(weighted)
            }
            None => None,
        };
        let ones = DeviceSlice::empty();
        let turned = match self.complex {
            true => Some(self.times_i(device, weights.unwrap_or(ones), -1.0, x)?),
            false => None,
        };
        let x = weighted.as_ref().map_or(x, DeviceBuffer::view);
        let terms = [Some(x), turned.as_ref().map(DeviceBuffer::view)];
        for (mesh, range) in meshes(mesh_offsets).enumerate() {
            for (part, x) in terms.into_iter().flatten().enumerate() {
                let b = basis.slice(range.start * stride + part * k..range.end * stride);
                Product {
                    m: k,
                    n: width,
                    k: range.len(),
                    a: Operand::new(b, stride).transposed(),
                    b: Operand::new(x.slice(range.start * width..range.end * width), width),
                    add: part > 0,
                    batches: 1,
                }
                .run(device, &part_of(&mut y, mesh * k * width, k * width), (width, 0))?;
            }
        }
        Ok(())
    }

    /// `x_b = w (B_b y_b)`.
    fn expand(
        &self,
        device: &CudaDevice,
        mesh_offsets: &[u32],
        basis: DeviceSlice<'_, f32>,
        weights: Option<DeviceSlice<'_, f32>>,
        y: DeviceSlice<'_, f32>,
        mut x: DeviceSliceMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let (width, stride, k) = (self.features.dimension(), self.stride(), self.columns);
        if k == 0 {
            return device.clear(x);
        }
        let turned = match self.complex {
            true => Some(self.times_i(device, DeviceSlice::empty(), 1.0, y)?),
            false => None,
        };
        let terms = [Some(y), turned.as_ref().map(DeviceBuffer::view)];
        for (mesh, range) in meshes(mesh_offsets).enumerate() {
            for (part, y) in terms.into_iter().flatten().enumerate() {
                let b = basis.slice(range.start * stride + part * k..range.end * stride);
                Product {
                    m: range.len(),
                    n: width,
                    k,
                    a: Operand::new(b, stride),
                    b: Operand::new(y.slice(mesh * k * width..(mesh + 1) * k * width), width),
                    add: part > 0,
                    batches: 1,
                }
                .run(device, &part_of(&mut x, range.start * width, range.len() * width), (width, 0))?;
            }
        }
        match weights {
            Some(weights) => self.weigh(device, weights, x.view(), &x),
            None => Ok(()),
        }
    }
}

/// `count` numbers from one place on.
fn part_of<'a>(slice: &'a mut DeviceSliceMut<'_, f32>, start: usize, count: usize) -> DeviceSliceMut<'a, f32> {
    slice.reborrow().slice(start..start + count)
}

/// `y_b = B_b^H (w x_b)` for each mesh; see [`project`](super::project).
pub fn project(
    device: &CudaDevice,
    op: &MeshProduct,
    mesh_offsets: &[u32],
    basis: DeviceSlice<'_, f32>,
    weights: Option<DeviceSlice<'_, f32>>,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    op.check(mesh_offsets, basis, weights, ("x", x), ("y", y.view()))?;
    op.project(device, mesh_offsets, basis, weights, x, y)
}

/// Overwrites `dx` with the gradient of [`project`].
pub fn project_backward(
    device: &CudaDevice,
    op: &MeshProduct,
    mesh_offsets: &[u32],
    basis: DeviceSlice<'_, f32>,
    weights: Option<DeviceSlice<'_, f32>>,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    op.check(mesh_offsets, basis, weights, ("dx", dx.view()), ("dy", dy))?;
    op.expand(device, mesh_offsets, basis, weights, dy, dx)
}

/// `x_b = B_b y_b` for each mesh; see [`expand`](super::expand).
pub fn expand(
    device: &CudaDevice,
    op: &MeshProduct,
    mesh_offsets: &[u32],
    basis: DeviceSlice<'_, f32>,
    y: DeviceSlice<'_, f32>,
    x: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    op.check(mesh_offsets, basis, None, ("x", x.view()), ("y", y))?;
    op.expand(device, mesh_offsets, basis, None, y, x)
}

/// Overwrites `dy` with the gradient of [`expand`].
pub fn expand_backward(
    device: &CudaDevice,
    op: &MeshProduct,
    mesh_offsets: &[u32],
    basis: DeviceSlice<'_, f32>,
    dx: DeviceSlice<'_, f32>,
    dy: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    op.check(mesh_offsets, basis, None, ("dx", dx), ("dy", dy.view()))?;
    op.project(device, mesh_offsets, basis, None, dx, dy)
}
