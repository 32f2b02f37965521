//! The tape: one forward pass, recorded so that it can be run backward.
//!
//! Every operator is a method of [`Tape`] that takes features ([`Var`]) by value and returns new
//! ones. A [`Var`] shares its buffer; clone it to use it twice. A buffer goes back to the pool as soon
//! as neither a `Var` nor a recorded operator that needs it for the backward pass holds it:
//! convolutions, linear maps and nonlinearities keep their input, the rest keeps nothing. Where
//! nobody else holds an operand, sums are taken in place.
//!
//! A tape runs on the device of its [`Workspace`]. On a GPU operators are queued and nothing waits for
//! them but [`Var::values`], [`Loss::value`] and the like.
//!
//! [`Tape::backward`] runs the operators in reverse, adds to the gradients in
//! [`Parameters`](crate::Parameters) and frees each operator's features on the way.

/// Runs an operator where the features are: its CPU version, or its twin for the GPU `$cuda`. After the
/// settings come what it reads and what it writes.
macro_rules! run {
    ($cuda:expr, $module:ident::$operator:ident($($setting:expr),*; $($read:expr),*; $($write:expr),*)) => {
        match &$cuda {
            None => $module::$operator($($setting,)* $($read.host()?,)* $($write.host_mut()?),*)?,
            Some(device) => {
                $module::cuda::$operator(device, $($setting,)* $($read.cuda()?,)* $($write.cuda_mut()?),*)?
            }
        }
    };
}

mod convolution;
mod loss;
mod pointwise;
mod pooling;

pub use convolution::{ConvWeights, LinearWeights};
pub use loss::Loss;
pub(crate) use loss::{AnyTargets, DeviceValues, single_targets};
pub use pointwise::NormWeights;

use crate::error::check_size;
use crate::storage::Storage;
use crate::{Buffer, GraphBatch, NnError, ParameterId, Parameters, Workspace};
use convolution::{AggregateStep, GaugeConvStep, LinearStep, SelfMapStep};
use gemcnn_kernels::cuda::{CudaDevice, CudaError, DeviceSlice, DeviceSliceMut};
use gemcnn_kernels::random::Stream;
use gemcnn_kernels::{FeatureType, Real};
use loss::LossStep;
use pointwise::PointwiseStep;
use pooling::PoolingStep;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Features on a tape: rows of one [`FeatureType`].
#[derive(Debug, Clone)]
pub struct Var<T: Real> {
    kind: FeatureType,
    rows: usize,
    value: Arc<Storage<T>>,
    /// Where it was computed; none for data and in inference.
    node: Option<NodeId>,
}

impl<T: Real> Var<T> {
    fn new(kind: FeatureType, rows: usize, value: Storage<T>, node: Option<NodeId>) -> Self {
        Self {
            kind,
            rows,
            value: Arc::new(value),
            node,
        }
    }

    /// Type of each row.
    pub fn kind(&self) -> &FeatureType {
        &self.kind
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The numbers, row after row. On the CPU this is a look at them; from a GPU they are copied, after
    /// all work before.
    ///
    /// # Errors
    /// Work on the GPU that failed.
    pub fn values(&self) -> Result<Cow<'_, [T]>, NnError> {
        self.value.read()
    }

    /// The same numbers, seen as scalars: what only maps that are not equivariant may do.
    pub(crate) fn into_scalars(self) -> Self {
        Self {
            kind: FeatureType::scalars(self.kind.dimension()),
            ..self
        }
    }

    /// Fails unless the features have the type.
    pub(crate) fn expect_kind(&self, what: &str, expected: &FeatureType) -> Result<(), NnError> {
        if self.kind == *expected {
            Ok(())
        } else {
            Err(NnError::Type {
                what: what.into(),
                expected: expected.clone(),
                found: self.kind.clone(),
            })
        }
    }

    fn expect_rows(&self, what: &str, expected: usize) -> Result<(), NnError> {
        check_size(format!("rows of {what}"), expected, self.rows)
    }
}

/// A node of one tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NodeId {
    tape: u64,
    index: usize,
}

/// One recorded operator.
struct Node<'a, T: Real> {
    step: Step<'a, T>,
    /// Nodes of its operands, for those that want a gradient.
    inputs: [Option<usize>; 2],
    /// Gradient of the loss by its output, as far as known.
    gradient: Option<Storage<T>>,
}

