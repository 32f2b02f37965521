//! The eigenbases of a batch of surfaces, for diffusion.

mod points;
mod stored;

use crate::device::f32_slice;
use crate::error::{check_size, mesh_offsets};
use crate::on_devices::{ArraysOn, OnDevices, Upload};
use crate::{CellPoints, Device, Extra, NnError, Result};
use gemcnn_kernels::cuda::{CudaDevice, DeviceBuffer, DeviceSlice};
use gemcnn_kernels::diffusion::{Spectra, basis_width};
use gemcnn_kernels::diffusion_net::cuda::{packed_bases, packed_length};
use gemcnn_kernels::{FeatureType, OnDevice, Real, compiled, elementwise, irrep_dimension};
use gemcnn_mesh::surface::SurfaceOperators;
use points::PointsBatch;
use std::sync::Arc;

/// Masses, eigenvalues and eigenvectors of the connection Laplacians of the meshes of a batch, and the gradients of the
/// scalar eigenvectors. All meshes have the same number of columns in each order. A mesh with fewer
/// eigenvectors has columns of zeros.
///
/// ```
/// use gemcnn_mesh::surface::{OperatorOptions, SurfaceOperators};
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
/// use gemcnn_nn::SpectraBatch;
/// let mesh = shapes::icosphere(2)?;
/// let graph = GaugeGraph::new(&mesh, &GeometryOptions::default())?;
/// let options = OperatorOptions { eigenpairs: [16, 8, 8], ..Default::default() };
/// let operators = SurfaceOperators::new(&mesh, &graph, &options)?;
/// let spectra = SpectraBatch::<f32>::new(&operators, &options.eigenpairs)?;
/// assert_eq!((spectra.vertex_count(), spectra.columns()), (162, &[16, 8, 8][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type SpectraBatch<T> = OnDevices<SpectraArrays<T>, Spectra<DeviceBuffer<f32>>>;

/// The numbers of a [`SpectraBatch`] in main memory.
#[derive(Debug, PartialEq)]
pub struct SpectraArrays<T> {
    mesh_offsets: Vec<u32>,
    columns: Vec<usize>,
    mass: Vec<T>,
    bases: Bases<T>,
    /// Eigenvalues of all orders, each for all meshes.
    eigenvalues: Vec<T>,
}

/// Bases of all orders, then gradients, each for all vertices.
#[derive(Debug, PartialEq)]
enum Bases<T> {
    AtVertices(Vec<T>),
    /// Computed where they are read.
    AtPoints(PointsBatch<T>),
}

impl<T: Real> SpectraBatch<T> {
    /// The operators of one mesh, with `columns` eigenvectors of each order from 0.
    pub fn new(operators: &SurfaceOperators, columns: &[usize]) -> Result<Self> {
        let vertices = operators.mass.len();
        let mut bases = Vec::with_capacity(vertices * basis_width(columns));
        let mut eigenvalues = Vec::with_capacity(columns.iter().sum());
        for (order, &wanted) in columns.iter().enumerate() {
            let (values, vectors) = match operators.basis(order) {
                Some(basis) => (&basis.values[..], &basis.vectors[..]),
                None => (&[][..], &[][..]),
            };
            append_padded(&mut eigenvalues, values, 1, (values.len(), wanted));
            let rows = vertices * irrep_dimension(order);
            append_padded(&mut bases, vectors, rows, (values.len(), wanted));
        }
        let found = operators.basis(0).map_or(0, |basis| basis.values.len());
        let wanted = columns.first().copied().unwrap_or(0);
        append_padded(&mut bases, &operators.gradient, 2 * vertices, (found, wanted));
        let mass = operators.mass.iter().map(|&m| T::of(m)).collect();
        Self::from_parts(columns.to_vec(), mass, bases, eigenvalues)
    }

    /// The arrays of one mesh.
    pub fn from_parts(columns: Vec<usize>, mass: Vec<T>, bases: Vec<T>, eigenvalues: Vec<T>) -> Result<Self> {
        let vertices = mass.len();
        check_size("eigenvectors", vertices * basis_width(&columns), bases.len())?;
        check_size("eigenvalues", columns.iter().sum(), eigenvalues.len())?;
        Ok(Self::of(SpectraArrays {
            mesh_offsets: mesh_offsets("eigenvectors", [vertices].into_iter())?,
            columns,
            mass,
            bases: Bases::AtVertices(bases),
            eigenvalues,
        }))
    }

