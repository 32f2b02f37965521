//! Training steps: forward, backward and the optimiser's step, recorded on a GPU where shapes repeat.
//!
//! A step of a small batch is hundreds of short kernels, and queueing them takes longer than running them.
//! So the second step of a shape is recorded, with a place of its own for graph, features and targets, and
//! every later batch of that shape is copied to this place and the recording replayed with one call. The
//! numbers are those of plain steps, bit for bit.

use crate::training_batch::BatchShape;
use crate::{
    Device, HierarchyBatch, Loss, Module, NnError, Optimiser, Parameters, Tape, TrainingBatch,
    Workspace,
};
use gemcnn_kernels::Real;
use gemcnn_kernels::cuda::{CudaDevice, CudaError, CudaGraph, ProductMode};
use gemcnn_kernels::random::Stream;
use std::sync::Arc;

/// What changes from step to step, and what does not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepSettings {
    /// Learning rate of this step.
    pub rate: f64,
    /// Random numbers of this step.
    pub randomness: Stream,
    /// Largest norm of all gradients together; none for any.
    pub clip: Option<f64>,
}

/// Makes training steps of one network.
///
/// ```
/// use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};
/// use gemcnn_nn::{
///     FeatureType, GraphBatch, HierarchyBatch, Method, Network, Objective, Optimiser, StepSettings, Stepper,
///     Stream, Target, TrainingBatch, Workspace,
/// };
/// let graph = GaugeGraph::new(&shapes::icosahedron(), &GeometryOptions::default())?;
/// let objective = Objective::Classes { count: 2, weights: None };
/// let graphs = HierarchyBatch::from(GraphBatch::<f32>::new([&graph])?);
/// let batch = TrainingBatch::new(graphs, FeatureType::scalars(1), vec![0.5; 12], objective, Target::Labels(vec![0; 12]))?;
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
    recorded: Option<RecordedStep<T>>,
    /// Shape of the last plain step, and how many of them came one after the other.
    plain: Option<(BatchShape<T>, usize)>,
    never: bool,
}

/// Plain steps of one shape before one is recorded, and before one of another shape takes its place.
const FIRST: usize = 1;
const AGAIN: usize = 8;

/// A step that can be replayed.
#[derive(Debug)]
struct RecordedStep<T: Real> {
    shape: BatchShape<T>,
    places: Places,
    step: CudaGraph<Loss>,
    /// Where it reads its batch.
    batch: TrainingBatch<T>,
    /// True if buffers of it have a row for each edge: graphs must then have as many edges.
    same_edges: bool,
    /// The graphs that were copied there last.
    graphs: Arc<HierarchyBatch<T>>,
}

