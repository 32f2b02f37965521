//! Cache of prepared meshes on disk.
//!
//! The name of an entry is a hash of everything that determines its content. An entry begins with a checksum
//! of its name and content. Entries are written to temporary files and renamed, so any number of processes may
//! share a folder and be killed at any time. The next process that writes alone removes what is left of them. A damaged
//! entry is computed again. Errors of the folder, and a full one, never stop a run.

use super::cache_room::{CACHE_LIMIT_VARIABLE, CacheFile, CacheLimit, Room};
use crate::{Result, TaskError};
use gemcnn_mesh::{SharedFolder, is_leftover, write_atomically};
use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

/// Environment variable with the folder of the cache.
pub const CACHE_VARIABLE: &str = "GEMCNN_CACHE";

const MAGIC: &[u8; 16] = b"gemcnn prepared\n";
const EXTENSION: &str = "prepared";
/// Locked by all processes that write.
const LOCK: &str = ".gemcnn-lock";
/// Age after which an incomplete file belongs to a killed process.
const LEFT_BEHIND: Duration = Duration::from_secs(24 * 3600);

/// Key of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheKey(blake3::Hash);

impl CacheKey {
    /// The key of content that is determined by these parts.
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

/// A folder of entries, or no cache. Clones share the folder and its state.
#[derive(Debug, Clone)]
pub struct Cache {
    folder: Option<Arc<Folder>>,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    room: Room,
    /// Set after the first write error. Nothing more is written or reported then.
    broken: AtomicBool,
    /// Held since the first write; `None` if the folder cannot be locked.
    lock: OnceLock<Option<SharedFolder>>,
    /// Number and bytes of the entries that were read or written.
    entries: AtomicU64,
    bytes: AtomicU64,
}

impl Folder {
    fn count(&self, bytes: usize) {
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Size of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct CacheUsage {
    /// Number of entries.
    pub entries: usize,
    /// Bytes of all files.
    pub bytes: u64,
    /// Number of incomplete files of killed processes.
    pub leftovers: usize,
}

impl Cache {
    /// No cache: everything is computed each time.
    pub fn none() -> Self {
        Self { folder: None }
    }

    /// A cache in a folder, which is created by the first write.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self::with_room(folder.into(), CacheLimit::default())
    }

    fn with_room(path: PathBuf, limit: CacheLimit) -> Self {
        Self {
            folder: Some(Arc::new(Folder {
                path,
                room: Room::new(limit),
                broken: AtomicBool::new(false),
                lock: OnceLock::new(),
                entries: AtomicU64::new(0),
                bytes: AtomicU64::new(0),
            })),
        }
    }

    /// The same folder with a limit, or with that of the environment variable `GEMCNN_CACHE_LIMIT` if there is none.
    ///
    /// # Errors
    /// A variable that is not a size.
    pub fn limited(self, limit: Option<CacheLimit>) -> Result<Self> {
        let Some(folder) = self.folder else {
            return Ok(Self::none());
        };
        let set = || std::env::var(CACHE_LIMIT_VARIABLE).ok().filter(|text| !text.trim().is_empty());
        let limit = match limit {
            Some(limit) => limit,
            None => set().map_or(Ok(CacheLimit::default()), |text| text.parse())?,
        };
        Ok(Self::with_room(folder.path.clone(), limit))
    }

    /// The cache of the user: the folder in `GEMCNN_CACHE`, else `$XDG_CACHE_HOME/gemcnn/meshes`, else
    /// `~/.cache/gemcnn/meshes`. No cache if there is no home directory.
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

    /// Content of an entry, if it exists and is intact.
    pub fn get(&self, key: CacheKey) -> Option<Vec<u8>> {
        let mut open = File::open(self.file(key)?).ok()?;
        let mut file = Vec::new();
        open.read_to_end(&mut file).ok()?;
        // Entries leave in the order of this time. Without it, this one leaves early.
        let _ = open.set_modified(SystemTime::now());
        let head = MAGIC.len() + blake3::OUT_LEN;
        let seal = file.get(MAGIC.len()..head)?;
        let content = file.get(head..)?;
        let whole = file.starts_with(MAGIC) && seal == checksum(key, content).as_bytes();
        whole.then(|| {
            self.folder.iter().for_each(|folder| folder.count(file.len()));
            file.split_off(head)
        })
    }

    /// Mean size of the entries that were read or written so far, in bytes; `None` before the first.
    pub(crate) fn mean_entry(&self) -> Option<u64> {
        let Folder { entries, bytes, .. } = &**self.folder.as_ref()?;
        bytes.load(Ordering::Relaxed).checked_div(entries.load(Ordering::Relaxed))
    }

    /// Writes an entry, after those that were not used for longest have left if there is no room for it. The first error
    /// is reported on standard error, and nothing is written after it. A cache without room for what the run uses is an
    /// error.
    pub fn put(&self, key: CacheKey, content: &[u8]) {
        let Some(folder) = &self.folder else { return };
        let Some(file) = self.file(key) else { return };
        if folder.broken.load(Ordering::Relaxed) {
            return;
        }
        let written = std::fs::create_dir_all(&folder.path).and_then(|()| {
            (folder.lock).get_or_init(|| SharedFolder::open(&folder.path, &folder.path.join(LOCK)).ok());
            let bytes = (MAGIC.len() + blake3::OUT_LEN + content.len()) as u64;
            folder.room.admit(&folder.path, bytes, || self.files())?;
            write_atomically(&file, |out| {
                out.write_all(MAGIC)?;
                out.write_all(checksum(key, content).as_bytes())?;
                out.write_all(content)
            })?;
            folder.count(bytes as usize);
            Ok(())
        });
        if let Err(error) = written
            && !folder.broken.swap(true, Ordering::Relaxed)
        {
            // An error here only loses the warning.
            let _ = writeln!(
                std::io::stderr(),
                "warning: cannot write to the cache in {} ({error}); continuing without it. Set {CACHE_VARIABLE} to use \
                 another folder, or {CACHE_LIMIT_VARIABLE} for another limit",
                folder.path.display()
            );
        }
    }

    fn file(&self, key: CacheKey) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?;
        Some(folder.path.join(format!("{key}.{EXTENSION}")))
    }

