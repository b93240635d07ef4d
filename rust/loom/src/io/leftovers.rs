//! Temporary files of savers that were killed, which the next save into their folder removes.
//!
//! A saver holds a lock on its temporary file, which the system lets go of when the saver dies, however it dies: who
//! gets the lock knows that nobody is writing. Names tell the machine, for not every file system's locks reach others.

use std::fs::File;
#[cfg(unix)]
use std::fs::TryLockError;
use std::path::Path;

/// What the names of all temporary files begin with.
const PREFIX: &str = ".loom-saving-";

/// The name of a temporary file, of so many of this process.
pub(super) fn name(count: u64) -> String {
    let nanoseconds = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.subsec_nanos());
    format!("{}{}-{nanoseconds:x}-{count}", prefix(), std::process::id())
}

/// What the names of this machine's temporary files begin with.
fn prefix() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    // No hyphen: what follows one is the process.
    let host: String = host.trim().chars().filter(char::is_ascii_alphanumeric).take(64).collect();
    format!("{PREFIX}{host}-")
}

/// Takes the lock on a temporary file that was just created. Returns whether the file is still there: who looks for
/// leftovers may have come first.
#[cfg(unix)]
pub(super) fn claim(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => false,
        // Where there are no locks, nobody gets one, and nothing is removed.
        _ => file.metadata().map_or(true, |about| about.nlink() > 0),
    }
}

#[cfg(not(unix))]
pub(super) fn claim(_: &File) -> bool {
    true
}

/// Removes what savers of this machine have left in a folder that are no more. What cannot be removed stays.
#[cfg(unix)]
pub(super) fn remove(folder: &Path) {
    let prefix = prefix();
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_temporary = entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix))
            && entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_temporary {
            continue;
        }
        let path = entry.path();
        // Some systems lock only what may be written; a file that took over permissions may not be.
        let opened = File::options().write(true).open(&path).or_else(|_| File::open(&path));
        let Ok(file) = opened else { continue };
        if file.try_lock().is_ok() {
            let _ = std::fs::remove_file(&path);
        }
    }
}

#[cfg(not(unix))]
pub(super) fn remove(folder: &Path) {
    let _ = (folder, prefix());
}
