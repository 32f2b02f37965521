//! Graphs in tensors of PyTorch.

use crate::tensor::{Failure, Place, Scalar, count};
use gemcnn_kernels::cuda::{DeviceGraphSlices, DeviceGraphView, ReversedSlices};
use gemcnn_kernels::{EdgePhases, GraphSlices, GraphView, KernelError, OnDevice, Resolve};
use pyo3::intern;
use pyo3::prelude::*;

/// The tensors of a graph: offsets, neighbours, reverse, phases, radius, coefficients, and the phases, radii and
/// coefficients of the reversed edges.
pub type GraphTensors<'py> = [Bound<'py, PyAny>; 9];

/// Sizes of a graph that its slices need.
pub struct Sizes {
    /// First vertex and number of vertices, as the offsets of a single mesh.
    ends: [u32; 2],
    /// Coefficients of each edge.
    columns: usize,
}

impl Sizes {
    pub fn of(tensors: &GraphTensors<'_>) -> PyResult<Self> {
        let py = tensors[0].py();
        let offsets = count(&tensors[0])?;
        let columns = tensors[5].call_method1(intern!(py, "size"), (1,));
        Ok(Self { ends: [0, offsets.saturating_sub(1) as u32], columns: columns?.extract()? })
    }
}

/// A graph in tensors, before its contents are checked.
pub type Graph<'a, T> = OnDevice<GraphSlices<'a, T>, DeviceGraphSlices<'a>>;

pub fn slices<'a, T: Scalar>(place: &Place, tensors: &'a GraphTensors<'a>, sizes: &'a Sizes) -> PyResult<Graph<'a, T>> {
    let [offsets, neighbours, reverse, phases, radius, coefficients, reversed @ ..] = tensors;
    let offsets = place.indices("offsets", offsets)?;
    let neighbours = place.indices("neighbours", neighbours)?;
    let reverse = place.indices("reverse", reverse)?;
    let phases = place.groups::<T, EdgePhases<T>, [f32; 4]>("phases", phases)?;
    let radius = place.view::<T>("radius", radius)?;
    let coefficients = place.view::<T>("coefficients", coefficients)?;
    Ok(match (offsets, neighbours, reverse, phases, radius, coefficients) {
        (
            OnDevice::Host(offsets),
            OnDevice::Host(neighbours),
            OnDevice::Host(reverse),
            OnDevice::Host(phases),
            OnDevice::Host(radius),
            OnDevice::Host(coefficients),
        ) => OnDevice::Host(GraphSlices {
            offsets,
            neighbours,
            reverse,
            phases,
            radius,
            coefficients: (sizes.columns, coefficients),
            mesh_offsets: &sizes.ends,
        }),
        (
            OnDevice::Cuda(offsets),
            OnDevice::Cuda(neighbours),
            OnDevice::Cuda(reverse),
            OnDevice::Cuda(phases),
            OnDevice::Cuda(radius),
            OnDevice::Cuda(coefficients),
        ) => {
            let [back, back_radius, back_coefficients] = reversed;
            let back = place.groups::<T, EdgePhases<T>, [f32; 4]>("reversed_phases", back)?;
            let back_radius = place.view::<T>("reversed_radius", back_radius)?;
            let back_coefficients = place.view::<T>("reversed_coefficients", back_coefficients)?;
            let reversed = ReversedSlices {
                phases: Resolve::cuda(back).map_err(Failure::Kernel)?,
                radius: Resolve::cuda(back_radius).map_err(Failure::Kernel)?,
                coefficients: Resolve::cuda(back_coefficients).map_err(Failure::Kernel)?,
            };
            OnDevice::Cuda(DeviceGraphSlices {
                offsets,
                neighbours,
                reverse,
                phases,
                radius,
                coefficients: (sizes.columns, coefficients),
                reversed: Some(reversed),
                // Convolutions do not read them; the host has them.
                mesh_offsets: offsets.slice(0..2),
                host_mesh_offsets: &sizes.ends,
            })
        }
        _ => return Err(Failure::Kernel(KernelError::OtherDevice).into()),
    })
}

/// The checked graph: on the host all indices, on a GPU lengths only.
pub fn checked<'a, T: Scalar>(graph: Graph<'a, T>) -> Result<OnDevice<GraphView<'a, T>, DeviceGraphView<'a>>, Failure> {
    Ok(match graph {
        OnDevice::Host(slices) => OnDevice::Host(GraphView::new(slices)?),
        // SAFETY: `gemcnn.torch.Graph` is made from checked graphs, and its documentation says that it must be.
        OnDevice::Cuda(slices) => OnDevice::Cuda(unsafe { DeviceGraphView::new(slices)? }),
    })
}
