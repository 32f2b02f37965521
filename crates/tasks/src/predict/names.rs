//! Names for files made from other files.

use std::collections::HashSet;
use std::path::Path;

/// Gives every input a name for its outputs that no input before has.
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
    /// In lower case, since some file systems do not tell cases apart.
    taken: HashSet<String>,
}

impl UniqueNames {
    /// The name of a file without folder and extension, with a number if it is taken.
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
