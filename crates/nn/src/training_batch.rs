//! Training batches: graphs, features and targets, copied to a GPU once.

use crate::device::{DeviceCopy, f32_slice};
use crate::error::check_size;
use crate::operators::send_targets;
use crate::storage::Storage;
use crate::target::{LossClasses, LossTarget, LossValues};
use crate::{
    Device, Geometry, GraphBatch, IGNORE, Levels, NnError, Penalty, Result, Tape, Target, TargetValues, Targets, Var,
};
use gemcnn_kernels::cross_entropy::cuda::DeviceTargets;
use gemcnn_kernels::cuda::CudaDevice;
use gemcnn_kernels::regression::cuda::DeviceValues;
use gemcnn_kernels::{FeatureType, Real, compiled};
use std::sync::Arc;

/// What a module is trained for.
#[derive(Debug, Clone, PartialEq)]
pub enum Objective<T> {
    /// A class for each row of the output, by cross-entropy.
    Classes {
        /// Number of classes.
        count: usize,
        /// Weight of each class in the mean; `None` for 1.
        weights: Option<Vec<T>>,
        /// Label smoothing, in [0, 1).
        smoothing: f64,
    },
    /// Values for each row of the output.
    Values {
        /// Type of each row.
        kind: FeatureType,
        /// Penalty on the difference.
        penalty: Penalty,
    },
}

impl<T> Objective<T> {
    /// Classes of equal weight, without label smoothing.
    pub fn classes(count: usize) -> Self {
        Self::Classes { count, weights: None, smoothing: 0.0 }
    }

    /// The same objective without label smoothing, for evaluations.
    pub fn without_smoothing(mut self) -> Self {
        if let Self::Classes { smoothing, .. } = &mut self {
            *smoothing = 0.0;
        }
        self
    }

    /// A target with the settings of its loss; `None` unless both are for classes or both for values. `known` says
    /// which rows of values are known, all if it is `None`.
    pub(crate) fn of<'t>(
        &'t self,
        target: &'t Target<Vec<u32>, Vec<T>>,
        known: Option<&'t [bool]>,
    ) -> Option<Target<Targets<'t, T>, TargetValues<'t, T>>> {
        match (self, target) {
            (Self::Classes { count, weights, smoothing }, Target::Classes(labels)) => {
                let (classes, class_weights) = (*count, weights.as_deref());
                Some(Target::Classes(Targets { classes, labels, class_weights, smoothing: *smoothing }))
            }
            (Self::Values { penalty, .. }, Target::Values(values)) => {
                Some(Target::Values(TargetValues { penalty: *penalty, values, known }))
            }
            _ => None,
        }
    }

    /// Type of the output of a module for it.
    pub fn output(&self) -> FeatureType {
        match self {
            Self::Classes { count, .. } => FeatureType::scalars(*count),
            Self::Values { kind, .. } => kind.clone(),
        }
    }
}

/// A batch for training steps: graphs, features and targets.
///
/// It is copied to a GPU once: by the first step, or earlier from another thread
/// ([`send_ahead`](Self::send_ahead)), so that the copy overlaps with the previous step.
#[derive(Debug)]
pub struct TrainingBatch<T: Real> {
    graphs: Arc<Geometry<T>>,
    kind: FeatureType,
    features: Vec<T>,
    objective: Arc<Objective<T>>,
    target: Target<Vec<u32>, Vec<T>>,
    /// Which rows of values are known; all if `None`.
    known: Option<Vec<bool>>,
    sent: DeviceCopy<SentBatch<T>>,
}

/// Features and targets on a GPU.
#[derive(Debug)]
pub(crate) struct SentBatch<T: Real> {
    features: Arc<Storage<T>>,
    target: Target<Arc<DeviceTargets>, Arc<DeviceValues>>,
}

/// What two batches must have in common so that a step captured on one can be replayed on the other. Numbers
/// of edges may differ, because captured graphs have spare capacity, unless there are features of edges.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BatchShape<T> {
    /// First vertex of each mesh, for each level.
    mesh_offsets: Vec<Vec<u32>>,
    /// What the extras must have in common.
    extras: Vec<Vec<usize>>,
    /// Number of edges of each level, if it matters.
    edges: Option<Vec<usize>>,
    kind: FeatureType,
    objective: Arc<Objective<T>>,
    rows: Target<usize, usize>,
    masked: bool,
}

