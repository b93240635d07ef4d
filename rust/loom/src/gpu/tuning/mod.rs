//! How fast a device is: shipped, or measured the first time that it is opened, and kept on disk.
//!
//! What is chosen by it changes the order in which long sums are added up, so that it must not change from run to run:
//! what cannot be kept is not used.

mod kept;
mod measure;
mod setting;

use super::device::Gpu;
use crate::shader::Speeds;
use crate::{Error, Result};
use setting::{Tuning, VARIABLE};

/// The device with its speeds, found out if need be.
///
/// # Errors
/// [`Error::Value`] for a value of the variable that there is none of, [`Error::Device`] where the device is lost; where the
/// variable asks for a measurement, what it fails for, and [`Error::Io`] where it cannot be kept.
pub(super) fn tuned(gpu: Gpu) -> Result<Gpu> {
    let asked = Tuning::named(&std::env::var(VARIABLE).unwrap_or_default())?;
    let tuning = asked.unwrap_or_else(|| Tuning::by_itself(gpu.adapter()));
    if tuning == Tuning::Off {
        return Ok(if Tuning::is_shipped(gpu.adapter()) { gpu.with_speeds(Speeds::SHIPPED) } else { gpu });
    }
    let kept = match kept::folder() {
        Some(folder) => kept::or_made(&folder, gpu.adapter(), tuning, || measure::speeds(&gpu, tuning)),
        None => Err(Error::Value(format!(
            "{VARIABLE}: there is no folder for caches to keep a measurement in; set LOOM_CACHE_DIR to one"
        ))),
    };
    match kept {
        Ok(speeds) => Ok(gpu.with_speeds(speeds)),
        // Nobody has asked for it; what cannot be kept would differ next time, and what there is no memory for is not
        // worth a device that works.
        Err(_) if asked.is_none() && !gpu.is_lost() => Ok(gpu),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::adapter::Adapter;
    use crate::gpu::testing;

    /// Measured, kept, found again, and measured anew where it is of another driver or nothing to go by.
    #[test]
    fn a_measurement_is_made_once() {
        let Some(gpu) = testing::own_gpu() else { return };
        let kept_in = tempfile::tempdir().unwrap();
        let folder = kept_in.path().join("tuning");
        let made = std::cell::Cell::new(0);
        let make = || {
            made.set(made.get() + 1);
            measure::speeds(&gpu, Tuning::Quick)
        };
        let first = kept::or_made(&folder, gpu.adapter(), Tuning::Quick, make).unwrap();
        assert!(first.is_plausible(), "{first:?}");
        assert_eq!(kept::or_made(&folder, gpu.adapter(), Tuning::Quick, make).unwrap(), first);
        assert_eq!(made.get(), 1);
        let newer = Adapter { driver: "a newer one".into(), ..gpu.adapter().clone() };
        let other = Speeds { processors: 7, ..Speeds::SHIPPED };
        assert_eq!(kept::or_made(&folder, &newer, Tuning::Quick, || Ok(other)).unwrap(), other);
        for file in std::fs::read_dir(&folder).unwrap() {
            std::fs::write(file.unwrap().path(), "{\"speeds\": 3}").unwrap();
        }
        assert_eq!(kept::or_made(&folder, gpu.adapter(), Tuning::Quick, || Ok(other)).unwrap(), other);
        // What is asked for in full is not taken from less.
        let full = Speeds { processors: 9, ..Speeds::SHIPPED };
        assert_eq!(kept::or_made(&folder, gpu.adapter(), Tuning::Full, || Ok(full)).unwrap(), full);
        let nowhere = folder.join("file");
        std::fs::write(&nowhere, "").unwrap();
        let refused = kept::or_made(&nowhere, gpu.adapter(), Tuning::Quick, || Ok(other)).unwrap_err();
        assert!(matches!(refused, Error::Io { .. }), "{refused}");
    }
}