    /// The same eigenvectors in frames rotated by `angles`, as
    /// [`GaugeGraph::gauge_transform`](gemcnn_mesh::GaugeGraph::gauge_transform) rotates them.
    ///
    /// # Errors
    /// Another number of angles than vertices.
    pub fn gauge_transform(&self, angles: &[f64]) -> Result<Self> {
        check_size("gauge angles", self.vertex_count(), angles.len())?;
        let angles: Vec<T> = angles.iter().map(|&angle| T::of(-angle)).collect();
        let mut bases = Vec::with_capacity(self.bases().len());
        for (fields, block) in self.blocks() {
            let start = bases.len();
            bases.extend_from_slice(block);
            elementwise::rotate(&fields, &angles, block, &mut bases[start..])?;
        }
        Ok(self.with_bases(Bases::AtVertices(bases)))
    }

    /// The eigenvectors and gradients of one mesh at other points of it, with other masses, eigenvalues multiplied by
    /// `factors`, and gradients by `gradient`.
    ///
    /// They are computed where they are read. A GPU computes them from the eigenvectors at the vertices, which stay
    /// there.
    ///
    /// # Errors
    /// Other numbers of points, masses or eigenvalues than those of the mesh, or several meshes.
    pub fn at(self: &Arc<Self>, points: CellPoints<T>, mass: Vec<T>, factors: &[T], gradient: T) -> Result<Self> {
        check_size("meshes", 1, self.mesh_offsets.len() - 1)?;
        check_size("points", self.vertex_count(), points.len())?;
        check_size("masses", self.vertex_count(), mass.len())?;
        check_size("factors of eigenvalues", self.eigenvalues.len(), factors.len())?;
        let eigenvalues = self.eigenvalues.iter().zip(factors);
        Ok(Self::of(SpectraArrays {
            mesh_offsets: self.mesh_offsets.clone(),
            columns: self.columns.clone(),
            mass,
            bases: Bases::AtPoints(PointsBatch::new(Arc::clone(self), points, gradient)),
            eigenvalues: eigenvalues.map(|(&value, &factor)| value * factor).collect(),
        }))
    }

    fn with_bases(&self, bases: Bases<T>) -> Self {
        Self::of(SpectraArrays {
            mesh_offsets: self.mesh_offsets.clone(),
            columns: self.columns.clone(),
            mass: self.mass.clone(),
            bases,
            eigenvalues: self.eigenvalues.clone(),
        })
    }
}

impl<T: Real> SpectraArrays<T> {
    fn points(&self) -> Option<&PointsBatch<T>> {
        match &self.bases {
            Bases::AtVertices(_) => None,
            Bases::AtPoints(points) => Some(points),
        }
    }

    fn bases(&self) -> &[T] {
        match &self.bases {
            Bases::AtVertices(bases) => bases,
            Bases::AtPoints(points) => points.bases(&self.columns),
        }
    }

    /// The bases of all orders and the gradients, each as fields on all vertices.
    fn blocks(&self) -> impl Iterator<Item = (FeatureType, &[T])> {
        let vertices = self.vertex_count();
        let orders = self.columns.iter().copied().enumerate();
        let gradient = (1, self.columns.first().copied().unwrap_or(0));
        let mut rest = self.bases();
        orders.chain([gradient]).map(move |(order, k)| {
            let mut multiplicities = vec![0; order + 1];
            multiplicities[order] = k;
            let fields = FeatureType::new(&multiplicities);
            let (block, after) = rest.split_at(vertices * fields.dimension());
            rest = after;
            (fields, block)
        })
    }

    /// First vertex of each mesh, and the number of vertices at the end.
    pub fn mesh_offsets(&self) -> &[u32] {
        &self.mesh_offsets
    }

    /// Vertices of all meshes together.
    pub fn vertex_count(&self) -> usize {
        self.mass.len()
    }

