//! The sparse operators of implicit diffusion and of gradients of a batch of surfaces.

use crate::device::f32_slice;
use crate::error::{check_size, mesh_offsets};
use crate::on_devices::{ArraysOn, OnDevices, Upload};
use crate::{Device, Extra, IncidenceBatch, NnError, Result};
use gemcnn_kernels::cuda::{CudaDevice, DeviceBuffer, DeviceSlice};
use gemcnn_kernels::implicit::{Heat, Masses};
use gemcnn_kernels::incidence::cuda::DeviceIncidence;
use gemcnn_kernels::incidence::{IncidenceArrays, IncidenceParts};
use gemcnn_kernels::{OnDevice, Real};
use gemcnn_mesh::surface::HeatArrays;
use std::sync::Arc;

/// Masses, Laplacians and gradients of the meshes of a batch, for diffusion without eigenvectors.
///
/// ```
/// use gemcnn_mesh::surface::HeatArrays;
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
/// use gemcnn_nn::HeatBatch;
/// let mesh = shapes::icosphere(2)?;
/// let graph = GaugeGraph::new(&mesh, &GeometryOptions::default())?;
/// let heat = HeatBatch::<f32>::new([Arc::new(HeatArrays::new(&mesh, &graph)?)])?;
/// assert_eq!(heat.mesh_offsets(), [0, 162]);
/// # use std::sync::Arc;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct HeatBatch<T> {
    parts: Vec<Arc<HeatArrays>>,
    mesh_offsets: Vec<u32>,
    pub(crate) gradient: IncidenceBatch<T>,
    heat: OnDevices<HostHeat<T>, DeviceHeat>,
}

type HostHeat<T> = Heat<IncidenceArrays<T>, Vec<T>>;
type DeviceHeat = Heat<DeviceIncidence, DeviceBuffer<f32>>;
type HeatOn<'b, T> = ArraysOn<'b, HostHeat<T>, DeviceHeat>;

impl<T: Real> Upload for HostHeat<T> {
    type Uploaded = DeviceHeat;

    fn upload(&self, device: &CudaDevice) -> Result<DeviceHeat> {
        let upload = |values| Ok::<_, NnError>(device.upload(f32_slice(values)?)?);
        let Masses { vertex, node, stiffness } = &self.masses;
        Ok(Heat {
            coupling: self.coupling.upload(device)?,
            copies: self.copies.upload(device)?,
            masses: Masses { vertex: upload(vertex)?, node: upload(node)?, stiffness: upload(stiffness)? },
        })
    }
}

