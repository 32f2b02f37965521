//! Tables of feature types in device memory.

use super::{CudaDevice, CudaError, DeviceBuffer};
use crate::FeatureType;
use std::sync::Arc;

/// Table of the irreps of a feature type for kernels, made once for each device and type.
///
/// One row for every run of `vector` neighbouring channels, order by order: `[index of the cosine, index of
/// the sine, order, index of the irrep]`, with indices into a feature vector. Order 0 has no sine; its
/// index repeats that of the cosine. With `vector` 1 there is one row for each irrep. `vector` must divide
/// all multiplicities.
///
/// # Errors
/// Out of memory.
pub fn irreps(
    device: &CudaDevice,
    kind: &FeatureType,
    vector: usize,
) -> Result<Arc<DeviceBuffer<[u32; 4]>>, CudaError> {
    let mut key = kind.multiplicities().to_vec();
    key.push(vector);
    device.table("irreps", key, || device.upload(&irrep_rows(kind, vector)))
}

pub(crate) fn irrep_rows(kind: &FeatureType, vector: usize) -> Vec<[u32; 4]> {
    let mut rows = Vec::new();
    let mut before = 0;
    for (order, channels) in kind.orders() {
        let start = kind.range(order).start;
        for channel in (0..channels).step_by(vector.max(1)) {
            let cosine = start + channel;
            let sine = if order == 0 {
                cosine
            } else {
                cosine + channels
            };
            rows.push([cosine, sine, order, before + channel].map(|n| n as u32));
        }
        before += channels;
    }
    rows
}

/// A key of [`CudaDevice::table`] made of several types.
pub(crate) fn key(kinds: &[&FeatureType]) -> Vec<usize> {
    let lists = kinds.iter().map(|kind| kind.multiplicities());
    lists
        .flat_map(|list| std::iter::once(list.len()).chain(list.iter().copied()))
        .collect()
}

/// Number of irreps of a type.
pub(crate) fn irrep_count(kind: &FeatureType) -> usize {
    kind.multiplicities().iter().sum()
}
