//! Sources of targets: properties, files, tables, or vertex indices.

use super::description::{Column, Description};
use super::meshes::Item;
use crate::Task;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Extensions that `.*` stands for at the end of target files.
pub(crate) const ANY_EXTENSION: [&str; 6] = ["npy", "csv", "txt", "seg", "eseg", "json"];

/// Source of targets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TargetSource {
    /// Vertex or face properties of mesh files.
    Property(Vec<String>),
    /// A file for each mesh.
    Files {
        folder: PathBuf,
        /// File name with `{stem}`, `{name}`, `{inner}`, `{folder}`, `{stem:2}` or `{folder:1}` in it.
        pattern: String,
        /// Selected columns; empty for all.
        columns: Vec<Column>,
    },
    /// Class or values of the whole mesh, which its item has.
    WholeMesh,
    /// Index of the vertex.
    VertexNumber,
    /// The same label at each vertex number of all meshes.
    Registered(Arc<[u32]>),
}

impl TargetSource {
    pub fn new(folder: &Path, description: &Description) -> Self {
        let target = &description.target;
        if description.task == Task::Classification || target.table.is_some() {
            return Self::WholeMesh;
        }
        if let Some(property) = &target.property {
            return Self::Property(property.as_slice().to_vec());
        }
        match &target.files {
            Some(pattern) => Self::Files {
                folder: folder.into(),
                pattern: pattern.clone(),
                columns: target.column.as_ref().map_or(Vec::new(), |columns| columns.as_slice().to_vec()),
            },
            None => Self::VertexNumber,
        }
    }

    /// True if the target file of a mesh exists.
    pub fn has_file(&self, item: &Item) -> bool {
        self.file(item).is_some_and(|file| file.is_file())
    }

    /// A file for each mesh, with all its columns.
    pub fn files(folder: &Path, pattern: &str) -> Self {
        Self::Files { folder: folder.into(), pattern: pattern.into(), columns: Vec::new() }
    }

    /// The target file of a mesh, if targets are in files.
    pub fn file(&self, item: &Item) -> Option<PathBuf> {
        let mut ways = self.ways(item);
        let found = ways.iter().position(|path| path.exists());
        (!ways.is_empty()).then(|| ways.swap_remove(found.unwrap_or(0)))
    }

    /// Number of files that may be the target of a mesh: more than one with `.*`.
    pub fn file_count(&self, item: &Item) -> usize {
        let ways = self.ways(item);
        ways.iter().filter(|path| path.exists()).count()
    }

    /// All names that the target file of a mesh may have.
    fn ways(&self, item: &Item) -> Vec<PathBuf> {
        let Self::Files { folder, pattern, .. } = self else { return Vec::new() };
        let mut name = pattern
            .replace("{stem}", item.stem())
            .replace("{name}", item.without_extension())
            .replace("{inner}", item.inner())
            .replace("{folder}/", item.folders());
        for parts in 1..10 {
            if let Some(start) = item.first_parts(parts) {
                name = name.replace(&format!("{{stem:{parts}}}"), start);
            }
            if let Some(start) = item.first_folders(parts) {
                name = name.replace(&format!("{{folder:{parts}}}/"), start);
            }
        }
        match pattern.ends_with(".*") {
            true => {
                ANY_EXTENSION.map(|extension| folder.join(format!("{}{extension}", &name[..name.len() - 1]))).to_vec()
            }
            false => vec![folder.join(name)],
        }
    }
}
