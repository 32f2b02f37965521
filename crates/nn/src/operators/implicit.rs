//! Diffusion by implicit solves, and gradients of scalars.

use crate::{Context, HeatBatch, NnError, Operator, ParameterId, Storage, Tape, Var};
use gemcnn_kernels::implicit::{self, Implicit};
use gemcnn_kernels::{Aggregation, FeatureType, Real, dispatch, incidence};
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

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved), NnError> {
        context.reads_fixed_data();
        let (heat, config) = (self.heat, &*self.config);
        x.expect_kind("input of an implicit diffusion", &config.features)?;
        x.expect_rows("the input of an implicit diffusion", heat.vertex_count())?;
        let mut y = context.buffer(x.values_len())?;
        let mut saved = context.buffer(config.times.len() * x.values_len())?;
        let coupling = heat.coupling.on(context.device())?;
        let copies = heat.copies.on(context.device())?;
        let masses = heat.masses_on(context.device())?;
        let ([mix], run) = context.values([Some(self.mix)])?;
        dispatch!(
            run,
            implicit::forward(
                config;
                coupling.view(),
                copies.view(),
                masses.view(),
                mix,
                x.view(),
                y.view_mut(),
                saved.view_mut();
                scratch
            )
        );
        Ok((Var::new(config.features.clone(), x.rows(), y), saved))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        saved: Self::Saved,
        dy: Storage<T>,
        [wanted]: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let heat = self.heat;
        let mut dx = context.buffer_if(wanted, dy.len())?;
        let coupling = heat.coupling.on(context.device())?;
        let copies = heat.copies.on(context.device())?;
        let masses = heat.masses_on(context.device())?;
        let ([mix], [dmix], run) = context.gradients([Some(self.mix)])?;
        dispatch!(
            run,
            implicit::backward(
                &self.config;
                coupling.view(),
                copies.view(),
                masses.view(),
                mix,
                saved.view(),
                dy.view(),
                dx.as_mut().map(Storage::view_mut),
                dmix;
                scratch
            )
        );
        Ok([dx])
    }
}

/// Gradients of scalars on surfaces, from the jets of the meshes. Saves the type.
///
/// # Shapes
/// `x`: scalars of each vertex; `y`: as many irreps of order 1.
#[derive(Debug, Clone, Copy)]
pub struct SurfaceGradient<'a, T>(pub &'a HeatBatch<T>);

impl<T: Real> Operator<T> for SurfaceGradient<'_, T> {
    type Saved = FeatureType;

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved), NnError> {
        context.reads_fixed_data();
        let kind = x.kind().clone();
        x.expect_scalars("the input of a surface gradient")?;
        x.expect_rows("the input of a surface gradient", self.0.vertex_count())?;
        // The two rows of a vertex are the two components of its vectors.
        let mut y = context.buffer(2 * x.values_len())?;
        let gradient = self.0.gradient.on(context.device())?;
        let sum = Aggregation::Sum;
        dispatch!(
            context.executor(),
            incidence::apply(&kind, sum; gradient.view(), x.view(), y.view_mut())
        );
        let vectors = FeatureType::new(&[0, kind.dimension()]);
        Ok((Var::new(vectors, x.rows(), y), kind))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        kind: Self::Saved,
        dy: Storage<T>,
        _: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1], NnError> {
        let mut dx = context.buffer(dy.len() / 2)?;
        let gradient = self.0.gradient.on(context.device())?;
        let sum = Aggregation::Sum;
        dispatch!(
            context.executor(),
            incidence::apply_backward(&kind, sum; gradient.view(), dy.view(), dx.view_mut())
        );
        Ok([Some(dx)])
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
    ) -> Result<Var<T>, NnError> {
        let config = Arc::clone(config);
        self.apply(DiffuseImplicitly { heat, config, mix }, [x])
    }

    /// Applies [`SurfaceGradient`].
    pub fn surface_gradient(&mut self, heat: &'a HeatBatch<T>, x: Var<T>) -> Result<Var<T>, NnError> {
        self.apply(SurfaceGradient(heat), [x])
    }
}
