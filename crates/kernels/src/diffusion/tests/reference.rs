//! The same number by number, in f64.

use crate::diffusion::{Diffusion, Filters, Spectra, filter};
use crate::{Real, irrep_dimension};

/// The same as [`forward`](crate::diffusion::forward), without the saved spectrum.
pub fn forward<T: Real>(
    op: &Diffusion,
    mesh_offsets: &[u32],
    spectra: Spectra<&[T]>,
    filters: Filters<&[T]>,
    x: &[T],
    y: &mut [T],
) {
    let vertices = *mesh_offsets.last().unwrap_or(&0) as usize;
    let (meshes, output) = (mesh_offsets.len() - 1, op.output());
    let (width_in, width_out) = (op.features.dimension(), output.dimension());
    let number = |values: &[T], at: usize| values[at].as_f64();
    // Entry of a block of the bases with two parts, or of one with a single part.
    let entry = |block: usize, (k, parts): (usize, usize), vertex: usize, column: usize| {
        let first = vertices * block + vertex * k * parts + column;
        let second = if parts == 2 { number(spectra.bases, first + k) } else { 0.0 };
        (number(spectra.bases, first), second)
    };
    let (mut block, mut eigenvalue, mut parameter) = (0, 0, 0);
    for (order, &k) in op.columns.iter().enumerate() {
        let (parts, channels) = (irrep_dimension(order), op.features.multiplicity(order));
        for channel in 0..channels {
            let log_time = number(filters.log_times, parameter + channel);
            let band = number(filters.bands, parameter + channel);
            for mesh in 0..meshes {
                let range = mesh_offsets[mesh] as usize..mesh_offsets[mesh + 1] as usize;
                for column in 0..k {
                    let (mut real, mut imaginary) = (0.0, 0.0);
                    for vertex in range.clone() {
                        let (a, b) = entry(block, (k, parts), vertex, column);
                        let at = vertex * width_in + op.features.range(order).start + channel;
                        let mass = number(spectra.mass, vertex);
                        let cosine = mass * number(x, at);
                        let sine = match parts {
                            2 => mass * number(x, at + channels),
                            _ => 0.0,
                        };
                        real += a * cosine + b * sine;
                        imaginary += a * sine - b * cosine;
                    }
                    let lambda = number(spectra.eigenvalues, eigenvalue + mesh * k + column);
                    let u = lambda * log_time.exp();
                    let [f, ..] = filter(u, (-u).exp(), band);
                    let (real, imaginary) = (f * real, f * imaginary);
                    let mut add = |at: usize, value: f64| y[at] += T::of(value);
                    for vertex in range.clone() {
                        let row = vertex * width_out;
                        let (a, b) = entry(block, (k, parts), vertex, column);
                        let at = row + output.range(order).start + channel;
                        add(at, a * real - b * imaginary);
                        if parts == 2 {
                            let next = at + output.multiplicity(order);
                            add(next, a * imaginary + b * real);
                        }
                        if order == 0 && op.gradients {
                            let block = op.basis_width() - 2 * k;
                            let (a, b) = entry(block, (k, 2), vertex, column);
                            let first = op.features.multiplicity(1) + channel;
                            let at = row + output.range(1).start + first;
                            add(at, a * real);
                            add(at + output.multiplicity(1), b * real);
                        }
                    }
                }
            }
        }
        block += parts * k;
        eigenvalue += meshes * k;
        parameter += channels;
    }
}
