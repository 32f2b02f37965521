//! Diffusion on a GPU: one product for each term and mesh, and the filters between them.

use super::{Diffusion, Filter, Filters, Length, OPERATOR, Spectra, Term};
use crate::KernelError;
use crate::cuda::{
    CudaDevice, CudaError, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, Operand,
    Product, args, to_u32,
};

pub(crate) const SOURCE: KernelSource =
    KernelSource::new("diffusion", include_str!("diffusion.cu"));

impl Spectra<DeviceSlice<'_, f32>> {
    fn lengths(&self) -> Spectra<usize> {
        Spectra {
            mass: self.mass.len(),
            bases: self.bases.len(),
            eigenvalues: self.eigenvalues.len(),
        }
    }
}

impl Filters<DeviceSlice<'_, f32>> {
    fn lengths(&self) -> Filters<usize> {
        Filters {
            log_times: self.log_times.len(),
            bands: self.bands.len(),
        }
    }
}

/// A batch on a GPU.
struct Batch<'a> {
    device: &'a CudaDevice,
    mesh_offsets: &'a [u32],
    spectra: Spectra<DeviceSlice<'a, f32>>,
    /// Raw numbers of the spectrum of a mesh, and numbers that are saved.
    raw: usize,
    saved: usize,
}

impl<'a> Batch<'a> {
    /// Calls `run(term, matrix of the basis, vertices, first number of the spectrum, meshes)` for each term of each run of
    /// meshes with as many vertices: one product for all of them. The vertices are those of the first of them.
    fn for_products(
        &self,
        terms: &[Term],
        mut run: impl FnMut(
            &Term,
            Operand<'a>,
            std::ops::Range<usize>,
            usize,
            usize,
        ) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let vertices = self.mesh_offsets.last().map_or(0, |&end| end as usize);
        let sizes: Vec<u32> = self.mesh_offsets.windows(2).map(|p| p[1] - p[0]).collect();
        let mut mesh = 0;
        for equal in sizes.chunk_by(PartialEq::eq) {
            let (first, size) = (self.mesh_offsets[mesh] as usize, equal[0] as usize);
            let range = first..first + size;
            for term in terms.iter().filter(|_| size > 0) {
                let start = vertices * term.block + range.start * term.stride + term.column;
                let basis = Operand::new(self.spectra.bases.from(start), term.stride)
                    .batched(size * term.stride);
                let place = mesh * self.raw + term.spectrum;
                run(term, basis, range.clone(), place, equal.len())?;
            }
            mesh += equal.len();
        }
        Ok(())
    }

