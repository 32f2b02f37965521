//! Training steps: forward, backward and the optimiser's step, captured as a CUDA graph where shapes repeat.
//!
//! A step on a small batch is hundreds of short kernels, and launching them one by one takes longer than running
//! them. So the second step of a shape is captured as a CUDA graph, with its own buffers for graphs, features and
//! targets. Every later batch of that shape is copied to these buffers, and the CUDA graph is launched with one
//! call. The results are bitwise equal to those of plain steps.

use crate::training_batch::{BatchShape, SentBatch};
use crate::{Device, Geometry, Loss, Module, NnError, Optimiser, Parameters, Result, Tape, TrainingBatch, Workspace};
use gemcnn_kernels::Real;
use gemcnn_kernels::cuda::{CudaDevice, CudaError, CudaGraph, ProductMode};
use gemcnn_kernels::random::Stream;
use std::sync::{Arc, Weak};

/// Settings of a training step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepSettings {
    /// Learning rate of this step.
    pub rate: f64,
    /// Random number stream of this step.
    pub randomness: Stream,
    /// Largest norm of all gradients together; `None` for no clipping.
    pub clip: Option<f64>,
}

/// Runs the training steps of one model.
///
/// ```
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
/// use gemcnn_nn::{
///     FeatureType, GraphBatch, Geometry, Method, Network, Objective, Optimiser, StepSettings, Stepper,
///     Stream, Target, TrainingBatch, Workspace,
/// };
/// let graph = GaugeGraph::new(&shapes::icosahedron(), &GeometryOptions::default())?;
/// let objective = Objective::classes(2);
/// let graphs = Geometry::from(GraphBatch::<f32>::new([&graph])?);
/// let batch = TrainingBatch::new(graphs, FeatureType::scalars(1), vec![0.5; 12], objective, Target::Classes(vec![0; 12]))?;
///
/// let (network, mut parameters) =
///     Network::builder(FeatureType::scalars(1)).conv(&FeatureType::scalars(2)).init(1)?;
/// let mut optimiser = Optimiser::new(Method::adam(), &parameters)?;
/// let mut workspace = Workspace::default();
/// let mut stepper = Stepper::default();
/// let mut losses = Vec::new();
/// for step in 0..20 {
///     let randomness = Stream { seed: 1, step };
///     let settings = StepSettings { rate: 0.1, randomness, clip: None };
///     let loss =
///         stepper.step(&network, &mut parameters, &mut optimiser, &mut workspace, &batch, settings)?;
///     losses.push(loss.value()?);
/// }
/// assert!(losses[19] < 0.5 * losses[0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Stepper<T: Real> {
    captured: Option<CapturedStep<T>>,
    /// Shape of the last plain step, and the number of consecutive plain steps of that shape.
    plain: Option<(BatchShape<T>, usize)>,
    never_captures: bool,
}

/// Consecutive plain steps of one shape before a step is captured.
const BEFORE_FIRST_CAPTURE: usize = 1;
/// The same while a step of another shape is captured, which is then dropped.
const BEFORE_NEXT_CAPTURE: usize = 8;

/// A captured step.
#[derive(Debug)]
struct CapturedStep<T: Real> {
    shape: BatchShape<T>,
    places: Places,
    step: CudaGraph<Loss>,
    /// The batch whose buffers it reads.
    batch: TrainingBatch<T>,
    /// The graphs, and the features and targets, that were last copied to these buffers.
    graphs: Arc<Geometry<T>>,
    rows: Weak<SentBatch<T>>,
}

/// What a captured step is bound to beside its batch: addresses and settings.
#[derive(Debug, PartialEq)]
struct Places {
    device: CudaDevice,
    mode: ProductMode,
    clip: Option<f64>,
    parameters: u64,
    moments: Option<u64>,
    random: u64,
}

impl<T: Real> Stepper<T> {
    /// A stepper that captures nothing.
    pub fn plain() -> Self {
        Self { never_captures: true, ..Self::default() }
    }

    /// True if a step is captured.
    pub fn is_recorded(&self) -> bool {
        self.captured.is_some()
    }

