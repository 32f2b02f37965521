//! The sparse operators of implicit diffusion and of gradients of a batch of surfaces.

use crate::device::{Sent, single_slice};
use crate::error::check_size;
use crate::{Device, IncidenceBatch, NnError};
use gemcnn_kernels::cuda::{CudaDevice, DeviceBuffer};
use gemcnn_kernels::implicit::Masses;
use gemcnn_kernels::incidence::IncidenceParts;
use gemcnn_kernels::{OnDevice, Real, View};
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
    pub(crate) coupling: IncidenceBatch<T>,
    pub(crate) copies: IncidenceBatch<T>,
    pub(crate) gradient: IncidenceBatch<T>,
    masses: Masses<Vec<T>>,
    sent: Sent<Masses<DeviceBuffer<f32>>>,
}

impl<T: Real> HeatBatch<T> {
    /// Joins the arrays of meshes.
    pub fn new(meshes: impl IntoIterator<Item = Arc<HeatArrays>>) -> Result<Self, NnError> {
        let parts: Vec<Arc<HeatArrays>> = meshes.into_iter().collect();
        let (mut mesh_offsets, mut vertices) = (vec![0], 0);
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
            vertices += count;
            mesh_offsets.push(
                u32::try_from(vertices)
                    .map_err(|_| NnError::setting("heat", "more vertices than 32-bit indices can address"))?,
            );
        }
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
        let (coupling, copies) = (IncidenceBatch::new(&coupling)?, IncidenceBatch::new(&copies)?);
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
        Ok(Self { parts, mesh_offsets, coupling, copies, gradient, masses, sent: Sent::default() })
    }

    /// Joins batches.
    pub fn join(batches: &[&Self]) -> Result<Self, NnError> {
        Self::new(batches.iter().flat_map(|batch| batch.parts.iter().cloned()))
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
        self.masses.vertex.len()
    }

    /// Approximate size of the arrays in bytes.
    pub fn size_in_bytes(&self) -> usize {
        let arrays = self.parts.iter();
        let entries = arrays.map(|a| 7 * a.neighbours.len() + 6 * a.gradient.len() + 12 * a.mass.len());
        4 * entries.sum::<usize>()
    }

    /// The masses where a device reads them. They are copied to a GPU once, by the first operator that needs them.
    ///
    /// # Errors
    /// Too little memory on the GPU, or another precision than f32 there.
    pub fn masses_on(&self, device: &Device) -> Result<MassesOn<'_, T>, NnError> {
        Ok(MassesOn(match device {
            Device::Cpu => OnDevice::Host(&self.masses),
            Device::Cuda(device) => OnDevice::Cuda(self.masses_on_cuda(device)?),
        }))
    }

    fn masses_on_cuda(&self, device: &CudaDevice) -> Result<Arc<Masses<DeviceBuffer<f32>>>, NnError> {
        self.sent.to(device, || {
            let upload = |values| Ok::<_, NnError>(device.upload(single_slice(values)?)?);
            Ok(Masses {
                vertex: upload(&self.masses.vertex)?,
                node: upload(&self.masses.node)?,
                stiffness: upload(&self.masses.stiffness)?,
            })
        })
    }

    /// Copies everything to a GPU, except what is there already.
    pub(crate) fn send(&self, device: &CudaDevice) -> Result<(), NnError> {
        self.masses_on_cuda(device)?;
        for incidence in [&self.coupling, &self.copies, &self.gradient] {
            incidence.on_cuda(device)?;
        }
        Ok(())
    }
}

/// Masses on the device of a tape, for operators.
#[derive(Debug)]
pub struct MassesOn<'b, T>(OnDevice<&'b Masses<Vec<T>>, Arc<Masses<DeviceBuffer<f32>>>>);

impl<T: Real> MassesOn<'_, T> {
    /// All masses.
    pub fn view(&self) -> Masses<View<'_, T>> {
        match &self.0 {
            OnDevice::Host(masses) => Masses {
                vertex: OnDevice::Host(&masses.vertex),
                node: OnDevice::Host(&masses.node),
                stiffness: OnDevice::Host(&masses.stiffness),
            },
            OnDevice::Cuda(masses) => Masses {
                vertex: OnDevice::Cuda(masses.vertex.view()),
                node: OnDevice::Cuda(masses.node.view()),
                stiffness: OnDevice::Cuda(masses.stiffness.view()),
            },
        }
    }
}
