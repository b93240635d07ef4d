//! Writing a file so that a crash leaves the old one or the new one, never a part.

use super::leftovers;
use crate::{Error, Result};
use std::fs::{File, Metadata};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The error of a part of a file that could not be written; [`write_with`] says which file.
pub(super) fn refused(what: &str, source: std::io::Error) -> Error {
    Error::Io { context: format!("could not write {what}"), source }
}

/// Writes to a temporary file beside `path`, syncs it, and renames it; the folder is synced then, too.
///
/// Where `path` is a link, what it leads to is replaced, and the link stays. An existing file's permissions stay, and
/// its owner where the system lets them. What is no file, such as a pipe or a device, is written to as it is.
///
/// # Errors
/// [`Error::Io`] saying what was refused, and whatever `content` says: an older file at `path` is then untouched,
/// unless the message says that only the folder could not be synced.
pub(super) fn write_with(path: &Path, content: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let failed = |source| Error::Io { context: format!("could not write {}", path.display()), source };
    let put = |file: &File| {
        let mut buffered = BufWriter::with_capacity(1 << 16, file);
        content(&mut buffered).map_err(|error| match error {
            Error::Io { source, .. } => failed(source),
            other => other,
        })?;
        buffered.flush().map_err(failed)
    };
    let Some(target) = replaceable(path).map_err(failed)? else {
        let file = File::options().write(true).truncate(true).open(path).map_err(failed)?;
        put(&file)?;
        return synced(&file).map_err(failed);
    };
    let folder = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let existing = std::fs::metadata(&target).ok();
    leftovers::remove(folder);
    let (file, unfinished) = create(folder, existing.as_ref()).map_err(failed)?;
    put(&file)?;
    file.sync_all().map_err(failed)?;
    if let Some(existing) = existing {
        keep_permissions(&file, &existing);
    }
    // A file that is open cannot be renamed on every system; on others its lock says until then that it is in use.
    #[cfg(not(unix))]
    drop(file);
    std::fs::rename(&unfinished.0, &target).map_err(failed)?;
    std::mem::forget(unfinished);
    // The rename itself reaches the disk with the folder; where folders cannot be opened, it will later.
    match File::open(folder) {
        Ok(folder) => synced(&folder).map_err(|source| Error::Io {
            context: format!(
                "{} is written, but its folder could not be flushed to disk, so that a power failure may bring \
                 back what was there before",
                path.display()
            ),
            source,
        }),
        Err(_) => Ok(()),
    }
}

/// The file that is to be replaced by renaming: where links lead. `None` for what is no file.
fn replaceable(path: &Path) -> std::io::Result<Option<PathBuf>> {
    let found = match std::fs::metadata(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        found => found.ok(),
    };
    if found.as_ref().is_some_and(|found| !found.is_file()) {
        return Ok(None);
    }
    let mut target = path.to_path_buf();
    // As many links as Linux follows; those that turn in a circle were refused above.
    for _ in 0..40 {
        match std::fs::symlink_metadata(&target) {
            Ok(about) if about.is_symlink() => {
                let link = std::fs::read_link(&target)?;
                target.pop();
                target.push(link);
            }
            _ => break,
        }
    }
    // Links of /proc lead to files by more than their names. Others who save may replace the file between two looks
    // at it, so that one pair of looks is enough that finds it the same.
    let same = || match (std::fs::metadata(path), std::fs::metadata(&target)) {
        (Ok(found), Ok(reached)) => is_same(&found, &reached),
        _ => false,
    };
    let replaced = found.is_none() || target == path || (0..LOOKS).any(|_| same());
    Ok(replaced.then_some(target))
}

/// How often a file is looked at by two names before they are taken to be of two files.
const LOOKS: usize = 64;

#[cfg(unix)]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same(_: &Metadata, _: &Metadata) -> bool {
    true
}

/// Flushes to disk what can be flushed: pipes, devices, and the folders of some systems cannot.
fn synced(file: &File) -> std::io::Result<()> {
    match file.sync_all() {
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
        // Folders are opened to be read alone, which is no way to flush them on some systems.
        Err(error) if !cfg!(unix) && error.kind() == ErrorKind::PermissionDenied => Ok(()),
        outcome => outcome,
    }
}

/// A temporary file that is removed unless it becomes what it was made for.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // What cannot be removed now is removed by a later save.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Creates a temporary file: with the permissions of any new file, or not more than the existing one's.
fn create(folder: &Path, existing: Option<&Metadata>) -> std::io::Result<(File, Unfinished)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if let Some(existing) = existing {
        use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
        options.mode(existing.mode() & 0o777);
    }
    #[cfg(not(unix))]
    let _ = existing;
    loop {
        let path = folder.join(leftovers::name(COUNT.fetch_add(1, Ordering::Relaxed)));
        match options.open(&path) {
            Ok(file) => {
                let unfinished = Unfinished(path);
                if leftovers::claim(&file) {
                    return Ok((file, unfinished));
                }
            }
            // Of a process that had this one's number.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Gives the new file the old one's owner and permissions, as far as the system lets them; never more permissions
/// than somebody had before.
#[cfg(unix)]
fn keep_permissions(file: &File, existing: &Metadata) {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    let (uid, gid) = (existing.uid(), existing.gid());
    let own = file.metadata().map_or((uid, gid), |own| (own.uid(), own.gid()));
    let mut mode = existing.mode() & 0o7777;
    if own != (uid, gid) && fchown(file, Some(uid), Some(gid)).is_err() {
        let group = own.1 == gid || fchown(file, None, Some(gid)).is_ok();
        // Set-user-ID is another user's, and a group's permissions are not for another one.
        mode &= if group { 0o777 } else { 0o707 };
        if !group {
            mode |= (mode & 0o007) << 3;
        }
    }
    // Some mounts know no permissions and refuse; the file then has those that it was created with.
    let _ = file.set_permissions(std::fs::Permissions::from_mode(mode));
}

#[cfg(not(unix))]
fn keep_permissions(_: &File, _: &Metadata) {}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// However often others replace a file meanwhile, it is never to be written where it lies: who reads it then
    /// would find it cut short.
    #[test]
    fn a_file_that_others_replace_is_replaced() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let [path, link, other] = ["file", "link", "other"].map(|name| folder.path().join(name));
        std::fs::write(&path, "0")?;
        std::os::unix::fs::symlink(&path, &link)?;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let replacing = scope.spawn(|| -> std::io::Result<()> {
                while !done.load(Ordering::Relaxed) {
                    std::fs::write(&other, "1")?;
                    std::fs::rename(&other, &path)?;
                }
                Ok(())
            });
            let looked = (0..10_000).try_for_each(|_| {
                for name in [&path, &link] {
                    assert_eq!(replaceable(name)?.as_ref(), Some(&path));
                }
                Ok::<(), std::io::Error>(())
            });
            done.store(true, Ordering::Relaxed);
            looked.and(replacing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }
}
