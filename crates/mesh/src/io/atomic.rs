//! Files that appear whole or not at all.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes a file by way of a temporary one in the same folder, which takes its place once all of
/// it is on the disk. On any failure the temporary file is removed and a file that was there before
/// is untouched.
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
/// The path does not name a file or names something that is not a regular file, the folder cannot
/// be written, or `write` fails.
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
        // The first failure is the one to tell.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Follows links, so that the file a link names is replaced and not the link, and gives the
/// permissions of a file that is there. Refuses read-only files, devices, pipes and folders, which a
/// rename would replace, destroy or fail on late.
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

/// Creates a new file next to `target`.
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
