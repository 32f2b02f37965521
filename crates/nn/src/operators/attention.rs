//! Attention over neighbours, all heads at once, on a GPU.

use crate::{Context, Device, GraphBatch, Operator, ParameterId, Result, Storage, Tape, Var};
use gemcnn_kernels::attention::{self, Attention, HeadWeights};
use gemcnn_kernels::cuda::{CudaDevice, DeviceBuffer};
use gemcnn_kernels::{KernelError, Real, Resolve};
use std::sync::Arc;

/// Attention of each vertex over its neighbours ([`attention`]), on a GPU that [supports](attention::cuda::supports)
/// it. Saves `x`, the queries, and one number for each edge and head.
///
/// # Shapes
/// `x`: one row of `config.input` for each vertex; result: one row of `config.output`.
#[derive(Debug)]
pub struct Attend<'a, T> {
    /// Types and heads.
    pub config: Arc<Attention>,
    /// The graph.
    pub batch: &'a GraphBatch<T>,
    /// The parameters of each head; a bias may be absent.
    pub heads: Arc<[HeadWeights<Option<ParameterId>>]>,
}

impl<T: Real> Attend<'_, T> {
    /// The weights of all heads, one after the other.
    fn weights(&self, context: &mut Context<'_, T>, device: &CudaDevice) -> Result<DeviceBuffer<f32>> {
        let mut all = device.buffer(self.config.parameter_count())?;
        for (head, ids) in self.heads.iter().enumerate() {
            let ([query, key, value, bias], _) = context.values([ids.query, ids.key, ids.value, ids.bias])?;
            let weights =
                HeadWeights { query: query.cuda()?, key: key.cuda()?, value: value.cuda()?, bias: bias.cuda()? };
            attention::cuda::pack(device, &self.config, head, weights, &all.view_mut())?;
        }
        Ok(all)
    }
}

fn gpu<T: Real>(context: &Context<'_, T>) -> Result<CudaDevice> {
    match context.device() {
        Device::Cuda(device) => Ok(device.clone()),
        Device::Cpu => Err(KernelError::OtherDevice.into()),
    }
}

impl<T: Real> Operator<T> for Attend<'_, T> {
    /// `x`, queries, and weights of attention.
    type Saved = (Var<T>, [Storage<T>; 2]);

    fn has_parameters(&self) -> bool {
        true
    }

    fn forward(&self, context: &mut Context<'_, T>, [x]: [Var<T>; 1]) -> Result<(Var<T>, Self::Saved)> {
        let (config, device) = (&*self.config, gpu(context)?);
        x.expect_kind("input of attention", &config.input)?;
        x.expect_rows("the input of attention", self.batch.vertex_count())?;
        let outputs = x.rows() * config.output.dimension();
        let mut y = context.buffer(outputs)?;
        let mut queries = context.buffer(if context.is_training() { outputs } else { 0 })?;
        let edges = context.edge_rows(self.batch);
        let mut weights = context.buffer(edges * config.heads)?;
        let parameters = self.weights(context, &device)?;
        let graph = self.batch.on(context.device())?;
        attention::cuda::forward(
            &device,
            config,
            graph.view().cuda()?,
            x.view().cuda()?,
            parameters.view(),
            queries.view_mut().cuda()?,
            weights.view_mut().cuda()?,
            y.view_mut().cuda()?,
        )?;
        let y = Var::new(config.output.clone(), x.rows(), y);
        Ok((y, (x, [queries, weights])))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        (x, [queries, weights]): Self::Saved,
        dy: Storage<T>,
        [wanted]: [bool; 1],
    ) -> Result<[Option<Storage<T>>; 1]> {
        let (config, device) = (&*self.config, gpu(context)?);
        let mut dx = context.buffer_if(wanted, x.values_len())?;
        let parameters = self.weights(context, &device)?;
        let mut all = device.buffer(parameters.len())?;
        let graph = self.batch.on(context.device())?;
        attention::cuda::backward(
            &device,
            config,
            graph.view().cuda()?,
            x.view().cuda()?,
            parameters.view(),
            queries.view().cuda()?,
            weights.view().cuda()?,
            dy.view().cuda()?,
            dx.as_mut().map(Storage::view_mut).cuda()?,
            all.view_mut(),
        )?;
        for (head, ids) in self.heads.iter().enumerate() {
            let (_, [query, key, value, bias], _) = context.gradients([ids.query, ids.key, ids.value, ids.bias])?;
            let gradients =
                HeadWeights { query: query.cuda()?, key: key.cuda()?, value: value.cuda()?, bias: bias.cuda()? };
            attention::cuda::add_gradients(&device, config, head, all.view(), &gradients)?;
        }
        Ok([dx])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`Attend`] if the device of the tape supports these settings; `None` if it does not.
    pub fn attend(
        &mut self,
        config: &Arc<Attention>,
        batch: &'a GraphBatch<T>,
        heads: &Arc<[HeadWeights<Option<ParameterId>>]>,
        x: Var<T>,
    ) -> Result<Option<Var<T>>> {
        match self.device() {
            Device::Cuda(device) if attention::cuda::supports(device, config)? => {}
            _ => return Ok(None),
        }
        let operator = Attend { config: Arc::clone(config), batch, heads: Arc::clone(heads) };
        self.apply(operator, [x]).map(Some)
    }
}
