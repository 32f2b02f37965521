//! Atomic file writes, and what killed writers leave behind.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Length of a chain of symbolic links that is followed.
const MAX_LINKS: usize = 40;

/// Writes a file atomically. The data goes to a temporary file in the same folder, which is flushed
/// to disk and then renamed. On failure the temporary file is removed and an existing file is not
/// changed.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("notes.txt");
/// gemcnn_mesh::write_atomically(&path, |out| writeln!(out, "whole"))?;
/// assert_eq!(std::fs::read_to_string(&path)?, "whole\n");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The path does not name a file or names something other than a regular file, the folder is not
/// writable, or `write` fails.
pub fn write_atomically(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let (target, permissions) = resolve(path)?;
    let (temporary, file) = create_beside(&target)?;
    let written = fill(file, write)
        .and_then(|()| permissions.map_or(Ok(()), |old| fs::set_permissions(&temporary, old)))
        .and_then(|()| fs::rename(&temporary, &target));
    if written.is_err() {
        // Report the first failure only.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Follows symbolic links, so that the target is replaced and not the link, and returns the
/// permissions of an existing file. Read-only files, devices, pipes and folders are errors: a
/// rename would replace or destroy them, or fail late.
fn resolve(path: &Path) -> io::Result<(PathBuf, Option<Permissions>)> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.permissions().readonly() => {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file is read-only"))
        }
        Ok(metadata) if metadata.is_file() => Ok((fs::canonicalize(path)?, Some(metadata.permissions()))),
        Ok(metadata) if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => Err(not_a_file()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((end_of_links(path)?, None)),
        Err(error) => Err(error),
    }
}

/// The path that a chain of symbolic links leads to, which need not exist.
fn end_of_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(next) => path = path.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "the symbolic links lead in a circle"))
}

/// Creates a temporary file next to `target`.
fn create_beside(target: &Path) -> io::Result<(PathBuf, File)> {
    if target.file_name().is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path does not name a file"));
    }
    for attempt in 0u32.. {
        let temporary = target.with_file_name(format!(".gemcnn-{}-{attempt}.tmp", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// True for the name of a temporary file of [`write_atomically`]. One that stays belongs to a process that was killed.
pub fn is_leftover(name: &str) -> bool {
    name.starts_with(".gemcnn-") && name.ends_with(".tmp")
}

/// Removes temporary files of killed processes from a folder. No other process may be writing in it.
///
/// # Errors
/// A folder that cannot be read, or a file that cannot be removed.
pub fn remove_leftovers(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if is_leftover(&entry.file_name().to_string_lossy()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// A folder in which this process writes files, as any number of others may. The first one removes what killed
/// processes left there.
///
/// Every writer holds a shared lock of one file. A process that gets it for itself is the only writer, so all temporary
/// files are left over. The system releases locks when a process ends, even when it is killed.
#[derive(Debug)]
pub struct SharedFolder {
    _lock: File,
}

impl SharedFolder {
    /// Opens a folder; `lock` is the file to lock, which is created if necessary.
    ///
    /// # Errors
    /// A file that cannot be opened, or leftovers that cannot be removed.
    pub fn open(folder: &Path, lock: &Path) -> io::Result<Self> {
        let file = (OpenOptions::new().write(true).create(true).truncate(false)).open(lock)?;
        match file.try_lock() {
            Ok(()) => {
                remove_leftovers(folder)?;
                file.unlock()?;
                file.lock_shared()?;
            }
            Err(TryLockError::WouldBlock) => file.lock_shared()?,
            // The file system has no locks: nothing says that a file is left over.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        Ok(Self { _lock: file })
    }
}

/// Reads a file completely. Folders, devices and pipes are errors: a pipe may never end.
///
/// # Errors
/// A path that is not a readable regular file.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(not_a_file());
    }
    fs::read(path)
}

/// Reads a file of text, like [`read_file`].
///
/// # Errors
/// A path that is not a readable regular file, or content that is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(read_file(path)?);
    text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn not_a_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "this is a device, pipe or socket, not a file")
}

fn fill(file: File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, file);
    write(&mut out)?;
    out.flush()?;
    out.get_ref().sync_all()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn dangling_links_are_followed_and_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        symlink("second", path("first")).unwrap();
        symlink(path("file"), path("second")).unwrap();
        write_atomically(&path("first"), |out| out.write_all(b"whole")).unwrap();
        assert_eq!(fs::read(path("file")).unwrap(), b"whole");
        assert_eq!(fs::read_link(path("first")).unwrap(), Path::new("second"));
        symlink("nowhere/file", path("lost")).unwrap();
        assert!(write_atomically(&path("lost"), |out| out.write_all(b"whole")).is_err());
        symlink("circle", path("circle")).unwrap();
        assert!(write_atomically(&path("circle"), |out| out.write_all(b"whole")).is_err());
        assert!(fs::symlink_metadata(path("circle")).unwrap().is_symlink());
    }

    #[test]
    fn the_only_writer_removes_what_killed_ones_left() {
        let folder = tempfile::tempdir().unwrap();
        let leave = |name: &str| fs::write(folder.path().join(name), "half").unwrap();
        let left = |name: &str| folder.path().join(name).exists();
        let lock = folder.path().join("lock");
        leave(".gemcnn-1-0.tmp");
        leave(".gemcnn-notes");
        let first = SharedFolder::open(folder.path(), &lock).unwrap();
        assert!(!left(".gemcnn-1-0.tmp") && left(".gemcnn-notes"));
        leave(".gemcnn-2-0.tmp");
        let second = SharedFolder::open(folder.path(), &lock).unwrap();
        assert!(left(".gemcnn-2-0.tmp"), "the first writer may be at it");
        drop((first, second));
        SharedFolder::open(folder.path(), &lock).unwrap();
        assert!(!left(".gemcnn-2-0.tmp"));
    }
}
