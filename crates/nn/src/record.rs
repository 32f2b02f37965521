//! Operators of two functions: one that computes, and one for the gradients.

use crate::{Context, Device, Operator, ParameterId, Result, Storage, Tape, Var};
use gemcnn_kernels::cuda::{CudaError, DeviceSlice, DeviceSliceMut};
use gemcnn_kernels::{Executor, FeatureType, OnDevice, Real, View, ViewMut};

/// What the forward pass keeps for the backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Nothing,
    /// The inputs.
    Inputs,
    /// The output.
    Output,
    /// Both.
    InputsAndOutput,
}

/// An operator with `N` inputs and `P` parameters, for [`Tape::record`].
#[derive(Debug)]
pub struct Recipe<S, T: Real, const N: usize, const P: usize> {
    /// Settings, graphs and the like, for both functions.
    pub state: S,
    /// The inputs.
    pub inputs: [Var<T>; N],
    /// The parameters; an absent one is empty.
    pub parameters: [Option<ParameterId>; P],
    /// Type of the output, and number of its rows.
    pub output: (FeatureType, usize),
    /// What is kept. In the backward pass everything else is empty.
    pub keep: Keep,
}

/// Overwrites the output (last) from the inputs and the parameters.
pub type Forward<S, T, const N: usize, const P: usize> =
    fn(&S, &mut Executor<'_, T>, [View<'_, T>; N], [View<'_, T>; P], ViewMut<'_, T>) -> Result<(), CudaError>;

/// Overwrites the gradients of the inputs and adds to those of the parameters. Each comes with its gradient, and so does
/// the output (last).
pub type Backward<S, T, const N: usize, const P: usize> = fn(
    &S,
    &mut Executor<'_, T>,
    [(View<'_, T>, ViewMut<'_, T>); N],
    [(View<'_, T>, ViewMut<'_, T>); P],
    (View<'_, T>, View<'_, T>),
) -> Result<(), CudaError>;

/// The same, where gradients of inputs are `None` if they are not wanted.
pub type BackwardWanted<S, T, const N: usize, const P: usize> = fn(
    &S,
    &mut Executor<'_, T>,
    [(View<'_, T>, Option<ViewMut<'_, T>>); N],
    [(View<'_, T>, ViewMut<'_, T>); P],
    (View<'_, T>, View<'_, T>),
) -> Result<(), CudaError>;

enum Gradients<S, T, const N: usize, const P: usize> {
    All(Backward<S, T, N, P>),
    Wanted(BackwardWanted<S, T, N, P>),
}

struct Functions<S, T, const N: usize, const P: usize> {
    state: S,
    parameters: [Option<ParameterId>; P],
    output: (FeatureType, usize),
    keep: Keep,
    forward: Forward<S, T, N, P>,
    gradients: Gradients<S, T, N, P>,
}

/// What was kept, and the lengths of the inputs.
struct Kept<T: Real, const N: usize> {
    inputs: Option<[Var<T>; N]>,
    output: Option<Var<T>>,
    lengths: [usize; N],
}

impl<S, T: Real, const N: usize, const P: usize> Operator<T, N> for Functions<S, T, N, P> {
    type Saved = Kept<T, N>;

    fn has_parameters(&self) -> bool {
        P > 0
    }

    fn forward(&self, context: &mut Context<'_, T>, inputs: [Var<T>; N]) -> Result<(Var<T>, Self::Saved)> {
        let (kind, rows) = &self.output;
        let mut y = context.buffer(rows * kind.dimension())?;
        let (none, _) = empty(context.device());
        let (parameters, mut run) = match P {
            0 => (self.parameters.map(|_| none), context.executor()),
            _ => context.values(self.parameters)?,
        };
        (self.forward)(&self.state, &mut run, inputs.each_ref().map(Var::view), parameters, y.view_mut())?;
        let y = Var::new(kind.clone(), *rows, y);
        let kept = Kept {
            lengths: inputs.each_ref().map(Var::values_len),
            inputs: matches!(self.keep, Keep::Inputs | Keep::InputsAndOutput).then_some(inputs),
            output: matches!(self.keep, Keep::Output | Keep::InputsAndOutput).then(|| y.clone()),
        };
        Ok((y, kept))
    }

