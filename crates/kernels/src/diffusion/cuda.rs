//! Diffusion on a GPU: one product for each term and run of meshes of one size, and the filters between them.

use super::{Backward, Diffusion, Filter, Filters, Forward, Spectra, Term};
use crate::Gpu;
use crate::cuda::reduce::divisor;
use crate::cuda::{
    Arg, CudaDevice, DeviceBuffer, DeviceSlice, DeviceSliceMut, KernelSource, Operand, Product, Result, args,
};
use std::ops::Range;

pub(crate) const SOURCE: KernelSource =
    KernelSource::new("diffusion", concat!(include_str!("filter.cu"), include_str!("diffusion.cu")));

/// Least number of vertices of a slab.
const SLAB_ROWS: usize = 128;
/// Slabs of all meshes together that fill a GPU.
const SLABS: usize = 128;
/// Grid rows of the backward pass of a filter.
const FILTER_ROWS: usize = 64;

/// A batch on a GPU. The raw spectrum of a mesh is the sum of those of its slabs: a product over all vertices of
/// few meshes would leave most of the GPU idle.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a> {
    device: &'a CudaDevice,
    mesh_offsets: &'a [u32],
    spectra: Spectra<DeviceSlice<'a, f32>>,
    /// Raw numbers of the spectrum of a slab, and numbers of a mesh that are saved.
    raw: usize,
    saved: usize,
    /// Slabs of each mesh.
    slabs: usize,
}

impl<'a> Batch<'a> {
    pub fn new(
        device: &'a CudaDevice,
        op: &Diffusion,
        mesh_offsets: &'a [u32],
        spectra: Spectra<DeviceSlice<'a, f32>>,
    ) -> Self {
        let (raw, saved) = op.sizes();
        let mut batch = Self { device, mesh_offsets, spectra, raw, saved, slabs: 1 };
        let largest = batch.runs().map(|(range, ..)| range.len()).max();
        let largest = largest.unwrap_or(0);
        let wanted = SLABS.div_ceil(batch.meshes().max(1));
        batch.slabs = divisor(largest, wanted.min(largest / SLAB_ROWS).max(1));
        batch
    }

    /// Runs of meshes with as many vertices, if there are some: vertices of the first mesh, its number, and number of
    /// meshes.
    pub fn runs(&self) -> impl Iterator<Item = (Range<usize>, usize, usize)> {
        let meshes: Vec<_> = self.mesh_offsets.windows(2).enumerate().collect();
        let size = |pair: &[u32]| pair[1] - pair[0];
        let runs: Vec<_> = meshes
            .chunk_by(|(_, one), (_, two)| size(one) == size(two))
            .map(|run| {
                let (mesh, pair) = run[0];
                (pair[0] as usize..pair[1] as usize, mesh, run.len())
            })
            .collect();
        runs.into_iter().filter(|(range, ..)| !range.is_empty())
    }

    /// A buffer for the spectra of all slabs.
    pub fn spectrum(&self) -> Result<DeviceBuffer<f32>> {
        self.device.buffer(self.meshes() * self.slabs * self.raw)
    }

    /// Calls `run(term, first number of the basis, vertices, mesh, meshes)` for each term of each run of
    /// meshes with as many vertices. The vertices are those of the first of them.
    fn for_products(
        &self,
        terms: &[Term],
        mut run: impl FnMut(&Term, usize, Range<usize>, usize, usize) -> Result<()>,
    ) -> Result<()> {
        let vertices = self.mesh_offsets.last().map_or(0, |&end| end as usize);
        for (range, mesh, meshes) in self.runs() {
            for term in terms {
                let start = vertices * term.block + range.start * term.stride + term.column;
                run(term, start, range.clone(), mesh, meshes)?;
            }
        }
        Ok(())
    }

