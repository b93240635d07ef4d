//! Writing a file so that a crash leaves the old one or the new one, never a part.

use crate::{Error, Result};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Writes to a temporary file beside `path`, syncs it, and renames it.
///
/// # Errors
/// [`Error::Io`] saying what was refused; an older file at `path` is then untouched.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    write_with(path, |file| file.write_all(bytes).map_err(|source| refused("the file", source)))
}

/// The error of a part of a file that could not be written; [`write_with`] says which file.
pub(super) fn refused(what: &str, source: std::io::Error) -> Error {
    Error::Io { context: format!("could not write {what}"), source }
}

/// [`write`] for a file that is written piece by piece.
///
/// # Errors
/// As [`write`], and whatever `content` says: then no file is left.
pub(super) fn write_with(path: &Path, content: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let failed = |source| Error::Io { context: format!("could not write {}", path.display()), source };
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // Opened here, because what tempfile says itself has the temporary name and no error number.
    let mut file = tempfile::Builder::new()
        .prefix(".loom-")
        .make_in(folder, |path| File::options().write(true).create_new(true).open(path))
        .map_err(failed)?;
    content(&mut file).map_err(|error| match error {
        Error::Io { source, .. } => failed(source),
        other => other,
    })?;
    file.as_file().sync_all().map_err(failed)?;
    #[cfg(unix)]
    open_permissions(&file, path).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    // The rename itself reaches the disk with the folder; where folders cannot be opened, it will later.
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// Gives the new file the old one's permissions, or those of any new file: temporary ones
/// are for their owner alone.
#[cfg(unix)]
fn open_permissions(file: &tempfile::NamedTempFile, path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let permissions = match std::fs::metadata(path) {
        Ok(existing) => existing.permissions(),
        Err(_) => std::fs::Permissions::from_mode(0o644),
    };
    file.as_file().set_permissions(permissions)
}
