//! Eigenbases at points of surfaces other than the vertices.

use super::SpectraBatch;
use crate::device::{DeviceCopy, expect_f32, f32_slice};
use crate::{CellPoints, Device, Extra, Result};
use gemcnn_kernels::cuda::{CudaDevice, DeviceBuffer};
use gemcnn_kernels::diffusion::basis_width;
use gemcnn_kernels::diffusion::points::{DeviceCellPoints, MovedBases, bases_at_points};
use gemcnn_kernels::{Real, compiled};
use std::sync::{Arc, OnceLock};

/// The points of the meshes of a batch. Bases are computed from those at the vertices where they are read: on a GPU,
/// the latter stay there, and a batch uploads its points alone.
#[derive(Debug)]
pub(super) struct PointsBatch<T> {
    meshes: Vec<MovedMesh<T>>,
    on_host: OnceLock<Vec<T>>,
    copy: DeviceCopy<DevicePoints>,
}

#[derive(Debug, Clone, PartialEq)]
struct MovedMesh<T> {
    origin: Arc<SpectraBatch<T>>,
    points: Arc<CellPoints<T>>,
    /// Factor of the gradients.
    gradient: T,
}

/// What a batch uploads.
#[derive(Debug)]
pub(super) struct DevicePoints {
    points: Vec<DeviceCellPoints>,
    pub mass: DeviceBuffer<f32>,
    pub eigenvalues: DeviceBuffer<f32>,
}

impl<T: Real> PointsBatch<T> {
    /// The points of one mesh, one for each of its vertices.
    pub fn new(origin: Arc<SpectraBatch<T>>, points: CellPoints<T>, gradient: T) -> Self {
        Self::of(vec![MovedMesh { origin, points: Arc::new(points), gradient }])
    }

    /// Joins batches.
    pub fn join(batches: &[&Self]) -> Self {
        let meshes = batches.iter().flat_map(|batch| batch.meshes.clone());
        Self::of(meshes.collect())
    }

    /// A copy that does not share the bases at vertices on a GPU.
    pub fn detached(&self) -> Result<Self> {
        let detached =
            |mesh: &MovedMesh<T>| Ok(MovedMesh { origin: Arc::new(mesh.origin.detached()?), ..mesh.clone() });
        Ok(Self::of(self.meshes.iter().map(detached).collect::<Result<_>>()?))
    }

    fn of(meshes: Vec<MovedMesh<T>>) -> Self {
        Self { meshes, on_host: OnceLock::new(), copy: DeviceCopy::default() }
    }

    /// The bases at the vertices of each mesh.
    pub fn origins(&self) -> impl Iterator<Item = &Arc<SpectraBatch<T>>> {
        self.meshes.iter().map(|mesh| &mesh.origin)
    }

    /// The bases at the points, on the host. They are computed once.
    pub fn bases(&self, columns: &[usize]) -> &[T] {
        self.on_host.get_or_init(|| self.interpolated(columns))
    }

    fn interpolated(&self, columns: &[usize]) -> Vec<T> {
        let vertices: usize = self.meshes.iter().map(|mesh| mesh.points.len()).sum();
        let mut bases = Vec::with_capacity(vertices * basis_width(columns));
        let blocks = (self.meshes.iter()).map(|mesh| mesh.origin.blocks().collect::<Vec<_>>()).collect::<Vec<_>>();
        for block in 0..=columns.len() {
            for (mesh, blocks) in self.meshes.iter().zip(&blocks) {
                let (start, (fields, values)) = (bases.len(), &blocks[block]);
                mesh.points.append(fields, values, &mut bases);
                if block == columns.len() {
                    compiled!(multiply as fn(&mut [T], T))(&mut bases[start..], mesh.gradient);
                }
            }
        }
        bases
    }

    /// Copies the points, and bases at vertices that are not there yet, to a GPU. `mass` and `eigenvalues` are those of
    /// the batch.
    pub fn send(&self, device: &CudaDevice, mass: &[T], eigenvalues: &[T]) -> Result<Arc<DevicePoints>> {
        for origin in self.origins() {
            origin.send(&Device::Cuda(device.clone()))?;
        }
        self.copy.to(device, || {
            let points = self.meshes.iter().map(|mesh| mesh.points.upload(device));
            Ok(DevicePoints {
                points: points.collect::<Result<_, _>>()?,
                mass: device.upload(f32_slice(mass)?)?,
                eigenvalues: device.upload(f32_slice(eigenvalues)?)?,
            })
        })
    }

    /// Writes the bases at the points over `to`, on a GPU.
    pub fn write(
        &self,
        device: &CudaDevice,
        columns: &[usize],
        sent: &DevicePoints,
        to: &DeviceBuffer<f32>,
    ) -> Result<()> {
        expect_f32::<T>()?;
        let origins = self.origins().map(|origin| origin.on_cuda(device));
        let origins = origins.collect::<Result<Vec<_>, _>>()?;
        let meshes = self.meshes.iter().zip(&sent.points).zip(&origins);
        let meshes = meshes.map(|((mesh, points), origin)| MovedBases {
            bases: origin.bases.view(),
            points,
            gradient: mesh.gradient.as_f64() as f32,
        });
        let meshes: Vec<_> = meshes.collect();
        Ok(bases_at_points(device, columns, &meshes, to)?)
    }
}

// What was computed from the points does not matter.
impl<T: PartialEq> PartialEq for PointsBatch<T> {
    fn eq(&self, other: &Self) -> bool {
        self.meshes == other.meshes
    }
}

fn multiply<T: Real>(values: &mut [T], factor: T) {
    values.iter_mut().for_each(|value| *value *= factor);
}
