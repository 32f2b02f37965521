//! Regression losses on a GPU.

use super::{OPERATOR, Penalty, Regression};
use crate::cuda::{
    Arg, CudaDevice, CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, Result, args, check_length,
    irrep_count, irreps,
};
use crate::{FeatureType, KernelError};

pub(crate) const SOURCE: KernelSource = KernelSource::new("regression", include_str!("regression.cu"));

/// Items of one partial sum at least, and the most partial sums.
const MIN_ITEMS: usize = 4096;
const MAX_PARTS: usize = 512;

/// The target values of a [`Regression`] loss with its settings, in device memory.
#[derive(Debug)]
pub struct DeviceValues {
    features: FeatureType,
    penalty: Penalty,
    mask: Option<DeviceBuffer<u8>>,
    vertices: usize,
    /// Factor from the sum of penalties to the loss.
    normaliser: DeviceBuffer<f64>,
    target: DeviceBuffer<f32>,
}

impl DeviceValues {
    /// Copies a loss and its target values to a device.
    ///
    /// # Errors
    /// A mask of another length than the vertices, or out of memory.
    pub fn new(device: &CudaDevice, regression: &Regression<'_>, target: &[f32]) -> Result<Self> {
        let vertices = target.len().checked_div(regression.features.dimension()).unwrap_or(0);
        let mask = match regression.mask {
            Some(mask) => {
                crate::error::check_length(OPERATOR, "mask", mask, vertices)?;
                let bytes: Vec<u8> = mask.iter().map(|&counts| u8::from(counts)).collect();
                Some(device.upload(&bytes)?)
            }
            None => None,
        };
        Ok(Self {
            features: regression.features.clone(),
            penalty: regression.penalty,
            mask,
            vertices,
            normaliser: device.upload(&[regression.normaliser(vertices)])?,
            target: device.upload(target)?,
        })
    }

    /// A copy.
    pub fn duplicate(&self, device: &CudaDevice) -> Result<Self> {
        let mask = match &self.mask {
            Some(mask) => Some(mask.duplicate(device)?),
            None => None,
        };
        Ok(Self {
            features: self.features.clone(),
            penalty: self.penalty,
            mask,
            vertices: self.vertices,
            normaliser: self.normaliser.duplicate(device)?,
            target: self.target.duplicate(device)?,
        })
    }

    /// Copies the mask and the values of another loss over these, at the same addresses, for all work that follows.
    ///
    /// # Errors
    /// A loss of another form.
    pub fn overwrite(&self, device: &CudaDevice, with: &Self) -> Result<()> {
        let form = |r: &Self| (r.features.clone(), r.penalty, r.vertices, r.mask.is_some());
        if form(self) != form(with) {
            return Err(CudaError::Kernel(KernelError::Setting {
                operator: OPERATOR,
                problem: "a loss can only be overwritten by one of the same form".into(),
            }));
        }
        self.normaliser.overwrite(device, &with.normaliser)?;
        if let (Some(place), Some(mask)) = (&self.mask, &with.mask) {
            place.overwrite(device, mask)?;
        }
        self.target.overwrite(device, &with.target)
    }

    fn check(&self, maps: &[(&'static str, DeviceSlice<'_, f32>)]) -> Result<()> {
        for &(name, values) in maps {
            let expected = self.vertices * self.features.dimension();
            check_length(OPERATOR, name, values, expected)?;
        }
        Ok(())
    }

    fn mask(&self) -> DeviceSlice<'_, u8> {
        self.mask.as_ref().map_or(DeviceSlice::empty(), DeviceBuffer::view)
    }

    fn absolute(&self) -> u32 {
        u32::from(self.penalty == Penalty::L1)
    }
}

/// The loss, one value in device memory.
pub fn forward(
    device: &CudaDevice,
    values: &DeviceValues,
    prediction: DeviceSlice<'_, f32>,
) -> Result<DeviceBuffer<f64>> {
    let target = values.target.view();
    values.check(&[("prediction", prediction), ("target", target)])?;
    let table = irreps(device, &values.features, 1)?;
    let count = irrep_count(&values.features);
    let items = values.vertices * count;
    let of_block = items.div_ceil(MAX_PARTS).max(MIN_ITEMS);
    let parts = items.div_ceil(of_block);
    let mut partials: DeviceBuffer<f64> = device.buffer(parts)?;
    let mut loss = device.buffer(1)?;
    let first: &[Arg] = args![prediction, target, values.mask(), &*table, count, values.features.dimension()];
    // SAFETY: lengths were checked, and every block has its partial sum.
    unsafe {
        let last: &[Arg] = args![values.absolute(), items as u64, of_block as u64, &partials.view_mut()];
        let function = device.function(SOURCE, &[], "regression_partials")?;
        function.run((parts, 1), (256, 1), &[first, last].concat())?;
        let function = device.function(SOURCE, &[], "regression_finish")?;
        function.run((1, 1), (256, 1), args![&partials, parts, &values.normaliser, &loss.view_mut()])?;
    }
    Ok(loss)
}

/// Gradient of the prediction for the gradient `dloss` of the loss.
pub fn backward(
    device: &CudaDevice,
    values: &DeviceValues,
    prediction: DeviceSlice<'_, f32>,
    dloss: f64,
    dprediction: DeviceSliceMut<'_, f32>,
) -> Result<()> {
    let target = values.target.view();
    values.check(&[("prediction", prediction), ("target", target), ("dprediction", dprediction.view())])?;
    let table = irreps(device, &values.features, 1)?;
    let count = irrep_count(&values.features);
    let items = values.vertices * count;
    let function = device.function(SOURCE, &[], "regression_backward")?;
    let first: &[Arg] = args![prediction, target, values.mask(), &*table, count, values.features.dimension()];
    let last: &[Arg] = args![values.absolute(), items as u64, &values.normaliser, dloss, &dprediction];
    // SAFETY: lengths were checked.
    unsafe { function.over(items, &[first, last].concat()) }
}
