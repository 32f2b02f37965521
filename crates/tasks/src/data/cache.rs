//! Prepared meshes on disk, so that no work is done twice.
//!
//! An entry is a file that is named by a hash of everything that decides its content, and begins with
//! a checksum over its name and content. Entries appear whole by renaming, so any number of processes
//! may share a folder and be killed at any time; what is damaged all the same is made again. Trouble
//! with the folder costs time, never a run.

use crate::TaskError;
use gemcnn_mesh::write_atomically;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// Names the folder of the cache, if it is set.
pub const CACHE_VARIABLE: &str = "GEMCNN_CACHE";

const MAGIC: &[u8; 16] = b"gemcnn prepared\n";
const EXTENSION: &str = "prepared";
/// A file that a killed process left half-written is older than this.
const LEFT_BEHIND: Duration = Duration::from_secs(24 * 3600);

/// Name of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheKey(blake3::Hash);

impl CacheKey {
    /// The key of what is made from these parts.
    pub fn new(parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize())
    }
}

impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.to_hex().fmt(f)
    }
}

/// A folder of entries, or none. Copies share the folder and its troubles.
#[derive(Debug, Clone)]
pub struct Cache {
    folder: Option<Arc<Folder>>,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Set when writing failed: nothing more is written, and nothing more said.
    broken: AtomicBool,
}

/// What a cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct CacheUsage {
    /// Whole entries.
    pub entries: usize,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files that killed processes left behind.
    pub leftovers: usize,
}

impl Cache {
    /// No cache: everything is made anew.
    pub fn none() -> Self {
        Self { folder: None }
    }

    /// A cache in a folder, which is made when something is to be written.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: Some(Arc::new(Folder {
                path: folder.into(),
                broken: AtomicBool::new(false),
            })),
        }
    }

    /// The cache of this user: the folder in `GEMCNN_CACHE`, else `$XDG_CACHE_HOME/gemcnn/meshes`, else
    /// `~/.cache/gemcnn/meshes`; none if there is no home either.
    pub fn of_user() -> Self {
        let set = |name| std::env::var_os(name).filter(|folder| !folder.is_empty());
        if let Some(folder) = set(CACHE_VARIABLE) {
            return Self::new(folder);
        }
        let base = match set("XDG_CACHE_HOME") {
            Some(folder) => Some(PathBuf::from(folder)),
            None => std::env::home_dir().map(|home| home.join(".cache")),
        };
        match base {
            Some(base) => Self::new(base.join("gemcnn").join("meshes")),
            None => Self::none(),
        }
    }

    /// The folder, if there is one.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(|folder| folder.path.as_path())
    }

    /// The content of an entry, if it is there and whole.
    pub fn get(&self, key: CacheKey) -> Option<Vec<u8>> {
        let mut file = std::fs::read(self.file(key)?).ok()?;
        let head = MAGIC.len() + blake3::OUT_LEN;
        let seal = file.get(MAGIC.len()..head)?;
        let content = file.get(head..)?;
        let whole = file.starts_with(MAGIC) && seal == checksum(key, content).as_bytes();
        whole.then(|| file.split_off(head))
    }

    /// Keeps an entry. The first time that fails, standard error says so, and from then on nothing is
    /// kept.
    pub fn put(&self, key: CacheKey, content: &[u8]) {
        let Some(folder) = &self.folder else { return };
        let Some(file) = self.file(key) else { return };
        if folder.broken.load(Ordering::Relaxed) {
            return;
        }
        let written = std::fs::create_dir_all(&folder.path).and_then(|()| {
            write_atomically(&file, |out| {
                out.write_all(MAGIC)?;
                out.write_all(checksum(key, content).as_bytes())?;
                out.write_all(content)
            })
        });
        if let Err(error) = written
            && !folder.broken.swap(true, Ordering::Relaxed)
        {
            // A warning that nobody can read is lost.
            let _ = writeln!(
                std::io::stderr(),
                "warning: the cache in {} cannot be written to ({error}); going on without it. {CACHE_VARIABLE} names another folder",
                folder.path.display()
            );
        }
    }

    fn file(&self, key: CacheKey) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?;
        Some(folder.path.join(format!("{key}.{EXTENSION}")))
    }

    /// What the cache holds.
    ///
    /// # Errors
    /// A folder that cannot be read; one that is not there is empty.
    pub fn usage(&self) -> Result<CacheUsage, TaskError> {
        let mut usage = CacheUsage::default();
        self.each_file(|_, kind, metadata| {
            match kind {
                Kind::Entry => usage.entries += 1,
                Kind::Unfinished => usage.leftovers += usize::from(is_left_behind(metadata)),
            }
            usage.bytes += metadata.len();
            Ok(())
        })?;
        Ok(usage)
    }

    /// Removes all entries and what killed processes left behind, and tells what that was. Nothing else
    /// in the folder is touched.
    ///
    /// # Errors
    /// A file that cannot be removed.
    pub fn clear(&self) -> Result<CacheUsage, TaskError> {
        let mut usage = CacheUsage::default();
        self.each_file(|path, kind, metadata| {
            match kind {
                Kind::Entry => usage.entries += 1,
                Kind::Unfinished if is_left_behind(metadata) => usage.leftovers += 1,
                Kind::Unfinished => return Ok(()),
            }
            usage.bytes += metadata.len();
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(TaskError::file(path)(error))
                }
                _ => Ok(()),
            }
        })?;
        Ok(usage)
    }

    fn each_file(
        &self,
        mut act: impl FnMut(&Path, Kind, &std::fs::Metadata) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        let Some(folder) = self.folder() else {
            return Ok(());
        };
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(TaskError::file(folder)(error)),
        };
        for entry in entries {
            let entry = entry.map_err(TaskError::file(folder))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let key = name.strip_suffix(&format!(".{EXTENSION}"));
            let kind = if key.is_some_and(|key| blake3::Hash::from_hex(key).is_ok()) {
                Kind::Entry
            } else if name.starts_with(".gemcnn-") && name.ends_with(".tmp") {
                Kind::Unfinished
            } else {
                continue;
            };
            // Another process may have renamed or removed it by now.
            if let Ok(metadata) = entry.metadata()
                && metadata.is_file()
            {
                act(&entry.path(), kind, &metadata)?;
            }
        }
        Ok(())
    }
}

/// A file of the cache.
enum Kind {
    Entry,
    /// On its way to be one, or left behind.
    Unfinished,
}

fn is_left_behind(metadata: &std::fs::Metadata) -> bool {
    let age = metadata
        .modified()
        .ok()
        .and_then(|time| SystemTime::now().duration_since(time).ok());
    age.is_some_and(|age| age > LEFT_BEHIND)
}

fn checksum(key: CacheKey, content: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key.0.as_bytes());
    hasher.update(content);
    hasher.finalize()
}
