//! Norms, dot products and products with invariants on a GPU.

use super::{Grouping, OPERATOR, check_epsilon};
use crate::cuda::{
    CudaDevice, CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, args,
    check_length, head_irreps, irrep_count, irreps, to_u32,
};
use crate::{FeatureType, KernelError};
use std::sync::Arc;

pub(crate) const SOURCE: KernelSource = KernelSource::new("irrep", include_str!("irrep.cu"));

impl Grouping {
    fn check_device(
        self,
        features: &FeatureType,
        rows: usize,
        maps: &[(&'static str, DeviceSlice<'_, f32>)],
        (name, scalars): (&'static str, DeviceSlice<'_, f32>),
    ) -> Result<(), KernelError> {
        self.check(features)?;
        for &(name, values) in maps {
            check_length(OPERATOR, name, values, rows * features.dimension())?;
        }
        check_length(OPERATOR, name, scalars, rows * self.count(features))
    }

    /// The irreps with their scalars.
    fn irreps(
        self,
        device: &CudaDevice,
        features: &FeatureType,
    ) -> Result<Arc<DeviceBuffer<[u32; 4]>>, CudaError> {
        match self {
            Self::Irreps => irreps(device, features, 1),
            Self::Heads(heads) => head_irreps(device, features, heads),
        }
    }
}

/// The product of every irrep, or the root of its sum with epsilon.
fn dot_irreps(
    device: &CudaDevice,
    features: &FeatureType,
    rows: usize,
    (a, b): (DeviceSlice<'_, f32>, DeviceSlice<'_, f32>),
    epsilon: Option<f64>,
    y: &DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let (table, count) = (irreps(device, features, 1)?, irrep_count(features));
    let size = |n: usize| to_u32(OPERATOR, n);
    let function = device.function(SOURCE, &[], "dot_irreps")?;
    // SAFETY: lengths were checked.
    unsafe {
        function.over(
            rows * count,
            args![
                a,
                b,
                u32::from(epsilon.is_some()),
                epsilon.unwrap_or(0.0) as f32,
                y,
                &*table,
                size(count)?,
                size(features.dimension())?,
                size(rows)?,
            ],
        )
    }
}

/// `y` = the norm of every irrep; see [`norm`](super::norm).
///
/// # Errors
/// Settings or lengths that do not fit, or a failed call.
pub fn norm(
    device: &CudaDevice,
    features: &FeatureType,
    epsilon: f64,
    rows: usize,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    check_epsilon(epsilon)?;
    Grouping::Irreps.check_device(features, rows, &[("x", x)], ("y", y.view()))?;
    dot_irreps(device, features, rows, (x, x), Some(epsilon), &y)
}

/// Overwrites `dx` with the gradient of [`norm`].
///
/// # Errors
/// Settings or lengths that do not fit, or a failed call.
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
    Grouping::Irreps.check_device(features, rows, &maps, ("dy", dy))?;
    let (table, count) = (irreps(device, features, 1)?, irrep_count(features));
    let size = |n: usize| to_u32(OPERATOR, n);
    let function = device.function(SOURCE, &[], "norm_backward")?;
    // SAFETY: lengths were checked.
    unsafe {
        function.over(
            rows * count,
            args![
                x,
                epsilon as f32,
                dy,
                &dx,
                &*table,
                size(count)?,
                size(features.dimension())?,
                size(rows)?,
            ],
        )
    }
}

/// `y` = invariant products of `a` and `b`; see [`dot`](super::dot).
///
/// # Errors
/// Settings or lengths that do not fit, or a failed call.
pub fn dot(
    device: &CudaDevice,
    features: &FeatureType,
    grouping: Grouping,
    rows: usize,
    a: DeviceSlice<'_, f32>,
    b: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    grouping.check_device(features, rows, &[("a", a), ("b", b)], ("y", y.view()))?;
    let Grouping::Heads(heads) = grouping else {
        return dot_irreps(device, features, rows, (a, b), None, &y);
    };
    let table = head_irreps(device, features, heads)?;
    let size = |n: usize| to_u32(OPERATOR, n);
    let function = device.function(SOURCE, &[], "dot_heads")?;
    // SAFETY: lengths were checked, and every head has the same number of irreps.
    unsafe {
        function.over(
            32 * rows * heads,
            args![
                a,
                b,
                &y,
                &*table,
                size(irrep_count(features))?,
                size(features.dimension())?,
                size(heads)?,
                size(rows)?,
            ],
        )
    }
}

/// Overwrites the gradients of [`dot`] that are wanted.
///
/// # Errors
/// Settings or lengths that do not fit, or a failed call.
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
///
/// # Errors
/// Settings or lengths that do not fit, or a failed call.
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
    grouping.check_device(features, rows, &maps, ("factors", factors))?;
    let (table, count) = (grouping.irreps(device, features)?, irrep_count(features));
    let size = |n: usize| to_u32(OPERATOR, n);
    let function = device.function(SOURCE, &[], "scale")?;
    // SAFETY: lengths were checked.
    unsafe {
        function.over(
            rows * count,
            args![
                x,
                factors,
                &y,
                &*table,
                size(count)?,
                size(features.dimension())?,
                size(grouping.count(features))?,
                size(rows)?,
            ],
        )
    }
}

/// Overwrites the gradients of [`scale`] that are wanted.
///
/// # Errors
/// Settings or lengths that do not fit, or a failed call.
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