    /// Number of eigenvectors of each order from 0.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Masses, bases and eigenvalues, in the layout of [`gemcnn_kernels::diffusion`].
    pub fn arrays(&self) -> Spectra<&[T]> {
        Spectra { mass: &self.mass, bases: self.bases(), eigenvalues: &self.eigenvalues, packed: &[] }
    }

    /// The bases for blocks in 16 bits, if the device has kernels for them in its mode. Batches with other orders are
    /// those of networks with other blocks: for them it is empty.
    fn pack(&self, device: &CudaDevice, sent: &Spectra<DeviceBuffer<f32>>) -> Result<DeviceBuffer<f32>> {
        let (columns, offsets) = (&self.columns, &self.mesh_offsets);
        if columns.iter().skip(1).any(|&count| count > 0) {
            return Ok(device.buffer(0)?);
        }
        Ok(packed_bases(device, columns, offsets, sent.each_ref().map(DeviceBuffer::view))?)
    }
}

impl<T: Real> Upload for SpectraArrays<T> {
    type Uploaded = Spectra<DeviceBuffer<f32>>;

    fn upload(&self, device: &CudaDevice) -> Result<Self::Uploaded> {
        let upload = |values| Ok::<_, NnError>(device.upload(f32_slice(values)?)?);
        let mut sent = Spectra {
            mass: upload(&self.mass)?,
            bases: match &self.bases {
                Bases::AtVertices(bases) => upload(bases)?,
                Bases::AtPoints(points) => {
                    let to = device.buffer(self.vertex_count() * basis_width(&self.columns))?;
                    let from = points.send(device, &self.mass, &self.eigenvalues)?;
                    points.write(device, &self.columns, &from, &to)?;
                    to
                }
            },
            eigenvalues: upload(&self.eigenvalues)?,
            packed: device.buffer(0)?,
        };
        sent.packed = self.pack(device, &sent)?;
        Ok(sent)
    }
}

