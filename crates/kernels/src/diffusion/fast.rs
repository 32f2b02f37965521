//! The products block by block, on all threads.

use super::{Diffusion, Filter, Filters, Spectra, Term, filter};
use crate::mesh_product::weighted;
use crate::{Destination, Matrix, MatrixMut, Real, Scratch, product};
use rayon::prelude::*;

/// Vertices of a block of features, and rows of a block of the spectrum.
const ROWS: usize = 128;
const COLUMNS: usize = 32;

/// A batch: first vertex of each mesh, bases, and raw numbers of the spectrum of a mesh.
#[derive(Clone, Copy)]
struct Batch<'a, T> {
    mesh_offsets: &'a [u32],
    bases: &'a [T],
    raw: usize,
}

impl<'a, T: Real> Batch<'a, T> {
    fn vertices(&self) -> usize {
        self.mesh_offsets.last().map_or(0, |&end| end as usize)
    }

    fn range(&self, mesh: usize) -> std::ops::Range<usize> {
        self.mesh_offsets[mesh] as usize..self.mesh_offsets[mesh + 1] as usize
    }

    /// `rows` rows of a basis from a vertex on, from one of its columns on.
    fn basis(
        &self,
        term: &Term,
        vertex: usize,
        rows: usize,
        columns: (usize, usize),
    ) -> Matrix<'a, T> {
        let start = self.vertices() * term.block + vertex * term.stride + term.column + columns.0;
        Matrix::new(
            &self.bases[start.min(self.bases.len())..],
            rows,
            columns.1,
            term.stride,
        )
    }

    /// `B^T x` of all terms.
    fn project(&self, terms: &[Term], (x, width): (&[T], usize), spectrum: &mut [T]) {
        let meshes = spectrum.par_chunks_mut(self.raw).enumerate();
        meshes.for_each(|(mesh, spectrum)| {
            let range = self.range(mesh);
            if range.is_empty() {
                return spectrum.fill(T::zero());
            }
            let rest = &x[range.start * width..];
            for term in terms {
                let end = term.spectrum + (term.columns - 1) * term.spectrum_stride + term.width;
                let rows = &mut spectrum[term.spectrum..end];
                let blocks = rows
                    .par_chunks_mut(COLUMNS * term.spectrum_stride)
                    .enumerate();
                blocks.for_each(|(block, rows)| {
                    let first = block * COLUMNS;
                    let columns = COLUMNS.min(term.columns - first);
                    let basis = self.basis(term, range.start, range.len(), (first, columns));
                    let x = Matrix::new(&rest[term.feature..], range.len(), term.width, width);
                    let mut to = MatrixMut::new(rows, columns, term.width, term.spectrum_stride);
                    let destination = match term.add {
                        true => Destination::Add,
                        false => Destination::Set,
                    };
                    product(&mut to, destination, basis.transposed(), x);
                });
            }
        });
    }

    /// `B s` of all terms, times the mass if there is one.
    fn expand(
        &self,
        terms: &[Term],
        spectrum: &[T],
        mass: Option<&[T]>,
        (x, width): (&mut [T], usize),
    ) {
        let mut rest = x;
        let mut blocks = Vec::new();
        for mesh in 0..self.mesh_offsets.len() - 1 {
            let range = self.range(mesh);
            let rows = rest
                .split_off_mut(..range.len() * width)
                .unwrap_or_default();
            let chunks = rows.chunks_mut(ROWS * width).enumerate();
            blocks.extend(chunks.map(|(index, x)| (mesh, range.start + index * ROWS, x)));
        }
        blocks.into_par_iter().for_each(|(mesh, first, x)| {
            let rows = x.len() / width;
            let spectrum = &spectrum[mesh * self.raw..][..self.raw];
            for term in terms {
                let basis = self.basis(term, first, rows, (0, term.columns));
                let rest = &spectrum[term.spectrum..];
                let s = Matrix::new(rest, term.columns, term.width, term.spectrum_stride);
                let mut to = MatrixMut::new(&mut x[term.feature..], rows, term.width, width);
                product(&mut to, Destination::Set, basis, s);
            }
            if let Some(mass) = mass {
                for (x, &mass) in x.chunks_exact_mut(width).zip(&mass[first..]) {
                    x.iter_mut().for_each(|x| *x *= mass);
                }
            }
        });
    }
}