impl<T: Real> TrainingBatch<T> {
    /// A batch on graphs, or on hierarchies for models that pool. Batches may share graphs.
    pub fn new(
        graphs: impl Into<Arc<Geometry<T>>>,
        kind: FeatureType,
        features: Vec<T>,
        objective: impl Into<Arc<Objective<T>>>,
        mut target: Target<Vec<u32>, Vec<T>>,
    ) -> Result<Self> {
        let (graphs, objective) = (graphs.into(), objective.into());
        let vertices = (graphs.levels().first()).map_or(0, |graph| graph.vertex_count());
        let expected = vertices * kind.dimension();
        check_size("features of the batch", expected, features.len())?;
        if objective.of(&target, None).is_none() {
            return Err(NnError::setting("batch", "its target is missing or does not fit the objective"));
        }
        let known = match &mut target {
            Target::Values(values) => known_rows(values, objective.output().dimension()),
            Target::Unknown | Target::Classes(_) => None,
        };
        Ok(Self { graphs, kind, features, objective, target, known, sent: DeviceCopy::default() })
    }

    /// The graphs, from fine to coarse.
    pub fn levels(&self) -> Levels<'_, T> {
        Levels::from(&*self.graphs)
    }

    /// The graphs, which batches may share.
    pub fn graphs(&self) -> &Arc<Geometry<T>> {
        &self.graphs
    }

    /// Type of the features of each vertex.
    pub fn kind(&self) -> &FeatureType {
        &self.kind
    }

    /// Features of all vertices, row after row.
    pub fn features(&self) -> &[T] {
        &self.features
    }

    /// What the module is trained for.
    pub fn objective(&self) -> &Objective<T> {
        &self.objective
    }

    /// What is known of its output, with the settings of its loss. Rows of values that are not known are zero.
    pub fn target(&self) -> Target<Targets<'_, T>, TargetValues<'_, T>> {
        self.objective.of(&self.target, self.known.as_deref()).unwrap_or_default()
    }

    /// Number of rows whose target is known.
    pub fn counted(&self) -> usize {
        match self.target() {
            Target::Unknown => 0,
            Target::Classes(targets) => targets.labels.iter().filter(|&&label| label != IGNORE).count(),
            Target::Values(TargetValues { known: Some(known), .. }) => known.iter().filter(|&&known| known).count(),
            Target::Values(TargetValues { values, known: None, .. }) => {
                values.len().checked_div(self.objective.output().dimension()).unwrap_or(0)
            }
        }
    }

    /// Sum of the class weights of the known rows; their number where there are no weights.
    pub fn weight(&self) -> f64 {
        match self.target() {
            Target::Classes(Targets { labels, class_weights: Some(weights), .. }) => {
                let known = labels.iter().filter_map(|&label| weights.get(label as usize));
                known.map(|weight| weight.as_f64()).sum()
            }
            _ => self.counted() as f64,
        }
    }

    /// Starts asynchronous copies of everything to a GPU, from any thread. The GPU waits for them before the step
    /// that reads them. On the CPU it computes eigenvectors [at points](crate::SpectraBatch::at).
    ///
    /// # Errors
    /// Labels that name no class, or too little memory.
    pub fn send_ahead(&self, device: &Device) -> Result<()> {
        match device {
            Device::Cpu => self.graphs.send(device),
            Device::Cuda(device) => {
                let ahead = device.ahead();
                self.graphs.send(&Device::Cuda(ahead.clone()))?;
                self.on(&ahead).map(drop)
            }
        }
    }

    fn send(&self, device: &CudaDevice) -> Result<SentBatch<T>> {
        let target = self.target().try_map(
            |targets| Ok::<_, NnError>(Arc::new(send_targets(device, &targets)?)),
            |values| Ok(Arc::new(values.send(device, &self.objective.output())?)),
        )?;
        let features = device.upload(f32_slice(&self.features)?)?;
        Ok(SentBatch { features: Arc::new(Storage::on_cuda(device, features)), target })
    }

    /// Features and targets on a GPU.
    pub(crate) fn on(&self, device: &CudaDevice) -> Result<Arc<SentBatch<T>>> {
        self.sent.to(device, || self.send(device))
    }

    /// Features and target as the operators of a tape take them.
    #[allow(clippy::type_complexity)]
    pub(crate) fn on_tape<'a>(
        &'a self,
        tape: &mut Tape<'a, T>,
    ) -> Result<(Var<T>, Target<LossClasses<'a, T>, LossValues<'a, T>>)> {
        let Device::Cuda(device) = tape.device().clone() else {
            let x = tape.input(self.kind.clone(), &self.features)?;
            return Ok((x, self.target().map(LossTarget::from, LossTarget::from)));
        };
        let sent = self.on(&device)?;
        let x = tape.shared_input(self.kind.clone(), &sent.features);
        let target = self.target().zip(sent.target.clone()).unwrap_or_default();
        let target = target.map(
            |(host, sent)| LossTarget { host, sent: Some(sent) },
            |(host, sent)| LossTarget { host, sent: Some(sent) },
        );
        Ok((x, target))
    }

    /// The shape of the batch, with the numbers of edges if the model has features of edges.
    pub(crate) fn shape(&self, has_edge_rows: bool) -> BatchShape<T> {
        let offsets = |level: &GraphBatch<T>| level.mesh_offsets().to_vec();
        BatchShape {
            mesh_offsets: self.graphs.levels().iter().map(offsets).collect(),
            extras: self.graphs.shapes(),
            edges: has_edge_rows.then(|| (self.graphs.levels().iter().map(|graph| graph.edge_count())).collect()),
            kind: self.kind.clone(),
            objective: Arc::clone(&self.objective),
            rows: self.target.as_ref().map(Vec::len, Vec::len),
            masked: self.known.is_some(),
        }
    }

    /// A batch whose buffers on a GPU are its own, to be overwritten.
    pub(crate) fn place_on(&self, device: &CudaDevice) -> Result<Self> {
        let sent = self.on(device)?;
        let target = sent.target.as_ref().try_map(
            |targets| targets.duplicate(device).map(Arc::new),
            |values| values.duplicate(device).map(Arc::new),
        )?;
        let numbers = device.buffer(sent.features.len())?;
        let features: Storage<T> = Storage::on_cuda(device, numbers);
        features.overwrite(&sent.features)?;
        let features = Arc::new(features);
        Ok(Self {
            graphs: Arc::new(self.graphs.place_on(device)?),
            kind: self.kind.clone(),
            features: Vec::new(),
            objective: Arc::clone(&self.objective),
            target: self.target.clone(),
            known: self.known.clone(),
            sent: DeviceCopy::holding(device, SentBatch { features, target }),
        })
    }

    /// Copies features and targets of another batch of the same shape over these, on the GPU.
    pub(crate) fn overwrite_rows(&self, device: &CudaDevice, from: &SentBatch<T>) -> Result<()> {
        let place = self.on(device)?;
        place.features.overwrite(&from.features)?;
        match place.target.as_ref().zip(from.target.as_ref()) {
            Some(Target::Classes((to, from))) => Ok(to.overwrite(device, from)?),
            Some(Target::Values((to, from))) => Ok(to.overwrite(device, from)?),
            _ => Err(NnError::setting("batch", "the target differs in form from that of the captured step")),
        }
    }
}

