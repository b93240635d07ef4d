//! What is measured of a device: what the environment asks for, or what is done by itself.

use crate::gpu::adapter::Adapter;
use crate::{Result, error};

/// The environment variable that says what is measured.
pub(super) const VARIABLE: &str = "LOOM_TUNE";

/// Adapters that the shipped speeds are of, by parts of their names.
const SHIPPED: [&str; 2] = ["H200", "H100"];

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tuning {
    /// Nothing: the shipped speeds.
    Off,
    /// What all tiles have in common.
    Quick,
    /// Every tile.
    Full,
}

impl Tuning {
    const ALL: [(&'static str, Self); 3] = [("off", Self::Off), ("quick", Self::Quick), ("full", Self::Full)];

    /// What this value of the variable asks for; `None` where it asks for nothing.
    pub(super) fn named(value: &str) -> Result<Option<Self>> {
        let wanted = value.trim();
        let found = Self::ALL.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        match found {
            Some((_, tuning)) => Ok(Some(tuning)),
            None if wanted.is_empty() => Ok(None),
            None => Err(error::unknown(
                "value of the environment variable LOOM_TUNE:",
                wanted,
                Self::ALL.into_iter().map(|(name, _)| name),
            )),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }

    /// Whether the shipped speeds are this adapter's, which is not a slice of one with fewer multiprocessors (MIG).
    pub(super) fn is_shipped(adapter: &Adapter) -> bool {
        SHIPPED.iter().any(|name| adapter.name.contains(name)) && !adapter.name.contains("MIG")
    }

    /// What is done where nothing is asked for.
    pub(super) fn by_itself(adapter: &Adapter) -> Self {
        if adapter.software || Self::is_shipped(adapter) { Self::Off } else { Self::Quick }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::testing;

    #[test]
    fn the_variable_is_understood() {
        assert_eq!(Tuning::named("").unwrap(), None);
        for (name, tuning) in Tuning::ALL {
            assert_eq!(Tuning::named(&format!(" {} ", name.to_uppercase())).unwrap(), Some(tuning));
            assert_eq!(tuning.name(), name);
        }
        let message = Tuning::named("fast").unwrap_err().to_string();
        assert!(message.contains("LOOM_TUNE") && message.contains("quick"), "{message}");
    }

    #[test]
    fn what_is_known_is_not_measured() {
        let Some(gpu) = testing::own_gpu() else { return };
        let named = |name: &str, software| Adapter { name: name.into(), software, ..gpu.adapter().clone() };
        assert_eq!(Tuning::by_itself(&named("NVIDIA H200 NVL", false)), Tuning::Off);
        assert_eq!(Tuning::by_itself(&named("llvmpipe", true)), Tuning::Off);
        assert_eq!(Tuning::by_itself(&named("NVIDIA H200 MIG 1g.18gb", false)), Tuning::Quick);
        assert_eq!(Tuning::by_itself(&named("AMD Radeon 780M", false)), Tuning::Quick);
    }
}
