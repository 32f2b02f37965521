//! The tape: records the operators of a forward pass and runs their backward pass.
//!
//! [`Tape::apply`] runs any [`Operator`] on features ([`Var`]) and returns new features. A [`Var`] shares
//! its buffer; clone it to use it twice. A buffer returns to the memory pool as soon as neither a `Var` nor
//! a recorded operator holds it. The operators of this crate have short forms as methods, such as
//! [`Tape::linear`].
//!
//! A tape runs on the device of its [`Workspace`]. On a GPU operators are queued; only [`Var::values`],
//! [`Loss::value`](crate::Loss::value) and the like wait for results.
//!
//! [`Tape::backward`] runs the recorded operators in reverse order, adds to the gradients in
//! [`Parameters`] and frees the features of each operator on the way.

use crate::error::check_size;
use crate::loss::{Loss, LossOperator, LossValue};
use crate::operator::{Context, Operator};
use crate::parameters::{Access, Parameters};
use crate::storage::Storage;
use crate::var::{NodeId, Var};
use crate::{Buffer, Device, NnError, Result, Workspace};
use gemcnn_kernels::random::Stream;
use gemcnn_kernels::{FeatureType, Real};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A recorded operator.
struct Node<'a, T: Real> {
    step: Step<'a, T>,
    /// Nodes of its inputs; `None` for inputs without gradient.
    inputs: Vec<Option<usize>>,
    /// Gradient of the loss with respect to its output, accumulated so far.
    gradient: Option<Gradient<T>>,
}

enum Step<'a, T: Real> {
    /// Data whose gradient is requested.
    Input,
    Operator(Box<dyn Recorded<T> + 'a>),
}

/// Gradient with respect to the output of a node: features, or the weight of a loss.
enum Gradient<T: Real> {
    Features(Storage<T>),
    Loss(f64),
}

/// An operator of any type and what it saved.
trait Recorded<T: Real> {
    fn backward(
        self: Box<Self>,
        context: &mut Context<'_, T>,
        gradient: Gradient<T>,
        wanted: &[bool],
    ) -> Result<Vec<Option<Storage<T>>>>;
}

struct RecordedOperator<O, S, const N: usize>(O, S);
struct RecordedLoss<O, S, const N: usize>(O, S);

impl<T: Real, const N: usize, O: Operator<T, N>> Recorded<T> for RecordedOperator<O, O::Saved, N> {
    fn backward(
        self: Box<Self>,
        context: &mut Context<'_, T>,
        gradient: Gradient<T>,
        wanted: &[bool],
    ) -> Result<Vec<Option<Storage<T>>>> {
        let Gradient::Features(gradient) = gradient else { return Ok(Vec::new()) };
        let wanted = std::array::from_fn(|i| wanted[i]);
        let gradients = self.0.backward(context, self.1, gradient, wanted)?;
        Ok(gradients.into())
    }
}

impl<T: Real, const N: usize, O: LossOperator<T, N>> Recorded<T> for RecordedLoss<O, O::Saved, N> {
    fn backward(
        self: Box<Self>,
        context: &mut Context<'_, T>,
        gradient: Gradient<T>,
        wanted: &[bool],
    ) -> Result<Vec<Option<Storage<T>>>> {
        let Gradient::Loss(weight) = gradient else { return Ok(Vec::new()) };
        let wanted = std::array::from_fn(|i| wanted[i]);
        let gradients = self.0.backward(context, self.1, weight, wanted)?;
        Ok(gradients.into())
    }
}

/// Records the operators of a forward pass and runs their backward pass.
///
/// ```
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
/// use gemcnn_nn::{Builder, GraphBatch, Module, Parameters, Stream, Tape, Workspace};
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
/// let y = conv.forward(&mut tape, (&batch).into(), x)?;
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
    random_steps: u64,
}

impl<'a, T: Real> Tape<'a, T> {
    /// A tape for training, which records operators. Dropout draws from `randomness`: one seed for a run, one
    /// step number for each training step.
    pub fn training(workspace: &'a mut Workspace<T>, parameters: &'a mut Parameters<T>, randomness: Stream) -> Self {
        Self::new(workspace, Access::Training { parameters, randomness })
    }

