//! Training batches: graphs, features and targets, copied to a GPU once.

use crate::device::{Sent, single_slice};
use crate::error::check_size;
use crate::operators::{DeviceValues, single_targets};
use crate::storage::Storage;
use crate::{Device, GraphBatch, HierarchyBatch, Levels, NnError, Penalty, Targets};
use gemcnn_kernels::cross_entropy::cuda::DeviceTargets;
use gemcnn_kernels::cuda::CudaDevice;
use gemcnn_kernels::regression::Regression;
use gemcnn_kernels::{FeatureType, Real};
use std::sync::Arc;

/// Target of a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum BatchTarget<T> {
    /// A class for each row of the output.
    Classes {
        /// Number of classes.
        classes: usize,
        /// Class of each row, or [`IGNORE`](crate::IGNORE).
        labels: Vec<u32>,
        /// Weight of each class in the mean; `None` for ones.
        weights: Option<Vec<T>>,
    },
    /// Values for each row of the output, of its type.
    Values {
        /// Type of each row.
        kind: FeatureType,
        /// Penalty on differences.
        penalty: Penalty,
        /// The values, row after row.
        values: Vec<T>,
        /// Rows that enter the loss; `None` for all.
        known: Option<Vec<bool>>,
    },
}

/// A batch ready for training steps: graphs, features and targets.
///
/// It is copied to a GPU once: by the first step, or earlier from another thread
/// ([`send_ahead`](Self::send_ahead)), so that the copy overlaps with the previous step.
#[derive(Debug)]
pub struct TrainingBatch<T: Real> {
    graphs: Arc<HierarchyBatch<T>>,
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

/// What two batches must have in common so that a step captured on one can be replayed on the other. Numbers
/// of edges may differ, because captured graphs have spare capacity, unless there are features of edges.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BatchShape {
    /// First vertex of each mesh, for each level.
    mesh_offsets: Vec<Vec<u32>>,
    /// Number of edges of each level, if it matters.
    edges: Option<Vec<usize>>,
    kind: FeatureType,
    target: TargetShape,
}

#[derive(Debug, Clone, PartialEq)]
enum TargetShape {
    Classes(usize, usize, bool),
    Values(FeatureType, Penalty, usize, bool),
}

impl<T: Real> TrainingBatch<T> {
    /// A batch on graphs, or on hierarchies for models that pool. Batches may share graphs.
    ///
    /// # Errors
    /// Another number of features than the vertices of the finest graph need.
    pub fn new(
        graphs: impl Into<Arc<HierarchyBatch<T>>>,
        kind: FeatureType,
        features: Vec<T>,
        target: BatchTarget<T>,
    ) -> Result<Self, NnError> {
        let graphs = graphs.into();
        let vertices = (graphs.levels().first()).map_or(0, GraphBatch::vertex_count);
        let expected = vertices * kind.dimension();
        check_size("features of the batch", expected, features.len())?;
        Ok(Self {
            graphs,
            kind,
            features,
            target,
            sent: Sent::default(),
        })
    }

    /// The graphs, from fine to coarse.
    pub fn levels(&self) -> Levels<'_, T> {
        Levels::from(&*self.graphs)
    }

    /// Type of the features of each vertex.
    pub fn kind(&self) -> &FeatureType {
        &self.kind
    }

    /// Features of all vertices, row after row.
    pub fn features(&self) -> &[T] {
        &self.features
    }

    /// The target.
    pub fn target(&self) -> &BatchTarget<T> {
        &self.target
    }

    /// Starts asynchronous copies of everything to a GPU, from any thread. The GPU waits for them before the step
    /// that reads them. Does nothing on the CPU.
    ///
    /// # Errors
    /// Labels that name no class, or too little memory.
    pub fn send_ahead(&self, device: &Device) -> Result<(), NnError> {
        let Device::Cuda(device) = device else {
            return Ok(());
        };
        let ahead = device.ahead();
        self.graphs.send(&ahead)?;
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
            features: Arc::new(Storage::on_cuda(
                device,
                device.upload(single_slice(&self.features)?)?,
            )),
            target,
        })
    }

    /// Features and targets on a GPU.
    pub(crate) fn on(&self, device: &CudaDevice) -> Result<Arc<SentBatch<T>>, NnError> {
        self.sent.to(device, || self.send(device))
    }

    /// The shape of the batch, with the numbers of edges if the model has features of edges.
    pub(crate) fn shape(&self, has_edge_rows: bool) -> BatchShape {
        let offsets = |level: &GraphBatch<T>| level.arrays().mesh_offsets().to_vec();
        BatchShape {
            mesh_offsets: self.graphs.levels().iter().map(offsets).collect(),
            edges: has_edge_rows
                .then(|| (self.graphs.levels().iter().map(GraphBatch::edge_count)).collect()),
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
        }
    }

    /// The graphs, which batches may share.
    pub(crate) fn graphs(&self) -> &Arc<HierarchyBatch<T>> {
        &self.graphs
    }

    /// A batch whose buffers on a GPU are its own, to be overwritten.
    pub(crate) fn place_on(&self, device: &CudaDevice) -> Result<Self, NnError> {
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
        let numbers = device.buffer(sent.features.len())?;
        let features: Storage<T> = Storage::on_cuda(device, numbers);
        features.overwrite(&sent.features)?;
        let features = Arc::new(features);
        Ok(Self {
            graphs: Arc::new(self.graphs.place_on(device)?),
            kind: self.kind.clone(),
            features: Vec::new(),
            target: self.target.clone(),
            sent: Sent::holding(device, SentBatch { features, target }),
        })
    }

    /// Copies features and targets of another batch of the same shape over these, on the GPU.
    pub(crate) fn overwrite_rows(&self, device: &CudaDevice, with: &Self) -> Result<(), NnError> {
        let (place, from) = (self.on(device)?, with.on(device)?);
        place.features.overwrite(&from.features)?;
        match (&place.target, &from.target) {
            (SentTarget::Classes(to), SentTarget::Classes(from)) => Ok(to.overwrite(device, from)?),
            (SentTarget::Values(to), SentTarget::Values(from)) => {
                to.regression.overwrite(device, &from.regression)?;
                Ok(to.target.overwrite(device, &from.target)?)
            }
            _ => Err(NnError::setting(
                "batch",
                "the target differs in form from that of the captured step",
            )),
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
