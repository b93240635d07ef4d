//! Learning rates by depth.

use serde::{Deserialize, Serialize};

/// How the learning rate changes with a layer's depth; layer i of N.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DepthScale {
    /// The same everywhere.
    #[default]
    None,
    /// 1.1 to the power of i.
    Geometric,
    /// 1 / sqrt(N - i).
    InvSqrt,
}

impl DepthScale {
    /// The factor for layer `number` of `count`.
    pub fn factor(self, number: usize, count: usize) -> f64 {
        match self {
            DepthScale::None => 1.0,
            DepthScale::Geometric => libm::pow(1.1, number as f64),
            DepthScale::InvSqrt => 1.0 / ((count - number) as f64).sqrt(),
        }
    }
}
