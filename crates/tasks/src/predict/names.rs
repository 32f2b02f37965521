//! Unique names of result files.

use std::collections::HashSet;
use std::path::Path;

/// Assigns a unique name for the results of each input file.
///
/// ```
/// use gemcnn_tasks::predict::UniqueNames;
/// let mut names = UniqueNames::default();
/// assert_eq!(names.of("left/jaw.ply".as_ref()), "jaw");
/// assert_eq!(names.of("right/jaw.obj".as_ref()), "jaw-2");
/// assert_eq!(names.of("jaw-2.ply".as_ref()), "jaw-2-2");
/// ```
#[derive(Debug, Default)]
pub struct UniqueNames {
    /// In lower case, because some file systems ignore case.
    taken: HashSet<String>,
}

impl UniqueNames {
    /// File name without folder and extension, with a number if it is taken.
    pub fn of(&mut self, path: &Path) -> String {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let mut name = stem.to_string();
        let mut number = 2u64;
        while !self.taken.insert(name.to_lowercase()) {
            name = format!("{stem}-{number}");
            number += 1;
        }
        name
    }
}
