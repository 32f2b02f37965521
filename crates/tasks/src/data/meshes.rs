//! The mesh files of a folder.

use super::pattern::Pattern;
use super::table::NumberTable;
use crate::layout::is_made;
use crate::{DataError, Result, TaskError};
use gemcnn_nn::Target;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// A mesh of a data set.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    /// Path within the data set, with `/` between folders.
    pub name: String,
    /// Path of the file.
    pub path: PathBuf,
    /// Class or values of the whole mesh, if these are learned.
    pub target: Target<u32, NumberTable>,
}

impl Item {
    pub fn new(name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self { name: name.into(), path: path.into(), target: Target::Unknown }
    }

    /// Class of the whole mesh.
    pub fn class(&self) -> Option<u32> {
        self.target.as_ref().classes().copied()
    }

    /// Name without extension.
    pub fn without_extension(&self) -> &str {
        match self.name.rsplit_once('.') {
            Some((before, after)) if !after.contains('/') => before,
            _ => &self.name,
        }
    }

    /// File name without folders and extension.
    pub fn stem(&self) -> &str {
        let name = self.without_extension();
        name.rsplit_once('/').map_or(name, |(_, stem)| stem)
    }

    /// Name without the outermost folder and extension.
    pub fn inner(&self) -> &str {
        let name = self.without_extension();
        name.split_once('/').map_or(name, |(_, inner)| inner)
    }

    /// Folders of the mesh within the data set, with a `/` after each.
    pub fn folders(&self) -> &str {
        self.name.rfind('/').map_or("", |at| &self.name[..=at])
    }

    /// The outermost folders, with a `/` after each; `None` if there are fewer.
    pub fn first_folders(&self, count: usize) -> Option<&str> {
        let ends = self.name.match_indices('/').map(|(at, _)| at + 1);
        ends.into_iter().nth(count.checked_sub(1)?).map(|end| &self.name[..end])
    }

    /// The first parts of the file name, which are separated by `.`, `_` or `-`; `None` if there are fewer.
    pub fn first_parts(&self, parts: usize) -> Option<&str> {
        let stem = self.stem();
        let mut ends = stem.match_indices(['.', '_', '-']).map(|(at, _)| at).chain([stem.len()]);
        ends.nth(parts.checked_sub(1)?).map(|end| &stem[..end])
    }

    /// Folder of the mesh; `None` for the folder of the data set itself.
    pub fn folder(&self) -> Option<&str> {
        let (folders, _) = self.name.rsplit_once('/')?;
        Some(folders.rsplit_once('/').map_or(folders, |(_, last)| last))
    }

    /// The names that lists may use for it.
    pub fn called(&self) -> impl Iterator<Item = &str> {
        let file = self.name.rsplit_once('/').map_or(&*self.name, |(_, f)| f);
        let mut names = vec![&*self.name, self.without_extension(), file, self.stem()];
        names.sort_unstable();
        names.dedup();
        names.into_iter()
    }
}

/// Finds meshes by the names that lists use.
pub(crate) struct Names<'a> {
    by_name: HashMap<&'a str, Option<usize>>,
}

impl<'a> Names<'a> {
    pub fn new(items: &'a [Item]) -> Self {
        let mut by_name = HashMap::new();
        for (index, item) in items.iter().enumerate() {
            for name in item.called() {
                // `None` if several meshes share a name.
                by_name.entry(name).and_modify(|found| *found = None).or_insert(Some(index));
            }
        }
        // A full name is always unique.
        for (index, item) in items.iter().enumerate() {
            by_name.insert(&item.name, Some(index));
        }
        Self { by_name }
    }

    /// True if any mesh has this name.
    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(trimmed(name))
    }

    pub fn find(&self, name: &str) -> Result<usize, String> {
        let name = trimmed(name);
        match self.by_name.get(name) {
            Some(Some(index)) => Ok(*index),
            Some(None) => Err(format!("several meshes are named `{name}`; add the folder and the extension")),
            None => Err(format!("there is no mesh `{name}`")),
        }
    }
}

fn trimmed(name: &str) -> &str {
    let name = name.trim();
    name.strip_prefix("./").unwrap_or(name)
}

/// The matching meshes of a folder, sorted by name. `meshes` is a folder or a pattern.
pub(crate) fn find_meshes(folder: &Path, meshes: &str) -> Result<Vec<Item>> {
    let within = meshes.strip_prefix("./").unwrap_or(meshes);
    let within = within.trim_end_matches('/');
    let text = match within {
        "" | "." => "*".to_string(),
        _ if Pattern::new(within).is_literal() && folder.join(within).is_dir() => {
            format!("{within}/*")
        }
        _ => within.to_string(),
    };
    let pattern = Pattern::new(&text);
    let mut items = Vec::new();
    let mut seen = HashSet::new();
    let is_meant = |name: &str| text.starts_with(name);
    collect(folder, "", &is_meant, &mut seen, &mut |name, path| {
        if is_mesh(&path) && pattern.matches(&name) {
            items.push(Item::new(name, path));
        }
    })?;
    items.sort_by(|a, b| a.name.cmp(&b.name));
    if items.is_empty() {
        return Err(DataError::NoMeshes { folder: folder.into(), pattern: meshes.into() }.into());
    }
    Ok(items)
}

/// All mesh files in a folder and the folders below it, sorted by name. Prediction results and run directories
/// are skipped.
///
/// # Errors
/// A folder that cannot be read.
pub fn mesh_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    collect(folder, "", &|_| false, &mut HashSet::new(), &mut |_, path| {
        if is_mesh(&path) {
            files.push(path);
        }
    })?;
    files.sort();
    Ok(files)
}

/// All files of a folder other than meshes, by their names within it, sorted.
pub(super) fn other_files(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    collect(folder, "", &|_| false, &mut HashSet::new(), &mut |name, path| {
        if !is_mesh(&path) {
            names.push(name);
        }
    })?;
    names.sort();
    Ok(names)
}

/// True if a file has the name of a mesh.
pub fn is_mesh(path: &Path) -> bool {
    gemcnn_mesh::has_mesh_name(path)
}

/// Calls `found` for every file below a folder, with its relative name. Skips hidden files, folders that a link
/// leads to again, and results and runs, unless they are meant.
fn collect(
    folder: &Path,
    prefix: &str,
    is_meant: &dyn Fn(&str) -> bool,
    seen: &mut HashSet<PathBuf>,
    found: &mut dyn FnMut(String, PathBuf),
) -> Result<()> {
    if !seen.insert(folder.canonicalize().map_err(TaskError::file(folder))?) {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder).map_err(TaskError::file(folder))? {
        let entry = entry.map_err(TaskError::file(folder))?;
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') {
            continue;
        }
        let name = format!("{prefix}{name}");
        if !path.is_dir() {
            found(name, path);
            continue;
        }
        let inside = format!("{name}/");
        if is_meant(&inside) || !is_made(&path) {
            collect(&path, &inside, is_meant, seen, found)?;
        }
    }
    Ok(())
}