    /// Size of the cache.
    ///
    /// # Errors
    /// A folder that cannot be read. A missing folder is empty.
    pub fn usage(&self) -> Result<CacheUsage> {
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

    /// Removes all entries and the incomplete files of killed processes, and returns their number and size.
    /// Other files stay.
    ///
    /// # Errors
    /// A file that cannot be removed.
    pub fn clear(&self) -> Result<CacheUsage> {
        let mut usage = CacheUsage::default();
        self.each_file(|path, kind, metadata| {
            match kind {
                Kind::Entry => usage.entries += 1,
                Kind::Unfinished if is_left_behind(metadata) => usage.leftovers += 1,
                Kind::Unfinished => return Ok(()),
            }
            usage.bytes += metadata.len();
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(TaskError::file(path)(error)),
                _ => Ok(()),
            }
        })?;
        Ok(usage)
    }

    /// All files that count.
    fn files(&self) -> Result<Vec<CacheFile>> {
        let mut files = Vec::new();
        self.each_file(|path, kind, metadata| {
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let is_entry = matches!(kind, Kind::Entry);
            files.push(CacheFile { path: path.into(), bytes: metadata.len(), used, is_entry });
            Ok(())
        })?;
        Ok(files)
    }

    fn each_file(&self, mut act: impl FnMut(&Path, Kind, &std::fs::Metadata) -> Result<()>) -> Result<()> {
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
            } else if is_leftover(&name) {
                Kind::Unfinished
            } else {
                continue;
            };
            // Another process may have renamed or removed it.
            if let Ok(metadata) = entry.metadata()
                && metadata.is_file()
            {
                act(&entry.path(), kind, &metadata)?;
            }
        }
        Ok(())
    }
}

/// Kind of a cache file.
enum Kind {
    Entry,
    /// Being written, or left by a killed process.
    Unfinished,
}

fn is_left_behind(metadata: &std::fs::Metadata) -> bool {
    let age = metadata.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
    age.is_some_and(|age| age > LEFT_BEHIND)
}

fn checksum(key: CacheKey, content: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key.0.as_bytes());
    hasher.update(content);
    hasher.finalize()
}