impl<T: Real> HeatBatch<T> {
    /// Joins the arrays of meshes.
    pub fn new(meshes: impl IntoIterator<Item = Arc<HeatArrays>>) -> Result<Self> {
        let parts: Vec<Arc<HeatArrays>> = meshes.into_iter().collect();
        let mut masses = Masses { vertex: Vec::new(), node: Vec::new(), stiffness: Vec::new() };
        for arrays in &parts {
            let count = arrays.vertex_count();
            for (what, expected, found) in [
                ("rows of a Laplacian", count + 1, arrays.offsets.len()),
                ("representatives", count, arrays.representatives.len()),
                ("rows of a gradient", 2 * count + 1, arrays.gradient_offsets.len()),
            ] {
                check_size(what, expected, found)?;
            }
        }
        let mesh_offsets = mesh_offsets("heat", parts.iter().map(|arrays| arrays.vertex_count()))?;
        let own: Vec<Vec<u32>> = (parts.iter()).map(|arrays| (0..=arrays.vertex_count() as u32).collect()).collect();
        let coupling: Vec<IncidenceParts<'_>> = (parts.iter())
            .map(|arrays| IncidenceParts {
                columns: arrays.vertex_count(),
                offsets: &arrays.offsets,
                indices: &arrays.neighbours,
                angles: Some(&arrays.transport),
                weights: Some(&arrays.weights),
            })
            .collect();
        let copies: Vec<IncidenceParts<'_>> = (parts.iter().zip(&own))
            .map(|(arrays, own)| IncidenceParts {
                columns: arrays.vertex_count(),
                offsets: own,
                indices: &arrays.representatives,
                angles: Some(&arrays.copies),
                weights: None,
            })
            .collect();
        let gradient: Vec<IncidenceParts<'_>> = (parts.iter())
            .map(|arrays| IncidenceParts {
                columns: arrays.vertex_count(),
                offsets: &arrays.gradient_offsets,
                indices: &arrays.gradient_neighbours,
                angles: None,
                weights: Some(&arrays.gradient),
            })
            .collect();
        // The incidences check all indices.
        let (coupling, copies) = (IncidenceArrays::union(&coupling)?, IncidenceArrays::union(&copies)?);
        let gradient = IncidenceBatch::new(&gradient)?;
        for arrays in &parts {
            let mut node = vec![0.0; arrays.vertex_count()];
            for (&representative, mass) in arrays.representatives.iter().zip(&arrays.mass) {
                node[representative as usize] += mass;
            }
            for (vertex, (&mass, node)) in arrays.mass.iter().zip(node).enumerate() {
                let row = arrays.offsets[vertex] as usize..arrays.offsets[vertex + 1] as usize;
                masses.vertex.push(T::of(mass));
                // A vertex without mass of its own, such as a copy, has no part in the system.
                masses.node.push(T::of(if node > 0.0 { node } else { 1.0 }));
                masses.stiffness.push(T::of(arrays.weights[row].iter().sum()));
            }
        }
        Ok(Self { parts, mesh_offsets, gradient, heat: OnDevices::of(Heat { coupling, copies, masses }) })
    }

    /// The arrays of each mesh.
    pub fn parts(&self) -> &[Arc<HeatArrays>] {
        &self.parts
    }

    /// First vertex of each mesh, and the number of vertices at the end.
    pub fn mesh_offsets(&self) -> &[u32] {
        &self.mesh_offsets
    }

    /// Vertices of all meshes together.
    pub fn vertex_count(&self) -> usize {
        self.heat.masses.vertex.len()
    }

    /// The operators where a device reads them. They are copied to a GPU once, by the first operator that needs them.
    pub(crate) fn on(&self, device: &Device) -> Result<HeatOn<'_, T>> {
        self.heat.on(device)
    }
}

impl<T: Real> Extra<T> for HeatBatch<T> {
    fn name() -> &'static str {
        "Laplacians"
    }

    fn join(batches: &[&Self]) -> Result<Self> {
        Self::new(batches.iter().flat_map(|batch| batch.parts.iter().cloned()))
    }

    fn fits(&self, mesh_offsets: &[u32]) -> bool {
        self.mesh_offsets == mesh_offsets
    }

    fn size_in_bytes(&self, device: &Device) -> usize {
        let arrays = self.parts.iter();
        let entries = arrays.map(|a| 7 * a.neighbours.len() + 6 * a.gradient.len() + 12 * a.mass.len());
        // In main memory there are also those of each mesh.
        4 * entries.sum::<usize>() * if *device == Device::Cpu { 2 } else { 1 }
    }

    fn send(&self, device: &Device) -> Result<()> {
        self.heat.copy_to(device)?;
        self.gradient.copy_to(device)
    }
}

impl<T: Real> HeatOn<'_, T> {
    /// The operators, as passes take them.
    #[allow(clippy::type_complexity)]
    pub fn view(&self) -> OnDevice<Heat<&IncidenceArrays<T>, &[T]>, Heat<&DeviceIncidence, DeviceSlice<'_, f32>>> {
        match self.get() {
            OnDevice::Host(Heat { coupling, copies, masses: Masses { vertex, node, stiffness } }) => {
                OnDevice::Host(Heat { coupling, copies, masses: Masses { vertex, node, stiffness } })
            }
            OnDevice::Cuda(Heat { coupling, copies, masses: Masses { vertex, node, stiffness } }) => {
                let masses = Masses { vertex: vertex.view(), node: node.view(), stiffness: stiffness.view() };
                OnDevice::Cuda(Heat { coupling, copies, masses })
            }
        }
    }
}