    fn project(
        &self,
        terms: &[Term],
        (x, width): (DeviceSlice<'_, f32>, usize),
        mut spectrum: DeviceSliceMut<'_, f32>,
    ) -> Result<(), CudaError> {
        if self.mesh_offsets.windows(2).any(|pair| pair[0] == pair[1]) {
            self.device.clear(spectrum.reborrow())?;
        }
        self.for_products(terms, |term, basis, range, place, batches| {
            Product {
                m: term.columns,
                n: term.width,
                k: range.len(),
                a: basis.transposed(),
                b: Operand::new(x.from(range.start * width + term.feature), width)
                    .batched(range.len() * width),
                add: term.add,
                batches,
            }
            .run(
                self.device,
                &spectrum.reborrow().slice(place..usize::MAX),
                (term.spectrum_stride, self.raw),
            )
        })
    }

    fn expand(
        &self,
        terms: &[Term],
        spectrum: DeviceSlice<'_, f32>,
        (mut x, width): (DeviceSliceMut<'_, f32>, usize),
    ) -> Result<(), CudaError> {
        self.for_products(terms, |term, basis, range, place, batches| {
            Product {
                m: range.len(),
                n: term.width,
                k: term.columns,
                a: basis,
                b: Operand::new(spectrum.from(place), term.spectrum_stride).batched(self.raw),
                add: false,
                batches,
            }
            .run(
                self.device,
                &x.reborrow()
                    .slice(range.start * width + term.feature..usize::MAX),
                (width, range.len() * width),
            )
        })
    }

    /// `to = m x`, in place if `x` is `to`.
    fn weigh(
        &self,
        x: DeviceSlice<'_, f32>,
        to: &DeviceSliceMut<'_, f32>,
        width: usize,
    ) -> Result<(), CudaError> {
        let function = self.device.function(SOURCE, &[], "weigh")?;
        let (count, width) = (x.len(), to_u32(OPERATOR, width)?);
        // SAFETY: both are rows of the width, and there is a mass for each.
        unsafe { function.over_fours(count, args![self.spectra.mass, x, to, width, count as u64]) }
    }

    fn meshes(&self) -> usize {
        self.mesh_offsets.len() - 1
    }

    /// Sizes of a filter: meshes, columns, channels, and whether it is complex.
    fn sizes(&self, filter: &Filter) -> Result<[u32; 4], KernelError> {
        let size = |n| to_u32(OPERATOR, n);
        Ok([
            size(self.meshes())?,
            size(filter.columns)?,
            size(filter.channels)?,
            u32::from(filter.complex),
        ])
    }
}

/// Diffuses `x`, and saves the spectrum; see [`forward`](super::forward).
///
/// # Errors
/// Settings or lengths that do not fit, or a failed call.
#[allow(clippy::too_many_arguments)]
pub fn forward(
    device: &CudaDevice,
    op: &Diffusion,
    mesh_offsets: &[u32],
    spectra: Spectra<DeviceSlice<'_, f32>>,
    filters: Filters<DeviceSlice<'_, f32>>,
    x: DeviceSlice<'_, f32>,
    y: DeviceSliceMut<'_, f32>,
    mut saved: DeviceSliceMut<'_, f32>,
) -> Result<(), CudaError> {
    let lengths = [
        ("x", x.len(), Length::Input),
        ("y", y.view().len(), Length::Output),
        ("spectrum", saved.view().len(), Length::Saved),
    ];
    let meshes = op.check(mesh_offsets, spectra.lengths(), filters.lengths(), &lengths)?;
    let (raw, size) = op.sizes();
    if raw == 0 || x.is_empty() {
        return Ok(());
    }
    let batch = Batch {
        device,
        mesh_offsets,
        spectra,
        raw,
        saved: size,
    };
    let width = op.features.dimension();
    let mut weighted: DeviceBuffer<f32> = device.buffer(x.len())?;
    batch.weigh(x, &weighted.view_mut(), width)?;
    let mut spectrum: DeviceBuffer<f32> = device.buffer(meshes * raw)?;
    batch.project(
        &op.input_terms(),
        (weighted.view(), width),
        spectrum.view_mut(),
    )?;
    for one in op.filters(meshes) {
        let [meshes, columns, channels, complex] = batch.sizes(&one)?;
        let function = device.function(SOURCE, &[], "filter")?;
        // SAFETY: every order has its part of the spectra, eigenvalues and parameters, whose lengths were checked.
        unsafe {
            function.over(
                batch.meshes() * one.columns * one.channels,
                args![
                    &spectrum.view_mut().slice(one.raw..usize::MAX),
                    batch.raw as u64,
                    &saved.reborrow().slice(one.saved..usize::MAX),
                    batch.saved as u64,
                    spectra.eigenvalues.from(one.eigenvalue),
                    filters.log_times.from(one.parameter),
                    filters.bands.from(one.parameter),
                    meshes,
                    columns,
                    channels,
                    complex,
                ],
            )?;
        }
    }
    let terms = op.output_terms();
    batch.expand(&terms, spectrum.view(), (y, op.output().dimension()))
}

/// Overwrites `dx`, if it is wanted, and adds to the gradients of the filters; see
/// [`backward`](super::backward).
///
/// # Errors
/// Settings or lengths that do not fit, or a failed call.
#[allow(clippy::too_many_arguments)]
pub fn backward(
    device: &CudaDevice,
    op: &Diffusion,
    mesh_offsets: &[u32],
    spectra: Spectra<DeviceSlice<'_, f32>>,
    filters: Filters<DeviceSlice<'_, f32>>,
    saved: DeviceSlice<'_, f32>,
    dy: DeviceSlice<'_, f32>,
    dx: Option<DeviceSliceMut<'_, f32>>,
    mut gradients: Filters<DeviceSliceMut<'_, f32>>,
) -> Result<(), CudaError> {
    let dx_length = dx.as_ref().map(|dx| ("dx", dx.view().len(), Length::Input));
    let lengths = [
        ("dy", dy.len(), Length::Output),
        ("spectrum", saved.len(), Length::Saved),
        (
            "dlog times",
            gradients.log_times.view().len(),
            Length::Parameters,
        ),
        ("dbands", gradients.bands.view().len(), Length::Parameters),
    ];
    let lengths: Vec<_> = lengths.into_iter().chain(dx_length).collect();
    let meshes = op.check(mesh_offsets, spectra.lengths(), filters.lengths(), &lengths)?;
    let (raw, size) = op.sizes();
    if raw == 0 || dy.is_empty() {
        return Ok(());
    }
    let batch = Batch {
        device,
        mesh_offsets,
        spectra,
        raw,
        saved: size,
    };
    let mut spectrum: DeviceBuffer<f32> = device.buffer(meshes * raw)?;
    let width = op.output().dimension();
    batch.project(&op.output_terms(), (dy, width), spectrum.view_mut())?;
    for one in op.filters(meshes) {
        let [meshes, columns, channels, complex] = batch.sizes(&one)?;
        let function = device.function(SOURCE, &[], "filter_backward")?;
        // SAFETY: as in `forward`.
        unsafe {
            function.run(
                (one.channels.div_ceil(32), 1),
                (32, 32),
                args![
                    &spectrum.view_mut().slice(one.raw..usize::MAX),
                    batch.raw as u64,
                    saved.from(one.saved),
                    batch.saved as u64,
                    spectra.eigenvalues.from(one.eigenvalue),
                    filters.log_times.from(one.parameter),
                    filters.bands.from(one.parameter),
                    &gradients
                        .log_times
                        .reborrow()
                        .slice(one.parameter..usize::MAX),
                    &gradients.bands.reborrow().slice(one.parameter..usize::MAX),
                    meshes,
                    columns,
                    channels,
                    complex,
                ],
            )?;
        }
    }
    match dx {
        None => Ok(()),
        Some(mut dx) => {
            let width = op.features.dimension();
            let terms = op.input_terms();
            batch.expand(&terms, spectrum.view(), (dx.reborrow(), width))?;
            batch.weigh(dx.view(), &dx, width)
        }
    }
}
