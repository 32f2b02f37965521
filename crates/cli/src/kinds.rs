//! Help texts of options that choose a registered kind by name.

use gemcnn_tasks::Chosen;

/// Appends the registered kinds to the help text of an option.
pub fn listed<C: Chosen + ?Sized>(help: &str) -> String {
    format!("{help}: {}", C::registry().named_kinds().join(", "))
}