/// What a recording is bound to beside its batch.
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
    /// A stepper that records nothing.
    pub fn plain() -> Self {
        Self {
            never: true,
            ..Self::default()
        }
    }

    /// Whether the last steps were replayed.
    pub fn is_recorded(&self) -> bool {
        self.recorded.is_some()
    }

    /// One step of gradient descent on a batch, on the device of the workspace. Nothing waits for a GPU; the
    /// loss says when it is read.
    ///
    /// # Errors
    /// A batch that does not fit the network, settings out of range, or work on a GPU that failed.
    pub fn step(
        &mut self,
        module: &dyn Module<T>,
        parameters: &mut Parameters<T>,
        optimiser: &mut Optimiser<T>,
        workspace: &mut Workspace<T>,
        batch: &TrainingBatch<T>,
        settings: StepSettings,
    ) -> Result<Loss, NnError> {
        let recordable = match workspace.device() {
            Device::Cuda(device) if !self.never => Some((device.clone(), batch.shape())),
            _ => None,
        };
        let mut work = Work {
            module,
            parameters,
            optimiser,
            workspace,
            settings,
        };
        let Some((device, shape)) = recordable else {
            return work.plain(batch);
        };
        if self
            .recorded
            .as_ref()
            .is_some_and(|recorded| recorded.shape == shape)
        {
            if let Some(loss) = self.replay(&device, &mut work, batch)? {
                return Ok(loss);
            }
            self.recorded = None;
        }
        let seen = match &self.plain {
            Some((last, count)) if *last == shape => *count,
            _ => 0,
        };
        let enough = if self.recorded.is_some() {
            AGAIN
        } else {
            FIRST
        };
        if seen >= enough {
            match self.record(&device, &mut work, batch, shape.clone()) {
                Err(NnError::Cuda(CudaError::Capture { .. })) => self.never = true,
                other => return other,
            }
        }
        self.plain = Some((shape, seen + 1));
        work.plain(batch)
    }

    /// Replays the recorded step on another batch; none if it is bound to something that is no more.
    fn replay(
        &mut self,
        device: &CudaDevice,
        work: &mut Work<'_, T>,
        batch: &TrainingBatch<T>,
    ) -> Result<Option<Loss>, NnError> {
        let Some(recorded) = &mut self.recorded else {
            return Ok(None);
        };
        if work.places(device)? != recorded.places {
            return Ok(None);
        }
        let (place, graphs) = (recorded.batch.graphs(), batch.graphs());
        if !place.can_hold(device, graphs, recorded.same_edges)? {
            return Ok(None);
        }
        recorded.batch.overwrite_rows(device, batch)?;
        if !Arc::ptr_eq(graphs, &recorded.graphs) {
            place.overwrite(device, graphs)?;
            recorded.graphs = Arc::clone(graphs);
        }
        work.prepare(device)?;
        recorded.step.replay()?;
        work.optimiser.count_step();
        Ok(Some(recorded.step.output().detached()?))
    }

    /// Records a step on a batch and makes it.
    fn record(
        &mut self,
        device: &CudaDevice,
        work: &mut Work<'_, T>,
        batch: &TrainingBatch<T>,
        shape: BatchShape<T>,
    ) -> Result<Loss, NnError> {
        self.recorded = None;
        let place = batch.place_on(device)?;
        work.prepare(device)?;
        work.workspace.edge_rows = false;
        let step = device.capture(|| work.recorded(&place))?;
        step.replay()?;
        let loss = step.output().detached()?;
        self.recorded = Some(RecordedStep {
            shape,
            places: work.places(device)?,
            step,
            batch: place,
            same_edges: work.workspace.edge_rows,
            graphs: Arc::clone(batch.graphs()),
        });
        Ok(loss)
    }
}

/// What a step works with.
struct Work<'w, T: Real> {
    module: &'w dyn Module<T>,
    parameters: &'w mut Parameters<T>,
    optimiser: &'w mut Optimiser<T>,
    workspace: &'w mut Workspace<T>,
    settings: StepSettings,
}

impl<T: Real> Work<'_, T> {
    /// Forward and backward pass, up to the gradients.
    fn gradients(&mut self, batch: &TrainingBatch<T>) -> Result<Loss, NnError> {
        let StepSettings {
            randomness, clip, ..
        } = self.settings;
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
    fn plain(&mut self, batch: &TrainingBatch<T>) -> Result<Loss, NnError> {
        let loss = self.gradients(batch)?;
        self.optimiser.step(self.parameters, self.settings.rate)?;
        Ok(loss)
    }

    /// Sends what a recorded step reads beside its batch.
    fn prepare(&mut self, device: &CudaDevice) -> Result<(), NnError> {
        let StepSettings {
            rate, randomness, ..
        } = self.settings;
        self.workspace.device_stream(device, randomness)?;
        self.optimiser.prepare_on_device(self.parameters, rate)
    }

    /// The part of a step that is recorded.
    fn recorded(&mut self, batch: &TrainingBatch<T>) -> Result<Loss, NnError> {
        let loss = self.gradients(batch)?;
        self.optimiser.run_on_device()?;
        Ok(loss)
    }

    fn places(&mut self, device: &CudaDevice) -> Result<Places, NnError> {
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
