//! Learned diffusion on surfaces, in the eigenbases of their connection Laplacians.
//!
//! Each mesh has, for every order `m`, the first `K_m` eigenvectors `Phi_m` of its connection Laplacian with
//! eigenvalues `lambda`, and the mass `M` of its vertices. A field of order `m` diffuses by
//!
//! ```text
//! s = Phi_m^H M x,    x' = Phi_m f(lambda) s,    f(lambda) = exp(-u) (1 + b u),    u = lambda t,
//! ```
//!
//! with a time `t > 0` and a band `b` for each channel. `t` is the exponential of a parameter. If gradients are
//! wanted, the output also has the gradient of each diffused scalar, `G f(lambda) s`, as a field of order 1, where
//! `G` holds the gradients of the scalar eigenvectors.
//!
//! All products are general matrix products with the basis of each mesh. A complex basis is a real one of twice the
//! columns: `[Re Phi | Im Phi]`. The filter turns the result of the first products into the right factor of the
//! second in place. Saved for the backward pass: the spectrum `s`, which is small.
//!
//! Shapes: `mass` is `[vertices]`. `bases` holds for each order `[vertices, K_0]` or `[vertices, 2, K_m]` (real
//! parts first), then the gradients `[vertices, 2, K_0]`. `eigenvalues` holds for each order
//! `[meshes, K_m]`. `x` is `[vertices, features]`, `y` is `[vertices, output]`.

pub mod cuda;
pub(crate) mod fast;
pub mod points;
#[cfg(test)]
mod tests;

use crate::arguments::{arguments, kinds};
use crate::cuda::DeviceSlice;
use crate::error::{check_count, check_mesh_offsets};
use crate::{FeatureType, KernelError, Real, irrep_dimension};
use std::ops::Range;

const OPERATOR: &str = "diffusion";

/// Settings of a diffusion.
#[derive(Debug, Clone, PartialEq)]
pub struct Diffusion {
    /// Type of the input.
    pub features: FeatureType,
    /// Number of eigenvectors of each order from 0.
    pub columns: Vec<usize>,
    /// Appends the gradients of the diffused scalars as channels of order 1.
    pub gradients: bool,
}

/// The operators of all meshes of a batch: slices on the host or on a GPU.
#[derive(Debug, Clone, Copy)]
pub struct Spectra<S> {
    /// Mass of each vertex.
    pub mass: S,
    /// Bases of all orders, then the gradients of the scalar basis.
    pub bases: S,
    /// Eigenvalues of all orders.
    pub eigenvalues: S,
    /// The scalar basis and its gradients as [`packed_bases`](crate::diffusion_net::cuda::packed_bases), or nothing.
    pub packed: S,
}

crate::view::fields!(Spectra { mass, bases, eigenvalues, packed });

/// Parameters of the filters: one number for each irrep of the input.
#[derive(Debug, Clone, Copy)]
pub struct Filters<S> {
    /// Logarithms of the times.
    pub log_times: S,
    /// Bands `b`.
    pub bands: S,
}

/// A product of columns of a basis with channels of the features of a mesh.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Term {
    /// Where the block of the basis begins, counted in numbers for each vertex.
    block: usize,
    /// Numbers of a row of the block.
    stride: usize,
    /// First column of the block, and number of columns.
    column: usize,
    columns: usize,
    /// First number of a row of features, and number of numbers.
    feature: usize,
    width: usize,
    /// Where the result begins in the raw spectrum of a mesh, and numbers of its rows.
    spectrum: usize,
    spectrum_stride: usize,
    /// Adds to what an earlier term left in the raw spectrum.
    add: bool,
}

/// The filter of one order.
#[derive(Debug, Clone, Copy)]
struct Filter {
    /// Number of eigenvectors and of channels.
    columns: usize,
    channels: usize,
    complex: bool,
    /// First parameter, first eigenvalue, and first number of the spectrum of a mesh, raw and saved.
    parameter: usize,
    eigenvalue: usize,
    raw: usize,
    saved: usize,
}

