//! Refreshing a packed version after its master has moved.

mod general;
mod gpu;

use super::Operation;
use crate::ops::Args;
use crate::simd::Real;
use crate::{Error, Result};
use std::fmt;

/// WGSL of `code`, which rounds a number's bits to binary16: the CPU's code of whatever is not NaN.
pub(super) const TO_FLOAT16: &str = include_str!("float16.wgsl");
/// The same for bfloat16.
pub(super) const TO_BFLOAT16: &str = include_str!("bfloat16.wgsl");

/// Encodes every packed parameter of a store anew from its master.
///
/// The destinations are the store's own versions, whose packed bytes and scales are no
/// plain values; an engine runs this on the registry.
#[derive(Clone, Debug)]
pub struct Encode {
    /// Index of the weight store in the registry.
    pub store: usize,
}

impl Operation for Encode {
    fn run<T: Real>(&self, _args: &mut Args<'_>) -> Result<()> {
        Err(Error::Internal("encoding runs on the registry, not on plain operands".into()))
    }
}

impl fmt::Display for Encode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "encode {}", self.store)
    }
}
