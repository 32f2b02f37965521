//! Norms, dot products and products with invariants on a GPU.

use super::{Grouping, OPERATOR, check_epsilon};
use crate::FeatureType;
use crate::cuda::{CudaDevice, CudaError, DeviceSlice, DeviceSliceMut, KernelSource, Share, args, over_irreps, to_u32};

pub(crate) const SOURCE: KernelSource = KernelSource::new("irrep", include_str!("irrep.cu"));

/// The product of every irrep, or the root of its sum with epsilon.
fn dot_irreps(
    device: &CudaDevice,
    features: &FeatureType,
    rows: usize,
    (a, b): (DeviceSlice<'_, f32>, DeviceSlice<'_, f32>),
    epsilon: Option<f64>,
    y: &DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let (root, epsilon) = (u32::from(epsilon.is_some()), epsilon.unwrap_or(0.0) as f32);
    let (kernel, share) = ((SOURCE, "dot_irreps"), Share::Irreps);
    // SAFETY: lengths were checked.
    unsafe { over_irreps(device, kernel, features, share, rows, args![a, b, root, epsilon, y]) }
}

/// `y` = the norm of every irrep; see [`norm`](super::norm).
pub fn norm(
    device: &CudaDevice,
    features: &FeatureType,
    epsilon: f64,
    rows: usize,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    check_epsilon(epsilon)?;
    Grouping::Irreps.check(features, rows, &[("x", x)], ("y", y.view()))?;
    dot_irreps(device, features, rows, (x, x), Some(epsilon), &y)
}

/// Overwrites `dx` with the gradient of [`norm`].
pub fn norm_backward(
    device: &CudaDevice,
    features: &FeatureType,
    epsilon: f64,
    rows: usize,
    x: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    dx: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    check_epsilon(epsilon)?;
    let maps = [("x", x), ("dx", dx.view())];
    Grouping::Irreps.check(features, rows, &maps, ("dy", dy))?;
    let (kernel, arguments) = ((SOURCE, "norm_backward"), args![x, epsilon as f32, dy, &dx]);
    // SAFETY: lengths were checked.
    unsafe { over_irreps(device, kernel, features, Share::Irreps, rows, arguments) }
}

/// `y` = invariant products of `a` and `b`; see [`dot`](super::dot).
pub fn dot(
    device: &CudaDevice,
    features: &FeatureType,
    grouping: Grouping,
    rows: usize,
    a: DeviceSlice<'_, f32>,
    b: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    grouping.check(features, rows, &[("a", a), ("b", b)], ("y", y.view()))?;
    let Grouping::Heads(heads) = grouping else {
        return dot_irreps(device, features, rows, (a, b), None, &y);
    };
    let (kernel, share) = ((SOURCE, "dot_heads"), Share::WarpOfHead(heads));
    let arguments = args![a, b, &y, to_u32(OPERATOR, heads)?];
    // SAFETY: lengths were checked, and every head has the same number of irreps.
    unsafe { over_irreps(device, kernel, features, share, rows, arguments) }
}

/// Overwrites the gradients of [`dot`] that are wanted.
#[allow(clippy::too_many_arguments)]
pub fn dot_backward(
    device: &CudaDevice,
    features: &FeatureType,
    grouping: Grouping,
    rows: usize,
    a: DeviceSlice<'_, f32>,
    b: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    da: Option<DeviceSliceMut<'_, f32>>,
    db: Option<DeviceSliceMut<'_, f32>>,
) -> Result<(), CudaError> {
    if let Some(da) = da {
        scale(device, features, grouping, rows, b, dy, da)?;
    }
    match db {
        Some(db) => scale(device, features, grouping, rows, a, dy, db),
        None => Ok(()),
    }
}

/// `y` = `x` times invariants; see [`scale`](super::scale).
pub fn scale(
    device: &CudaDevice,
    features: &FeatureType,
    grouping: Grouping,
    rows: usize,
    x: DeviceSlice<'_, f32>,
    factors: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let maps = [("x", x), ("y", y.view())];
    grouping.check(features, rows, &maps, ("factors", factors))?;
    let share = match grouping {
        Grouping::Irreps => Share::Irreps,
        Grouping::Heads(heads) => Share::IrrepsOfHeads(heads),
    };
    let arguments = args![x, factors, &y, to_u32(OPERATOR, grouping.count(features))?];
    // SAFETY: lengths were checked.
    unsafe { over_irreps(device, (SOURCE, "scale"), features, share, rows, arguments) }
}

/// Overwrites the gradients of [`scale`] that are wanted.
#[allow(clippy::too_many_arguments)]
pub fn scale_backward(
    device: &CudaDevice,
    features: &FeatureType,
    grouping: Grouping,
    rows: usize,
    x: DeviceSlice<'_, f32>,
    factors: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    dx: Option<DeviceSliceMut<'_, f32>>,
    dfactors: Option<DeviceSliceMut<'_, f32>>,
) -> Result<(), CudaError> {
    if let Some(dx) = dx {
        scale(device, features, grouping, rows, dy, factors, dx)?;
    }
    match dfactors {
        Some(dfactors) => dot(device, features, grouping, rows, x, dy, dfactors),
        None => Ok(()),
    }
}
