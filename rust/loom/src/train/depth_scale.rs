//! Learning rates by depth.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// How the learning rate changes with a layer's depth; layer i of N.
///
/// In configs a name, or the number of [`Power`](DepthScale::Power).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DepthScale {
    /// The same everywhere.
    #[default]
    None,
    /// 1.1 to the power of i.
    Geometric,
    /// 1 / sqrt(N - i).
    InvSqrt,
    /// This number, above 0, to the power of i.
    #[serde(untagged)]
    Power(f64),
}

impl DepthScale {
    /// The factor for layer `number` of `count`.
    pub fn factor(self, number: usize, count: usize) -> f64 {
        match self {
            DepthScale::None => 1.0,
            DepthScale::Geometric => libm::pow(1.1, number as f64),
            DepthScale::InvSqrt => 1.0 / ((count - number) as f64).sqrt(),
            DepthScale::Power(factor) => libm::pow(factor, number as f64),
        }
    }

    /// Refuses a number that is no factor.
    pub(super) fn validate(self) -> Result<()> {
        match self {
            DepthScale::Power(factor) if !(factor.is_finite() && factor > 0.0) => {
                Err(Error::Value(format!("depth_scale must be finite and above 0, got {factor}")))
            }
            _ => Ok(()),
        }
    }
}
