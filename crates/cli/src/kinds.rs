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
    word(Task::ALL.iter().map(|task| task.name()))
}

/// The words of axes, precisions of products and splits of data sets.
pub const AXES: [&str; 2] = ["y", "z"];
pub const PRECISIONS: [&str; 3] = ["tf32", "f32", "bf16"];
pub const SPLITS: [&str; 3] = ["train", "validation", "test"];

/// Parses one of these words of a setting of the library.
pub fn word<T>(words: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| parsed(&word))
}

/// A word of a configuration.
pub fn parsed<T: DeserializeOwned>(word: &str) -> Result<T, ValueError> {
    T::deserialize(word.into_deserializer())
}

/// Help text of the file of a mesh to be written.
pub fn mesh_output(more: &str) -> String {
    format!("Output mesh: {}{more}", one_of(&writable_extensions(|_| true)))
}
