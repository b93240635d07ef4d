//! Where the bytes of a tensor file are.

use crate::{Error, Result};
use memmap2::Mmap;
use std::fs::File;
use std::path::Path;

/// Bytes that stay where they are as long as this is held.
pub(super) enum Storage {
    /// A file, of which the system reads what is looked at.
    Map(Mmap),
    /// Bytes that somebody had already.
    Bytes(Box<dyn AsRef<[u8]> + Send + Sync>),
}

impl Storage {
    /// Maps a file.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let failed = |source| Error::Io { context: format!("could not read {}", path.display()), source };
        // A pipe would be waited for, and a device has no end.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            let message = format!("{} is not a file: a pipe or a device", path.display());
            return Err(Error::Serialization(message));
        }
        let file = File::open(path).map_err(failed)?;
        // SAFETY: the map is read only, and everything read from it is bytes, for which any value is valid. Who
        // shortens a file while others read it ends them, as with any mapped file; the documentation says so.
        let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
        Ok(Storage::Map(map))
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Storage::Map(map) => map,
            Storage::Bytes(bytes) => (**bytes).as_ref(),
        }
    }
}
