//! Modules: layers and models, open to implementations from outside.

use crate::operators::{CrossEntropy, LinearWeights, RegressionLoss};
use crate::target::LossClasses;
use crate::training_batch::no_target;
use crate::{
    Device, Levels, Loss, NnError, Parameters, Result, Rows, Tape, Target, Targets, TrainingBatch, Var, Workspace,
};
use gemcnn_kernels::{FeatureType, Real, cross_entropy};
use std::fmt;

/// A layer or a model: a function of features on graphs, with parameters in
/// [`Parameters`](crate::Parameters).
///
/// A module holds the ids of its parameters, which its constructor added to a
/// [`Builder`](crate::Builder). Its forward pass composes operators and other modules on a [`Tape`].
/// Training, evaluation, prediction and the equivariance tester take any module.
pub trait Module<T: Real>: fmt::Debug + Send + Sync {
    /// Type of the input rows.
    fn input(&self) -> &FeatureType;

    /// Type of the output rows.
    fn output(&self) -> &FeatureType;

    /// Runs the module.
    ///
    /// # Shapes
    /// `x`: one row of the input type for each vertex of the finest graph, or for each mesh in modules that
    /// follow a global pooling; result: rows of the output type.
    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>>;

    /// The sum of the output for `x` and of `skipped`, features of the output type: the end of a residual block. The
    /// default adds them after the forward pass.
    ///
    /// # Errors
    /// As [`forward`](Self::forward), or `skipped` of another type or number of rows.
    fn forward_added<'a>(
        &self,
        tape: &mut Tape<'a, T>,
        levels: Levels<'a, T>,
        x: Var<T>,
        skipped: Var<T>,
    ) -> Result<Var<T>> {
        let y = self.forward(tape, levels, x)?;
        tape.add(y, skipped)
    }

    /// Number of graphs, from fine to coarse, that the forward pass needs (default 1).
    fn levels(&self) -> usize {
        1
    }

    /// Number of rings of neighbours around a vertex, face or edge that its output depends on in inference. Large
    /// meshes are then divided into tiles. The default is `None`: the output depends on the whole mesh.
    fn reach(&self) -> Option<usize> {
        None
    }

    /// The body and the last layer of a model that ends with a linear layer, so that a classification
    /// loss can be fused with that layer. The default is `None`: the loss is computed from all logits.
    fn split_head(&self) -> Option<(&dyn Module<T>, Head<'_>)> {
        None
    }

    /// The lines that [`Display`](fmt::Display) prints: name, types and number of trained parameters of each part.
    /// A last line has the total.
    ///
    /// The default is one line with the types of the module, an empty name and 0 parameters, since a module does not
    /// know the sizes of its parameters. Models implement it; the difference of
    /// [`Builder::trained_count`](crate::Builder::trained_count) before and after a part is its number of parameters.
    fn parts(&self) -> Vec<Part> {
        vec![Part {
            name: String::new(),
            input: self.input().clone(),
            output: self.output().clone(),
            parameters: 0,
            level: 0,
        }]
    }

    /// Cross-entropy between outputs and labels. If there is a head ([`split_head`](Self::split_head)), it is fused
    /// with the loss, and the `rows x classes` logits are never stored at once.
    ///
    /// # Shapes
    /// As [`forward`](Module::forward), with one label for each row of the output.
    fn classify<'a>(
        &self,
        tape: &mut Tape<'a, T>,
        levels: Levels<'a, T>,
        x: Var<T>,
        targets: Targets<'a, T>,
        rows: Rows<'_>,
    ) -> Result<Loss> {
        Passes::of(self, &|tape, levels, x| self.forward(tape, levels, x)).classify(
            tape,
            levels,
            x,
            targets.into(),
            rows,
        )
    }

    /// The loss on a batch: cross-entropy of classes, or the penalty on values.
    ///
    /// # Errors
    /// A batch that does not fit the module.
    fn loss<'a>(&self, tape: &mut Tape<'a, T>, batch: &'a TrainingBatch<T>) -> Result<Loss> {
        Passes::of(self, &|tape, levels, x| self.forward(tape, levels, x)).loss(tape, batch)
    }

    /// The class with the largest output for each row; ties go to the lower class. As in
    /// [`classify`](Self::classify), a head is fused, and the logits are never stored at once.
    ///
    /// # Shapes
    /// `x` as in [`forward`](Module::forward); result: one class for each row of the output.
    fn predict_classes<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Vec<u32>> {
        Passes::of(self, &|tape, levels, x| self.forward(tape, levels, x)).predict_classes(tape, levels, x)
    }

    /// Rescales gauge convolutions on data before training, so that features have unit scale in every
    /// order after each of them ([`Tape::calibrating`]). This runs on the CPU, also if the workspace is on a GPU.
    fn calibrate<'a>(
        &self,
        workspace: &mut Workspace<T>,
        parameters: &mut Parameters<T>,
        levels: Levels<'a, T>,
        features: &[T],
    ) -> Result<()> {
        Passes::of(self, &|tape, levels, x| self.forward(tape, levels, x))
            .calibrate(workspace, parameters, levels, features)
    }
}

/// The types of a module, and how far it sees: `signature!(this: this.input => this.output, reach 1);` in its
/// implementation of [`Module`]. Without a reach, the output depends on the whole mesh.
macro_rules! signature {
    ($this:ident: $input:expr => $output:expr $(, reach $rings:literal)?) => {
        fn input(&self) -> &$crate::FeatureType {
            let $this = self;
            &$input
        }

        fn output(&self) -> &$crate::FeatureType {
            let $this = self;
            &$output
        }

        $(fn reach(&self) -> Option<usize> {
            Some($rings)
        })?
    };
}
pub(crate) use signature;

