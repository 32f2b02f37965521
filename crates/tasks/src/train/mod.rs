//! Training: configuration, run directories, the loop, checkpoints and metrics.

mod batches;
mod checkpoint;
mod evaluate;
mod metrics;
mod objective;
mod observer;
mod run_directory;
mod settings;
mod stop;
mod trainer;

pub use evaluate::evaluate;
pub use metrics::{Record, Scores, read_metrics};
pub use objective::Objective;
pub use observer::{Event, Observer, Silent, StepReport};
pub use run_directory::RunDirectory;
pub use settings::{
    ClassWeights, Interval, OptimiserConfig, PenaltyChoice, Precision, ScheduleConfig,
    TrainingConfig,
};
pub use stop::StopFlag;
pub use trainer::{Outcome, Problem, Trainer};