    fn backward(
        &self,
        context: &mut Context<'_, T>,
        kept: Self::Saved,
        dy: Storage<T>,
        wanted: [bool; N],
    ) -> Result<[Option<Storage<T>>; N]> {
        let all = matches!(self.gradients, Gradients::All(_));
        let mut dx = [const { None }; N];
        for ((dx, length), wanted) in dx.iter_mut().zip(kept.lengths).zip(wanted) {
            *dx = context.buffer_if(all || wanted, length)?;
        }
        let (none, none_mut) = empty(context.device());
        let (parameters, mut run) = match P {
            0 => (self.parameters.map(|_| (none, none_mut())), context.executor()),
            _ => {
                let (values, gradients, run) = context.gradients(self.parameters)?;
                (pairs(values, gradients), run)
            }
        };
        let x = std::array::from_fn(|i| kept.inputs.as_ref().map_or(none, |x| x[i].view()));
        let y = (kept.output.as_ref().map_or(none, Var::view), dy.view());
        let views = dx.each_mut().map(|dx| dx.as_mut().map(Storage::view_mut));
        match self.gradients {
            Gradients::Wanted(backward) => backward(&self.state, &mut run, pairs(x, views), parameters, y)?,
            Gradients::All(backward) => {
                let views = views.map(|dx| dx.unwrap_or_else(none_mut));
                backward(&self.state, &mut run, pairs(x, views), parameters, y)?;
            }
        }
        Ok(dx)
    }
}

/// No numbers on a device, to read and to write.
pub(crate) fn empty<'v, T: Real>(device: &Device) -> (View<'v, T>, fn() -> ViewMut<'v, T>) {
    match device {
        Device::Cpu => (OnDevice::Host(&[]), || OnDevice::Host(&mut [])),
        Device::Cuda(_) => (OnDevice::Cuda(DeviceSlice::empty()), || OnDevice::Cuda(DeviceSliceMut::empty())),
    }
}

/// Values with their gradients.
fn pairs<V: Copy, G, const N: usize>(values: [V; N], gradients: [G; N]) -> [(V, G); N] {
    let mut places = 0..N;
    gradients.map(|gradient| (values[places.next().unwrap_or(0)], gradient))
}

impl<'a, T: Real> Tape<'a, T> {
    /// Applies an operator that is given by two functions. The second one computes the gradients of all inputs.
    ///
    /// ```
    /// use gemcnn_kernels::irrep::{Norm, NormBackward};
    /// use gemcnn_nn::{FeatureType, Keep, Parameters, Recipe, Stream, Tape, Workspace};
    ///
    /// let mut workspace = Workspace::<f64>::default();
    /// let mut parameters = Parameters::new();
    /// let mut tape = Tape::training(&mut workspace, &mut parameters, Stream { seed: 1, step: 0 });
    /// let kind: FeatureType = "1x1".parse()?;
    /// let x = tape.tracked_input(kind.clone(), &[3.0, 4.0])?;
    /// // The norm of each irrep, sqrt(|x|^2 + 11).
    /// let output = (FeatureType::scalars(1), 1);
    /// let y = tape.record(
    ///     Recipe { state: kind, inputs: [x.clone()], parameters: [], output, keep: Keep::Inputs },
    ///     |features, run, [x], [], y| Norm { features, epsilon: 11.0, rows: 1, x, y }.run(run),
    ///     |features, run, [(x, dx)], [], (_, dy)| {
    ///         NormBackward { features, epsilon: 11.0, rows: 1, x, dy, dx }.run(run)
    ///     },
    /// )?;
    /// assert_eq!(y.host()?, [6.0]);
    /// let loss = tape.mean_square(y, &[0.0])?;
    /// assert_eq!(tape.backward_to(&loss, &[&x])?[0][..], [6.0, 8.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Inputs of another tape, and errors of the functions.
    pub fn record<S: 'a, const N: usize, const P: usize>(
        &mut self,
        recipe: Recipe<S, T, N, P>,
        forward: Forward<S, T, N, P>,
        backward: Backward<S, T, N, P>,
    ) -> Result<Var<T>> {
        self.record_functions(recipe, forward, Gradients::All(backward))
    }

    /// The same, where the second function computes the gradients of the inputs that are wanted.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub fn record_wanted<S: 'a, const N: usize, const P: usize>(
        &mut self,
        recipe: Recipe<S, T, N, P>,
        forward: Forward<S, T, N, P>,
        backward: BackwardWanted<S, T, N, P>,
    ) -> Result<Var<T>> {
        self.record_functions(recipe, forward, Gradients::Wanted(backward))
    }

    fn record_functions<S: 'a, const N: usize, const P: usize>(
        &mut self,
        recipe: Recipe<S, T, N, P>,
        forward: Forward<S, T, N, P>,
        gradients: Gradients<S, T, N, P>,
    ) -> Result<Var<T>> {
        let Recipe { state, inputs, parameters, output, keep } = recipe;
        self.apply(Functions { state, parameters, output, keep, forward, gradients }, inputs)
    }
}