pub(crate) fn no_target() -> NnError {
    NnError::setting("batch", "it has no target")
}

/// Which rows are known, unless all are. Unknown rows become zero.
fn known_rows<T: Real>(values: &mut [T], width: usize) -> Option<Vec<bool>> {
    compiled!(clear_unknown as fn(&mut [T], usize) -> Option<Vec<bool>>)(values, width)
}

fn clear_unknown<T: Real>(values: &mut [T], width: usize) -> Option<Vec<bool>> {
    let mut known = Vec::with_capacity(values.len() / width.max(1));
    for row in values.chunks_mut(width.max(1)) {
        let is_known = row.iter().all(|value| !value.is_nan());
        if !is_known {
            row.fill(T::zero());
        }
        known.push(is_known);
    }
    known.contains(&false).then_some(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemcnn_mesh::{GaugeGraph, GeometryOptions, shapes};

    fn batch(objective: Objective<f32>, target: Target) -> Result<TrainingBatch<f32>> {
        let graph = GaugeGraph::new(&shapes::icosahedron(), &GeometryOptions::default())?;
        let graphs = Geometry::from(GraphBatch::new([&graph])?);
        TrainingBatch::new(graphs, FeatureType::scalars(1), vec![0.0; 12], objective, target)
    }

    #[test]
    fn unknown_rows_of_values_are_masked_and_zero() {
        let objective = || Objective::Values { kind: FeatureType::scalars(2), penalty: Penalty::MeanSquare };
        let mut values = vec![1.0; 24];
        let whole = batch(objective(), Target::Values(values.clone())).unwrap();
        let known = |batch: &TrainingBatch<f32>| batch.known.clone();
        assert_eq!((known(&whole), whole.counted(), whole.weight()), (None, 12, 12.0));
        values[3] = f32::NAN;
        let some = batch(objective(), Target::Values(values)).unwrap();
        assert_eq!(known(&some).unwrap()[..3], [true, false, true]);
        assert_eq!(some.counted(), 11);
        let target = some.target().values().unwrap();
        assert_eq!(target.values[..4], [1.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn labels_that_are_not_known_have_no_weight() {
        let mut labels = vec![IGNORE; 12];
        labels[..3].copy_from_slice(&[0, 1, 1]);
        let objective = Objective::Classes { count: 2, weights: Some(vec![2.0, 0.5]), smoothing: 0.0 };
        let batch = batch(objective, Target::Classes(labels)).unwrap();
        assert_eq!((batch.counted(), batch.weight()), (3, 3.0));
    }

    #[test]
    fn a_target_must_fit_its_objective() {
        let classes = Objective::classes(2);
        for target in [Target::Unknown, Target::Values(vec![0.0; 12])] {
            assert!(batch(classes.clone(), target).is_err());
        }
    }
}