    /// A tape for inference, which records nothing. Normalisations use their running statistics, dropout is off, and
    /// features are freed as soon as their last [`Var`] is dropped.
    pub fn inference(workspace: &'a mut Workspace<T>, parameters: &'a Parameters<T>) -> Self {
        Self::new(workspace, Access::Inference(parameters))
    }

    /// A tape for one pass before training, which records nothing. Each gauge convolution rescales its
    /// weights, order by order of its output, so that components have mean square 1 on this data.
    /// Following layers see the rescaled features. Normalisations use the statistics of the data and
    /// dropout is off.
    pub fn calibrating(workspace: &'a mut Workspace<T>, parameters: &'a mut Parameters<T>) -> Self {
        Self::new(workspace, Access::Calibration(parameters))
    }

    fn new(workspace: &'a mut Workspace<T>, access: Access<'a, T>) -> Self {
        static TAPES: AtomicU64 = AtomicU64::new(0);
        Self { workspace, access, nodes: Vec::new(), id: TAPES.fetch_add(1, Ordering::Relaxed), random_steps: 0 }
    }

    /// True if the tape records operators for a backward pass.
    pub fn is_training(&self) -> bool {
        matches!(self.access, Access::Training { .. })
    }

    /// Device of the tape.
    pub fn device(&self) -> &Device {
        self.workspace.device()
    }

    /// Copies data, rows of type `kind`, to the device of the tape.
    ///
    /// # Errors
    /// A number of values that is not a multiple of the type's dimension.
    pub fn input(&mut self, kind: FeatureType, values: &[T]) -> Result<Var<T>> {
        let width = kind.dimension();
        let rows = values.len().checked_div(width).unwrap_or(0);
        check_size(format!("numbers in {rows} rows of {kind}"), rows * width, values.len())?;
        Ok(Var::new(kind, rows, self.workspace.put(values)?))
    }

    /// Data that is on the device of the tape already.
    pub(crate) fn shared_input(&self, kind: FeatureType, values: &Arc<Storage<T>>) -> Var<T> {
        let rows = values.len().checked_div(kind.dimension()).unwrap_or(0);
        Var::new(kind, rows, Arc::clone(values))
    }

    /// As [`input`](Self::input), for data whose gradient is wanted:
    /// [`backward_to`](Self::backward_to) returns it.
    pub fn tracked_input(&mut self, kind: FeatureType, values: &[T]) -> Result<Var<T>> {
        let input = self.input(kind, values)?;
        Ok(if self.is_training() { input.with_node(self.push(Step::Input, Vec::new())) } else { input })
    }

    /// Applies an operator.
    pub fn apply<O, const N: usize>(&mut self, operator: O, inputs: [Var<T>; N]) -> Result<Var<T>>
    where
        O: Operator<T, N> + 'a,
        O::Saved: 'a,
    {
        let nodes = self.nodes_of(&inputs)?;
        let needed = operator.has_parameters() || nodes.iter().any(Option::is_some);
        let (output, saved) = operator.forward(&mut self.context(), inputs)?;
        if !(self.is_training() && needed) {
            return Ok(output);
        }
        let step = Box::new(RecordedOperator::<_, _, N>(operator, saved));
        Ok(output.with_node(self.push(Step::Operator(step), nodes)))
    }

    /// Applies a loss operator, which ends a forward pass.
    pub fn apply_loss<O, const N: usize>(&mut self, operator: O, inputs: [Var<T>; N]) -> Result<Loss>
    where
        O: LossOperator<T, N> + 'a,
        O::Saved: 'a,
    {
        let nodes = self.nodes_of(&inputs)?;
        let (value, saved) = operator.forward(&mut self.context(), inputs)?;
        Ok(self.record_loss(value, operator, saved, nodes))
    }

    /// Records a loss whose value is known.
    pub(crate) fn record_loss<O, const N: usize>(
        &mut self,
        value: LossValue,
        operator: O,
        saved: O::Saved,
        nodes: Vec<Option<usize>>,
    ) -> Loss
    where
        O: LossOperator<T, N> + 'a,
        O::Saved: 'a,
    {
        let node = self.is_training().then(|| {
            let step = Box::new(RecordedLoss::<_, _, N>(operator, saved));
            self.push(Step::Operator(step), nodes)
        });
        Loss::new(value, node)
    }

