//! What a training step reads, kept together and sent to a GPU once.

use crate::device::{Sent, single_slice};
use crate::error::check_size;
use crate::storage::Storage;
use crate::tape::{DeviceValues, single_targets};
use crate::{Device, GraphBatch, HierarchyBatch, Levels, NnError, Penalty, Targets};
use gemcnn_kernels::cross_entropy::cuda::DeviceTargets;
use gemcnn_kernels::cuda::{CudaDevice, DeviceBuffer};
use gemcnn_kernels::regression::Regression;
use gemcnn_kernels::{FeatureType, Real};
use std::sync::Arc;

/// What a network should say of a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum BatchTarget<T> {
    /// A class for each row of the output.
    Classes {
        /// How many classes there are.
        classes: usize,
        /// Class of each row, or [`IGNORE`](crate::IGNORE).
        labels: Vec<u32>,
        /// Weight of each class in the mean; 1 without.
        weights: Option<Vec<T>>,
    },
    /// Values for each row of the output, of its type.
    Values {
        /// Type of each row.
        kind: FeatureType,
        /// How a difference counts.
        penalty: Penalty,
        /// Row after row.
        values: Vec<T>,
        /// Which rows count; all without.
        known: Option<Vec<bool>>,
    },
}

/// The graphs of a batch.
#[derive(Debug, Clone, PartialEq)]
enum Graphs<T> {
    One(Arc<GraphBatch<T>>),
    Hierarchy(Arc<HierarchyBatch<T>>),
}

/// A batch ready for training steps: graphs, features and targets.
///
/// On a GPU it is sent once, by the first step or, better, ahead of it from another thread
/// ([`send_ahead`](Self::send_ahead)), so that the copy runs beside the step before.
#[derive(Debug)]
pub struct TrainingBatch<T: Real> {
    graphs: Graphs<T>,
    kind: FeatureType,
    features: Vec<T>,
    target: BatchTarget<T>,
    sent: Sent<SentBatch<T>>,
}

/// Features and targets on a GPU.
#[derive(Debug)]
pub(crate) struct SentBatch<T: Real> {
    features: Arc<Storage<T>>,
    target: SentTarget,
}

#[derive(Debug)]
pub(crate) enum SentTarget {
    Classes(Arc<DeviceTargets>),
    Values(Arc<DeviceValues>),
}

/// What two batches have in common if one can be put in the place of the other.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BatchShape {
    mesh_offsets: Vec<u32>,
    edges: usize,
    kind: FeatureType,
    target: TargetShape,
}

#[derive(Debug, Clone, PartialEq)]
enum TargetShape {
    Classes(usize, usize, bool),
    Values(FeatureType, Penalty, usize, bool),
}

impl<T: Real> TrainingBatch<T> {
    /// A batch on one graph, which batches may share.
    ///
    /// # Errors
    /// Another number of features than the vertices need.
    pub fn new(
        graph: impl Into<Arc<GraphBatch<T>>>,
        kind: FeatureType,
        features: Vec<T>,
        target: BatchTarget<T>,
    ) -> Result<Self, NnError> {
        Self::on_graphs(Graphs::One(graph.into()), kind, features, target)
    }

    /// A batch on the graphs of a hierarchy, for networks that pool.
    ///
    /// # Errors
    /// Another number of features than the vertices of the finest graph need.
    pub fn on_hierarchy(
        hierarchy: impl Into<Arc<HierarchyBatch<T>>>,
        kind: FeatureType,
        features: Vec<T>,
        target: BatchTarget<T>,
    ) -> Result<Self, NnError> {
        Self::on_graphs(Graphs::Hierarchy(hierarchy.into()), kind, features, target)
    }

    fn on_graphs(
        graphs: Graphs<T>,
        kind: FeatureType,
        features: Vec<T>,
        target: BatchTarget<T>,
    ) -> Result<Self, NnError> {
        let batch = Self {
            graphs,
            kind,
            features,
            target,
            sent: Sent::default(),
        };
        let vertices = (batch.levels().graphs().first()).map_or(0, GraphBatch::vertex_count);
        let expected = vertices * batch.kind.dimension();
        check_size("features of the batch", expected, batch.features.len())?;
        Ok(batch)
    }

