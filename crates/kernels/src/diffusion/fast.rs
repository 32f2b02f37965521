//! The products block by block, on all threads.

use super::{Backward, Diffusion, Filter, Filters, Forward, Spectra, Term, filter};
use crate::mesh_product::weighted;
use crate::parallel::Loop;
use crate::{Destination, Host, HostScratch, Matrix, MatrixMut, Real, product};
use rayon::prelude::*;

/// Vertices of a block of features, and rows of a block of the spectrum.
const ROWS: usize = 128;
const COLUMNS: usize = 32;

/// A batch: first vertex of each mesh, bases, and raw numbers of the spectrum of a mesh.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a, T> {
    mesh_offsets: &'a [u32],
    spectra: Spectra<&'a [T]>,
    raw: usize,
}

impl<'a, T: Real> Batch<'a, T> {
    pub fn new(op: &Diffusion, mesh_offsets: &'a [u32], spectra: Spectra<&'a [T]>) -> Self {
        Self { mesh_offsets, spectra, raw: op.sizes().0 }
    }

    /// The same batch with spectra of `raw` numbers.
    pub fn with_raw(self, raw: usize) -> Self {
        Self { raw, ..self }
    }

    /// Numbers of the spectra of all meshes.
    pub fn spectrum_length(&self) -> usize {
        (self.mesh_offsets.len() - 1) * self.raw
    }

    fn vertices(&self) -> usize {
        self.mesh_offsets.last().map_or(0, |&end| end as usize)
    }

    fn range(&self, mesh: usize) -> std::ops::Range<usize> {
        self.mesh_offsets[mesh] as usize..self.mesh_offsets[mesh + 1] as usize
    }

