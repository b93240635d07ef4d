//! The arithmetic that networks compute in.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The arithmetic of a network: what masters and activations are kept in, and what is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// IEEE binary32: tuned kernels.
    #[default]
    Float32,
    /// IEEE binary64: portable kernels, for proofs and for who asks.
    Float64,
    /// Binary32 in memory and in all sums; the operands of matrix products and convolutions are
    /// rounded to binary16 on a GPU, whose gradients are scaled for it, and to bfloat16 on a CPU.
    Mixed,
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Precision::Float32 => "float32",
            Precision::Float64 => "float64",
            Precision::Mixed => "mixed",
        })
    }
}

impl Precision {
    /// The precision of elements in memory: single for a mixed network.
    pub fn stored(self) -> Precision {
        match self {
            Precision::Float32 | Precision::Mixed => Precision::Float32,
            Precision::Float64 => Precision::Float64,
        }
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Precision::Float32 | Precision::Mixed => 4,
            Precision::Float64 => 8,
        }
    }
}

/// Code for the numbers that a precision keeps in memory, under a name for their type: `f32` or `f64`.
macro_rules! in_precision {
    ($precision:expr, $real:ident => $code:expr) => {
        match $precision.stored() {
            $crate::precision::Precision::Float64 => {
                type $real = f64;
                $code
            }
            _ => {
                type $real = f32;
                $code
            }
        }
    };
}

pub(crate) use in_precision;
