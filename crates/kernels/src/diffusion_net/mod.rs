//! The block of DiffusionNet as one operator.
//!
//! With the diffused scalars `d` and their gradients `g` (see [`diffusion`](crate::diffusion)),
//!
//! ```text
//! p  = tanh(<g, A g>)                      A: complex matrix, one product for each channel
//! h1 = drop(relu(W1 [p | x | d] + b1))
//! h2 = drop(relu(W2 h1 + b2))
//! y  = x + W3 h2 + b3
//! ```
//!
//! What is linear in the spectrum `S` of a mesh is applied there. The part of `W1` that reads `d` applies to
//! eigenvectors and `S W1d^T`, so `d` is never computed, and `A g` comes from gradients of eigenvectors and `S a^T`, `S
//! b^T` for `A = (a, b)`. The gradients of these maps are products of spectra: 28 products of the size of `W2` for each
//! vertex in both passes, instead of 35. The CPU has 27: it takes three real products for a complex one in the forward
//! pass.
//!
//! On the CPU a tile of rows stays in the cache for the whole forward pass. On GPUs of compute capability 9.0, with 128
//! channels and eigenvectors and products in tf32 or bf16, it stays in registers; the backward pass computes `g` and `A
//! g` again. Other GPUs take the products as they are written above, over rows `[p | x | d | g]`.
//!
//! Saved for the backward pass are `[p | x]`, `h1`, `h2`, the spectrum, and what [`Saved`] says. A number of `h1` or
//! `h2` above zero says that it was neither clipped nor dropped, so no mask is stored or drawn again.
//!
//! The result is that of the composition of the operators, with the same dropout.

pub mod cuda;
mod fast;
pub(crate) mod half_precision;
pub(crate) mod hopper;
#[cfg(test)]
mod tests;

use crate::diffusion::{Diffusion, Filters, Spectra};
use crate::error::check_count;
use crate::random::Stream;
use crate::real::compiled;
use crate::view::fields;
use crate::{FeatureType, KernelError, Real, Scratch, irrep_dimension};

const OPERATOR: &str = "diffusion_net";

/// Settings of a block.
#[derive(Debug, Clone, PartialEq)]
pub struct DiffusionNet {
    /// Number of scalars.
    pub channels: usize,
    /// Number of eigenvectors of each order from 0.
    pub columns: Vec<usize>,
    /// Dropout probability, in [0, 1).
    pub dropout: f64,
}

/// Parameters of a block, or their gradients. Matrices are `[out, in]`.
#[derive(Debug, Clone, Copy)]
pub struct Weights<S> {
    /// Logarithms of the diffusion times.
    pub log_times: S,
    /// Bands of the filters.
    pub bands: S,
    /// `A`, as the weights of a [`SelfMap`](crate::self_map::SelfMap) of order 1.
    pub product: S,
    /// Columns of `W1` for `[x | d]`.
    pub scalars: S,
    /// `b1`.
    pub scalars_bias: S,
    /// Columns of `W1` for `p`.
    pub invariants: S,
    /// `W2`.
    pub hidden: S,
    /// `b2`.
    pub hidden_bias: S,
    /// `W3`.
    pub update: S,
    /// `b3`.
    pub update_bias: S,
}

fields!(Weights {
    log_times,
    bands,
    product,
    scalars,
    scalars_bias,
    invariants,
    hidden,
    hidden_bias,
    update,
    update_bias
});

/// What the backward pass needs beside the parameters.
#[derive(Debug, Clone, Copy)]
pub struct Saved<S> {
    /// `[p | x]`. With products as they are written: `[p | x | d | g]`.
    pub features: S,
    /// `g` and `A g`, which the backward pass overwrites. With products as they are written: `A g`. On GPUs of compute
    /// capability 9.0: factors of products, and bits of `h1` and `h2` above zero; this and the other matrices are
    /// packed there.
    pub mapped: S,
    /// `h1`.
    pub first: S,
    /// `h2`.
    pub second: S,
    /// The spectrum.
    pub spectrum: S,
}

fields!(Saved { features, mapped, first, second, spectrum });

impl DiffusionNet {
    /// Lengths of the saved buffers on the CPU.
    pub fn saved(&self, vertices: usize, meshes: usize) -> Saved<usize> {
        let numbers = vertices * self.channels;
        Saved {
            features: 2 * numbers,
            mapped: 4 * numbers,
            first: numbers,
            second: numbers,
            spectrum: self.diffusion().saved_count(meshes),
        }
    }