impl Filter {
    /// Calls `each(row of all meshes, channel, first and second component of the spectrum)` for each coefficient of
    /// the raw spectrum, and overwrites it with the right factor of an expansion of what is returned.
    fn apply<T: Real>(
        &self,
        raw: &mut [T],
        size: usize,
        mut each: impl FnMut(usize, usize, [T; 2]) -> [T; 2],
    ) {
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
                    let s = [
                        raw[real] + raw[imaginary + c],
                        raw[real + c] - raw[imaginary],
                    ];
                    let [cosine, sine] = each(at, channel, s);
                    (raw[real], raw[real + c]) = (cosine, sine);
                    (raw[imaginary], raw[imaginary + c]) = (-sine, cosine);
                }
            }
        }
    }

    /// Place of a coefficient in the saved spectrum of all meshes, and distance to its second component.
    fn place(&self, size: usize, row: usize, channel: usize) -> (usize, usize) {
        let (mesh, row) = (row / self.columns, row % self.columns);
        let width = self.channels * if self.complex { 2 } else { 1 };
        (
            mesh * size + self.saved + row * width + channel,
            self.channels,
        )
    }
}

#[allow(clippy::too_many_arguments)]
pub(super) fn forward<T: Real>(
    op: &Diffusion,
    mesh_offsets: &[u32],
    spectra: Spectra<&[T]>,
    filters: Filters<&[T]>,
    x: &[T],
    y: &mut [T],
    saved: &mut [T],
    scratch: &mut Scratch<T>,
) {
    let (width, meshes) = (op.features.dimension(), mesh_offsets.len() - 1);
    let (raw, size) = op.sizes();
    if raw == 0 {
        return;
    }
    let batch = Batch {
        mesh_offsets,
        bases: spectra.bases,
        raw,
    };
    let (massive, spectrum) = scratch.take(x.len() + meshes * raw).split_at_mut(x.len());
    weighted(width, Some(spectra.mass), x, massive);
    batch.project(&op.input_terms(), (massive, width), spectrum);
    for one in op.filters(meshes) {
        let eigenvalues = &spectra.eigenvalues[one.eigenvalue..];
        one.apply(spectrum, raw, |row, channel, s| {
            let (place, next) = one.place(size, row, channel);
            saved[place] = s[0];
            if one.complex {
                saved[place + next] = s[1];
            }
            let at = one.parameter + channel;
            let [f, ..] = filter(eigenvalues[row], filters.log_times[at], filters.bands[at]);
            s.map(|s| f * s)
        });
    }
    let terms = op.output_terms();
    batch.expand(&terms, spectrum, None, (y, op.output().dimension()));
}

#[allow(clippy::too_many_arguments)]
pub(super) fn backward<T: Real>(
    op: &Diffusion,
    mesh_offsets: &[u32],
    spectra: Spectra<&[T]>,
    filters: Filters<&[T]>,
    saved: &[T],
    dy: &[T],
    dx: Option<&mut [T]>,
    gradients: Filters<&mut [T]>,
    scratch: &mut Scratch<T>,
) {
    let meshes = mesh_offsets.len() - 1;
    let (raw, size) = op.sizes();
    if raw == 0 {
        return;
    }
    let batch = Batch {
        mesh_offsets,
        bases: spectra.bases,
        raw,
    };
    let spectrum = scratch.take(meshes * raw);
    let width = op.output().dimension();
    batch.project(&op.output_terms(), (dy, width), spectrum);
    for one in op.filters(meshes) {
        let eigenvalues = &spectra.eigenvalues[one.eigenvalue..];
        one.apply(spectrum, raw, |row, channel, ds| {
            let (place, next) = one.place(size, row, channel);
            let mut product = ds[0] * saved[place];
            if one.complex {
                product += ds[1] * saved[place + next];
            }
            let at = one.parameter + channel;
            let (log_time, band) = (filters.log_times[at], filters.bands[at]);
            let [f, by_time, by_band] = filter(eigenvalues[row], log_time, band);
            gradients.log_times[at] += by_time * product;
            gradients.bands[at] += by_band * product;
            ds.map(|ds| f * ds)
        });
    }
    if let Some(dx) = dx {
        let width = op.features.dimension();
        let terms = op.input_terms();
        batch.expand(&terms, spectrum, Some(spectra.mass), (dx, width));
    }
}
