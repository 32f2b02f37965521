//! Updates of vertices with their messages, as one operator.

use super::LinearWeights;
use super::messages::{OneKernel, host_weights};
use crate::{Context, Device, Operator, Result, Storage, Tape, Var};
use gemcnn_kernels::messages::chain::{self, Chain};
use gemcnn_kernels::messages::host::{self, HostUpdate};
use gemcnn_kernels::regular::Plan;
use gemcnn_kernels::{FeatureType, KernelError, Real, Resolve};
use std::sync::Arc;

/// An update function: equivariant linear maps with bias, on features and messages of one type, to the same type.
#[derive(Debug, Clone)]
pub struct UpdateFunction<T: Real> {
    /// The maps; the first one takes the channels of features and messages.
    pub layers: Vec<LinearWeights>,
    /// The nonlinearity between them; its type is that of features and messages.
    pub plan: Arc<Plan<T>>,
}

/// Updates of vertices, `x + phi(x, m)`, in inference on the CPU, or on a GPU that computes them in one kernel. Saves
/// `x` and the messages `m`.
///
/// # Shapes
/// `x`, `m` and the result: as many rows of the type of the plan.
#[derive(Debug)]
pub struct UpdateVertices<T: Real> {
    /// The update function.
    pub function: Arc<UpdateFunction<T>>,
}

impl<T: Real> UpdateFunction<T> {
    fn kind(&self) -> &FeatureType {
        &self.plan.config().input
    }

    /// The layers as one kernel, if the device supports both passes.
    fn kernel(&self, device: &Device) -> Result<Option<OneKernel<'_>>> {
        let Device::Cuda(device) = device else { return Ok(None) };
        let plan = self.plan.cuda();
        let chain = Chain::update(device, self.kind(), self.layers.len(), plan)?;
        let chain = chain.filter(Chain::has_backward);
        Ok(chain.map(|chain| OneKernel::new(device, chain, self.layers.iter().copied())))
    }

    /// The layers for one pass over the vertices on the CPU, if it supports them.
    fn on_host(&self) -> Option<HostUpdate<'_, T>> {
        let has_biases = self.layers.iter().all(|layer| layer.bias.is_some());
        HostUpdate::new(self.layers.len(), &self.plan).filter(|_| has_biases)
    }

    fn expected(&self, device: &Device) -> Result<OneKernel<'_>> {
        self.kernel(device)?.ok_or_else(|| KernelError::OtherDevice.into())
    }
}

impl<T: Real> Operator<T, 2> for UpdateVertices<T> {
    type Saved = [Var<T>; 2];

    fn has_parameters(&self) -> bool {
        true
    }

    fn forward(&self, context: &mut Context<'_, T>, [x, m]: [Var<T>; 2]) -> Result<(Var<T>, Self::Saved)> {
        let kind = self.function.kind();
        x.expect_kind("input of an update", kind)?;
        m.expect_kind("messages of an update", kind)?;
        m.expect_rows("the messages of an update", x.rows())?;
        let mut y = context.buffer(x.values_len())?;
        if let (Device::Cpu, Some(update)) = (context.device(), self.function.on_host()) {
            let weights = host_weights(context, self.function.layers.iter().copied())?;
            let scratch = context.executor().cpu_only("updates")?.narrow;
            let ends = [x.view().host()?, m.view().host()?];
            host::update(&update, ends, &weights, y.view_mut().host()?, scratch)?;
            return Ok((Var::new(kind.clone(), x.rows(), y), [x, m]));
        }
        let kernel = self.function.expected(context.device())?;
        let weights = kernel.weights(context)?;
        let ends = [x.view().cuda()?, m.view().cuda()?];
        chain::update(&kernel.device, &kernel.chain, x.rows(), ends, weights.view(), y.view_mut().cuda()?)?;
        Ok((Var::new(kind.clone(), x.rows(), y), [x, m]))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        [x, m]: Self::Saved,
        dy: Storage<T>,
        wanted: [bool; 2],
    ) -> Result<[Option<Storage<T>>; 2]> {
        let kernel = self.function.expected(context.device())?;
        let weights = kernel.weights(context)?;
        let mut gradients = kernel.device.buffer(weights.len())?;
        let mut dx = context.buffer(x.values_len())?;
        let mut dm = context.buffer(m.values_len())?;
        chain::update_backward(
            &kernel.device,
            &kernel.chain,
            x.rows(),
            [x.view().cuda()?, m.view().cuda()?],
            weights.view(),
            dy.view().cuda()?,
            [dx.view_mut().cuda()?, dm.view_mut().cuda()?],
            gradients.view_mut(),
        )?;
        kernel.add_gradients(context, gradients.view())?;
        let [of_x, of_m] = wanted;
        Ok([of_x.then_some(dx), of_m.then_some(dm)])
    }
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies [`UpdateVertices`] if the device of the tape supports it, on the CPU in inference; `None` if it does
    /// not.
    pub fn update_vertices(
        &mut self,
        function: &Arc<UpdateFunction<T>>,
        x: Var<T>,
        m: Var<T>,
    ) -> Result<Option<Var<T>>> {
        let is_supported = match self.device() {
            Device::Cpu => !self.is_training() && function.on_host().is_some(),
            device => function.kernel(device)?.is_some(),
        };
        if !is_supported {
            return Ok(None);
        }
        let function = Arc::clone(function);
        self.apply(UpdateVertices { function }, [x, m]).map(Some)
    }
}