    /// `rows` rows of a basis, starting at a vertex and at one of its columns.
    pub fn basis(&self, term: &Term, vertex: usize, rows: usize, columns: (usize, usize)) -> Matrix<'a, T> {
        let start = term.column + columns.0;
        let numbers = self.basis_rows(term, vertex);
        Matrix::new(&numbers[start.min(numbers.len())..], rows, columns.1, term.stride)
    }

    /// The numbers of the block of a basis starting at a vertex.
    pub fn basis_rows(&self, term: &Term, vertex: usize) -> &'a [T] {
        let bases = self.spectra.bases;
        let start = self.vertices() * term.block + vertex * term.stride;
        &bases[start.min(bases.len())..]
    }

    /// `B^T x` of all terms.
    pub fn project(&self, terms: &[Term], (x, width): (&[T], usize), spectrum: &mut [T]) {
        let meshes = spectrum.par_chunks_mut(self.raw).enumerate();
        meshes.run(|(mesh, spectrum)| {
            let range = self.range(mesh);
            if range.is_empty() {
                return spectrum.fill(T::zero());
            }
            let rest = &x[range.start * width..];
            for term in terms {
                let end = term.spectrum + (term.columns - 1) * term.spectrum_stride + term.width;
                let rows = &mut spectrum[term.spectrum..end];
                let blocks = rows.par_chunks_mut(COLUMNS * term.spectrum_stride).enumerate();
                blocks.run(|(block, rows)| {
                    let first = block * COLUMNS;
                    let columns = COLUMNS.min(term.columns - first);
                    let basis = self.basis(term, range.start, range.len(), (first, columns));
                    let x = Matrix::new(&rest[term.feature..], range.len(), term.width, width);
                    let mut to = MatrixMut::new(rows, columns, term.width, term.spectrum_stride);
                    let destination = if term.add { Destination::Add } else { Destination::Set };
                    product(&mut to, destination, basis.transposed(), x);
                });
            }
        });
    }

    /// `B s` of all terms, for the vertices of a mesh starting at `first`.
    pub fn expand_rows(
        &self,
        terms: &[Term],
        spectrum: &[T],
        (mesh, first): (usize, usize),
        (x, rows, width): (&mut [T], usize, usize),
    ) {
        let spectrum = &spectrum[mesh * self.raw..][..self.raw];
        for term in terms {
            let basis = self.basis(term, first, rows, (0, term.columns));
            let rest = &spectrum[term.spectrum..];
            let s = Matrix::new(rest, term.columns, term.width, term.spectrum_stride);
            let mut to = MatrixMut::new(&mut x[term.feature..], rows, term.width, width);
            product(&mut to, Destination::Set, basis, s);
        }
    }

    /// `B s` of all terms, times the mass if `weighted`.
    pub fn expand(&self, terms: &[Term], spectrum: &[T], weighted: bool, (x, width): (&mut [T], usize)) {
        let mut rest = x;
        let mut blocks = Vec::new();
        for (mesh, first, rows) in self.tiles() {
            let rows = rest.split_off_mut(..rows * width).unwrap_or_default();
            blocks.push((mesh, first, rows));
        }
        blocks.into_par_iter().run(|(mesh, first, x)| {
            let rows = x.len() / width;
            self.expand_rows(terms, spectrum, (mesh, first), (x, rows, width));
            if weighted {
                let mass = &self.spectra.mass[first..];
                for (x, &mass) in x.chunks_exact_mut(width).zip(mass) {
                    x.iter_mut().for_each(|x| *x *= mass);
                }
            }
        });
    }

    /// Blocks of rows: mesh, first vertex, and number of vertices.
    pub fn tiles(&self) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        (0..self.mesh_offsets.len() - 1).flat_map(|mesh| {
            let range = self.range(mesh);
            let firsts = range.clone().step_by(ROWS);
            firsts.map(move |first| (mesh, first, ROWS.min(range.end - first)))
        })
    }

    /// The filtered spectrum of `x`; saves the spectrum. `massive` is working memory of the length of `x`.
    pub fn filtered(
        &self,
        op: &Diffusion,
        filters: Filters<&[T]>,
        (x, massive): (&[T], &mut [T]),
        spectrum: &mut [T],
        saved: &mut [T],
    ) {
        let width = op.features.dimension();
        weighted(width, Some(self.spectra.mass), x, massive);
        self.project(&op.input_terms(), (massive, width), spectrum);
        let (_, size) = op.sizes();
        for one in op.filters(self.mesh_offsets.len() - 1) {
            self.apply_filter(&one, filters, spectrum, |(row, channel), s| {
                let (place, next) = one.place(size, row, channel);
                saved[place] = s[0];
                if one.complex {
                    saved[place + next] = s[1];
                }
            });
        }
    }

    /// Filters one order of the spectrum, after `see((row of all meshes, channel), coefficient)`.
    fn apply_filter(
        &self,
        one: &Filter,
        filters: Filters<&[T]>,
        spectrum: &mut [T],
        mut see: impl FnMut((usize, usize), [T; 2]),
    ) {
        let eigenvalues = &self.spectra.eigenvalues[one.eigenvalue..];
        let times = one.times(filters.log_times);
        one.apply(spectrum, self.raw, |row, channel, s| {
            see((row, channel), s);
            let u = eigenvalues[row] * times[channel];
            let [f, ..] = filter(u, decay(u), filters.bands[one.parameter + channel]);
            s.map(|s| f * s)
        });
    }

    /// The filtered spectrum, from the saved one of scalars.
    pub fn filter_saved(&self, op: &Diffusion, filters: Filters<&[T]>, saved: &[T], spectrum: &mut [T]) {
        spectrum.copy_from_slice(saved);
        for one in op.filters(self.mesh_offsets.len() - 1) {
            self.apply_filter(&one, filters, spectrum, |_, _| {});
        }
    }

    /// Filters the gradient of the filtered spectrum, and adds to the gradients of the filters.
    pub fn filter_backward(
        &self,
        op: &Diffusion,
        filters: Filters<&[T]>,
        spectrum: &mut [T],
        saved: &[T],
        gradients: Filters<&mut [T]>,
    ) {
        let (raw, size) = op.sizes();
        for one in op.filters(self.mesh_offsets.len() - 1) {
            let eigenvalues = &self.spectra.eigenvalues[one.eigenvalue..];
            let times = one.times(filters.log_times);
            one.apply(spectrum, raw, |row, channel, ds| {
                let (place, next) = one.place(size, row, channel);
                let mut product = ds[0] * saved[place];
                if one.complex {
                    product += ds[1] * saved[place + next];
                }
                let at = one.parameter + channel;
                let u = eigenvalues[row] * times[channel];
                let [f, by_time, by_band] = filter(u, decay(u), filters.bands[at]);
                gradients.log_times[at] += by_time * product;
                gradients.bands[at] += by_band * product;
                ds.map(|ds| f * ds)
            });
        }
    }
}

