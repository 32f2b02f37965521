//! Learned diffusion on surfaces.

use crate::{Context, Operator, ParameterId, Result, SpectraBatch, Storage, Tape, Var};
use gemcnn_kernels::diffusion::{Backward, Diffusion, Forward};
use gemcnn_kernels::{FeatureType, Real};

/// Ids of the parameters of a diffusion: one number of each for each irrep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiffusionWeights {
    /// Logarithms of the times.
    pub log_times: ParameterId,
    /// Bands.
    pub bands: ParameterId,
}

/// Diffusion of each channel for a learned time, in the eigenbases of the meshes; see
/// [`gemcnn_kernels::diffusion`]. Saves the spectrum.
///
/// # Shapes
/// `x`: one row for each vertex; `y`: as many rows of the same type, with one more irrep of order 1 for each scalar if
/// gradients are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Diffuse<'a, T> {
    /// The eigenbases.
    pub spectra: &'a SpectraBatch<T>,
    /// The parameters.
    pub weights: DiffusionWeights,
    /// Appends the gradients of the diffused scalars.
    pub gradients: bool,
}

impl<T: Real> Diffuse<'_, T> {
    fn settings(&self, features: &FeatureType) -> Diffusion {
        Diffusion { features: features.clone(), columns: self.spectra.columns().to_vec(), gradients: self.gradients }
    }

    fn ids(&self) -> [Option<ParameterId>; 2] {
        [Some(self.weights.log_times), Some(self.weights.bands)]
    }
}

impl<T: Real> Operator<T> for Diffuse<'_, T> {
    type Saved = (FeatureType, Storage<T>);

    fn has_parameters(&self) -> bool {
        true
    }

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved)> {
        x.expect_rows("the input of a diffusion", self.spectra.vertex_count())?;
        let (config, offsets) = (self.settings(x.kind()), self.spectra.mesh_offsets());
        config.check_columns()?;
        let kind = config.output();
        let mut y = context.buffer(x.rows() * kind.dimension())?;
        let mut saved = context.buffer(config.saved_count(offsets.len() - 1))?;
        let spectra = self.spectra.on(context.device())?;
        let ([log_times, bands], mut run) = context.values(self.ids())?;
        let (spectra, to, saved_to) = (spectra.view(), y.view_mut(), saved.view_mut());
        let (op, mesh_offsets) = (&config, offsets);
        Forward { op, mesh_offsets, spectra, log_times, bands, x: x.view(), y: to, saved: saved_to }.run(&mut run)?;
        let rows = x.rows();
        Ok((Var::new(kind, rows, y), (x.kind().clone(), saved)))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        (kind, saved): Self::Saved,
        dy: Storage<T>,
        [wanted]: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1]> {
        let (config, offsets) = (self.settings(&kind), self.spectra.mesh_offsets());
        let rows = self.spectra.vertex_count();
        let mut dx = context.buffer_if(wanted, rows * kind.dimension())?;
        let spectra = self.spectra.on(context.device())?;
        let ([log_times, bands], [dlog_times, dbands], mut run) = context.gradients(self.ids())?;
        let (op, mesh_offsets, spectra) = (&config, offsets, spectra.view());
        let (saved, dy, to) = (saved.view(), dy.view(), dx.as_mut().map(Storage::view_mut));
        Backward { op, mesh_offsets, spectra, log_times, bands, saved, dy, dx: to, dlog_times, dbands }
            .run(&mut run)?;
        Ok([dx])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`Diffuse`].
    pub fn diffuse(
        &mut self,
        spectra: &'a SpectraBatch<T>,
        weights: DiffusionWeights,
        gradients: bool,
        x: Var<T>,
    ) -> Result<Var<T>> {
        let operator = Diffuse { spectra, weights, gradients };
        self.apply(operator, [x])
    }
}
