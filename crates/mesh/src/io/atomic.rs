//! Atomic file writes.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

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
pub fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
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
        Ok(metadata) if metadata.is_file() && metadata.permissions().readonly() => Err(
            io::Error::new(io::ErrorKind::PermissionDenied, "the file is read-only"),
        ),
        Ok(metadata) if metadata.is_file() => {
            Ok((fs::canonicalize(path)?, Some(metadata.permissions())))
        }
        Ok(metadata) if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "this is a device, pipe or socket, not a file",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((path.to_path_buf(), None)),
        Err(error) => Err(error),
    }
}

/// Creates a temporary file next to `target`.
fn create_beside(target: &Path) -> io::Result<(PathBuf, File)> {
    if target.file_name().is_none() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path does not name a file",
        ));
    }
    for attempt in 0u32.. {
        let temporary =
            target.with_file_name(format!(".gemcnn-{}-{attempt}.tmp", std::process::id()));
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)
        {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn fill(file: File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, file);
    write(&mut out)?;
    out.flush()?;
    out.get_ref().sync_all()
}