    /// Runs the backward pass of `loss` and adds to the gradients of the parameters.
    ///
    /// # Errors
    /// An inference tape, or a loss of another tape.
    pub fn backward(self, loss: &Loss) -> Result<()> {
        self.backward_sum(&[(loss, 1.0)])
    }

    /// As [`backward`](Self::backward), for a weighted sum of losses.
    ///
    /// # Errors
    /// An inference tape, or a loss of another tape.
    pub fn backward_sum(mut self, losses: &[(&Loss, f64)]) -> Result<()> {
        self.run_backward(losses, &[]).map(drop)
    }

    /// As [`backward`](Self::backward); also returns the gradients with respect to tracked inputs, in the order of
    /// `inputs`.
    ///
    /// # Errors
    /// An inference tape, or a loss or an input of another tape.
    pub fn backward_to(mut self, loss: &Loss, inputs: &[&Var<T>]) -> Result<Vec<Buffer<T>>> {
        self.run_backward(&[(loss, 1.0)], inputs)
    }

    fn run_backward(&mut self, losses: &[(&Loss, f64)], inputs: &[&Var<T>]) -> Result<Vec<Buffer<T>>> {
        if !self.is_training() {
            return Err(NnError::NotTraining { what: "a backward pass" });
        }
        for (loss, weight) in losses {
            if let Some(index) = self.index_of(loss.node())? {
                self.accumulate(index, Gradient::Loss(*weight))?;
            }
        }
        let mut wanted = Vec::with_capacity(inputs.len());
        for input in inputs {
            wanted.push((self.index_of(input.node())?, self.workspace.pool.zeros(input.values_len())));
        }
        while let Some(node) = self.nodes.pop() {
            let Some(gradient) = node.gradient else { continue };
            match (node.step, gradient) {
                (Step::Input, Gradient::Features(gradient)) => {
                    let index = self.nodes.len();
                    for (_, target) in wanted.iter_mut().filter(|(i, _)| *i == Some(index)) {
                        target.copy_from_slice(&gradient.read()?);
                    }
                }
                (Step::Input, Gradient::Loss(_)) => {}
                (Step::Operator(step), gradient) => {
                    let wants: Vec<bool> = node.inputs.iter().map(Option::is_some).collect();
                    let gradients = step.backward(&mut self.context(), gradient, &wants)?;
                    for (input, gradient) in node.inputs.into_iter().zip(gradients) {
                        if let (Some(index), Some(gradient)) = (input, gradient) {
                            self.accumulate(index, Gradient::Features(gradient))?;
                        }
                    }
                }
            }
        }
        Ok(wanted.into_iter().map(|(_, gradient)| gradient).collect())
    }

    /// Adds to the gradient of a node.
    fn accumulate(&mut self, index: usize, gradient: Gradient<T>) -> Result<()> {
        let Some(node) = self.nodes.get_mut(index) else { return Ok(()) };
        match (&mut node.gradient, gradient) {
            (Some(Gradient::Features(sum)), Gradient::Features(gradient)) => {
                self.workspace.accumulate(sum, &gradient)?;
            }
            (Some(Gradient::Loss(sum)), Gradient::Loss(weight)) => *sum += weight,
            (empty, gradient) => *empty = Some(gradient),
        }
        Ok(())
    }

    fn push(&mut self, step: Step<'a, T>, inputs: Vec<Option<usize>>) -> NodeId {
        self.nodes.push(Node { step, inputs, gradient: None });
        NodeId { tape: self.id, index: self.nodes.len() - 1 }
    }

    /// Nodes of inputs.
    pub(crate) fn nodes_of(&self, inputs: &[Var<T>]) -> Result<Vec<Option<usize>>> {
        inputs.iter().map(|x| self.index_of(x.node())).collect()
    }

    fn index_of(&self, node: Option<NodeId>) -> Result<Option<usize>> {
        match node {
            Some(node) if node.tape != self.id => Err(NnError::setting(
                "tape",
                "the features or the loss belong to another tape; pass their values to `Tape::input`",
            )),
            node => Ok(node.map(|node| node.index)),
        }
    }

    /// The context of an operator.
    pub(crate) fn context(&mut self) -> Context<'_, T> {
        Context { workspace: self.workspace, access: self.access.reborrow(), random_steps: &mut self.random_steps }
    }
}
