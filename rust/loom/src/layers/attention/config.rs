//! Configuration of the rotary embedding.

use crate::layers::settings::{Form, forms};
use crate::ops::PairLayout;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Rotary position embedding: pair i of a head turns by `place / scaling x base^(-2 i / head_dim)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RotaryConfig {
    /// How much slower the last pair turns than the first.
    pub base: f64,
    /// Divides the places, so that longer sequences fit the angles of training.
    pub scaling: f64,
    /// Which elements are pairs.
    pub layout: PairLayout,
}

impl Default for RotaryConfig {
    fn default() -> Self {
        Self { base: 10_000.0, scaling: 1.0, layout: PairLayout::default() }
    }
}

forms! { RotaryConfig => Form::Other }

impl RotaryConfig {
    pub(super) fn validate(&self) -> Result<()> {
        for (name, value) in [("base", self.base), ("scaling", self.scaling)] {
            if !(value.is_finite() && value > 0.0) {
                return Err(Error::Value(format!("rotary {name} must be above 0, got {value}")));
            }
        }
        Ok(())
    }
}