    pub fn project(
        &self,
        terms: &[Term],
        (x, width): (DeviceSlice<'_, f32>, usize),
        mut spectrum: DeviceSliceMut<'_, f32>,
    ) -> Result<()> {
        let slabs = self.slabs;
        let mut sizes = self.mesh_offsets.windows(2).map(|pair| pair[1] - pair[0]);
        if sizes.any(|size| (size as usize) < slabs) {
            self.device.clear(spectrum.reborrow())?;
        }
        self.for_products(terms, |term, start, range, mesh, meshes| {
            let of_slab = range.len() / slabs;
            // `batches` slabs of `rows` vertices, starting at a vertex of the range, into those starting at `slab`.
            let mut slab_products = |vertex: usize, rows, slab: usize, batches, add| {
                let first = range.start + vertex;
                let basis = self.spectra.bases.from(start + vertex * term.stride);
                let a = Operand::new(basis, term.stride).transposed().batched(rows * term.stride);
                let b = Operand::new(x.from(first * width + term.feature), width).batched(rows * width);
                let product = Product { m: term.columns, n: term.width, k: rows, a, b, add, batches };
                product.run(
                    self.device,
                    &spectrum.reborrow().slice(slab * self.raw + term.spectrum..usize::MAX),
                    (term.spectrum_stride, self.raw),
                )
            };
            if of_slab * slabs == range.len() {
                return slab_products(0, of_slab, mesh * slabs, meshes * slabs, term.add);
            }
            for at in 0..meshes {
                let (vertex, slab) = (at * range.len(), (mesh + at) * slabs);
                slab_products(vertex, of_slab, slab, slabs, term.add)?;
                let rest = range.len() - of_slab * slabs;
                slab_products(vertex + of_slab * slabs, rest, slab, 1, true)?;
            }
            Ok(())
        })
    }

    pub fn expand(
        &self,
        terms: &[Term],
        spectrum: DeviceSlice<'_, f32>,
        (mut x, width): (DeviceSliceMut<'_, f32>, usize),
    ) -> Result<()> {
        let stride = self.slabs * self.raw;
        self.for_products(terms, |term, start, range, mesh, batches| {
            let basis = Operand::new(self.spectra.bases.from(start), term.stride);
            let factor = spectrum.from(mesh * stride + term.spectrum);
            let a = basis.batched(range.len() * term.stride);
            let b = Operand::new(factor, term.spectrum_stride).batched(stride);
            let product = Product { m: range.len(), n: term.width, k: term.columns, a, b, add: false, batches };
            product.run(
                self.device,
                &x.reborrow().slice(range.start * width + term.feature..usize::MAX),
                (width, range.len() * width),
            )
        })
    }

    /// `to = m x`, in place if `x` is `to`.
    fn weigh(&self, x: DeviceSlice<'_, f32>, to: &DeviceSliceMut<'_, f32>, width: usize) -> Result<()> {
        let function = self.device.function(SOURCE, &[], "weigh")?;
        // SAFETY: both are rows of the width, and there is a mass for each.
        unsafe { function.over_fours(x.len(), args![self.spectra.mass, x, to, width, x.len() as u64]) }
    }

    pub fn meshes(&self) -> usize {
        self.mesh_offsets.len() - 1
    }

    /// Eigenvalues, times and bands of a filter.
    fn parameters<'f>(&'f self, one: &Filter, filters: &Filters<DeviceSlice<'f, f32>>) -> [DeviceSlice<'f, f32>; 3] {
        let Filters { log_times, bands } = filters;
        [self.spectra.eigenvalues.from(one.eigenvalue), log_times.from(one.parameter), bands.from(one.parameter)]
    }

    /// Saves the spectrum and filters it.
    pub fn filter(
        &self,
        op: &Diffusion,
        filters: Filters<DeviceSlice<'_, f32>>,
        spectrum: &mut DeviceBuffer<f32>,
        mut saved: DeviceSliceMut<'_, f32>,
    ) -> Result<()> {
        let (slabs, meshes) = (self.slabs, self.meshes());
        for one in op.filters(meshes) {
            let (columns, channels, complex) = (one.columns, one.channels, u32::from(one.complex));
            let function = self.device.function(SOURCE, &[], "filter")?;
            let (raw, saved) = (spectrum.view_mut(), saved.reborrow().slice(one.saved..usize::MAX));
            let [eigenvalues, log_times, bands] = self.parameters(&one, &filters);
            let first: &[Arg] =
                args![&raw.slice(one.raw..usize::MAX), slabs, self.raw as u64, &saved, self.saved as u64];
            let last: &[Arg] = args![eigenvalues, log_times, bands, meshes, columns, channels, complex];
            // SAFETY: every order has its part of the spectra, eigenvalues and parameters, whose lengths were checked.
            unsafe { function.over(meshes * columns * channels, &[first, last].concat())? };
        }
        Ok(())
    }

    /// Filters the gradient of the filtered spectrum, and adds to the gradients of the filters.
    pub fn filter_backward(
        &self,
        op: &Diffusion,
        filters: Filters<DeviceSlice<'_, f32>>,
        spectrum: &mut DeviceBuffer<f32>,
        saved: DeviceSlice<'_, f32>,
        gradients: &mut Filters<DeviceSliceMut<'_, f32>>,
    ) -> Result<()> {
        let (slabs, meshes) = (self.slabs, self.meshes());
        for one in op.filters(meshes) {
            let (columns, channels, complex) = (one.columns, one.channels, u32::from(one.complex));
            let rows = FILTER_ROWS.min(meshes * columns).max(1);
            let mut partials: DeviceBuffer<f32> = self.device.buffer(rows * 2 * channels)?;
            let (raw, to) = (spectrum.view_mut().slice(one.raw..usize::MAX), partials.view_mut());
            let [eigenvalues, log_times, bands] = self.parameters(&one, &filters);
            let first: &[Arg] = args![&raw, slabs, self.raw as u64, saved.from(one.saved), self.saved as u64];
            let last: &[Arg] = args![eigenvalues, log_times, bands, &to, meshes, columns, channels, complex];
            let [dtimes, dbands] = [&mut gradients.log_times, &mut gradients.bands]
                .map(|gradient| gradient.reborrow().slice(one.parameter..usize::MAX));
            // SAFETY: as in `filter`; every grid row has its partial sums.
            unsafe {
                let function = self.device.function(SOURCE, &[], "filter_backward")?;
                function.run((channels.div_ceil(32), rows), (32, 8), &[first, last].concat())?;
                let function = self.device.function(SOURCE, &[], "add_filter_sums")?;
                function.over(channels, args![&partials, rows, channels, &dtimes, &dbands])?;
            }
        }
        Ok(())
    }
}

pub(super) fn forward(device: &CudaDevice, pass: Forward<'_, Gpu>) -> Result<()> {
    let Forward { op, mesh_offsets, spectra, log_times, bands, x, y, saved } = pass;
    let filters = Filters { log_times, bands };
    let batch = Batch::new(device, op, mesh_offsets, spectra);
    if batch.raw == 0 || x.is_empty() {
        return Ok(());
    }
    let width = op.features.dimension();
    let mut weighted: DeviceBuffer<f32> = device.buffer(x.len())?;
    batch.weigh(x, &weighted.view_mut(), width)?;
    let mut spectrum = batch.spectrum()?;
    batch.project(&op.input_terms(), (weighted.view(), width), spectrum.view_mut())?;
    batch.filter(op, filters, &mut spectrum, saved)?;
    let terms = op.output_terms();
    batch.expand(&terms, spectrum.view(), (y, op.output().dimension()))
}

pub(super) fn backward(device: &CudaDevice, pass: Backward<'_, Gpu>) -> Result<()> {
    let Backward { op, mesh_offsets, spectra, log_times, bands, saved, dy, dx, dlog_times, dbands } = pass;
    let filters = Filters { log_times, bands };
    let mut gradients = Filters { log_times: dlog_times, bands: dbands };
    let batch = Batch::new(device, op, mesh_offsets, spectra);
    if batch.raw == 0 || dy.is_empty() {
        return Ok(());
    }
    let mut spectrum = batch.spectrum()?;
    let width = op.output().dimension();
    batch.project(&op.output_terms(), (dy, width), spectrum.view_mut())?;
    batch.filter_backward(op, filters, &mut spectrum, saved, &mut gradients)?;
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