/// The closed set of operators, each with what its backward pass needs.
enum Step<'a, T: Real> {
    GaugeConv(GaugeConvStep<'a, T>),
    Aggregate(AggregateStep<'a, T>),
    SelfMap(SelfMapStep<T>),
    Linear(LinearStep<T>),
    Pointwise(PointwiseStep<T>),
    Pooling(PoolingStep<'a, T>),
    Loss(LossStep<'a, T>),
    /// Data whose gradient is wanted.
    Input,
}

/// Gradients by the two operands of a step; none where not wanted.
type InputGradients<T> = [Option<Storage<T>>; 2];

/// The parameters that a tape reads, and in training also changes.
enum Access<'a, T> {
    Inference(&'a Parameters<T>),
    Training {
        parameters: &'a mut Parameters<T>,
        randomness: Stream,
    },
    Calibration(&'a mut Parameters<T>),
}

/// One forward pass over the operators, and its backward pass.
///
/// ```
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
/// use gemcnn_nn::{Builder, GraphBatch, Parameters, Stream, Tape, Workspace};
/// use gemcnn_nn::layers::GemConvConfig;
///
/// let graph = GaugeGraph::new(&shapes::icosahedron(), &GeometryOptions::default())?;
/// let batch = GraphBatch::<f32>::new([&graph])?;
/// let mut parameters = Parameters::new();
/// let conv = GemConvConfig::new("1x0".parse()?, "2x0 + 2x1".parse()?)
///     .init("conv", &mut Builder::new(&mut parameters, 1))?;
///
/// let mut workspace = Workspace::default();
/// let mut tape = Tape::training(&mut workspace, &mut parameters, Stream { seed: 1, step: 0 });
/// let x = tape.input("1x0".parse()?, &[0.5; 12])?;
/// let y = conv.forward(&mut tape, &batch, x)?;
/// let loss = tape.mean_square(y, &[1.0; 12 * 6])?;
/// tape.backward(&loss)?;
/// assert!(parameters.gradient_norm()? > 0.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Tape<'a, T: Real> {
    workspace: &'a mut Workspace<T>,
    access: Access<'a, T>,
    nodes: Vec<Node<'a, T>>,
    id: u64,
    /// Random operators so far: each has its own stream.
    random_steps: u64,
}

impl<'a, T: Real> Tape<'a, T> {
    /// A tape that records, for training. Dropout draws from `randomness`: one seed for a run, one
    /// step for each training step.
    pub fn training(
        workspace: &'a mut Workspace<T>,
        parameters: &'a mut Parameters<T>,
        randomness: Stream,
    ) -> Self {
        Self::new(
            workspace,
            Access::Training {
                parameters,
                randomness,
            },
        )
    }

    /// A tape that records nothing: normalisations use their running statistics, dropout does
    /// nothing, and features are freed as soon as the last [`Var`] of them is dropped.
    pub fn inference(workspace: &'a mut Workspace<T>, parameters: &'a Parameters<T>) -> Self {
        Self::new(workspace, Access::Inference(parameters))
    }

    /// A tape for one pass before training, which records nothing: each gauge convolution rescales its
    /// weights, order by order of its output, so that components have the mean square 1 on this
    /// data. Layers that follow see the rescaled features. Normalisations use the statistics of the
    /// data and dropout does nothing.
    pub fn calibrating(workspace: &'a mut Workspace<T>, parameters: &'a mut Parameters<T>) -> Self {
        Self::new(workspace, Access::Calibration(parameters))
    }

    fn new(workspace: &'a mut Workspace<T>, access: Access<'a, T>) -> Self {
        static TAPES: AtomicU64 = AtomicU64::new(0);
        Self {
            workspace,
            access,
            nodes: Vec::new(),
            id: TAPES.fetch_add(1, Ordering::Relaxed),
            random_steps: 0,
        }
    }

    /// Whether it records.
    pub fn is_training(&self) -> bool {
        matches!(self.access, Access::Training { .. })
    }

    /// Puts data on the tape, copied: rows of `kind`.
    ///
    /// # Errors
    /// A number of values that is no multiple of the type's dimension.
    pub fn input(&mut self, kind: FeatureType, values: &[T]) -> Result<Var<T>, NnError> {
        let width = kind.dimension();
        let rows = values.len().checked_div(width).unwrap_or(0);
        check_size(
            format!("numbers in {rows} rows of {kind}"),
            rows * width,
            values.len(),
        )?;
        Ok(Var::new(kind, rows, self.workspace.put(values)?, None))
    }

    /// Puts data on the tape that is where it runs already.
    pub(crate) fn shared_input(&self, kind: FeatureType, values: &Arc<Storage<T>>) -> Var<T> {
        let rows = values.len().checked_div(kind.dimension()).unwrap_or(0);
        Var {
            kind,
            rows,
            value: Arc::clone(values),
            node: None,
        }
    }

    /// Puts data on the tape whose gradient is wanted: [`backward_to`](Self::backward_to) returns it.
    ///
    /// # Errors
    /// As [`input`](Self::input).
    pub fn tracked_input(&mut self, kind: FeatureType, values: &[T]) -> Result<Var<T>, NnError> {
        let input = self.input(kind, values)?;
        let node = self.record([None, None], true, || Step::Input);
        Ok(Var { node, ..input })
    }

    /// Runs everything that `loss` depends on backward and adds to the parameters' gradients.
    ///
    /// # Errors
    /// An inference tape, or a loss of another tape.
    pub fn backward(self, loss: &Loss) -> Result<(), NnError> {
        self.backward_sum(&[(loss, 1.0)])
    }

    /// As [`backward`](Self::backward), for a weighted sum of losses.
    ///
    /// # Errors
    /// An inference tape, or a loss of another tape.
    pub fn backward_sum(mut self, losses: &[(&Loss, f64)]) -> Result<(), NnError> {
        self.run_backward(losses, &[]).map(drop)
    }

    /// As [`backward`](Self::backward); also returns the gradients by tracked inputs.
    ///
    /// # Errors
    /// An inference tape, or a loss or an input of another tape.
    pub fn backward_to(
        mut self,
        loss: &Loss,
        inputs: &[&Var<T>],
    ) -> Result<Vec<Buffer<T>>, NnError> {
        self.run_backward(&[(loss, 1.0)], inputs)
    }

    fn run_backward(
        &mut self,
        losses: &[(&Loss, f64)],
        inputs: &[&Var<T>],
    ) -> Result<Vec<Buffer<T>>, NnError> {
        if !self.is_training() {
            return Err(NnError::NotTraining {
                what: "a backward pass",
            });
        }
        for (loss, weight) in losses {
            if let Some(index) = self.index_of(loss.node)? {
                // On the host whatever the device, so that the weight can be read without waiting.
                let gradient = self.workspace.pool.copy(&[T::of(*weight)]);
                accumulate(&mut self.nodes, index, Storage::Host(gradient))?;
            }
        }
        let mut wanted = Vec::with_capacity(inputs.len());
        for input in inputs {
            wanted.push((
                self.index_of(input.node)?,
                self.workspace.pool.zeros(input.value.len()),
            ));
        }
        while let Some(node) = self.nodes.pop() {
            let Some(gradient) = node.gradient else {
                continue;
            };
            if matches!(node.step, Step::Input) {
                let index = self.nodes.len();
                for (_, target) in wanted.iter_mut().filter(|(i, _)| *i == Some(index)) {
                    target.copy_from_slice(&gradient.read()?);
                }
                continue;
            }
            let wants = node.inputs.map(|input| input.is_some());
            let gradients = self.step_backward(node.step, gradient, wants)?;
            for (input, gradient) in node.inputs.into_iter().zip(gradients) {
                if let (Some(index), Some(gradient)) = (input, gradient) {
                    accumulate(&mut self.nodes, index, gradient)?;
                }
            }
        }
        Ok(wanted.into_iter().map(|(_, gradient)| gradient).collect())
    }

    fn step_backward(
        &mut self,
        step: Step<'a, T>,
        gradient: Storage<T>,
        wants: [bool; 2],
    ) -> Result<InputGradients<T>, NnError> {
        let Access::Training { parameters, .. } = &mut self.access else {
            return Err(NnError::NotTraining {
                what: "a backward pass",
            });
        };
        let mut context = Context {
            workspace: self.workspace,
            parameters,
        };
        match step {
            Step::GaugeConv(step) => step.backward(&mut context, &gradient, wants),
            Step::Aggregate(step) => step.backward(&mut context, &gradient),
            Step::SelfMap(step) => step.backward(&mut context, &gradient, wants),
            Step::Linear(step) => step.backward(&mut context, &gradient, wants),
            Step::Pointwise(step) => step.backward(&mut context, gradient, wants),
            Step::Pooling(step) => step.backward(&mut context, &gradient),
            Step::Loss(step) => step.backward(&mut context, gradient.host()?[0]),
            Step::Input => Ok([None, None]),
        }
    }

    /// Records a step if this is training and one of its operands or parameters wants a gradient.
    fn record(
        &mut self,
        operands: [Option<NodeId>; 2],
        has_parameters: bool,
        step: impl FnOnce() -> Step<'a, T>,
    ) -> Option<NodeId> {
        let needed = has_parameters || operands.iter().any(Option::is_some);
        if !self.is_training() || !needed {
            return None;
        }
        self.nodes.push(Node {
            step: step(),
            inputs: operands.map(|operand| operand.map(|node| node.index)),
            gradient: None,
        });
        Some(NodeId {
            tape: self.id,
            index: self.nodes.len() - 1,
        })
    }

    /// Fails for features of another tape.
    fn check_own(&self, var: &Var<T>) -> Result<(), NnError> {
        self.index_of(var.node).map(drop)
    }

    fn index_of(&self, node: Option<NodeId>) -> Result<Option<usize>, NnError> {
        match node {
            Some(node) if node.tape != self.id => Err(NnError::setting(
                "tape",
                "features or a loss of another tape; put them on this one as input",
            )),
            node => Ok(node.map(|node| node.index)),
        }
    }

    /// The parameters to read and the memory to work in.
    fn parts(&mut self) -> (&Parameters<T>, &mut Workspace<T>) {
        let parameters = match &self.access {
            Access::Inference(parameters) => parameters,
            Access::Training { parameters, .. } | Access::Calibration(parameters) => &**parameters,
        };
        (parameters, self.workspace)
    }

    /// Room for rows of a type.
    fn output(&self, rows: usize, kind: &FeatureType) -> Result<Storage<T>, NnError> {
        self.workspace.take(rows * kind.dimension())
    }

    /// The GPU, if it runs on one.
    pub(crate) fn cuda(&self) -> Option<CudaDevice> {
        self.workspace.cuda().cloned()
    }
}

/// What a backward step works with.
struct Context<'c, T: Real> {
    workspace: &'c mut Workspace<T>,
    parameters: &'c mut Parameters<T>,
}

impl<T: Real> Context<'_, T> {
    /// The GPU, if it runs on one.
    fn cuda(&self) -> Option<CudaDevice> {
        self.workspace.cuda().cloned()
    }

    fn take(&self, length: usize) -> Result<Storage<T>, NnError> {
        self.workspace.take(length)
    }

    /// Room for the gradient by an operand, if it is wanted.
    fn take_if(&self, wanted: bool, length: usize) -> Result<Option<Storage<T>>, NnError> {
        wanted.then(|| self.take(length)).transpose()
    }

    /// Calls an operator with the values of some parameters and their gradients to add to; absent
    /// ones are empty.
    fn with_gradients<const N: usize, E: Into<NnError>>(
        &mut self,
        ids: [Option<ParameterId>; N],
        run: impl FnOnce([&[T]; N], [&mut [T]; N], &mut Workspace<T>) -> Result<(), E>,
    ) -> Result<(), NnError> {
        // Checks that the parameters are here before gradients are taken out.
        self.parameters.values_of(ids)?;
        let mut gradients = ids.map(|id| self.parameters.take_gradient(id));
        let values = self.parameters.values_of(ids)?;
        let result = run(
            values,
            gradients.each_mut().map(Vec::as_mut_slice),
            self.workspace,
        );
        for (id, gradient) in ids.into_iter().zip(gradients) {
            self.parameters.put_gradient(id, gradient);
        }
        result.map_err(Into::into)
    }

    /// As [`with_gradients`](Self::with_gradients), on a GPU.
    fn with_cuda_gradients<const N: usize>(
        &mut self,
        device: &CudaDevice,
        ids: [Option<ParameterId>; N],
        run: impl FnOnce(
            [DeviceSlice<'_, f32>; N],
            [DeviceSliceMut<'_, f32>; N],
        ) -> Result<(), CudaError>,
    ) -> Result<(), NnError> {
        let parameters = self.parameters.on_mut(device)?;
        let (values, gradients) = parameters.with_gradients(ids)?;
        Ok(run(values, gradients)?)
    }
}

/// Adds to the gradient of a node.
fn accumulate<T: Real>(
    nodes: &mut [Node<'_, T>],
    index: usize,
    gradient: Storage<T>,
) -> Result<(), NnError> {
    let Some(node) = nodes.get_mut(index) else {
        return Ok(());
    };
    match &mut node.gradient {
        Some(sum) => sum.add(&gradient)?,
        empty => *empty = Some(gradient),
    }
    Ok(())
}

/// Fails unless there is one row for each vertex of the batch.
fn expect_batch<T: Real>(what: &str, x: &Var<T>, batch: &GraphBatch<T>) -> Result<(), NnError> {
    x.expect_rows(what, batch.vertex_count())
}
