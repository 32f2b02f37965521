//! The incidences of a batch of meshes, such as faces and their vertices.

use crate::device::{Sent, single};
use crate::{Device, NnError};
use gemcnn_kernels::cuda::CudaDevice;
use gemcnn_kernels::incidence::cuda::DeviceIncidence;
use gemcnn_kernels::incidence::{IncidenceArrays, IncidenceParts};
use gemcnn_kernels::{OnDevice, Real};
use std::sync::Arc;

/// The incidences of a batch of meshes as one: rows and columns of each mesh after those of the one before.
///
/// ```
/// use gemcnn_nn::{IncidenceBatch, IncidenceParts};
/// // Two triangles that share an edge.
/// let faces = IncidenceParts::faces(4, &[0, 3, 6], &[0, 1, 2, 2, 1, 3]);
/// let incidence = IncidenceBatch::<f32>::new(&[faces])?;
/// assert_eq!((incidence.row_count(), incidence.column_count()), (2, 4));
/// assert!(!incidence.has_angles());
/// # Ok::<(), gemcnn_nn::NnError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct IncidenceBatch<T> {
    arrays: IncidenceArrays<T>,
    has_angles: bool,
    sent: Sent<DeviceIncidence>,
}

impl<T: Real> IncidenceBatch<T> {
    /// Joins the incidences of several meshes.
    pub fn new(parts: &[IncidenceParts<'_>]) -> Result<Self, NnError> {
        Ok(Self {
            arrays: IncidenceArrays::union(parts)?,
            has_angles: parts.iter().all(|part| part.angles.is_some()),
            sent: Sent::default(),
        })
    }

    /// Joins batches without angles and weights.
    ///
    /// # Errors
    /// More entries than 32-bit indices can address.
    pub(crate) fn join(batches: &[&Self]) -> Result<Self, NnError> {
        let parts: Vec<IncidenceParts<'_>> = batches
            .iter()
            .map(|batch| {
                let (offsets, indices) = batch.arrays.entries();
                IncidenceParts::faces(batch.column_count(), offsets, indices)
            })
            .collect();
        Self::new(&parts)
    }

    /// The arrays that operators read.
    pub fn arrays(&self) -> &IncidenceArrays<T> {
        &self.arrays
    }

    /// Approximate size in bytes of its arrays on a device.
    pub fn size_in_bytes(&self) -> usize {
        let numbers = 3 * self.arrays.entry_count() + self.row_count() + self.column_count();
        4 * numbers
    }

    /// Number of rows, such as faces.
    pub fn row_count(&self) -> usize {
        self.arrays.row_count()
    }

    /// Number of columns, such as vertices.
    pub fn column_count(&self) -> usize {
        self.arrays.column_count()
    }

    /// True if every entry has an angle, so that features of any order can be transported.
    pub fn has_angles(&self) -> bool {
        self.has_angles
    }

    /// The incidence where a device reads it. It is copied to a GPU once, by the first operator that needs it.
    ///
    /// # Errors
    /// Too little memory on the GPU, or another precision than f32 there.
    pub fn on(&self, device: &Device) -> Result<IncidenceOn<'_, T>, NnError> {
        Ok(IncidenceOn(match device {
            Device::Cpu => OnDevice::Host(&self.arrays),
            Device::Cuda(device) => OnDevice::Cuda(self.on_cuda(device)?),
        }))
    }

    pub(crate) fn on_cuda(&self, device: &CudaDevice) -> Result<Arc<DeviceIncidence>, NnError> {
        self.sent.to(device, || Ok(DeviceIncidence::new(device, single(&self.arrays)?)?))
    }
}

/// An incidence on the device of a tape, for operators.
#[derive(Debug)]
pub struct IncidenceOn<'i, T>(OnDevice<&'i IncidenceArrays<T>, Arc<DeviceIncidence>>);

impl<T: Real> IncidenceOn<'_, T> {
    /// The whole incidence.
    pub fn view(&self) -> OnDevice<&IncidenceArrays<T>, &DeviceIncidence> {
        match &self.0 {
            OnDevice::Host(incidence) => OnDevice::Host(incidence),
            OnDevice::Cuda(incidence) => OnDevice::Cuda(incidence),
        }
    }
}
