//! Options and help texts that are made from lists: kinds of features and models, tasks, formats of meshes.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use gemcnn_mesh::{one_of, writable_extensions};
use gemcnn_tasks::{Chosen, Task};
use serde::de::value::Error as ValueError;
use serde::de::{DeserializeOwned, IntoDeserializer};

/// Appends the registered kinds to the help text of an option.
pub fn listed<C: Chosen + ?Sized>(help: &str) -> String {
    format!("{help}: {}", C::registry().named_kinds().join(", "))
}

/// The names of all tasks, as text.
pub fn tasks() -> String {
    Task::ALL.iter().map(|task| task.name()).collect::<Vec<_>>().join(", ")
}

/// Parses the name of a task.
pub fn task() -> impl TypedValueParser<Value = Task> {
    PossibleValuesParser::new(Task::ALL.iter().map(|task| task.name())).try_map(|name| parsed(&name))
}

/// A word of a configuration.
pub fn parsed<T: DeserializeOwned>(word: &str) -> Result<T, ValueError> {
    T::deserialize(word.into_deserializer())
}

/// Help text of the file of a mesh to be written.
pub fn mesh_output(more: &str) -> String {
    format!("Output mesh: {}{more}", one_of(&writable_extensions(|_| true)))
}