    /// Checks the settings and all lengths, and returns the number of vertices. `expected(vertices, meshes)` gives the
    /// lengths of the saved buffers.
    fn check(
        &self,
        mesh_offsets: &[u32],
        spectra: Spectra<usize>,
        weights: Weights<usize>,
        (saved, expected): (Saved<usize>, impl Fn(usize, usize) -> Saved<usize>),
        others: &[(&'static str, usize)],
    ) -> Result<usize, KernelError> {
        let diffusion = self.diffusion();
        let vertices = diffusion.check_spectra(OPERATOR, mesh_offsets, spectra)?;
        if !(0.0..1.0).contains(&self.dropout) || self.channels == 0 {
            return Err(KernelError::Setting {
                operator: OPERATOR,
                problem: format!(
                    "{} channels with dropout {}; there must be some, and a probability of at least 0 and below 1",
                    self.channels, self.dropout
                ),
            });
        }
        self.check_weights(weights)?;
        let count = |name, found, expected| check_count(OPERATOR, name, found, expected);
        let expected = expected(vertices, mesh_offsets.len() - 1);
        count("features", saved.features, expected.features)?;
        count("mapped", saved.mapped, expected.mapped)?;
        count("first", saved.first, expected.first)?;
        count("second", saved.second, expected.second)?;
        count("spectrum", saved.spectrum, expected.spectrum)?;
        for &(name, found) in others {
            count(name, found, vertices * self.channels)?;
        }
        Ok(vertices)
    }

    /// Checks the lengths of the parameters, or of their gradients.
    fn check_weights(&self, weights: Weights<usize>) -> Result<(), KernelError> {
        let lengths = self.lengths().into_array();
        for ((name, length), found) in lengths.into_iter().zip(weights.into_array()) {
            check_count(OPERATOR, name, found, length)?;
        }
        Ok(())
    }

    fn diffusion(&self) -> Diffusion {
        Diffusion { features: FeatureType::scalars(self.channels), columns: self.columns.clone(), gradients: true }
    }

    /// Lengths of the parameters, with names.
    fn lengths(&self) -> Weights<(&'static str, usize)> {
        let (c, square) = (self.channels, self.channels * self.channels);
        Weights {
            log_times: ("log times", c),
            bands: ("bands", c),
            product: ("product", irrep_dimension(1) * square),
            scalars: ("scalars", 2 * square),
            scalars_bias: ("bias of scalars", c),
            invariants: ("invariants", square),
            hidden: ("hidden", square),
            hidden_bias: ("bias of hidden", c),
            update: ("update", square),
            update_bias: ("bias of update", c),
        }
    }
}

impl<S: Copy> Weights<S> {
    fn filters(&self) -> Filters<S> {
        Filters { log_times: self.log_times, bands: self.bands }
    }
}

/// `x` to `y`, and what the backward pass needs. Streams are those of the two dropouts.
#[allow(clippy::too_many_arguments)]
pub fn forward<T: Real>(
    op: &DiffusionNet,
    mesh_offsets: &[u32],
    spectra: Spectra<&[T]>,
    weights: Weights<&[T]>,
    streams: Option<[Stream; 2]>,
    x: &[T],
    y: &mut [T],
    saved: Saved<&mut [T]>,
    scratch: &mut Scratch<T>,
) -> Result<(), KernelError> {
    op.check(
        mesh_offsets,
        spectra.map(<[T]>::len),
        weights.map(<[T]>::len),
        (saved.each_ref().map(|values| values.len()), |n, m| op.saved(n, m)),
        &[("x", x.len()), ("y", y.len())],
    )?;
    compiled!(
        fast::forward
            as fn(
                &DiffusionNet,
                &[u32],
                Spectra<&[T]>,
                Weights<&[T]>,
                Option<[Stream; 2]>,
                &[T],
                &mut [T],
                Saved<&mut [T]>,
                &mut Scratch<T>,
            )
    )(op, mesh_offsets, spectra, weights, streams, x, y, saved, scratch);
    Ok(())
}

/// Overwrites `dx`, if it is wanted, and adds to the gradients of the parameters. `dropped` says whether the forward
/// pass had random streams.
#[allow(clippy::too_many_arguments)]
pub fn backward<T: Real>(
    op: &DiffusionNet,
    mesh_offsets: &[u32],
    dropped: bool,
    spectra: Spectra<&[T]>,
    weights: Weights<&[T]>,
    saved: Saved<&mut [T]>,
    dy: &[T],
    dx: Option<&mut [T]>,
    gradients: Weights<&mut [T]>,
    scratch: &mut Scratch<T>,
) -> Result<(), KernelError> {
    let others = [("dy", dy.len()), ("dx", dx.as_ref().map_or(dy.len(), |dx| dx.len()))];
    op.check(
        mesh_offsets,
        spectra.map(<[T]>::len),
        weights.map(<[T]>::len),
        (saved.each_ref().map(|values| values.len()), |n, m| op.saved(n, m)),
        &others,
    )?;
    op.check_weights(gradients.each_ref().map(|values| values.len()))?;
    compiled!(
        fast::backward
            as fn(
                &DiffusionNet,
                &[u32],
                bool,
                Spectra<&[T]>,
                Weights<&[T]>,
                Saved<&mut [T]>,
                &[T],
                Option<&mut [T]>,
                Weights<&mut [T]>,
                &mut Scratch<T>,
            )
    )(op, mesh_offsets, dropped, spectra, weights, saved, dy, dx, gradients, scratch);
    Ok(())
}
