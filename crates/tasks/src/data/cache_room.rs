//! Room in a cache: its limit, the share of the disk that stays free, and the entries that leave first.

use crate::{Result, TaskError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Environment variable with the limit of the cache.
pub const CACHE_LIMIT_VARIABLE: &str = "GEMCNN_CACHE_LIMIT";

/// This part of a disk stays free.
const FREE: u64 = 10;
/// The part of the limit that is empty after old entries have left, so that few of many writers exceed it.
const SLACK: u64 = 8;
/// The files are counted again after this part of the limit.
const COUNTED: u64 = 64;

/// Largest size of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheLimit {
    /// Half of the space that the disk has without the cache.
    #[default]
    HalfOfDisk,
    /// A number of bytes.
    Bytes(u64),
}

impl FromStr for CacheLimit {
    type Err = TaskError;

    /// A number with a unit: `20 GB`, `500MB`, `1.5 TB`, `0`.
    fn from_str(text: &str) -> Result<Self> {
        let refuse = || {
            let problem = format!("`{text}` is not a size; write a number and a unit, such as `20 GB`");
            TaskError::setting("limit of the cache", problem)
        };
        let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let number: f64 = text[..end].trim().parse().map_err(|_| refuse())?;
        let unit = match text[end..].to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "k" | "kb" => 1e3,
            "m" | "mb" => 1e6,
            "g" | "gb" => 1e9,
            "t" | "tb" => 1e12,
            _ => return Err(refuse()),
        };
        match number.is_finite() && number >= 0.0 {
            true => Ok(Self::Bytes((number * unit) as u64)),
            false => Err(refuse()),
        }
    }
}

/// A file of a cache.
pub(super) struct CacheFile {
    pub path: PathBuf,
    pub bytes: u64,
    /// When it was last read or written.
    pub used: SystemTime,
    /// False while it is being written.
    pub is_entry: bool,
}

/// Admits new entries to a cache. Entries that were used before this process opened the cache leave it, those that were
/// not used for longest first; others stay, because the run may read them again.
#[derive(Debug)]
pub(super) struct Room {
    limit: CacheLimit,
    opened: SystemTime,
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    /// Limit in bytes; `None` before the first count.
    limit: Option<u64>,
    /// Size of the cache, as far as this process knows.
    bytes: u64,
    /// Size at which the files are counted again.
    next: u64,
}

impl Room {
    pub fn new(limit: CacheLimit) -> Self {
        Self { limit, opened: SystemTime::now(), counted: Mutex::default() }
    }

    /// Makes room for an entry of some bytes in a folder. `files` lists the files of the cache.
    ///
    /// # Errors
    /// There is no room, or the folder cannot be read.
    pub fn admit(&self, folder: &Path, bytes: u64, files: impl FnOnce() -> Result<Vec<CacheFile>>) -> io::Result<()> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let disk = Disk::of(folder);
        // Space that is missing on the disk.
        let missing = |more: u64| disk.map_or(0, |disk| (disk.total / FREE + bytes + more).saturating_sub(disk.free));
        if counted.limit.is_none() || counted.bytes + bytes > counted.next || missing(0) > 0 {
            let mut files = files().map_err(io::Error::other)?;
            counted.bytes = files.iter().map(|file| file.bytes).sum();
            let half = disk.map_or(u64::MAX, |disk| (counted.bytes + disk.free) / 2);
            let limit = *counted.limit.get_or_insert(match self.limit {
                CacheLimit::Bytes(limit) => limit,
                CacheLimit::HalfOfDisk => half,
            });
            files.retain(|file| file.is_entry && file.used < self.opened);
            files.sort_unstable_by(|a, b| a.used.cmp(&b.used).then_with(|| a.path.cmp(&b.path)));
            let mut freed = 0;
            for file in files {
                if counted.bytes + bytes <= limit - limit / SLACK && freed >= missing(limit / COUNTED) {
                    break;
                }
                match std::fs::remove_file(&file.path) {
                    Ok(()) => freed += file.bytes,
                    // Another process was faster.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
                counted.bytes -= file.bytes;
            }
            if counted.bytes.saturating_add(bytes) > limit {
                let limit = limit as f64 / 1e9;
                return Err(io::Error::other(format!("it has reached its limit of {limit:.2} GB")));
            }
            if freed < missing(0) {
                return Err(io::Error::other("less than a tenth of the disk is free"));
            }
            counted.next = limit.min(counted.bytes.saturating_add(bytes).saturating_add(limit / COUNTED));
        }
        counted.bytes += bytes;
        Ok(())
    }
}

/// Space of a disk in bytes.
#[derive(Debug, Clone, Copy)]
struct Disk {
    total: u64,
    free: u64,
}

impl Disk {
    /// The disk with a folder; `None` where the system does not say.
    #[cfg(unix)]
    fn of(folder: &Path) -> Option<Self> {
        let disk = rustix::fs::statvfs(folder).ok()?;
        Some(Self { total: disk.f_blocks * disk.f_frsize, free: disk.f_bavail * disk.f_frsize })
    }

    #[cfg(not(unix))]
    fn of(_: &Path) -> Option<Self> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [("0", 0), ("20 GB", 20_000_000_000), ("1.5tb", 1_500_000_000_000), ("7 k", 7000)] {
            assert_eq!(text.parse::<CacheLimit>().unwrap(), CacheLimit::Bytes(bytes));
        }
        for text in ["", "GB", "-1 GB", "20 parsecs", "inf", "NaN GB", "1 G B"] {
            assert!(text.parse::<CacheLimit>().is_err(), "{text}");
        }
    }

    #[test]
    fn entries_that_were_not_used_for_longest_leave_first() {
        let folder = tempfile::tempdir().unwrap();
        let list = || {
            let files = std::fs::read_dir(folder.path()).unwrap().map(|entry| {
                let (path, metadata) = (entry.as_ref().unwrap().path(), entry.unwrap().metadata().unwrap());
                CacheFile { path, bytes: metadata.len(), used: metadata.modified().unwrap(), is_entry: true }
            });
            Ok(files.collect())
        };
        let names = || {
            let files: Vec<CacheFile> = list().unwrap();
            let mut names: Vec<_> = files.iter().map(|f| f.path.file_name().unwrap().to_owned()).collect();
            names.sort();
            names
        };
        // `a` is the oldest but was read last.
        for (name, age) in [("a", 10), ("b", 400), ("c", 300), ("d", 200), ("e", 100)] {
            std::fs::write(folder.path().join(name), [0; 100]).unwrap();
            let file = std::fs::File::options().write(true).open(folder.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        }
        let room = Room::new(CacheLimit::Bytes(560));
        room.admit(folder.path(), 100, list).unwrap();
        assert_eq!(names(), ["a", "d", "e"]);
        // What is used from now on stays, and what does not fit is refused.
        for name in ["a", "d", "e"] {
            let file = std::fs::File::options().write(true).open(folder.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() + Duration::from_secs(5)).unwrap();
        }
        for name in ["f", "g"] {
            std::fs::write(folder.path().join(name), [0; 100]).unwrap();
        }
        assert!(Room::new(CacheLimit::Bytes(300)).admit(folder.path(), 100, list).is_err());
        assert_eq!(names(), ["a", "d", "e"]);
        assert!(Room::new(CacheLimit::HalfOfDisk).admit(folder.path(), u64::MAX / 4, list).is_err());
        Room::new(CacheLimit::HalfOfDisk).admit(folder.path(), 100, list).unwrap();
        assert_eq!(names(), ["a", "d", "e"]);
    }
}
