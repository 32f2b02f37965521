//! Training: configuration, run directories, the loop, checkpoints and metrics.

mod batches;
mod checkpoint;
mod class_weights;
mod config;
mod curve;
mod evaluate;
mod identity;
mod metrics;
mod model;
mod objective;
mod observer;
mod problem;
mod regression;
mod run_directory;
mod scaled;
mod settings;
mod stop;
mod trainer;

pub(crate) use batches::{BatchPlan, BatchSource, GraphCache, Prefetch};
pub(crate) use checkpoint::begun_with;
pub use class_weights::ClassWeights;
pub use config::RunConfig;
pub use curve::draw_curve;
pub(crate) use evaluate::names;
pub use identity::device_name;
pub(crate) use metrics::{BatchScores, Tally};
pub use metrics::{Record, Scores, read_metrics};
pub use model::TrainedModel;
pub(crate) use objective::unscaled;
pub use observer::{Event, Observer, Silent, StepReport};
pub use problem::{BuildModel, Problem};
pub use regression::RegressionScores;
pub(crate) use regression::RegressionSums;
pub use run_directory::RunDirectory;
pub use scaled::Scaled;
pub use settings::{
    Interval, OptimiserConfig, PenaltyChoice, Precision, ScheduleConfig, TrainingConfig,
};
pub use stop::StopFlag;
pub use trainer::{Outcome, Trainer};