impl Diffusion {
    /// Type of the output.
    pub fn output(&self) -> FeatureType {
        match self.gradients {
            true => {
                let gradients = FeatureType::new(&[0, self.features.multiplicity(0)]);
                self.features.concatenated(&gradients)
            }
            false => self.features.clone(),
        }
    }

    /// Number of irreps: of times, and of bands.
    pub fn parameter_count(&self) -> usize {
        self.features.multiplicities().iter().sum()
    }

    /// Numbers of all bases for each vertex.
    pub fn basis_width(&self) -> usize {
        basis_width(&self.columns)
    }

    /// Numbers that are saved for the backward pass.
    pub fn saved_count(&self, meshes: usize) -> usize {
        let (_, saved) = self.sizes();
        meshes * saved
    }

    /// Numbers of the raw and of the saved spectrum of a mesh.
    fn sizes(&self) -> (usize, usize) {
        let sizes = self.features.orders().map(|(order, channels)| {
            let (dimension, columns) = (irrep_dimension(order), self.columns[order]);
            let saved = dimension * columns * channels;
            (dimension * saved, saved)
        });
        sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1))
    }

    /// The filters of all orders, for a number of meshes.
    fn filters(&self, meshes: usize) -> Vec<Filter> {
        let (mut parameter, mut raw, mut saved) = (0, 0, 0);
        let mut filters = Vec::new();
        for (order, channels) in self.features.orders() {
            let (dimension, columns) = (irrep_dimension(order), self.columns[order]);
            filters.push(Filter {
                columns,
                channels,
                complex: order > 0,
                parameter,
                eigenvalue: meshes * self.columns[..order].iter().sum::<usize>(),
                raw,
                saved,
            });
            parameter += channels;
            raw += dimension * dimension * columns * channels;
            saved += dimension * columns * channels;
        }
        filters
    }

    /// The products that lead from the input to the raw spectrum.
    pub(crate) fn input_terms(&self) -> Vec<Term> {
        let filters = self.filters(0);
        let orders = self.features.orders().zip(filters);
        orders
            .map(|((order, channels), filter)| {
                let width = irrep_dimension(order) * channels;
                self.term(order, &filter, self.features.range(order).start, 0..width)
            })
            .collect()
    }

    /// The products that lead from the raw spectrum to the output.
    pub(crate) fn output_terms(&self) -> Vec<Term> {
        let (output, filters) = (self.output(), self.filters(0));
        let mut terms = Vec::new();
        for ((order, channels), filter) in self.features.orders().zip(&filters) {
            for part in 0..irrep_dimension(order) {
                let feature = output.range(order).start + part * output.multiplicity(order);
                let within = part * channels..(part + 1) * channels;
                terms.push(self.term(order, filter, feature, within));
            }
        }
        if self.gradients
            && let Some(filter) = filters.first().filter(|filter| !filter.complex)
        {
            let first = output.range(1).start + self.features.multiplicity(1);
            for part in 0..2 {
                terms.push(Term {
                    block: self.gradient_block(),
                    stride: 2 * filter.columns,
                    column: part * filter.columns,
                    columns: filter.columns,
                    feature: first + part * output.multiplicity(1),
                    add: true,
                    ..self.term(0, filter, 0, 0..filter.channels)
                });
            }
        }
        terms
    }

    /// The products of both components of the gradients of scalar eigenvectors with `width` numbers of a row: the first
    /// component with those from 0 on, the second with those from `channels` on. One result lies behind the other.
    pub(crate) fn gradient_terms(&self, width: usize) -> Vec<Term> {
        let (columns, channels) = (self.columns[0], self.features.multiplicity(0));
        let terms = (0..2).map(|part| Term {
            block: self.gradient_block(),
            stride: 2 * columns,
            column: part * columns,
            columns,
            feature: part * channels,
            width,
            spectrum: part * columns * width,
            spectrum_stride: width,
            add: false,
        });
        terms.collect()
    }

    /// Where the gradients of scalar eigenvectors begin in the bases, counted in numbers for each vertex.
    pub(crate) fn gradient_block(&self) -> usize {
        self.basis_width() - 2 * self.columns[0]
    }

    /// The product of the whole basis of an order with features from `feature` on, which are the columns `within`
    /// of its raw spectrum.
    fn term(&self, order: usize, filter: &Filter, feature: usize, within: Range<usize>) -> Term {
        let dimension = irrep_dimension(order);
        let before = self.columns[..order].iter().enumerate();
        let stride = dimension * filter.columns;
        Term {
            block: before.map(|(m, k)| irrep_dimension(m) * k).sum(),
            stride,
            column: 0,
            columns: stride,
            feature,
            width: within.len(),
            spectrum: filter.raw + within.start,
            spectrum_stride: dimension * filter.channels,
            add: false,
        }
    }

    /// Checks that there are eigenvectors of each order of the features.
    ///
    /// # Errors
    /// [`KernelError::Setting`] that names the order.
    pub fn check_columns(&self) -> Result<(), KernelError> {
        for (order, _) in self.features.orders() {
            if self.columns.get(order).is_none_or(|&columns| columns == 0) {
                return Err(KernelError::Setting {
                    operator: OPERATOR,
                    problem: format!("there are no eigenvectors of order {order}"),
                });
            }
        }
        Ok(())
    }

    /// Checks the settings and the lengths of the spectra for an operator that diffuses; the number of vertices.
    pub(crate) fn check_spectra(
        &self,
        operator: &'static str,
        mesh_offsets: &[u32],
        spectra: Spectra<usize>,
    ) -> Result<usize, KernelError> {
        self.check_columns()?;
        let vertices = check_mesh_offsets(mesh_offsets)?;
        let count = |name, found, expected| check_count(operator, name, found, expected);
        count("mass", spectra.mass, vertices)?;
        count("bases", spectra.bases, vertices * self.basis_width())?;
        let eigenvalues = (mesh_offsets.len() - 1) * self.columns.iter().sum::<usize>();
        count("eigenvalues", spectra.eigenvalues, eigenvalues)?;
        Ok(vertices)
    }
}

