//! How a network learns by targets, as plain data.

use crate::network::Watch;
use crate::ops::update::Optimizer;
use crate::train::DepthScale;
use crate::{Error, Result, extents};
use serde::{Deserialize, Serialize};

/// Where a layer's target comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetMode {
    /// The output, moved against the gradient of the loss.
    #[default]
    ChainRule,
    /// Weighted means of the targets above, without derivatives.
    Layerwise,
    /// Difference target propagation with learned inverses (Lee et al. 2015).
    Difference,
    /// The same with feedback maps that learn the transposed Jacobian (Ernoult et al. 2022).
    DifferenceReconstruction,
}

impl TargetMode {
    /// Whether layers have feedback maps of their own.
    pub fn has_feedback(self) -> bool {
        matches!(self, TargetMode::Difference | TargetMode::DifferenceReconstruction)
    }

    /// The name in configs.
    pub fn name(self) -> &'static str {
        match self {
            TargetMode::ChainRule => "chain_rule",
            TargetMode::Layerwise => "layerwise",
            TargetMode::Difference => "difference",
            TargetMode::DifferenceReconstruction => "difference_reconstruction",
        }
    }
}

/// How feedback maps learn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FeedbackConfig {
    /// The rule that moves them.
    pub optimizer: Optimizer,
    /// Their learning rate.
    pub rate: f64,
    /// The standard deviation of the noise they learn to see through.
    pub noise: f64,
    /// Their steps for each batch.
    pub steps: usize,
    /// Whether epochs of feedback learning alone (the even ones) alternate with epochs of forward learning.
    pub alternate: bool,
}

impl Default for FeedbackConfig {
    fn default() -> Self {
        Self { optimizer: Optimizer::sgd(), rate: 0.01, noise: 0.1, steps: 1, alternate: false }
    }
}

/// How a network learns by neural tweening or target propagation.
///
/// The learning rate is that of the [`TrainingConfig`](crate::train::TrainingConfig) it belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TweenConfig {
    /// Where targets come from.
    pub mode: TargetMode,
    /// Steps that each layer takes toward its target for each batch (LocoProp, Amid et al. 2022).
    pub local_steps: usize,
    /// How much of the velocity stays, where no optimizer is named.
    pub momentum: f64,
    /// The rule on each layer's local gradient, instead of momentum.
    pub optimizer: Option<Optimizer>,
    /// How the rate changes with a layer's depth.
    pub depth_scale: DepthScale,
    /// How far the target of the layer below the last is from its output, in units of the gradient of the
    /// loss, in the difference modes.
    pub target_rate: f64,
    /// Layerwise targets stay within plus or minus this, where no activation bounds them.
    pub activation_clamp: f64,
    /// How feedback maps learn, in the difference modes.
    pub feedback: FeedbackConfig,
    /// What is measured, and when a step is taken back.
    pub watch: Watch,
}

impl Default for TweenConfig {
    /// [`tween`](Self::tween).
    fn default() -> Self {
        Self::tween()
    }
}

impl TweenConfig {
    /// The learning rate where none is given.
    pub const BASE_RATE: f64 = 0.01;

    /// Neural tweening: chain-rule targets, budgets by gain, rates by 1 / sqrt(depth from the end).
    pub fn tween() -> Self {
        Self {
            mode: TargetMode::ChainRule,
            local_steps: 1,
            momentum: 0.9,
            optimizer: None,
            depth_scale: DepthScale::InvSqrt,
            target_rate: 0.3,
            activation_clamp: 10.0,
            feedback: FeedbackConfig::default(),
            watch: Watch::tween(),
        }
    }

    /// Target propagation as the system knows it: budgets by alignment, which gate the updates, and
    /// rates that grow with depth.
    pub fn target_prop() -> Self {
        Self { depth_scale: DepthScale::Geometric, watch: Watch::target_prop(), ..Self::tween() }
    }

    /// The rule that moves the weights.
    pub fn rule(&self) -> Optimizer {
        self.optimizer.clone().unwrap_or(Optimizer::Velocity { momentum: self.momentum })
    }

    /// Refuses values that no data could make right.
    ///
    /// # Errors
    /// [`Error::Value`] naming the setting, what it must be and what it is.
    pub fn validate(&self) -> Result<()> {
        for (name, value) in [("local_steps", self.local_steps), ("feedback steps", self.feedback.steps)] {
            if value == 0 || value > extents::MOST_PARTS {
                let most = extents::MOST_PARTS;
                return Err(Error::Value(format!("{name} must be from 1 to {most}, got {value}")));
            }
        }
        let above_zero = [("target_rate", self.target_rate), ("activation_clamp", self.activation_clamp)];
        for (name, value) in above_zero {
            if !(value.is_finite() && value > 0.0) {
                return Err(Error::Value(format!("{name} must be finite and above 0, got {value}")));
            }
        }
        let at_least_zero = [("feedback rate", self.feedback.rate), ("feedback noise", self.feedback.noise)];
        for (name, value) in at_least_zero {
            if !(value.is_finite() && value >= 0.0) {
                return Err(Error::Value(format!("{name} must be finite and at least 0, got {value}")));
            }
        }
        if self.mode == TargetMode::DifferenceReconstruction && self.feedback.noise == 0.0 {
            return Err(Error::Value(
                "feedback noise must be above 0 in difference_reconstruction: maps learn from nothing else"
                    .into(),
            ));
        }
        self.depth_scale.validate()?;
        self.rule().validate()?;
        self.feedback.optimizer.validate()?;
        self.watch.validate()
    }
}