    /// One training step on a batch, on the device of the workspace. Nothing waits for a GPU until the loss is
    /// read.
    pub fn step(
        &mut self,
        module: &dyn Module<T>,
        parameters: &mut Parameters<T>,
        optimiser: &mut Optimiser<T>,
        workspace: &mut Workspace<T>,
        batch: &TrainingBatch<T>,
        settings: StepSettings,
    ) -> Result<Loss> {
        let device = workspace.device().clone();
        let capturable = match &device {
            Device::Cuda(device) if !self.never_captures && !workspace.has_fixed_data => {
                Some((device, batch.shape(workspace.has_edge_rows)))
            }
            _ => None,
        };
        let mut work = Work { module, parameters, optimiser, workspace, settings };
        let Some((cuda, shape)) = capturable else { return device.run(|| work.plain(batch)) };
        if (self.captured.as_ref()).is_some_and(|captured| captured.shape == shape) {
            if let Some(loss) = self.replay(cuda, &mut work, batch)? {
                return Ok(loss);
            }
            self.captured = None;
        }
        let seen = match &self.plain {
            Some((last, count)) if *last == shape => *count,
            _ => 0,
        };
        let enough = if self.captured.is_some() { BEFORE_NEXT_CAPTURE } else { BEFORE_FIRST_CAPTURE };
        if seen >= enough {
            match self.capture(cuda, &mut work, batch, shape.clone()) {
                Err(NnError::Cuda(CudaError::Capture { .. })) => self.never_captures = true,
                other => return other,
            }
        }
        self.plain = Some((shape, seen + 1));
        work.plain(batch)
    }

    /// Runs the captured step on another batch; `None` if something that it is bound to has changed.
    fn replay(
        &mut self,
        device: &CudaDevice,
        work: &mut Work<'_, T>,
        batch: &TrainingBatch<T>,
    ) -> Result<Option<Loss>> {
        let Some(captured) = &mut self.captured else { return Ok(None) };
        if work.places(device)? != captured.places {
            return Ok(None);
        }
        let (place, graphs) = (captured.batch.graphs(), batch.graphs());
        if !place.can_hold(device, graphs)? {
            return Ok(None);
        }
        let rows = batch.on(device)?;
        if !Weak::ptr_eq(&Arc::downgrade(&rows), &captured.rows) {
            captured.batch.overwrite_rows(device, &rows)?;
            captured.rows = Arc::downgrade(&rows);
        }
        if !Arc::ptr_eq(graphs, &captured.graphs) {
            place.overwrite(device, graphs)?;
            captured.graphs = Arc::clone(graphs);
        }
        work.prepare(device)?;
        captured.step.replay()?;
        work.optimiser.count_step();
        Ok(Some(captured.step.output().detached()?))
    }

    /// Captures a step on a batch and runs it.
    fn capture(
        &mut self,
        device: &CudaDevice,
        work: &mut Work<'_, T>,
        batch: &TrainingBatch<T>,
        shape: BatchShape<T>,
    ) -> Result<Loss> {
        self.captured = None;
        let place = batch.place_on(device)?;
        work.prepare(device)?;
        let step = device.capture(|| work.captured(&place))?;
        step.replay()?;
        let loss = step.output().detached()?;
        self.captured = Some(CapturedStep {
            shape,
            places: work.places(device)?,
            step,
            batch: place,
            graphs: Arc::clone(batch.graphs()),
            rows: Arc::downgrade(&batch.on(device)?),
        });
        Ok(loss)
    }
}

/// The arguments of a step.
struct Work<'w, T: Real> {
    module: &'w dyn Module<T>,
    parameters: &'w mut Parameters<T>,
    optimiser: &'w mut Optimiser<T>,
    workspace: &'w mut Workspace<T>,
    settings: StepSettings,
}

impl<T: Real> Work<'_, T> {
    /// Forward and backward pass, and clipping.
    fn gradients(&mut self, batch: &TrainingBatch<T>) -> Result<Loss> {
        let StepSettings { randomness, clip, .. } = self.settings;
        self.parameters.clear_gradients();
        let mut tape = Tape::training(self.workspace, self.parameters, randomness);
        let loss = self.module.loss(&mut tape, batch)?;
        tape.backward(&loss)?;
        if let Some(largest) = clip {
            self.parameters.clip_gradients(largest)?;
        }
        Ok(loss)
    }

    /// A whole step.
    fn plain(&mut self, batch: &TrainingBatch<T>) -> Result<Loss> {
        let loss = self.gradients(batch)?;
        self.optimiser.step(self.parameters, self.settings.rate)?;
        Ok(loss)
    }

    /// Copies to the GPU what a captured step reads beside its batch.
    fn prepare(&mut self, device: &CudaDevice) -> Result<()> {
        let StepSettings { rate, randomness, .. } = self.settings;
        self.workspace.device_stream(device, randomness)?;
        self.optimiser.prepare_on_device(self.parameters, rate)
    }

    /// The part of a step that is captured.
    fn captured(&mut self, batch: &TrainingBatch<T>) -> Result<Loss> {
        let loss = self.gradients(batch)?;
        self.optimiser.run_on_device()?;
        Ok(loss)
    }

    fn places(&mut self, device: &CudaDevice) -> Result<Places> {
        let randomness = self.settings.randomness;
        Ok(Places {
            mode: device.product_mode(),
            clip: self.settings.clip,
            parameters: self.parameters.on(device)?.place(),
            moments: self.optimiser.place(),
            random: self.workspace.device_stream(device, randomness)?.address(),
            device: device.clone(),
        })
    }
}
