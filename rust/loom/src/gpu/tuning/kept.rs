//! Measurements on disk, a file for each adapter, driver and extent of the measurement.

use super::setting::Tuning;
use crate::gpu::adapter::Adapter;
use crate::shader::Speeds;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Goes up where the kernels that are measured, or what is done with the figures, become others.
const VERSION: u32 = 1;

/// A file of a measurement.
#[derive(Serialize, Deserialize)]
struct Kept {
    version: u32,
    adapter: String,
    backend: String,
    driver: String,
    speeds: Speeds,
}

impl Kept {
    fn new(adapter: &Adapter, speeds: Speeds) -> Self {
        let (adapter, backend, driver) = (&adapter.name, adapter.backend, &adapter.driver);
        Self {
            version: VERSION,
            adapter: adapter.clone(),
            backend: backend.into(),
            driver: driver.clone(),
            speeds,
        }
    }

    /// The speeds, where they are of this adapter and can be true.
    fn of(self, adapter: &Adapter) -> Option<Speeds> {
        let same = self.version == VERSION
            && self.adapter == adapter.name
            && self.backend == adapter.backend
            && self.driver == adapter.driver;
        (same && self.speeds.is_plausible()).then_some(self.speeds)
    }
}

/// Where measurements are kept: `LOOM_CACHE_DIR`, or `loom` where the system has caches.
pub(super) fn folder() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let of_system = || {
        let home = || std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
        let caches = match std::env::consts::OS {
            "windows" => named("LOCALAPPDATA"),
            "macos" => home().map(|home| home.join("Library").join("Caches")),
            _ => named("XDG_CACHE_HOME").or_else(|| home().map(|home| home.join(".cache"))),
        };
        caches.map(|caches| caches.join("loom"))
    };
    named("LOOM_CACHE_DIR").or_else(of_system).map(|folder| folder.join("tuning"))
}

/// The name of an adapter's file: readable, and another one for another driver.
fn name(adapter: &Adapter, tuning: Tuning) -> String {
    let readable: String =
        adapter.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(60).collect();
    let all = format!("{}\n{}\n{}", adapter.name, adapter.backend, adapter.driver);
    // FNV-1a, the same on every machine and in every version.
    let hash = all.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    format!("{readable}-{hash:016x}-{}.json", tuning.name())
}

/// What is kept of an adapter; where there is nothing that can be read, what `make` measures, once it is kept.
///
/// # Errors
/// [`Error::Io`] where it cannot be kept, and what `make` says.
pub(super) fn or_made(
    folder: &Path,
    adapter: &Adapter,
    tuning: Tuning,
    make: impl FnOnce() -> Result<Speeds>,
) -> Result<Speeds> {
    let path = folder.join(name(adapter, tuning));
    let read = || {
        let kept: Kept = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
        kept.of(adapter)
    };
    if let Some(speeds) = read() {
        return Ok(speeds);
    }
    let refused = |source| Error::Io {
        context: format!("could not keep how fast {adapter} is in {}", path.display()),
        source,
    };
    // Before it takes the time to measure what cannot be kept.
    std::fs::create_dir_all(folder).map_err(refused)?;
    let speeds = make()?;
    let text = serde_json::to_vec_pretty(&Kept::new(adapter, speeds))
        .map_err(|error| Error::Internal(format!("speeds are no JSON: {error}")))?;
    let unfinished = folder.join(format!("{}.{}", name(adapter, tuning), std::process::id()));
    let written = std::fs::File::create(&unfinished).and_then(|mut file| {
        file.write_all(&text)?;
        file.sync_all()
    });
    // Another process may have been first: all go by what it has measured. What nobody can read is replaced.
    let kept = written.and_then(|()| match read() {
        Some(_) => Ok(()),
        None => match std::fs::hard_link(&unfinished, &path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && read().is_some() => Ok(()),
            Err(_) => std::fs::rename(&unfinished, &path),
            Ok(()) => Ok(()),
        },
    });
    // Nothing is lost where it stays.
    let _ = std::fs::remove_file(&unfinished);
    kept.map_err(refused)?;
    Ok(read().unwrap_or(speeds))
}
