//! Seals of models and checkpoints: a checksum of everything else in the file.

use gemcnn_nn::{Archive, NnError};
use std::path::Path;

const SEAL: &str = "seal";

/// The bytes of an archive with its seal.
///
/// # Errors
/// Content that cannot be stored.
pub(super) fn sealed(mut archive: Archive) -> Result<Vec<u8>, NnError> {
    let seal = checksum(&mut archive)?;
    archive.set_json(SEAL, &seal)?;
    archive.to_bytes()
}

/// Reads a sealed archive, all of whose tensors are finite.
///
/// # Errors
/// A file that cannot be read, whose content does not match its seal, or with values that are not finite.
pub(super) fn read_sealed(path: &Path) -> Result<Archive, NnError> {
    unsealed(Archive::read(path)?, path)
}

/// A sealed archive after its checks. `path` is for messages.
///
/// # Errors
/// Content that does not match its seal, or values that are not finite.
pub(super) fn unsealed(mut archive: Archive, path: &Path) -> Result<Archive, NnError> {
    let refuse = |problem: String| NnError::Archive { path: path.into(), problem };
    if archive.json::<String>(SEAL)? != checksum(&mut archive)? {
        return Err(refuse("the checksum does not match the content".into()));
    }
    match not_finite(&archive)? {
        Some(name) => Err(refuse(format!("tensor `{name}` has values that are not finite"))),
        None => Ok(archive),
    }
}

/// Name of a tensor with values that are NaN or infinite.
pub(super) fn not_finite(archive: &Archive) -> Result<Option<String>, NnError> {
    for name in archive.tensor_names() {
        if !archive.tensor::<f32>(name)?.iter().all(|v| v.is_finite()) {
            return Ok(Some(name.into()));
        }
    }
    Ok(None)
}

fn checksum(archive: &mut Archive) -> Result<String, NnError> {
    archive.set_json(SEAL, &"")?;
    Ok(blake3::hash(&archive.to_bytes()?).to_hex().to_string())
}
