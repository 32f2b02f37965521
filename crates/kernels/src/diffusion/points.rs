//! Bases at points inside the cells of the vertices, on a GPU.
//!
//! A point has the mean of the values at its vertex and at two neighbours, transported to the vertex. A training step
//! that reads the bases at random points uploads the points alone: the bases at the vertices stay on the GPU.

use super::{OPERATOR, basis_width};
use crate::cuda::{CudaDevice, DeviceBuffer, DeviceSlice, KernelSource, Result, args, check_length, to_u32};
use crate::error::check_count;
use crate::{KernelError, irrep_dimension};
use bytemuck::{Pod, Zeroable};

pub(crate) const SOURCE: KernelSource = KernelSource::new("basis_at_points", include_str!("points.cu"));

/// A point inside the cell of a vertex.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct DeviceCellPoint {
    /// Weight of the vertex.
    pub own: f32,
    /// Two neighbours of the vertex.
    pub vertices: [u32; 2],
    /// Their weights.
    pub weights: [f32; 2],
    /// Transport angles from them to the vertex.
    pub transport: [f32; 2],
}

/// A point for each vertex of a mesh, on a GPU.
#[derive(Debug)]
pub struct DeviceCellPoints(DeviceBuffer<DeviceCellPoint>);

impl DeviceCellPoints {
    /// Copies points to a GPU.
    ///
    /// # Errors
    /// A neighbour that is no vertex of the mesh, which has as many vertices as points, or too little memory.
    pub fn new(device: &CudaDevice, points: &[DeviceCellPoint]) -> Result<Self> {
        let largest = points.iter().flat_map(|point| point.vertices).max();
        if let Some(largest) = largest.filter(|&vertex| vertex as usize >= points.len()) {
            return Err(KernelError::Setting {
                operator: OPERATOR,
                problem: format!("a point lies beside vertex {largest} of a mesh of {}", points.len()),
            }
            .into());
        }
        Ok(Self(device.upload(points)?))
    }
}

/// A mesh of a batch: its bases at the vertices, and the points where they are read.
#[derive(Debug, Clone, Copy)]
pub struct MovedBases<'a> {
    /// Bases at the vertices of this mesh alone, in the layout of [`Spectra::bases`](super::Spectra::bases).
    pub bases: DeviceSlice<'a, f32>,
    /// The points.
    pub points: &'a DeviceCellPoints,
    /// Factor of the gradients.
    pub gradient: f32,
}

/// Writes the bases of a batch of meshes at points over `to`, in stream order.
pub fn bases_at_points(
    device: &CudaDevice,
    columns: &[usize],
    meshes: &[MovedBases<'_>],
    to: &DeviceBuffer<f32>,
) -> Result<()> {
    let vertices: usize = meshes.iter().map(|mesh| mesh.points.0.len()).sum();
    check_count(OPERATOR, "bases", to.len(), vertices * basis_width(columns))?;
    let mut first = 0;
    for mesh in meshes {
        let rows = mesh.points.0.len();
        let bases = rows * basis_width(columns);
        check_length(OPERATOR, "bases of a mesh", mesh.bases, bases)?;
        let orders = columns.iter().copied().enumerate();
        let gradients = (1, columns.first().copied().unwrap_or(0));
        let blocks = orders.map(|block| (block, 1.0));
        let mut before = 0;
        for ((order, columns), factor) in blocks.chain([(gradients, mesh.gradient)]) {
            let width = irrep_dimension(order) * columns;
            let start = vertices * before + first * width;
            let to = to.place().slice(start..start + rows * width);
            to_u32(OPERATOR, rows * columns)?;
            // SAFETY: the arguments are those of the kernel. Both blocks have a row of `width` numbers for each of the
            // `rows` points, and the neighbours of the points are among these rows.
            unsafe {
                let function = device.function(SOURCE, &[], "basis_at_points")?;
                let arguments =
                    args![mesh.bases.from(rows * before), &mesh.points.0, rows, columns, order, factor, &to];
                function.over(rows * columns, arguments)?;
            }
            before += width;
        }
        first += rows;
    }
    Ok(())
}
