//! Tables of feature types in device memory.

use super::{Arg, CudaDevice, DeviceBuffer, KernelSource, Result, args};
use crate::FeatureType;
use std::sync::Arc;

/// Table of the irreps of a feature type for kernels, made once for each device and type.
///
/// One row for every run of `vector` neighbouring channels, order by order: `[index of the cosine, index of
/// the sine, order, index of the irrep]`, with indices into a feature vector. Order 0 has no sine; its
/// index repeats that of the cosine. With `vector` 1 there is one row for each irrep. `vector` must divide
/// all multiplicities.
pub fn irreps(device: &CudaDevice, kind: &FeatureType, vector: usize) -> Result<Arc<DeviceBuffer<[u32; 4]>>> {
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
            let sine = if order == 0 { cosine } else { cosine + channels };
            rows.push([cosine, sine, order, before + channel].map(|n| n as u32));
        }
        before += channels;
    }
    rows
}

/// `(place of the cosine, place of the sine, order, head)` for every irrep, head by head. The channels of
/// every order are split evenly between the heads.
pub(crate) fn head_irreps(
    device: &CudaDevice,
    kind: &FeatureType,
    heads: usize,
) -> Result<Arc<DeviceBuffer<[u32; 4]>>> {
    let mut key = kind.multiplicities().to_vec();
    key.push(heads);
    device.table("irreps of heads", key, || {
        let mut rows = irrep_rows(kind, 1);
        for row in &mut rows {
            let order = row[2] as usize;
            let channel = row[0] as usize - kind.range(order).start;
            row[3] = (channel * heads / kind.multiplicity(order)) as u32;
        }
        rows.sort_by_key(|row| row[3]);
        device.upload(&rows)
    })
}

/// As [`irreps`], with the head of each run of channels in place of its index. `vector` must divide the channels of
/// a head.
pub(crate) fn irreps_of_heads(
    device: &CudaDevice,
    kind: &FeatureType,
    vector: usize,
    heads: usize,
) -> Result<Arc<DeviceBuffer<[u32; 4]>>> {
    let mut key = kind.multiplicities().to_vec();
    key.extend([vector, heads]);
    device.table("irreps by head", key, || {
        let mut rows = irrep_rows(kind, vector);
        for row in &mut rows {
            let order = row[2] as usize;
            let channel = row[0] as usize - kind.range(order).start;
            row[3] = (channel * heads / kind.multiplicity(order)) as u32;
        }
        device.upload(&rows)
    })
}

/// How the threads of [`over_irreps`] are shared out.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Share {
    /// A thread for each irrep of each row; the table is that of [`irreps`].
    Irreps,
    /// A thread for each irrep of each row; the table is that of [`head_irreps`].
    IrrepsOfHeads(usize),
    /// A warp for each head of each row; the table is that of [`head_irreps`].
    WarpOfHead(usize),
}

/// Runs a kernel on rows of a type. Its last arguments, after `arguments`, are the table of irreps, their
/// number, the width of a row and the number of rows.
///
/// # Safety
/// As [`Launch::run`](super::Launch::run).
pub(crate) unsafe fn over_irreps(
    device: &CudaDevice,
    (source, name): (KernelSource, &'static str),
    features: &FeatureType,
    share: Share,
    rows: usize,
    arguments: &[Arg],
) -> Result<()> {
    let count = irrep_count(features);
    let (table, threads) = match share {
        Share::Irreps => (irreps(device, features, 1)?, count),
        Share::IrrepsOfHeads(heads) => (head_irreps(device, features, heads)?, count),
        Share::WarpOfHead(heads) => (head_irreps(device, features, heads)?, 32 * heads),
    };
    let last: &[Arg] = args![&*table, count, features.dimension(), rows];
    let function = device.function(source, &[], name)?;
    // SAFETY: the caller vouches for it.
    unsafe { function.over(rows * threads, &[arguments, last].concat()) }
}

/// A key of [`CudaDevice::table`] made of several types.
pub(crate) fn key(kinds: &[&FeatureType]) -> Vec<usize> {
    let lists = kinds.iter().map(|kind| kind.multiplicities());
    lists.flat_map(|list| std::iter::once(list.len()).chain(list.iter().copied())).collect()
}

/// Number of irreps of a type.
pub(crate) fn irrep_count(kind: &FeatureType) -> usize {
    kind.multiplicities().iter().sum()
}
