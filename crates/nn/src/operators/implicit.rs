//! Diffusion by implicit solves, and gradients of scalars.

use crate::{Context, HeatBatch, Operator, ParameterId, Result, Storage, Tape, Var};
use gemcnn_kernels::implicit::{Backward, Forward, Implicit};
use gemcnn_kernels::incidence::Target;
use gemcnn_kernels::{Aggregation, FeatureType, Real};
use std::sync::Arc;

/// Implicit diffusion for fixed times, and a learned sum over the times for each channel; see
/// [`gemcnn_kernels::implicit`]. Saves the results of all times.
///
/// # Shapes
/// `x` and `y`: one row for each vertex; `mix`: a factor for each time and irrep.
#[derive(Debug, Clone)]
pub struct DiffuseImplicitly<'a, T> {
    /// The operators of the meshes.
    pub heat: &'a HeatBatch<T>,
    /// Type of the features and times.
    pub config: Arc<Implicit>,
    /// The factors.
    pub mix: ParameterId,
}

impl<T: Real> Operator<T> for DiffuseImplicitly<'_, T> {
    type Saved = Storage<T>;

    fn has_parameters(&self) -> bool {
        true
    }

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved)> {
        context.reads_fixed_data();
        let (heat, config) = (self.heat, &*self.config);
        x.expect_kind("input of an implicit diffusion", &config.features)?;
        x.expect_rows("the input of an implicit diffusion", heat.vertex_count())?;
        let mut y = context.buffer(x.values_len())?;
        let mut saved = context.buffer(config.times.len() * x.values_len())?;
        let heat = heat.on(context.device())?;
        let ([mix], mut run) = context.values([Some(self.mix)])?;
        let (to, saved_to) = (y.view_mut(), saved.view_mut());
        Forward { op: config, heat: heat.view(), mix, x: x.view(), y: to, saved: saved_to }.run(&mut run)?;
        Ok((Var::new(config.features.clone(), x.rows(), y), saved))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        saved: Self::Saved,
        dy: Storage<T>,
        [wanted]: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1]> {
        let mut dx = context.buffer_if(wanted, dy.len())?;
        let heat = self.heat.on(context.device())?;
        let ([mix], [dmix], mut run) = context.gradients([Some(self.mix)])?;
        let (saved, dy, to) = (saved.view(), dy.view(), dx.as_mut().map(Storage::view_mut));
        Backward { op: &self.config, heat: heat.view(), mix, saved, dy, dx: to, dmix }.run(&mut run)?;
        Ok([dx])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`DiffuseImplicitly`].
    pub fn diffuse_implicitly(
        &mut self,
        heat: &'a HeatBatch<T>,
        config: &Arc<Implicit>,
        mix: ParameterId,
        x: Var<T>,
    ) -> Result<Var<T>> {
        let config = Arc::clone(config);
        self.apply(DiffuseImplicitly { heat, config, mix }, [x])
    }

    /// Gradients of scalars on surfaces, from the jets of the meshes: scalars of each vertex become as many irreps of order
    /// 1. Saves nothing.
    pub fn surface_gradient(&mut self, heat: &'a HeatBatch<T>, x: Var<T>) -> Result<Var<T>> {
        x.expect_scalars("the input of a surface gradient")?;
        x.expect_rows("the input of a surface gradient", heat.vertex_count())?;
        // The two rows of a vertex are the two components of its vectors.
        let output = (FeatureType::new(&[0, x.kind().dimension()]), x.rows());
        self.sum_entries(Target::Rows, Aggregation::Sum, &heat.gradient, x, output)
    }
}