/// Fails unless the outputs of a model are finite.
fn finite_outputs(finite: bool) -> Result<()> {
    if finite { Ok(()) } else { Err(NnError::OutputNotFinite) }
}

/// The last layer of a model, if it is linear.
#[derive(Debug, Clone, Copy)]
pub struct Head<'m> {
    /// Name of the layer.
    pub name: &'m str,
    /// Ids of its parameters.
    pub weights: LinearWeights,
}

/// A line of a printed module.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Name of the part.
    pub name: String,
    /// Type of its input.
    pub input: FeatureType,
    /// Type of its output.
    pub output: FeatureType,
    /// Number of its trained parameters.
    pub parameters: usize,
    /// Graph that it runs on, from 0, the finest. It is not printed.
    pub level: usize,
}

impl<T: Real> fmt::Display for dyn Module<T> + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Parts(&self.parts()).fmt(f)
    }
}

/// Prints a table: name, types and number of trained parameters of each part, and the total.
pub(crate) struct Parts<'p>(pub &'p [Part]);

impl fmt::Display for Parts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.0;
        let arrow = |part: &Part| format!("{} -> {}", part.input, part.output);
        let names = parts.iter().map(|part| part.name.len()).max().unwrap_or(0);
        let arrows = parts.iter().map(|part| arrow(part).len()).max().unwrap_or(0);
        for part in parts {
            let arrow = arrow(part);
            writeln!(f, "{:names$}  {arrow:arrows$}  {:>9}", part.name, part.parameters)?;
        }
        let total: usize = parts.iter().map(|part| part.parameters).sum();
        write!(f, "{:names$}  {:arrows$}  {total:>9}", "total", "")
    }
}

type Forward<'m, T> = dyn for<'a> Fn(&mut Tape<'a, T>, Levels<'a, T>, Var<T>) -> Result<Var<T>> + 'm;

/// What the passes of every module have in common, compiled once for all modules.
struct Passes<'m, T: Real> {
    input: &'m FeatureType,
    output: &'m FeatureType,
    head: Option<(&'m dyn Module<T>, Head<'m>)>,
    forward: &'m Forward<'m, T>,
}

impl<'m, T: Real> Passes<'m, T> {
    fn of(module: &'m (impl Module<T> + ?Sized), forward: &'m Forward<'m, T>) -> Self {
        Self { input: module.input(), output: module.output(), head: module.split_head(), forward }
    }

    /// Cross-entropy with labels that may be on the GPU already.
    fn classify<'a>(
        &self,
        tape: &mut Tape<'a, T>,
        levels: Levels<'a, T>,
        x: Var<T>,
        targets: LossClasses<'a, T>,
        rows: Rows<'_>,
    ) -> Result<Loss> {
        if let Some((body, head)) = self.head {
            let features = body.forward(tape, levels, x)?;
            return tape
                .any_classifier(head.weights, features, &targets, rows)
                .map_err(|error| error.in_layer(head.name));
        }
        let logits = (self.forward)(tape, levels, x)?;
        if rows.ranks.is_some() {
            return Err(NnError::setting("ranks", "only a model that ends with a linear layer can compute them"));
        }
        if let Some(predictions) = rows.predictions {
            let classes = logits.kind().dimension();
            cross_entropy::predict(classes, &logits.values()?, predictions)?;
        }
        tape.apply_loss(CrossEntropy(targets), [logits])
    }

    fn loss<'a>(&self, tape: &mut Tape<'a, T>, batch: &'a TrainingBatch<T>) -> Result<Loss> {
        let (x, target) = batch.on_tape(tape)?;
        match target {
            Target::Classes(targets) => self.classify(tape, batch.levels(), x, targets, Rows::default()),
            Target::Values(values) => {
                let prediction = (self.forward)(tape, batch.levels(), x)?;
                tape.apply_loss(RegressionLoss(values), [prediction])
            }
            Target::Unknown => Err(no_target()),
        }
    }

    fn predict_classes<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Vec<u32>> {
        let Some((body, head)) = self.head else {
            let outputs = (self.forward)(tape, levels, x)?;
            let mut classes = vec![0; outputs.rows()];
            let (width, values) = (outputs.kind().dimension(), outputs.values()?);
            finite_outputs(values.iter().all(|value| value.is_finite()))?;
            cross_entropy::predict(width, &values, &mut classes)?;
            return Ok(classes);
        };
        let features = body.forward(tape, levels, x)?;
        // With any label the loss is finite if the outputs are.
        let labels = vec![0; features.rows()];
        let targets = Targets::new(self.output.dimension(), &labels);
        let mut classes = vec![0; features.rows()];
        let rows = Rows { predictions: Some(&mut classes), ranks: None };
        let loss = tape.classifier(head.weights, features, targets, rows).map_err(|error| error.in_layer(head.name))?;
        finite_outputs(loss.value()?.is_finite())?;
        Ok(classes)
    }

    fn calibrate<'a>(
        &self,
        workspace: &mut Workspace<T>,
        parameters: &mut Parameters<T>,
        levels: Levels<'a, T>,
        features: &[T],
    ) -> Result<()> {
        parameters.move_to_host()?;
        let mut on_host = Workspace::default();
        let workspace = match workspace.device() {
            Device::Cpu => workspace,
            Device::Cuda(_) => &mut on_host,
        };
        let mut tape = Tape::calibrating(workspace, parameters);
        let x = tape.input(self.input.clone(), features)?;
        (self.forward)(&mut tape, levels, x).map(drop)
    }
}
