//! Activations in 16 bits, for as long as they wait for the backward pass.

mod cpu;
mod gpu;

use serde::{Deserialize, Serialize};
use std::fmt;

/// A float of 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShortFloat {
    /// IEEE binary16: 11 significant bits, up to 65,504; what is larger becomes infinite.
    Float16,
    /// 8 significant bits, and the range of binary32.
    BFloat16,
}

impl fmt::Display for ShortFloat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ShortFloat::Float16 => "float16",
            ShortFloat::BFloat16 => "bfloat16",
        })
    }
}

/// Rounds numbers to the nearest of 16 bits, ties to even: reads x, writes words (indices) of two numbers, the
/// first in the lower half. NaN stays NaN.
#[derive(Clone, Debug)]
pub struct Narrow {
    /// What they become.
    pub format: ShortFloat,
}

/// The numbers that [`Narrow`] has left: reads its words, writes y.
#[derive(Clone, Debug)]
pub struct Widen {
    /// What they are.
    pub format: ShortFloat,
}

impl fmt::Display for Narrow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "narrow {}", self.format)
    }
}

impl fmt::Display for Widen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "widen {}", self.format)
    }
}
