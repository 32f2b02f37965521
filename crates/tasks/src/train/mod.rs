//! Training: configuration, run directories, the loop, checkpoints and metrics.

mod batches;
mod checkpoint;
mod class_weights;
mod config;
mod curve;
mod evaluate;
mod metrics;
mod model;
mod objective;
mod observer;
mod run;
mod run_directory;
mod scaled;
mod settings;
mod stop;
mod trainer;

pub use batches::shuffled;
pub(crate) use batches::{BatchPlan, Prefetch};
pub use class_weights::ClassWeights;
pub use config::RunConfig;
pub use curve::draw_curve;
pub use evaluate::evaluate;
pub(crate) use evaluate::names;
pub(crate) use metrics::{BatchScores, Tally};
pub use metrics::{Record, Scores, read_metrics};
pub use model::TrainedModel;
pub use objective::Objective;
pub use observer::{Event, Observer, Silent, StepReport};
pub use run::train;
pub use run_directory::RunDirectory;
pub use scaled::Scaled;
pub use settings::{
    Interval, OptimiserConfig, PenaltyChoice, Precision, ScheduleConfig, TrainingConfig,
};
pub use stop::StopFlag;
pub use trainer::{Outcome, Problem, Trainer, device_name};
