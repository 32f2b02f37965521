//! The eigenbases of a batch of surfaces, for diffusion.

mod points;

use crate::device::{Sent, single_slice};
use crate::error::check_size;

use crate::{CellPoints, Device, NnError};
use gemcnn_kernels::cuda::{CudaDevice, DeviceBuffer, DeviceSlice};
use gemcnn_kernels::diffusion::{Spectra, basis_width};
use gemcnn_kernels::diffusion_net::cuda::packed_bases;
use gemcnn_kernels::{FeatureType, OnDevice, Real, View, compiled, elementwise, irrep_dimension};
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
#[derive(Debug, Clone, PartialEq)]
pub struct SpectraBatch<T> {
    mesh_offsets: Vec<u32>,
    columns: Vec<usize>,
    mass: Vec<T>,
    bases: Bases<T>,
    /// Eigenvalues of all orders, each for all meshes.
    eigenvalues: Vec<T>,
    sent: Sent<Spectra<DeviceBuffer<f32>>>,
}

/// Bases of all orders, then gradients, each for all vertices.
#[derive(Debug, Clone, PartialEq)]
enum Bases<T> {
    AtVertices(Arc<Vec<T>>),
    /// Computed where they are read.
    AtPoints(PointsBatch<T>),
}

impl<T: Real> SpectraBatch<T> {
    /// The operators of one mesh, with `columns` eigenvectors of each order from 0.
    pub fn new(operators: &SurfaceOperators, columns: &[usize]) -> Result<Self, NnError> {
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

    /// The arrays of one mesh, as [`arrays`](Self::arrays) returns them.
    pub fn from_parts(columns: Vec<usize>, mass: Vec<T>, bases: Vec<T>, eigenvalues: Vec<T>) -> Result<Self, NnError> {
        let vertices = mass.len();
        check_size("eigenvectors", vertices * basis_width(&columns), bases.len())?;
        check_size("eigenvalues", columns.iter().sum(), eigenvalues.len())?;
        let end = u32::try_from(vertices)
            .map_err(|_| NnError::setting("eigenvectors", "more vertices than 32-bit indices can address"))?;
        Ok(Self {
            mesh_offsets: vec![0, end],
            columns,
            mass,
            bases: Bases::AtVertices(bases.into()),
            eigenvalues,
            sent: Sent::default(),
        })
    }

    /// Joins batches with the same columns.
    ///
    /// # Errors
    /// Other columns, or more vertices than 32-bit indices can address.
    pub fn join(batches: &[&Self]) -> Result<Self, NnError> {
        let columns = batches.first().map_or(&[][..], |batch| &batch.columns);
        let (mut mesh_offsets, mut mass) = (vec![0], Vec::new());
        for batch in batches {
            if batch.columns != columns {
                return Err(NnError::setting(
                    "eigenvectors",
                    "the meshes of a batch have different numbers of eigenvectors",
                ));
            }
            let first = mass.len();
            mass.extend_from_slice(&batch.mass);
            for &offset in &batch.mesh_offsets[1..] {
                let offset = u32::try_from(first + offset as usize)
                    .map_err(|_| NnError::setting("eigenvectors", "more vertices than 32-bit indices can address"))?;
                mesh_offsets.push(offset);
            }
        }
        let points: Option<Vec<_>> = batches.iter().map(|batch| batch.points()).collect();
        let bases = match points {
            Some(points) => Bases::AtPoints(PointsBatch::join(&points)),
            None => Bases::AtVertices(Self::join_bases(batches, columns).into()),
        };
        let (mut eigenvalues, mut before) = (Vec::new(), 0);
        for &k in columns {
            for batch in batches {
                let meshes = batch.mesh_offsets.len() - 1;
                eigenvalues.extend_from_slice(&batch.eigenvalues[meshes * before..meshes * (before + k)]);
            }
            before += k;
        }
        Ok(Self { mesh_offsets, columns: columns.to_vec(), mass, bases, eigenvalues, sent: Sent::default() })
    }

    fn join_bases(batches: &[&Self], columns: &[usize]) -> Vec<T> {
        let vertices: usize = batches.iter().map(|batch| batch.vertex_count()).sum();
        let mut bases = Vec::with_capacity(vertices * basis_width(columns));
        for block in 0..=columns.len() {
            for batch in batches {
                bases.extend(batch.blocks().nth(block).map_or(&[][..], |(_, block)| block));
            }
        }
        bases
    }

    /// The same eigenvectors in frames rotated by `angles`, as
    /// [`GaugeGraph::gauge_transform`](gemcnn_mesh::GaugeGraph::gauge_transform) rotates them.
    ///
    /// # Errors
    /// Another number of angles than vertices.
    pub fn gauge_transform(&self, angles: &[f64]) -> Result<Self, NnError> {
        check_size("gauge angles", self.vertex_count(), angles.len())?;
        let angles: Vec<T> = angles.iter().map(|&angle| T::of(-angle)).collect();
        let mut bases = Vec::with_capacity(self.bases().len());
        for (fields, block) in self.blocks() {
            let start = bases.len();
            bases.extend_from_slice(block);
            elementwise::rotate(&fields, &angles, block, &mut bases[start..])?;
        }
        Ok(self.with_bases(Bases::AtVertices(bases.into())))
    }

    /// The eigenvectors and gradients of one mesh at other points of it, with other masses, eigenvalues multiplied by
    /// `factors`, and gradients by `gradient`.
    ///
    /// They are computed where they are read. A GPU computes them from the eigenvectors at the vertices, which stay
    /// there.
    ///
    /// # Errors
    /// Other numbers of points, masses or eigenvalues than those of the mesh, or several meshes.
    pub fn at(
        self: &Arc<Self>,
        points: CellPoints<T>,
        mass: Vec<T>,
        factors: &[T],
        gradient: T,
    ) -> Result<Self, NnError> {
        check_size("meshes", 1, self.mesh_offsets.len() - 1)?;
        check_size("points", self.vertex_count(), points.len())?;
        check_size("masses", self.vertex_count(), mass.len())?;
        check_size("factors of eigenvalues", self.eigenvalues.len(), factors.len())?;
        let eigenvalues = self.eigenvalues.iter().zip(factors);
        Ok(Self {
            mesh_offsets: self.mesh_offsets.clone(),
            columns: self.columns.clone(),
            mass,
            bases: Bases::AtPoints(PointsBatch::new(Arc::clone(self), points, gradient)),
            eigenvalues: eigenvalues.map(|(&value, &factor)| value * factor).collect(),
            sent: Sent::default(),
        })
    }

    /// The batches from which this one is computed [at other points](Self::at), one for each mesh.
    pub fn origins(&self) -> impl Iterator<Item = &Arc<Self>> {
        self.points().into_iter().flat_map(PointsBatch::origins)
    }

    /// A copy that does not share its arrays on a GPU: they are freed with the copy.
    pub fn detached(&self) -> Self {
        self.with_bases(match &self.bases {
            Bases::AtVertices(bases) => Bases::AtVertices(Arc::clone(bases)),
            Bases::AtPoints(points) => Bases::AtPoints(points.detached()),
        })
    }

    fn with_bases(&self, bases: Bases<T>) -> Self {
        Self {
            mesh_offsets: self.mesh_offsets.clone(),
            columns: self.columns.clone(),
            mass: self.mass.clone(),
            bases,
            eigenvalues: self.eigenvalues.clone(),
            sent: Sent::default(),
        }
    }

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

    /// Size of the arrays in bytes.
    pub fn size_in_bytes(&self) -> usize {
        let bases = self.vertex_count() * basis_width(&self.columns);
        (self.mass.len() + bases + self.eigenvalues.len()) * size_of::<T>()
    }

    /// Masses, bases and eigenvalues, in the layout of [`gemcnn_kernels::diffusion`].
    pub fn arrays(&self) -> Spectra<&[T]> {
        Spectra { mass: &self.mass, bases: self.bases(), eigenvalues: &self.eigenvalues, packed: &[] }
    }

    /// The arrays where a device reads them. They are copied to a GPU once, by the first operator that needs them.
    ///
    /// # Errors
    /// Too little memory on the GPU, or another precision than f32 there.
    pub fn on(&self, device: &Device) -> Result<SpectraOn<'_, T>, NnError> {
        Ok(SpectraOn(match device {
            Device::Cpu => OnDevice::Host(self),
            Device::Cuda(device) => OnDevice::Cuda(self.on_cuda(device)?),
        }))
    }

