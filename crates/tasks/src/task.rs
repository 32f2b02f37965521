//! Tasks.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Declares the tasks, with their names in configurations.
macro_rules! tasks {
    ($($(#[$documentation:meta])* $task:ident = $name:literal,)*) => {
        /// What a model predicts for a mesh.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Task {
            $($(#[$documentation])* #[serde(rename = $name)] $task,)*
        }

        impl Task {
            /// All tasks.
            pub const ALL: &[Self] = &[$(Self::$task),*];

            /// Name in configurations.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$task => $name,)*
                }
            }
        }
    };
}

tasks! {
    /// A class for each vertex.
    Segmentation = "segmentation",
    /// The corresponding template vertex for each vertex. The classes are the vertices of the template.
    Correspondence = "correspondence",
    /// One class for the whole mesh.
    Classification = "classification",
    /// Scalars or tangent vectors for each vertex.
    Regression = "regression",
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
