//! A basis for each mesh of a batch, such as the eigenvectors of its Laplacian.

use crate::Result;
use crate::device::f32_slice;
use crate::error::{check_size, mesh_offsets};
use crate::on_devices::{ArraysOn, OnDevices, Upload};
use gemcnn_kernels::cuda::{CudaDevice, DeviceBuffer};
use gemcnn_kernels::{OnDevice, Real, View};

/// The basis of one mesh.
#[derive(Debug, Clone, Copy)]
pub struct BasisParts<'a> {
    /// Number of vertices.
    pub vertices: usize,
    /// A real basis `[vertices, columns]`, or a complex one `[vertices, 2, columns]`, real parts first.
    pub values: &'a [f64],
    /// Weight of each vertex in a projection, such as its area; `None` for ones.
    pub weights: Option<&'a [f64]>,
}

/// A basis for each mesh of a batch, all with the same number of columns.
///
/// ```
/// use gemcnn_nn::{BasisBatch, BasisParts};
/// // The constant function on a mesh of three vertices.
/// let constant = BasisParts { vertices: 3, values: &[1.0; 3], weights: None };
/// let basis = BasisBatch::<f32>::real(1, &[constant])?;
/// assert_eq!((basis.vertex_count(), basis.row_count()), (3, 1));
/// # Ok::<(), gemcnn_nn::NnError>(())
/// ```
pub type BasisBatch<T> = OnDevices<BasisArrays<T>, DeviceBasis>;

/// The numbers of a [`BasisBatch`] in main memory.
#[derive(Debug, Clone, PartialEq)]
pub struct BasisArrays<T> {
    mesh_offsets: Vec<u32>,
    columns: usize,
    complex: bool,
    values: Vec<T>,
    weights: Option<Vec<T>>,
}

/// The numbers of a [`BasisBatch`] on a GPU.
#[derive(Debug)]
pub struct DeviceBasis {
    values: DeviceBuffer<f32>,
    weights: Option<DeviceBuffer<f32>>,
}

impl<T: Real> Upload for BasisArrays<T> {
    type Uploaded = DeviceBasis;

    fn upload(&self, device: &CudaDevice) -> Result<DeviceBasis> {
        let weights = self.weights.as_deref().map(f32_slice).transpose()?;
        Ok(DeviceBasis {
            values: device.upload(f32_slice(&self.values)?)?,
            weights: weights.map(|w| device.upload(w)).transpose()?,
        })
    }
}

impl<T: Real> BasisBatch<T> {
    /// Joins real bases, for scalars.
    ///
    /// # Errors
    /// Sizes that do not fit together, weights for some meshes only, or more vertices than 32-bit indices can
    /// address.
    pub fn real(columns: usize, parts: &[BasisParts<'_>]) -> Result<Self> {
        Self::new(columns, false, parts)
    }

    /// Joins complex bases, for features of a single order above 0.
    pub fn complex(columns: usize, parts: &[BasisParts<'_>]) -> Result<Self> {
        Self::new(columns, true, parts)
    }

    fn new(columns: usize, complex: bool, parts: &[BasisParts<'_>]) -> Result<Self> {
        let stride = columns * if complex { 2 } else { 1 };
        let weighted = parts.iter().filter(|part| part.weights.is_some()).count();
        if weighted > 0 {
            check_size("meshes with weights", parts.len(), weighted)?;
        }
        for (index, part) in parts.iter().enumerate() {
            check_size(format!("basis of mesh {index}"), part.vertices * stride, part.values.len())?;
            if let Some(weights) = part.weights {
                check_size(format!("weights of mesh {index}"), part.vertices, weights.len())?;
            }
        }
        Ok(Self::of(BasisArrays {
            mesh_offsets: mesh_offsets("basis", parts.iter().map(|part| part.vertices))?,
            columns,
            complex,
            values: (parts.iter().flat_map(|part| part.values)).map(|&value| T::of(value)).collect(),
            weights: (weighted > 0).then(|| {
                let weights = parts.iter().filter_map(|part| part.weights);
                weights.flatten().map(|&value| T::of(value)).collect()
            }),
        }))
    }
}

impl<T> BasisArrays<T> {
    /// First vertex of each mesh, and the number of vertices at the end.
    pub fn mesh_offsets(&self) -> &[u32] {
        &self.mesh_offsets
    }

    /// Vertices of all meshes together.
    pub fn vertex_count(&self) -> usize {
        self.mesh_offsets.last().map_or(0, |&count| count as usize)
    }

    /// Number of columns of each basis.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Rows of a projection: the columns of all meshes together.
    pub fn row_count(&self) -> usize {
        (self.mesh_offsets.len() - 1) * self.columns
    }

    /// True if the bases are complex.
    pub fn is_complex(&self) -> bool {
        self.complex
    }
}

impl<T: Real> ArraysOn<'_, BasisArrays<T>, DeviceBasis> {
    /// All bases, one after the other.
    pub fn values(&self) -> View<'_, T> {
        match self.get() {
            OnDevice::Host(basis) => OnDevice::Host(&basis.values),
            OnDevice::Cuda(basis) => OnDevice::Cuda(basis.values.view()),
        }
    }

    /// Weight of each vertex, if there are any.
    pub fn weights(&self) -> Option<View<'_, T>> {
        match self.get() {
            OnDevice::Host(basis) => basis.weights.as_deref().map(OnDevice::Host),
            OnDevice::Cuda(basis) => {
                let weights = basis.weights.as_ref();
                weights.map(|weights| OnDevice::Cuda(weights.view()))
            }
        }
    }
}
