//! The arrays of a graph on the device, sent there once.

use super::{CudaDevice, CudaError, DeviceBuffer, DeviceSlice, KernelSource, args, to_u32};
use crate::{GraphArrays, KernelError};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) const SOURCE: KernelSource = KernelSource::new("graph", include_str!("graph.cu"));

/// [`GraphArrays`] in the memory of a device.
///
/// The edges of the transposed operator are made by the first backward pass that needs them.
#[derive(Debug)]
pub struct DeviceGraph {
    vertices: usize,
    mesh_offsets_host: Vec<u32>,
    offsets: DeviceBuffer<u32>,
    neighbours: DeviceBuffer<u32>,
    reverse: DeviceBuffer<u32>,
    mesh_offsets: DeviceBuffer<u32>,
    forward: EdgeValues,
    reversed: Mutex<Option<Arc<EdgeValues>>>,
}

/// Angles and lengths of all edges.
#[derive(Debug)]
pub(crate) struct EdgeValues {
    /// `(cos, sin)` of the angle, then of the rotation.
    phases: DeviceBuffer<[f32; 4]>,
    radius: DeviceBuffer<f32>,
}

/// The edges as one direction of an operator sees them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EdgeArrays<'a> {
    pub offsets: DeviceSlice<'a, u32>,
    pub neighbours: DeviceSlice<'a, u32>,
    pub phases: DeviceSlice<'a, [f32; 4]>,
    pub radius: DeviceSlice<'a, f32>,
}

impl DeviceGraph {
    /// Sends a graph to a device.
    ///
    /// # Errors
    /// Too little memory.
    pub fn new(device: &CudaDevice, graph: &GraphArrays<f32>) -> Result<Self, CudaError> {
        let phases: Vec<[f32; 4]> = graph
            .phases()
            .iter()
            .map(|phases| {
                let ([ac, a_s], [tc, ts]) = (phases.angle, phases.transport);
                [ac, a_s, tc, ts]
            })
            .collect();
        Ok(Self {
            vertices: graph.vertex_count(),
            mesh_offsets_host: graph.mesh_offsets().to_vec(),
            offsets: device.upload(graph.offsets())?,
            neighbours: device.upload(graph.neighbours())?,
            reverse: device.upload(graph.reverse())?,
            mesh_offsets: device.upload(graph.mesh_offsets())?,
            forward: EdgeValues {
                phases: device.upload(&phases)?,
                radius: device.upload(graph.radius())?,
            },
            reversed: Mutex::new(None),
        })
    }

    /// A copy, with the edges of the transposed operator if they are there.
    ///
    /// # Errors
    /// Too little memory.
    pub fn duplicate(&self, device: &CudaDevice) -> Result<Self, CudaError> {
        let copy = |values: &EdgeValues| -> Result<EdgeValues, CudaError> {
            Ok(EdgeValues {
                phases: values.phases.duplicate(device)?,
                radius: values.radius.duplicate(device)?,
            })
        };
        let reversed = match &*self.reversed.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(values) => Some(Arc::new(copy(values)?)),
            None => None,
        };
        Ok(Self {
            vertices: self.vertices,
            mesh_offsets_host: self.mesh_offsets_host.clone(),
            offsets: self.offsets.duplicate(device)?,
            neighbours: self.neighbours.duplicate(device)?,
            reverse: self.reverse.duplicate(device)?,
            mesh_offsets: self.mesh_offsets.duplicate(device)?,
            forward: copy(&self.forward)?,
            reversed: Mutex::new(reversed),
        })
    }

    /// Copies another graph over this one, in the same place, for all work that follows.
    ///
    /// # Errors
    /// A graph with other numbers of vertices of its meshes, or of edges.
    pub fn overwrite(&self, device: &CudaDevice, with: &Self) -> Result<(), CudaError> {
        if self.mesh_offsets_host != with.mesh_offsets_host {
            return Err(CudaError::Kernel(KernelError::Setting {
                operator: "graph",
                problem: "only a graph of the same size can be put in the place of another".into(),
            }));
        }
        self.offsets.overwrite(device, &with.offsets)?;
        self.neighbours.overwrite(device, &with.neighbours)?;
        self.reverse.overwrite(device, &with.reverse)?;
        self.forward
            .phases
            .overwrite(device, &with.forward.phases)?;
        self.forward
            .radius
            .overwrite(device, &with.forward.radius)?;
        let reversed = self.reversed.lock().unwrap_or_else(PoisonError::into_inner);
        match &*reversed {
            Some(values) => self.reverse_edges(device, values),
            None => Ok(()),
        }
    }

    /// Number of vertices.
    pub fn vertex_count(&self) -> usize {
        self.vertices
    }

    /// Number of directed edges.
    pub fn edge_count(&self) -> usize {
        self.neighbours.len()
    }

    /// Number of meshes.
    pub fn mesh_count(&self) -> usize {
        self.mesh_offsets_host.len() - 1
    }

    /// First vertex of each mesh, and the number of vertices at the end, on the host.
    pub fn mesh_offsets(&self) -> &[u32] {
        &self.mesh_offsets_host
    }

    /// The same on the device.
    pub fn device_mesh_offsets(&self) -> DeviceSlice<'_, u32> {
        self.mesh_offsets.view()
    }

    /// Edges as they are.
    pub(crate) fn edges(&self) -> EdgeArrays<'_> {
        self.arrays(&self.forward)
    }

    pub(crate) fn arrays<'a>(&'a self, values: &'a EdgeValues) -> EdgeArrays<'a> {
        EdgeArrays {
            offsets: self.offsets.view(),
            neighbours: self.neighbours.view(),
            phases: values.phases.view(),
            radius: values.radius.view(),
        }
    }

    /// Values of the edges of the transposed operator.
    pub(crate) fn reversed(&self, device: &CudaDevice) -> Result<Arc<EdgeValues>, CudaError> {
        let mut reversed = self.reversed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(values) = &*reversed {
            return Ok(Arc::clone(values));
        }
        let edges = self.edge_count();
        let values = Arc::new(EdgeValues {
            phases: device.buffer(edges)?,
            radius: device.buffer(edges)?,
        });
        self.reverse_edges(device, &values)?;
        *reversed = Some(Arc::clone(&values));
        Ok(values)
    }

    /// Computes the values of the edges of the transposed operator.
    fn reverse_edges(&self, device: &CudaDevice, values: &EdgeValues) -> Result<(), CudaError> {
        let edges = self.edge_count();
        let function = device.function(SOURCE, &[], "reverse_edges")?;
        let count = to_u32("graph", edges)?;
        // SAFETY: all arrays are as long as there are edges, and so is every reverse place.
        unsafe {
            function.over(
                edges,
                args![
                    &self.reverse,
                    &self.forward.phases,
                    &self.forward.radius,
                    &values.phases,
                    &values.radius,
                    count,
                ],
            )
        }
    }
}
