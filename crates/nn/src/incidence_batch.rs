//! The incidences of a batch of meshes, such as faces and their vertices.

use crate::Result;
use crate::device::as_f32;
use crate::on_devices::{OnDevices, Upload};
use gemcnn_kernels::Real;
use gemcnn_kernels::cuda::CudaDevice;
use gemcnn_kernels::incidence::cuda::DeviceIncidence;
use gemcnn_kernels::incidence::{IncidenceArrays, IncidenceParts};
use std::ops::Deref;

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
    arrays: OnDevices<IncidenceArrays<T>, DeviceIncidence>,
    has_angles: bool,
}

impl<T: Real> Upload for IncidenceArrays<T> {
    type Uploaded = DeviceIncidence;

    fn upload(&self, device: &CudaDevice) -> Result<DeviceIncidence> {
        Ok(DeviceIncidence::new(device, as_f32(self)?)?)
    }
}

impl<T: Real> IncidenceBatch<T> {
    /// Joins the incidences of several meshes.
    pub fn new(parts: &[IncidenceParts<'_>]) -> Result<Self> {
        Ok(Self {
            arrays: OnDevices::of(IncidenceArrays::union(parts)?),
            has_angles: parts.iter().all(|part| part.angles.is_some()),
        })
    }

    /// Approximate size in bytes of its arrays on a device.
    pub fn size_in_bytes(&self) -> usize {
        4 * (3 * self.entry_count() + self.row_count() + self.column_count())
    }

    /// True if every entry has an angle, so that features of any order can be transported.
    pub fn has_angles(&self) -> bool {
        self.has_angles
    }
}

impl<T> Deref for IncidenceBatch<T> {
    type Target = OnDevices<IncidenceArrays<T>, DeviceIncidence>;

    fn deref(&self) -> &Self::Target {
        &self.arrays
    }
}
