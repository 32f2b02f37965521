//! Operators: differentiable functions of features, open to implementations from outside.

use crate::parameters::Access;
use crate::storage::Storage;
use crate::{Device, GraphBatch, NnError, ParameterId, Result, Var, Workspace};
use gemcnn_kernels::dropout::cuda::DeviceStream;
use gemcnn_kernels::random::Stream;
use gemcnn_kernels::{Executor, OnDevice, Real, View, ViewMut};
use std::sync::Arc;

/// A differentiable function of `N` features.
///
/// [`Tape::apply`](crate::Tape::apply) runs `forward` and, in training, keeps the operator and what it
/// saved until the backward pass. The operator decides what is saved: its inputs, something smaller, or
/// nothing. Both functions work on any device: views of buffers ([`Storage::view`]) are passed to a CPU
/// and a CUDA version by [`dispatch!`](gemcnn_kernels::dispatch), or to the CPU alone by
/// [`Executor::cpu_only`], which refuses a GPU with an error that names the operator.
///
/// ```
/// use gemcnn_nn::{Context, NnError, Operator, Parameters, Storage, Stream, Tape, Var, Workspace};
/// use gemcnn_kernels::{Real, Resolve};
///
/// /// `y = x^2` of each scalar.
/// struct Square;
///
/// impl<T: Real> Operator<T> for Square {
///     type Saved = Var<T>;
///
///     fn forward(
///         &self,
///         context: &mut Context<'_, T>,
///         [x]: [Var<T>; 1],
///     ) -> Result<(Var<T>, Self::Saved), NnError> {
///         x.expect_scalars("the input of a square")?;
///         let mut y = context.buffer(x.values_len())?;
///         context.executor().cpu_only("square")?;
///         let values = y.view_mut().host()?.iter_mut().zip(x.view().host()?);
///         values.for_each(|(y, &x)| *y = x * x);
///         Ok((Var::new(x.kind().clone(), x.rows(), y), x))
///     }
///
///     fn backward(
///         &self,
///         context: &mut Context<'_, T>,
///         x: Self::Saved,
///         gradient: Storage<T>,
///         _wanted: [bool; 1],
///     ) -> Result<[Option<Storage<T>>; 1], NnError> {
///         let mut dx = context.buffer(gradient.len())?;
///         let inputs = gradient.view().host()?.iter().zip(x.view().host()?);
///         let values = dx.view_mut().host()?.iter_mut().zip(inputs);
///         values.for_each(|(dx, (&dy, &x))| *dx = (x + x) * dy);
///         Ok([Some(dx)])
///     }
/// }
///
/// let mut workspace = Workspace::<f64>::default();
/// let mut parameters = Parameters::new();
/// let mut tape = Tape::training(&mut workspace, &mut parameters, Stream { seed: 1, step: 0 });
/// let x = tape.tracked_input("1x0".parse()?, &[3.0])?;
/// let y = tape.apply(Square, [x.clone()])?;
/// let loss = tape.mean_square(y, &[0.0])?;
/// let gradients = tape.backward_to(&loss, &[&x])?;
/// assert_eq!(gradients[0][0], 2.0 * 9.0 * 2.0 * 3.0);
/// # Ok::<(), NnError>(())
/// ```
pub trait Operator<T: Real, const N: usize = 1> {
    /// What the backward pass needs beside the operator itself.
    type Saved;

    /// True if it reads parameters, so that it is recorded even if no input has a gradient.
    fn has_parameters(&self) -> bool {
        false
    }

    /// Computes the output ([`Var::new`]) and what the backward pass needs.
    fn forward(&self, context: &mut Context<'_, T>, inputs: [Var<T>; N]) -> Result<(Var<T>, Self::Saved)>;

    /// Computes the gradients by the inputs from the gradient by the output, and adds to the gradients of
    /// its parameters ([`Context::gradients`]). A gradient that is not `wanted` may be `None`.
    fn backward(
        &self,
        context: &mut Context<'_, T>,
        saved: Self::Saved,
        gradient: Storage<T>,
        wanted: [bool; N],
    ) -> Result<[Option<Storage<T>>; N]>;
}

/// A random number stream of one operator in one step.
pub type RandomStream = OnDevice<Stream, (Arc<DeviceStream>, u64)>;

/// Access of an operator to the device, memory, parameters and random numbers of its tape.
pub struct Context<'c, T: Real> {
    pub(crate) workspace: &'c mut Workspace<T>,
    pub(crate) access: Access<'c, T>,
    /// Random operators so far: each has its own stream.
    pub(crate) random_steps: &'c mut u64,
}