    /// Its graphs, from fine to coarse.
    pub fn levels(&self) -> Levels<'_, T> {
        match &self.graphs {
            Graphs::One(graph) => Levels::from(&**graph),
            Graphs::Hierarchy(hierarchy) => Levels::from(&**hierarchy),
        }
    }

    /// Type of the features of each vertex.
    pub fn kind(&self) -> &FeatureType {
        &self.kind
    }

    /// Features of all vertices, row after row.
    pub fn features(&self) -> &[T] {
        &self.features
    }

    /// What the network should say.
    pub fn target(&self) -> &BatchTarget<T> {
        &self.target
    }

    /// Sends everything to a GPU by copies that run beside its work, from whatever thread; does nothing on
    /// the CPU. A step waits for them on the GPU.
    ///
    /// # Errors
    /// Labels that name no class, or too little memory.
    pub fn send_ahead(&self, device: &Device) -> Result<(), NnError> {
        let Device::Cuda(device) = device else {
            return Ok(());
        };
        let ahead = device.ahead();
        for graph in self.levels().graphs() {
            graph.on(&ahead)?;
        }
        self.on(&ahead).map(drop)
    }

    fn send(&self, device: &CudaDevice) -> Result<SentBatch<T>, NnError> {
        let target = match &self.target {
            BatchTarget::Classes {
                classes,
                labels,
                weights,
            } => {
                let targets = Targets {
                    classes: *classes,
                    labels,
                    class_weights: weights.as_deref(),
                };
                let targets = DeviceTargets::new(device, &single_targets(targets)?)?;
                SentTarget::Classes(Arc::new(targets))
            }
            BatchTarget::Values {
                kind,
                penalty,
                values,
                known,
            } => {
                let rows = values.len().checked_div(kind.dimension()).unwrap_or(0);
                let regression = Regression {
                    features: kind,
                    penalty: *penalty,
                    mask: known.as_deref(),
                };
                let values = single_slice(values)?;
                let values = DeviceValues::new(device, &regression, rows, values)?;
                SentTarget::Values(Arc::new(values))
            }
        };
        Ok(SentBatch {
            features: Arc::new(Storage::Cuda {
                device: device.clone(),
                numbers: device.upload(single_slice(&self.features)?)?,
            }),
            target,
        })
    }

    /// Features and targets on a GPU.
    pub(crate) fn on(&self, device: &CudaDevice) -> Result<Arc<SentBatch<T>>, NnError> {
        self.sent.to(device, || self.send(device))
    }

    /// What another batch must have in common to be put in its place; none for hierarchies.
    pub(crate) fn shape(&self) -> Option<BatchShape> {
        let Graphs::One(graph) = &self.graphs else {
            return None;
        };
        let arrays = graph.arrays();
        Some(BatchShape {
            mesh_offsets: arrays.mesh_offsets().to_vec(),
            edges: arrays.edge_count(),
            kind: self.kind.clone(),
            target: match &self.target {
                BatchTarget::Classes {
                    classes,
                    labels,
                    weights,
                } => TargetShape::Classes(*classes, labels.len(), weights.is_some()),
                BatchTarget::Values {
                    kind,
                    penalty,
                    values,
                    known,
                } => TargetShape::Values(kind.clone(), *penalty, values.len(), known.is_some()),
            },
        })
    }

    /// The graph, where there is one only.
    pub(crate) fn graph(&self) -> Option<&Arc<GraphBatch<T>>> {
        match &self.graphs {
            Graphs::One(graph) => Some(graph),
            Graphs::Hierarchy(_) => None,
        }
    }

    /// A batch whose numbers on a GPU are its own, to be overwritten.
    pub(crate) fn place_on(
        &self,
        device: &CudaDevice,
        graph: &GraphBatch<T>,
    ) -> Result<Self, NnError> {
        let sent = self.on(device)?;
        let target = match &sent.target {
            SentTarget::Classes(targets) => {
                SentTarget::Classes(Arc::new(targets.duplicate(device)?))
            }
            SentTarget::Values(values) => SentTarget::Values(Arc::new(DeviceValues {
                regression: values.regression.duplicate(device)?,
                target: values.target.duplicate(device)?,
            })),
        };
        let mut numbers: DeviceBuffer<f32> = device.buffer(sent.features.len())?;
        device.copy(sent.features.cuda()?, numbers.view_mut())?;
        let features = Arc::new(Storage::Cuda {
            device: device.clone(),
            numbers,
        });
        Ok(Self {
            graphs: Graphs::One(Arc::new(graph.place_on(device)?)),
            kind: self.kind.clone(),
            features: Vec::new(),
            target: self.target.clone(),
            sent: Sent::holding(device, SentBatch { features, target }),
        })
    }

    /// Copies features and targets of another batch of the same shape over these, on the GPU.
    pub(crate) fn overwrite_rows(&self, device: &CudaDevice, with: &Self) -> Result<(), NnError> {
        let (place, from) = (self.on(device)?, with.on(device)?);
        if let (Storage::Cuda { numbers: to, .. }, Storage::Cuda { numbers: from, .. }) =
            (&*place.features, &*from.features)
        {
            to.overwrite(device, from)?;
        }
        match (&place.target, &from.target) {
            (SentTarget::Classes(to), SentTarget::Classes(from)) => Ok(to.overwrite(device, from)?),
            (SentTarget::Values(to), SentTarget::Values(from)) => {
                to.regression.overwrite(device, &from.regression)?;
                Ok(to.target.overwrite(device, &from.target)?)
            }
            _ => Err(NnError::setting("batch", "a target of another form")),
        }
    }

    /// Copies another graph of the same shape over this one, on the GPU.
    pub(crate) fn overwrite_graph(
        &self,
        device: &CudaDevice,
        with: &GraphBatch<T>,
    ) -> Result<(), NnError> {
        match self.graph() {
            Some(graph) => Ok(graph.on(device)?.overwrite(device, &*with.on(device)?)?),
            None => Ok(()),
        }
    }
}

impl<T: Real> SentBatch<T> {
    pub fn features(&self) -> &Arc<Storage<T>> {
        &self.features
    }

    pub fn target(&self) -> &SentTarget {
        &self.target
    }
}