/// `exp(-u)`. Eigenvalues are not negative but for rounding.
fn decay<T: Real>(u: T) -> T {
    (-u).min(T::zero()).exp_of_negative()
}

impl Filter {
    /// Calls `each(row of all meshes, channel, first and second component of the spectrum)` for each coefficient of
    /// the raw spectrum, and overwrites it with the right factor of an expansion of the returned values.
    fn apply<T: Real>(&self, raw: &mut [T], size: usize, mut each: impl FnMut(usize, usize, [T; 2]) -> [T; 2]) {
        let (k, c) = (self.columns, self.channels);
        for (mesh, raw) in raw.chunks_exact_mut(size.max(1)).enumerate() {
            let raw = &mut raw[self.raw..];
            for row in 0..k {
                for channel in 0..c {
                    let at = mesh * k + row;
                    if !self.complex {
                        let place = row * c + channel;
                        [raw[place], _] = each(at, channel, [raw[place], T::zero()]);
                        continue;
                    }
                    let [real, imaginary] = [row, k + row].map(|row| row * 2 * c + channel);
                    let s = [raw[real] + raw[imaginary + c], raw[real + c] - raw[imaginary]];
                    let [cosine, sine] = each(at, channel, s);
                    (raw[real], raw[real + c]) = (cosine, sine);
                    (raw[imaginary], raw[imaginary + c]) = (-sine, cosine);
                }
            }
        }
    }

    /// The times of its channels.
    fn times<T: Real>(&self, log_times: &[T]) -> Vec<T> {
        let all = &log_times[self.parameter..self.parameter + self.channels];
        all.iter().map(|time| time.exp()).collect()
    }

    /// Place of a coefficient in the saved spectrum of all meshes, and distance to its second component.
    fn place(&self, size: usize, row: usize, channel: usize) -> (usize, usize) {
        let (mesh, row) = (row / self.columns, row % self.columns);
        let width = self.channels * if self.complex { 2 } else { 1 };
        (mesh * size + self.saved + row * width + channel, self.channels)
    }
}

pub(super) fn forward<T: Real>(pass: Forward<'_, Host<T>>, scratch: HostScratch<'_, T>) {
    let Forward { op, mesh_offsets, spectra, log_times, bands, x, y, saved } = pass;
    let filters = Filters { log_times, bands };
    let batch = Batch::new(op, mesh_offsets, spectra);
    if batch.raw == 0 {
        return;
    }
    let memory = scratch.narrow.take(x.len() + batch.spectrum_length());
    let (massive, spectrum) = memory.split_at_mut(x.len());
    batch.filtered(op, filters, (x, massive), spectrum, saved);
    let terms = op.output_terms();
    batch.expand(&terms, spectrum, false, (y, op.output().dimension()));
}

pub(super) fn backward<T: Real>(pass: Backward<'_, Host<T>>, scratch: HostScratch<'_, T>) {
    let Backward { op, mesh_offsets, spectra, log_times, bands, saved, dy, dx, dlog_times, dbands } = pass;
    let (filters, gradients) = (Filters { log_times, bands }, Filters { log_times: dlog_times, bands: dbands });
    let batch = Batch::new(op, mesh_offsets, spectra);
    if batch.raw == 0 {
        return;
    }
    let spectrum = scratch.narrow.take(batch.spectrum_length());
    let width = op.output().dimension();
    batch.project(&op.output_terms(), (dy, width), spectrum);
    batch.filter_backward(op, filters, spectrum, saved, gradients);
    if let Some(dx) = dx {
        let width = op.features.dimension();
        batch.expand(&op.input_terms(), spectrum, true, (dx, width));
    }
}
