//! What training leaves behind, so that it can go on where it stopped.

use super::LossScale;
use crate::ops::update::Optimizer;
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What whoever drives a training keeps with its state, such as the best loss so far; the engine never reads it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notes {
    /// Text of any form.
    pub text: String,
    /// Arrays by name.
    pub tensors: BTreeMap<String, Tensor>,
}

impl OptimizerState {
    /// Whether the weights were trained somewhere, and nothing is known of how: there is nothing to go on from.
    pub(crate) fn lacks_its_past(&self) -> bool {
        self.came_without && (self.updates, self.step, self.epoch, self.batch) == (0, 0, 0, 0)
    }
}

/// Counters of the last training and the rule its moments belong to.
///
/// Together with the moments, the masters, what layers keep and carry, and the config this is all that a run needs
/// to go on bit for bit; schedules are functions of the step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimizerState {
    /// The rule the moments belong to.
    pub optimizer: Optimizer,
    /// Updates made with these moments.
    pub updates: u64,
    /// Committed steps: keys random draws.
    pub step: u64,
    /// Whole epochs done.
    pub epoch: u64,
    /// Batches done in the epoch that was interrupted.
    pub batch: u64,
    /// Sum of losses times their weights in the epoch that was interrupted.
    #[serde(with = "exact")]
    pub loss_sum: f64,
    /// Sum of those weights.
    #[serde(with = "exact")]
    pub loss_weight: f64,
    /// Rows that the manual loop has gone back through since gradients were last applied or zeroed: the next
    /// forward pass draws for those that come after them.
    #[serde(default)]
    pub manual_rows: u64,
    /// Training passes since the committed step whose rows were, or may yet be, passed again: keys the draws of
    /// the next one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub forwards: u64,
    /// What the loss is scaled by in a mixed network on a GPU.
    #[serde(default, skip_serializing_if = "LossScale::is_fresh")]
    pub loss_scale: LossScale,
    /// Whether the weights came from a file that has no training state. Copies of the network and files that are
    /// made of it say so, too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub came_without: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl OptimizerState {
    /// Counts a step: draws are keyed by it from here on.
    pub(crate) fn count_step(&mut self) {
        self.step += 1;
        (self.manual_rows, self.forwards) = (0, 0);
    }

    /// Leaves out what was passed since gradients were last applied: the passes to come start at the first row
    /// again, and draw anew.
    pub(crate) fn pass_rows_again(&mut self) {
        self.forwards += u64::from(self.manual_rows > 0);
        self.manual_rows = 0;
    }
}

/// Numbers whose every bit counts, as text: what reads numbers in JSON may be off in the last place.
mod exact {
    use serde::{Deserialize, Deserializer, Serializer, de};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(f64),
        Text(String),
    }

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&value.to_string())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        match Written::deserialize(deserializer)? {
            Written::Number(value) => Ok(value),
            Written::Text(text) => text.parse().map_err(de::Error::custom),
        }
    }
}