/// Numbers of the bases of all orders and of the gradients for each vertex, with `columns` eigenvectors of each order.
pub fn basis_width(columns: &[usize]) -> usize {
    let orders = columns.iter().enumerate();
    let gradients = 2 * columns.first().unwrap_or(&0);
    orders.map(|(m, k)| irrep_dimension(m) * k).sum::<usize>() + gradients
}

/// The filter and its derivatives by the logarithm of the time and by the band, from `u` and `exp(-u)`.
fn filter<T: Real>(u: T, decay: T, band: T) -> [T; 3] {
    [decay * (T::one() + band * u), u * decay * (band - T::one() - band * u), u * decay]
}

kinds! {
    /// The spectra of a batch.
    BatchSpectra = Spectra<&'a [T]>, Spectra<DeviceSlice<'a, f32>>;
}

arguments! {
    /// Diffuses `x`, and saves the spectrum.
    Forward = forward(OPERATOR, scratch) {
        op: &'a Diffusion, mesh_offsets: &'a [u32];
        spectra: BatchSpectra,
        log_times: read[op.parameter_count()],
        bands: read[op.parameter_count()],
        x: read[spectra.mass.len(), op.features.dimension()],
        y: write[spectra.mass.len(), op.output().dimension()],
        saved: write[op.saved_count(mesh_offsets.len() - 1)];
        op.check_spectra(OPERATOR, mesh_offsets, spectra.map(|values| values.len()))?;
    }

    /// Overwrites `dx`, if it is wanted, and adds to the gradients of the filters.
    Backward = backward(OPERATOR, scratch) {
        op: &'a Diffusion, mesh_offsets: &'a [u32];
        spectra: BatchSpectra,
        log_times: read[op.parameter_count()],
        bands: read[op.parameter_count()],
        saved: read[op.saved_count(mesh_offsets.len() - 1)],
        dy: read[spectra.mass.len(), op.output().dimension()],
        dx: write_if[spectra.mass.len(), op.features.dimension()],
        dlog_times: add[op.parameter_count()],
        dbands: add[op.parameter_count()];
        op.check_spectra(OPERATOR, mesh_offsets, spectra.map(|values| values.len()))?;
    }
}