    pub(crate) fn on_cuda(&self, device: &CudaDevice) -> Result<Arc<Spectra<DeviceBuffer<f32>>>, NnError> {
        self.sent.to(device, || {
            let upload = |values| Ok::<_, NnError>(device.upload(single_slice(values)?)?);
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
        })
    }

    /// Copies to a GPU what the next step needs.
    pub(crate) fn send(&self, device: &CudaDevice) -> Result<(), NnError> {
        match self.points() {
            Some(points) => (points.send(device, &self.mass, &self.eigenvalues)).map(drop),
            None => self.on_cuda(device).map(drop),
        }
    }

    /// The bases for blocks in 16 bits, if the device has kernels for them in its mode. Batches with other orders are
    /// those of networks with other blocks: for them it is empty.
    fn pack(&self, device: &CudaDevice, sent: &Spectra<DeviceBuffer<f32>>) -> Result<DeviceBuffer<f32>, NnError> {
        let (columns, offsets) = (&self.columns, &self.mesh_offsets);
        if columns.iter().skip(1).any(|&count| count > 0) {
            return Ok(device.buffer(0)?);
        }
        Ok(packed_bases(device, columns, offsets, views(sent))?)
    }

    /// The same batch with arrays of its own on a GPU, for a captured step.
    pub(crate) fn place_on(&self, device: &CudaDevice) -> Result<Self, NnError> {
        let sent = self.on_cuda(device)?;
        let copy = Spectra {
            mass: sent.mass.duplicate(device)?,
            bases: sent.bases.duplicate(device)?,
            eigenvalues: sent.eigenvalues.duplicate(device)?,
            packed: self.pack(device, &sent)?,
        };
        Ok(Self { sent: Sent::holding(device, copy), ..self.clone() })
    }

