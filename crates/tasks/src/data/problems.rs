//! Problems that are met while a data set is opened.

use crate::TaskError;

/// Problems of a data set.
#[derive(Default)]
pub(crate) struct Problems {
    /// Those of its lists and settings.
    pub of_lists: Vec<TaskError>,
    /// Those of single meshes and their targets, with the numbers of the meshes.
    pub of_meshes: Vec<(usize, TaskError)>,
}

impl Problems {
    pub fn is_empty(&self) -> bool {
        self.of_lists.is_empty() && self.of_meshes.is_empty()
    }

    /// All of them.
    pub fn all(self) -> Vec<TaskError> {
        self.of_lists.into_iter().chain(self.of_meshes.into_iter().map(|(_, problem)| problem)).collect()
    }

    /// Adds a problem of lists or settings.
    pub fn push(&mut self, problem: TaskError) {
        self.of_lists.push(problem);
    }

    /// Adds the problem of a mesh.
    pub fn of(&mut self, item: usize, problem: TaskError) {
        if problem.is_of_mesh() { self.of_meshes.push((item, problem)) } else { self.of_lists.push(problem) }
    }
}
