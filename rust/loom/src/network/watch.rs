//! What is measured at every layer at every step.

use crate::ops::measure::{ExplosionRule, GapMetric, LinkBudget};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// What is measured at every layer, and when a step is taken back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Watch {
    /// A chain-rule target is the output less this many times the gradient of the summed losses.
    pub gradient_scale: f64,
    /// How gaps are put in one number.
    pub gap_metric: GapMetric,
    /// What budgets are.
    pub link_budget: LinkBudget,
    /// Multiplies budgets.
    pub link_budget_scale: f64,
    /// When a step is taken back; never where there is none.
    pub explosion: Option<ExplosionRule>,
    /// Every how many steps the figures of all layers are kept; never where there is none.
    pub history: Option<u64>,
    /// The most steps kept; past that every second one is dropped, and half as many from then on.
    pub history_limit: usize,
    /// How deep it is measured: 1 for the layers of cells, 2 for those inside them as well, and so on.
    pub depth: usize,
}

impl Default for Watch {
    /// [`tween`](Self::tween).
    fn default() -> Self {
        Self::tween()
    }
}

impl Watch {
    /// Budgets by gain, explosions taken back.
    pub fn tween() -> Self {
        Self {
            gradient_scale: 0.1,
            gap_metric: GapMetric::Rms,
            link_budget: LinkBudget::Gain,
            link_budget_scale: 1.0,
            explosion: Some(ExplosionRule::default()),
            history: None,
            history_limit: 10_000,
            depth: 1,
        }
    }

    /// Budgets by alignment, which gate updates; explosions taken back.
    pub fn target_prop() -> Self {
        Self { link_budget: LinkBudget::Alignment, ..Self::tween() }
    }

    /// Looks on, and changes nothing.
    pub fn observer() -> Self {
        Self { explosion: None, ..Self::tween() }
    }

    /// Refuses values that no data could make right.
    ///
    /// # Errors
    /// [`Error::Value`] naming the setting, what it must be and what it is.
    pub fn validate(&self) -> Result<()> {
        let mut above_zero =
            vec![("gradient_scale", self.gradient_scale), ("link_budget_scale", self.link_budget_scale)];
        if let Some(rule) = self.explosion {
            above_zero
                .extend([("explosion_limit", rule.explosion_limit), ("recovery_rate", rule.recovery_rate)]);
            if !(rule.gap_threshold.is_finite() && rule.gap_threshold >= 0.0) {
                return Err(Error::Value(format!(
                    "gap_threshold must be finite and at least 0, got {}",
                    rule.gap_threshold
                )));
            }
            if rule.explosion_limit <= 1.0 || rule.recovery_rate > 1.0 {
                return Err(Error::Value(format!(
                    "explosion_limit must be above 1 and recovery_rate at most 1, got {} and {}",
                    rule.explosion_limit, rule.recovery_rate
                )));
            }
        }
        for (name, value) in above_zero {
            if !(value.is_finite() && value > 0.0) {
                return Err(Error::Value(format!("{name} must be finite and above 0, got {value}")));
            }
        }
        if self.depth == 0 {
            return Err(Error::Value("depth must be at least 1, for the layers of cells, got 0".into()));
        }
        if self.history == Some(0) || self.history_limit < 2 {
            return Err(Error::Value(format!(
                "history must be at least 1 and history_limit at least 2, got {:?} and {}",
                self.history, self.history_limit
            )));
        }
        Ok(())
    }
}
