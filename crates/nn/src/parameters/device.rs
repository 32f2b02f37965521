//! Parameters on a GPU.

use super::ParameterId;
use crate::{NnError, Result};
use gemcnn_kernels::cuda::optimiser;
use gemcnn_kernels::cuda::{CudaDevice, CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut};
use std::sync::OnceLock;

/// Entries start at multiples of this number of values, so that wide loads are aligned.
const ALIGNMENT: usize = 64;

/// Values and gradients of all entries, each in one buffer, so that one call clears or copies all of them.
#[derive(Debug)]
pub(crate) struct DeviceParameters {
    device: CudaDevice,
    /// Length of each entry.
    lengths: Vec<usize>,
    values: DeviceBuffer<f32>,
    gradients: DeviceBuffer<f32>,
    /// Gradients are zero, but the buffer is only cleared when it is next used.
    cleared: bool,
}

/// Values of some entries, and their gradients to add to.
type WithGradients<'p, const N: usize> = ([DeviceSlice<'p, f32>; N], [DeviceSliceMut<'p, f32>; N]);
/// Values of an entry to change, and its gradient.
type Entry<'p> = (DeviceSliceMut<'p, f32>, DeviceSlice<'p, f32>);

fn padded(length: usize) -> usize {
    length.next_multiple_of(ALIGNMENT)
}

/// Entries one after the other, padded to the alignment.
fn joined<'v>(entries: impl Iterator<Item = &'v [f32]>, lengths: &[usize]) -> Vec<f32> {
    let mut all = Vec::with_capacity(lengths.iter().copied().map(padded).sum());
    for (entry, &length) in entries.zip(lengths) {
        let end = all.len() + padded(length);
        all.extend_from_slice(entry);
        all.resize(end, 0.0);
    }
    all
}

fn parts<'b>(buffer: &'b mut DeviceBuffer<f32>, lengths: &[usize]) -> Vec<Option<DeviceSliceMut<'b, f32>>> {
    let mut rest = buffer.view_mut();
    lengths
        .iter()
        .map(|&length| {
            let (entry, others) = std::mem::replace(&mut rest, DeviceSliceMut::empty()).split_at(padded(length));
            rest = others;
            Some(entry.slice(0..length))
        })
        .collect()
}

/// Takes one part, or an empty one if it is absent.
fn taken<'b>(parts: &mut [Option<DeviceSliceMut<'b, f32>>], id: Option<ParameterId>) -> DeviceSliceMut<'b, f32> {
    let part = id.and_then(|id| parts.get_mut(id.0)?.take());
    part.unwrap_or_else(DeviceSliceMut::empty)
}