impl<T: Real> Extra<T> for SpectraBatch<T> {
    fn name() -> &'static str {
        "eigenvectors"
    }

    fn join(batches: &[&Self]) -> Result<Self> {
        let columns = batches.first().map_or(&[][..], |batch| &batch.columns);
        if batches.iter().any(|batch| batch.columns != columns) {
            let problem = "the meshes of a batch have different numbers of eigenvectors";
            return Err(NnError::setting("eigenvectors", problem));
        }
        let meshes = batches.iter().flat_map(|batch| batch.mesh_offsets.windows(2));
        let points: Option<Vec<_>> = batches.iter().map(|batch| batch.points()).collect();
        let bases = match points {
            Some(points) => Bases::AtPoints(PointsBatch::join(&points)),
            None => Bases::AtVertices(join_bases(batches, columns)),
        };
        let (mut eigenvalues, mut before) = (Vec::new(), 0);
        for &k in columns {
            for batch in batches {
                let meshes = batch.mesh_offsets.len() - 1;
                eigenvalues.extend_from_slice(&batch.eigenvalues[meshes * before..meshes * (before + k)]);
            }
            before += k;
        }
        Ok(Self::of(SpectraArrays {
            mesh_offsets: mesh_offsets("eigenvectors", meshes.map(|pair| (pair[1] - pair[0]) as usize))?,
            columns: columns.to_vec(),
            mass: batches.iter().flat_map(|batch| &batch.mass).copied().collect(),
            bases,
            eigenvalues,
        }))
    }

    fn fits(&self, mesh_offsets: &[u32]) -> bool {
        self.mesh_offsets == mesh_offsets
    }

    fn size_in_bytes(&self, device: &Device) -> usize {
        let bases = self.vertex_count() * basis_width(&self.columns);
        let packed = match device {
            Device::Cuda(device) => {
                packed_length(device, &self.columns, self.vertex_count(), self.mesh_offsets.len() - 1)
            }
            Device::Cpu => 0,
        };
        (self.mass.len() + bases + self.eigenvalues.len() + packed) * size_of::<T>()
    }

    fn send(&self, device: &Device) -> Result<()> {
        match (device, self.points()) {
            (Device::Cpu, _) => {
                self.bases();
                Ok(())
            }
            // Their bases are computed by the step.
            (Device::Cuda(device), Some(points)) => points.send(device, &self.mass, &self.eigenvalues).map(drop),
            (Device::Cuda(device), None) => self.on_cuda(device).map(drop),
        }
    }

    fn detached(&self) -> Result<Self> {
        Ok(match self.points() {
            Some(points) => self.with_bases(Bases::AtPoints(points.detached()?)),
            None => self.without_copy(),
        })
    }

    fn origins(&self) -> impl Iterator<Item = &Arc<Self>> {
        self.points().into_iter().flat_map(PointsBatch::origins)
    }

    fn shape(&self) -> Vec<usize> {
        self.columns.clone()
    }

    fn place_on(&self, device: &CudaDevice) -> Result<Option<Self>> {
        let sent = self.on_cuda(device)?;
        let copy = Spectra {
            mass: sent.mass.duplicate(device)?,
            bases: sent.bases.duplicate(device)?,
            eigenvalues: sent.eigenvalues.duplicate(device)?,
            packed: self.pack(device, &sent)?,
        };
        Ok(Some(self.with_copy(device, copy)))
    }

    fn overwrite(&self, device: &CudaDevice, with: &Self) -> Result<()> {
        let to = self.on_cuda(device)?;
        if let Some(points) = with.points() {
            let from = points.send(device, &with.mass, &with.eigenvalues)?;
            to.mass.overwrite(device, &from.mass)?;
            to.eigenvalues.overwrite(device, &from.eigenvalues)?;
            points.write(device, &with.columns, &from, &to.bases)?;
            if !to.packed.is_empty() {
                to.packed.overwrite(device, &with.pack(device, &to)?)?;
            }
            return Ok(());
        }
        let from = with.on_cuda(device)?;
        to.mass.overwrite(device, &from.mass)?;
        to.bases.overwrite(device, &from.bases)?;
        to.eigenvalues.overwrite(device, &from.eigenvalues)?;
        if to.packed.is_empty() {
            return Ok(());
        }
        // The other batch may have been sent in another mode.
        match from.packed.len() == to.packed.len() {
            true => to.packed.overwrite(device, &from.packed)?,
            false => to.packed.overwrite(device, &with.pack(device, &from)?)?,
        }
        Ok(())
    }
}

fn join_bases<T: Real>(batches: &[&SpectraBatch<T>], columns: &[usize]) -> Vec<T> {
    let vertices: usize = batches.iter().map(|batch| batch.vertex_count()).sum();
    let mut bases = Vec::with_capacity(vertices * basis_width(columns));
    for block in 0..=columns.len() {
        for batch in batches {
            bases.extend(batch.blocks().nth(block).map_or(&[][..], |(_, block)| block));
        }
    }
    bases
}

/// Appends rows of `found` numbers as rows of `wanted` numbers: the first ones, then zeros.
fn append_padded<T: Real>(to: &mut Vec<T>, values: &[f64], rows: usize, columns: (usize, usize)) {
    compiled!(append_rows as fn(&mut Vec<T>, &[f64], usize, (usize, usize)))(to, values, rows, columns);
}

fn append_rows<T: Real>(to: &mut Vec<T>, values: &[f64], rows: usize, (found, wanted): (usize, usize)) {
    for row in 0..rows {
        let kept = &values[row * found..][..found.min(wanted)];
        to.extend(kept.iter().map(|&value| T::of(value)));
        to.resize(to.len() + wanted - kept.len(), T::zero());
    }
}

impl<T: Real> ArraysOn<'_, SpectraArrays<T>, Spectra<DeviceBuffer<f32>>> {
    /// All arrays.
    pub fn view(&self) -> OnDevice<Spectra<&[T]>, Spectra<DeviceSlice<'_, f32>>> {
        match self.get() {
            OnDevice::Host(batch) => OnDevice::Host(batch.arrays()),
            OnDevice::Cuda(sent) => OnDevice::Cuda(sent.each_ref().map(DeviceBuffer::view)),
        }
    }
}
