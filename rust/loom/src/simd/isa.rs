//! Which instruction set the kernels run on.

use crate::{Error, Result, error};
use std::fmt;

/// The environment variable that lowers the instruction set.
const VARIABLE: &str = "LOOM_ISA";

/// What a build for another machine says.
const NONE: &str = "this build has no kernels for this machine: LOOM_KERNELS=host built it for another one, which has \
                    more instructions. Build it here, or without LOOM_KERNELS";

/// The instruction sets that kernels are compiled for, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// What every machine of the target architecture has.
    Portable,
    /// AVX2 with fused multiply-add.
    Avx2,
    /// AVX-512 F, BW, DQ and VL, with all of [`Level::Avx2`].
    Avx512,
}

impl Level {
    /// Every level, from least to most.
    pub const ALL: [Level; 3] = [Level::Portable, Level::Avx2, Level::Avx512];

    /// The name that `LOOM_ISA` knows it by.
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }

    /// Whether this build has kernels for it: it has them for all that the target architecture knows, or, built with
    /// `LOOM_KERNELS=host`, for the best of the machine that built it alone.
    pub const fn is_compiled(self) -> bool {
        match self {
            Level::Portable => cfg!(kernels = "portable"),
            Level::Avx2 => cfg!(kernels = "avx2"),
            Level::Avx512 => cfg!(kernels = "avx512"),
        }
    }

    /// Whether this build has kernels for it, and this machine, and its operating system, can run them.
    pub fn is_supported(self) -> bool {
        self.is_compiled() && self.is_present()
    }

    /// Whether this machine, and its operating system, can run it.
    fn is_present(self) -> bool {
        match self {
            Level::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                Level::Avx2.is_present()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Level::Avx2 | Level::Avx512 => false,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An instruction set that this machine is known to have.
///
/// A value can only be made by checking the machine, which is what makes
/// entering a kernel with one safe: holding an `Isa` proves that its
/// instructions exist here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Isa {
    /// Private, so that no other module can claim a level without the check in [`Isa::new`].
    level: Level,
}

impl Isa {
    /// The least instruction set that this build has kernels for: portable code, which every machine runs, but where
    /// it was built with `LOOM_KERNELS=host`.
    ///
    /// # Panics
    /// Where this machine lacks what the machine had that built so; [`Isa::detect`] says it as an error.
    pub fn portable() -> Self {
        let least = Level::ALL.into_iter().find(|level| level.is_supported());
        Self { level: least.unwrap_or_else(|| panic!("{NONE}")) }
    }

    /// The instruction set of this level, or [`Error::Value`] where this machine, or this build, lacks it.
    pub fn new(level: Level) -> Result<Self> {
        if level.is_supported() {
            return Ok(Self { level });
        }
        let best = Self::most()?;
        let lacking = match level.is_present() {
            true => format!(
                "this build has no kernels for the instruction set {level}: it was built with LOOM_KERNELS=host, as \
                 `make demo` does, for the best of its machine alone; a build without LOOM_KERNELS has all"
            ),
            false => {
                format!("this machine does not have the instruction set {level}; the best it has is {best}")
            }
        };
        Err(Error::Value(format!(
            "{lacking}. Choose one of: {}",
            Self::available().iter().map(|isa| isa.level.name()).collect::<Vec<_>>().join(", ")
        )))
    }

    /// The most capable instruction set of this machine that this build has kernels for.
    ///
    /// # Panics
    /// As [`Isa::portable`].
    pub fn best() -> Self {
        Self::most().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The most capable instruction set, or what a build for another machine says.
    fn most() -> Result<Self> {
        Self::available().pop().ok_or_else(|| Error::Value(NONE.into()))
    }

    /// Every instruction set of this machine that this build has kernels for, from least to most.
    pub fn available() -> Vec<Self> {
        Level::ALL.into_iter().filter(|level| level.is_supported()).map(|level| Self { level }).collect()
    }

    /// The instruction set to use: the one that the environment variable
    /// `LOOM_ISA` names (`portable`, `avx2` or `avx512`), else the best.
    ///
    /// An unknown name, or one that this machine or this build does not have, is [`Error::Value`].
    pub fn detect() -> Result<Self> {
        match std::env::var_os(VARIABLE) {
            Some(value) => Self::named(&value.to_string_lossy()),
            None => Self::most(),
        }
    }

    /// The instruction set of this name; the empty name means the best.
    fn named(name: &str) -> Result<Self> {
        let wanted = name.trim();
        if wanted.is_empty() {
            return Self::most();
        }
        match Level::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(wanted)) {
            Some(level) => Self::new(level)
                .map_err(|error| Error::Value(format!("the environment variable {VARIABLE}: {error}"))),
            None => Err(error::unknown(
                "instruction set in the environment variable LOOM_ISA:",
                wanted,
                Level::ALL.iter().map(|level| level.name()),
            )),
        }
    }

    /// The level this value proves.
    pub fn level(self) -> Level {
        self.level
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.level, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood_and_checked_against_the_machine() {
        if Level::Portable.is_compiled() {
            assert_eq!(Isa::named("portable").unwrap(), Isa::portable());
            assert_eq!(Isa::named(" Portable ").unwrap(), Isa::portable());
        }
        assert_eq!(Isa::named("").unwrap(), Isa::best());
        for level in Level::ALL {
            match Isa::named(level.name()) {
                Ok(isa) => assert!(level.is_supported() && isa.level() == level),
                Err(error) => {
                    assert!(!level.is_supported());
                    let message = error.to_string();
                    assert!(message.contains(VARIABLE) && message.contains(level.name()), "{message}");
                    assert_eq!(message.contains("LOOM_KERNELS=host"), level.is_present(), "{message}");
                }
            }
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_known_ones() {
        let message = Isa::named("avx-512").unwrap_err().to_string();
        assert!(message.contains("LOOM_ISA") && message.contains("portable, avx2, avx512"), "{message}");
        assert!(message.contains("did you mean \"avx512\""), "{message}");
    }

    #[test]
    fn the_best_of_the_machine_is_in_every_build() {
        // A build for the machine that builds it leaves out what that would not choose.
        let best = Level::ALL.into_iter().rev().find(|level| level.is_present()).unwrap();
        assert_eq!(Isa::best().level(), best);
    }

    #[test]
    fn available_sets_are_ordered_and_end_in_the_best() {
        let available = Isa::available();
        assert_eq!(available[0], Isa::portable());
        assert!(available.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(*available.last().unwrap(), Isa::best());
    }
}