    /// Copies another batch with the same numbers of vertices and columns over this one, on a GPU.
    pub(crate) fn overwrite(&self, device: &CudaDevice, with: &Self) -> Result<(), NnError> {
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

fn views(sent: &Spectra<DeviceBuffer<f32>>) -> Spectra<DeviceSlice<'_, f32>> {
    Spectra {
        mass: sent.mass.view(),
        bases: sent.bases.view(),
        eigenvalues: sent.eigenvalues.view(),
        packed: sent.packed.view(),
    }
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

/// Eigenbases on the device of a tape, for operators.
#[derive(Debug)]
pub struct SpectraOn<'b, T>(OnDevice<&'b SpectraBatch<T>, Arc<Spectra<DeviceBuffer<f32>>>>);

impl<T: Real> SpectraOn<'_, T> {
    /// All arrays.
    pub fn view(&self) -> Spectra<View<'_, T>> {
        match &self.0 {
            OnDevice::Host(batch) => {
                let Spectra { mass, bases, eigenvalues, packed } = batch.arrays();
                Spectra {
                    mass: OnDevice::Host(mass),
                    bases: OnDevice::Host(bases),
                    eigenvalues: OnDevice::Host(eigenvalues),
                    packed: OnDevice::Host(packed),
                }
            }
            OnDevice::Cuda(sent) => {
                let sent = views(sent);
                Spectra {
                    mass: OnDevice::Cuda(sent.mass),
                    bases: OnDevice::Cuda(sent.bases),
                    eigenvalues: OnDevice::Cuda(sent.eigenvalues),
                    packed: OnDevice::Cuda(sent.packed),
                }
            }
        }
    }
}
