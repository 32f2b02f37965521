//! Sweeps: tables of runs that a TOML file describes. The rows are changes of one configuration, trained with several
//! seeds and tested under several conditions; columns are numbers of their evaluations.
//!
//! Every run has its own directory. Finished runs are not repeated and interrupted runs resume, so a sweep can be
//! stopped at any time and started again.

mod file;
mod labelled_bodies;
mod picture;
mod report;
mod run;
#[cfg(test)]
mod tests;

pub use file::{
    AxisSpec, Best, Choices, ColumnSpec, FigureSpec, GivenData, Named, Quick, Row, Sweep, TableSpec, Test, World,
};
pub use labelled_bodies::{BodyChange, LabelledBodies};
pub use report::{Failure, Report as SweepReport, RunReport, Training};
pub use run::RunContext;
pub(crate) use run::{Engine, Run};

use gemcnn_tasks::TaskError;

/// The sweeps that come with the program, by name.
const BUILT_IN: [(&str, &str); 5] = [
    ("bodies", include_str!("../../sweeps/bodies.toml")),
    ("frames", include_str!("../../sweeps/frames.toml")),
    ("remeshed", include_str!("../../sweeps/remeshed.toml")),
    ("segmentation", include_str!("../../sweeps/segmentation.toml")),
    ("transfer", include_str!("../../sweeps/transfer.toml")),
];

/// The sweeps that come with the program, with their names.
///
/// # Errors
/// Only if the program was built from wrong files.
pub fn built_in() -> Result<Vec<(&'static str, Sweep)>, TaskError> {
    BUILT_IN.iter().map(|&(name, text)| Ok((name, Sweep::parse(&format!("{name}.toml"), text)?))).collect()
}
