//! Optimizers as plain data.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// An update rule with its settings; the learning rate comes from the schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum Optimizer {
    /// Stochastic gradient descent with momentum: `v = momentum v + g; w -= rate v`, and with
    /// Nesterov's look ahead `w -= rate (g + momentum v)`.
    Sgd {
        /// How much of the velocity stays.
        #[serde(default)]
        momentum: f64,
        /// Whether the step looks ahead.
        #[serde(default)]
        nesterov: bool,
        /// Added to the gradient, times the weight.
        #[serde(default)]
        weight_decay: f64,
        /// Whether biases and gains of norms are left out of weight decay.
        #[serde(default)]
        decay_exempt: bool,
    },
    /// Classical momentum (Sutskever et al. 2013): `v = momentum v - rate g; w += v`, so that a change of
    /// the rate only concerns what comes after it.
    Velocity {
        /// How much of the velocity stays.
        #[serde(default)]
        momentum: f64,
    },
    /// Kingma and Ba 2015, with decay coupled to the gradient.
    Adam {
        /// Decay of the mean.
        #[serde(default = "beta1")]
        beta1: f64,
        /// Decay of the mean of squares.
        #[serde(default = "beta2")]
        beta2: f64,
        /// Added to the root in the denominator.
        #[serde(default = "epsilon")]
        epsilon: f64,
        /// Added to the gradient, times the weight.
        #[serde(default)]
        weight_decay: f64,
        /// Whether biases and gains of norms are left out of weight decay.
        #[serde(default)]
        decay_exempt: bool,
    },
    /// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
    AdamW {
        /// Decay of the mean.
        #[serde(default = "beta1")]
        beta1: f64,
        /// Decay of the mean of squares.
        #[serde(default = "beta2")]
        beta2: f64,
        /// Added to the root in the denominator.
        #[serde(default = "epsilon")]
        epsilon: f64,
        /// Times rate and weight, taken off the weight.
        #[serde(default = "adamw_decay")]
        weight_decay: f64,
        /// Whether biases and gains of norms are left out of weight decay.
        #[serde(default)]
        decay_exempt: bool,
    },
    /// Hinton's lecture 6e, with PyTorch's options.
    RmsProp {
        /// Decay of the mean of squares.
        #[serde(default = "alpha")]
        alpha: f64,
        /// Added to the root in the denominator.
        #[serde(default = "epsilon")]
        epsilon: f64,
        /// Whether epsilon is added below the root instead (Graves 2013).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        epsilon_in_root: bool,
        /// How much of the velocity stays.
        #[serde(default)]
        momentum: f64,
        /// Whether the mean gradient is taken off the mean square.
        #[serde(default)]
        centered: bool,
        /// Added to the gradient, times the weight.
        #[serde(default)]
        weight_decay: f64,
        /// Whether biases and gains of norms are left out of weight decay.
        #[serde(default)]
        decay_exempt: bool,
    },
}

fn beta1() -> f64 {
    0.9
}

fn beta2() -> f64 {
    0.999
}

fn epsilon() -> f64 {
    1e-8
}

fn adamw_decay() -> f64 {
    0.01
}

fn alpha() -> f64 {
    0.99
}

impl Default for Optimizer {
    /// AdamW as it comes.
    fn default() -> Self {
        Optimizer::AdamW {
            beta1: beta1(),
            beta2: beta2(),
            epsilon: epsilon(),
            weight_decay: adamw_decay(),
            decay_exempt: false,
        }
    }
}

impl Optimizer {
    /// Gradient descent without momentum.
    pub fn sgd() -> Self {
        Optimizer::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0, decay_exempt: false }
    }

    /// Adam as it comes.
    pub fn adam() -> Self {
        Optimizer::Adam {
            beta1: beta1(),
            beta2: beta2(),
            epsilon: epsilon(),
            weight_decay: 0.0,
            decay_exempt: false,
        }
    }

    /// RMSprop as it comes.
    pub fn rms_prop() -> Self {
        Optimizer::RmsProp {
            alpha: alpha(),
            epsilon: epsilon(),
            epsilon_in_root: false,
            momentum: 0.0,
            centered: false,
            weight_decay: 0.0,
            decay_exempt: false,
        }
    }

    /// The name in configs.
    pub fn name(&self) -> &'static str {
        match self {
            Optimizer::Sgd { .. } => "sgd",
            Optimizer::Velocity { .. } => "velocity",
            Optimizer::Adam { .. } => "adam",
            Optimizer::AdamW { .. } => "adamw",
            Optimizer::RmsProp { .. } => "rmsprop",
        }
    }

    /// The names of its moments; each has one number a weight.
    pub fn slots(&self) -> &'static [&'static str] {
        match self {
            Optimizer::Sgd { momentum: 0.0, .. } => &[],
            Optimizer::Sgd { .. } | Optimizer::Velocity { .. } => &["velocity"],
            Optimizer::Adam { .. } | Optimizer::AdamW { .. } => &["mean", "square"],
            Optimizer::RmsProp { centered: false, momentum: 0.0, .. } => &["square"],
            Optimizer::RmsProp { centered: true, momentum: 0.0, .. } => &["square", "mean"],
            Optimizer::RmsProp { centered: false, .. } => &["square", "velocity"],
            Optimizer::RmsProp { centered: true, .. } => &["square", "mean", "velocity"],
        }
    }

    /// Whether biases and gains of norms are left out of weight decay.
    pub fn decay_exempt(&self) -> bool {
        match self {
            Optimizer::Velocity { .. } => false,
            Optimizer::Sgd { decay_exempt, .. }
            | Optimizer::Adam { decay_exempt, .. }
            | Optimizer::AdamW { decay_exempt, .. }
            | Optimizer::RmsProp { decay_exempt, .. } => *decay_exempt,
        }
    }

    /// Refuses settings out of range.
    ///
    /// # Errors
    /// [`Error::Value`] naming the setting and its range.
    pub fn validate(&self) -> Result<()> {
        let share = |name: &str, value: f64| {
            if (0.0..1.0).contains(&value) {
                return Ok(());
            }
            Err(Error::Value(format!("{}: {name} must be at least 0 and below 1, got {value}", self.name())))
        };
        let amount = |name: &str, value: f64| {
            if value.is_finite() && value >= 0.0 {
                return Ok(());
            }
            Err(Error::Value(format!("{}: {name} must be finite and at least 0, got {value}", self.name())))
        };
        match *self {
            Optimizer::Sgd { momentum, nesterov, weight_decay, .. } => {
                share("momentum", momentum)?;
                if nesterov && momentum == 0.0 {
                    return Err(Error::Value("sgd: nesterov needs a momentum above 0".into()));
                }
                amount("weight_decay", weight_decay)
            }
            Optimizer::Velocity { momentum } => share("momentum", momentum),
            Optimizer::Adam { beta1, beta2, epsilon, weight_decay, .. }
            | Optimizer::AdamW { beta1, beta2, epsilon, weight_decay, .. } => {
                share("beta1", beta1)?;
                share("beta2", beta2)?;
                amount("epsilon", epsilon)?;
                amount("weight_decay", weight_decay)
            }
            Optimizer::RmsProp { alpha, epsilon, momentum, weight_decay, .. } => {
                share("alpha", alpha)?;
                share("momentum", momentum)?;
                amount("epsilon", epsilon)?;
                amount("weight_decay", weight_decay)
            }
        }
    }
}