impl DeviceParameters {
    /// Copies values and gradients to a GPU. The gradient of a statistic is empty.
    pub fn new<'v>(
        device: &CudaDevice,
        values: impl Iterator<Item = &'v [f32]> + Clone,
        gradients: impl Iterator<Item = &'v [f32]>,
    ) -> Result<Self, CudaError> {
        let lengths: Vec<usize> = values.clone().map(<[f32]>::len).collect();
        Ok(Self {
            device: device.clone(),
            values: device.upload(&joined(values, &lengths))?,
            gradients: device.upload(&joined(gradients, &lengths))?,
            lengths,
            cleared: false,
        })
    }

    pub fn device(&self) -> &CudaDevice {
        &self.device
    }

    fn duplicate(&self) -> Result<Self, CudaError> {
        let copy = |from: &DeviceBuffer<f32>| -> Result<DeviceBuffer<f32>, CudaError> {
            let mut to = self.device.buffer(from.len())?;
            self.device.copy(from.view(), to.view_mut())?;
            Ok(to)
        };
        Ok(Self {
            device: self.device.clone(),
            lengths: self.lengths.clone(),
            values: copy(&self.values)?,
            gradients: copy(&self.gradients)?,
            cleared: self.cleared,
        })
    }

    /// Values of some entries; absent ones are empty.
    pub fn values_of<const N: usize>(&self, ids: [Option<ParameterId>; N]) -> [DeviceSlice<'_, f32>; N] {
        values_of(&self.values, &self.lengths, ids)
    }

    /// Values of some entries, to change them.
    pub fn values_mut<const N: usize>(&mut self, ids: [ParameterId; N]) -> [DeviceSliceMut<'_, f32>; N] {
        let mut parts = parts(&mut self.values, &self.lengths);
        ids.map(|id| taken(&mut parts, Some(id)))
    }

    /// Values of some entries and their gradients to add to; absent ones are empty.
    pub fn with_gradients<const N: usize>(
        &mut self,
        ids: [Option<ParameterId>; N],
    ) -> Result<WithGradients<'_, N>, CudaError> {
        self.apply_clear()?;
        let mut parts = parts(&mut self.gradients, &self.lengths);
        let gradients = ids.map(|id| taken(&mut parts, id));
        Ok((values_of(&self.values, &self.lengths, ids), gradients))
    }

    /// Values of all entries, to change them, and their gradients.
    pub fn all(&mut self) -> Result<Vec<Entry<'_>>, CudaError> {
        self.apply_clear()?;
        let gradients = self.gradients.view();
        let mut start = 0;
        let values = parts(&mut self.values, &self.lengths);
        let pairs = values.into_iter().flatten().map(|value| {
            let gradient = gradients.slice(start..start + value.len());
            start += padded(value.len());
            (value, gradient)
        });
        Ok(pairs.collect())
    }

    pub fn clear_gradients(&mut self) {
        self.cleared = true;
    }

    /// Clears the buffer if [`clear_gradients`](Self::clear_gradients) was called.
    fn apply_clear(&mut self) -> Result<(), CudaError> {
        if self.cleared {
            self.device.clear(self.gradients.view_mut())?;
            self.cleared = false;
        }
        Ok(())
    }

    pub fn clip_gradients(&mut self, largest: f64) -> Result<(), CudaError> {
        self.apply_clear()?;
        optimiser::clip(&self.device, largest, self.gradients.view_mut())
    }

    /// Address of the values, which identifies them.
    pub fn place(&self) -> u64 {
        self.values.view().address()
    }

    /// Values of all entries, after all queued work.
    pub fn read_values(&self) -> Result<Vec<Vec<f32>>, CudaError> {
        Ok(self.split(&self.values.to_vec(&self.device)?))
    }

    /// Gradients of all entries, after all queued work; zero for statistics.
    pub fn read_gradients(&self) -> Result<Vec<Vec<f32>>, CudaError> {
        if self.cleared {
            return Ok(self.lengths.iter().map(|&n| vec![0.0; n]).collect());
        }
        Ok(self.split(&self.gradients.to_vec(&self.device)?))
    }

    /// Splits concatenated entries.
    fn split(&self, all: &[f32]) -> Vec<Vec<f32>> {
        let mut rest = all;
        let mut next = |&length: &usize| {
            let (entry, others) = rest.split_at(padded(length));
            rest = others;
            entry[..length].to_vec()
        };
        self.lengths.iter().map(&mut next).collect()
    }
}

fn values_of<'b, const N: usize>(
    values: &'b DeviceBuffer<f32>,
    lengths: &[usize],
    ids: [Option<ParameterId>; N],
) -> [DeviceSlice<'b, f32>; N] {
    ids.map(|id| {
        let Some((ParameterId(place), &length)) = id.and_then(|id| Some((id, lengths.get(id.0)?))) else {
            return DeviceSlice::empty();
        };
        let start: usize = lengths[..place].iter().copied().map(padded).sum();
        values.view().slice(start..start + length)
    })
}

/// The copy of parameters on a GPU, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    /// An error of a clone, reported when the clone is used.
    place: OnceLock<Result<DeviceParameters, CudaError>>,
}

impl Placement {
    /// The parameters on their GPU; `None` if they are on the host.
    pub fn get(&self) -> Result<Option<&DeviceParameters>> {
        match self.place.get() {
            None => Ok(None),
            Some(place) => Ok(Some(place.as_ref().map_err(Clone::clone)?)),
        }
    }

    pub fn get_mut(&mut self) -> Result<Option<&mut DeviceParameters>> {
        match self.place.get_mut() {
            None => Ok(None),
            Some(place) => Ok(Some(place.as_mut().map_err(|error| error.clone())?)),
        }
    }

    /// The parameters on a GPU, copied there by `send` if they are on the host.
    pub fn on(
        &self,
        device: &CudaDevice,
        send: impl FnOnce() -> Result<DeviceParameters>,
    ) -> Result<&DeviceParameters> {
        if self.place.get().is_none() {
            let sent = send()?;
            // Another thread may have been first; both copied the same values.
            let _ = self.place.set(Ok(sent));
        }
        match self.get()? {
            Some(parameters) if parameters.device() == device => Ok(parameters),
            _ => Err(NnError::setting("parameters", "they are on another GPU; call `Parameters::move_to_host` first")),
        }
    }

    /// Drops the copy on the GPU.
    pub fn clear(&mut self) {
        self.place.take();
    }
}

impl Clone for Placement {
    fn clone(&self) -> Self {
        let copy = Self::default();
        if let Some(place) = self.place.get() {
            let duplicate = place.as_ref().map_err(Clone::clone).and_then(DeviceParameters::duplicate);
            // The new cell is empty.
            let _ = copy.place.set(duplicate);
        }
        copy
    }
}