/// Views of the values of `N` parameters, and where to run.
type Values<'v, T, const N: usize> = ([View<'v, T>; N], Executor<'v, T>);
/// Views of the values of `N` parameters and of their gradients, and where to run.
type Gradients<'v, T, const N: usize> = ([View<'v, T>; N], [ViewMut<'v, T>; N], Executor<'v, T>);

impl<T: Real> Context<'_, T> {
    /// Device of the tape.
    pub fn device(&self) -> &Device {
        self.workspace.device()
    }

    /// True in a training step: outputs are recorded and dropout is active.
    pub fn is_training(&self) -> bool {
        matches!(self.access, Access::Training { .. })
    }

    /// A buffer of `length` unspecified values.
    pub fn buffer(&self, length: usize) -> Result<Storage<T>> {
        self.workspace.take(length)
    }

    /// A buffer of `length` unspecified values if `wanted`: for a gradient.
    pub fn buffer_if(&self, wanted: bool, length: usize) -> Result<Option<Storage<T>>> {
        wanted.then(|| self.buffer(length)).transpose()
    }

    /// A buffer of `length` zeros.
    pub fn zeros(&self, length: usize) -> Result<Storage<T>> {
        self.workspace.zeros(length)
    }

    /// A copy of a buffer.
    pub fn duplicate(&self, values: &Storage<T>) -> Result<Storage<T>> {
        self.workspace.duplicate(values)
    }

    /// Number of rows of features with one row for each directed edge of a graph. A captured training step
    /// with such features is replayed only on graphs with the same numbers of edges.
    pub fn edge_rows(&mut self, batch: &GraphBatch<T>) -> usize {
        self.workspace.has_edge_rows = true;
        batch.edge_count()
    }

    /// Declares that the operator reads data of the batch beside features, graphs and clusters. Training steps
    /// with such an operator are not captured as a CUDA graph, because a replay would read the data of the
    /// batch that was captured.
    pub fn reads_fixed_data(&mut self) {
        self.workspace.has_fixed_data = true;
    }

    /// Where to run: the CPU with its scratch memory, or the GPU.
    pub fn executor(&mut self) -> Executor<'_, T> {
        self.workspace.executor()
    }

    /// Values of parameters, and where to run. An absent parameter is empty.
    ///
    /// # Errors
    /// Parameters on another GPU.
    pub fn values<const N: usize>(&mut self, ids: [Option<ParameterId>; N]) -> Result<Values<'_, T, N>> {
        let values = self.access.parameters().views(self.workspace.device(), ids)?;
        Ok((values, self.workspace.executor()))
    }

    /// Values of parameters, to change them outside of gradient descent (running statistics), and where
    /// to run; `None` in inference.
    ///
    /// # Errors
    /// Parameters on another GPU.
    #[allow(clippy::type_complexity)]
    pub fn values_mut<const N: usize>(
        &mut self,
        ids: [ParameterId; N],
    ) -> Result<Option<([ViewMut<'_, T>; N], Executor<'_, T>)>> {
        let Some(parameters) = self.access.parameters_mut() else { return Ok(None) };
        let values = parameters.views_mut(self.workspace.device(), ids)?;
        Ok(Some((values, self.workspace.executor())))
    }

    /// Values of parameters and their gradients to add to, and where to run. An absent parameter is empty.
    ///
    /// # Errors
    /// Parameters on another GPU, or a tape that does not train.
    pub fn gradients<const N: usize>(&mut self, ids: [Option<ParameterId>; N]) -> Result<Gradients<'_, T, N>> {
        let Access::Training { parameters, .. } = &mut self.access else {
            return Err(NnError::NotTraining { what: "a backward pass" });
        };
        let (values, gradients) = parameters.gradient_views(self.workspace.device(), ids)?;
        Ok((values, gradients, self.workspace.executor()))
    }

    /// A random number stream of its own for the calling operator; `None` unless training.
    pub fn random_stream(&mut self) -> Result<Option<RandomStream>> {
        let Access::Training { randomness, .. } = &self.access else { return Ok(None) };
        let stream = *randomness;
        // Golden-ratio steps keep the seeds of the operators of one step apart.
        let salt = self.random_steps.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        *self.random_steps += 1;
        Ok(Some(match self.workspace.device().clone() {
            Device::Cpu => OnDevice::Host(Stream { seed: stream.seed ^ salt, step: stream.step }),
            Device::Cuda(device) => OnDevice::Cuda((self.workspace.device_stream(&device, stream)?, salt)),
        }))
    }
}
