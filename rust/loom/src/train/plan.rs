//! What a training program is compiled for.

use super::TrainingConfig;
use super::weighing::Weighing;
use crate::network::{ExtentsKey, Network};

/// What a step learns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Turn {
    /// Layers, and feedback maps where there are any.
    #[default]
    Both,
    /// Layers alone.
    Forward,
    /// Feedback maps alone.
    Feedback,
}

impl TrainingConfig {
    /// What the steps of this epoch learn.
    pub(super) fn turn(&self, epoch: u64) -> Turn {
        match &self.tween {
            Some(tween) if tween.mode.has_feedback() && tween.feedback.alternate => {
                if epoch.is_multiple_of(2) { Turn::Feedback } else { Turn::Forward }
            }
            _ => Turn::Both,
        }
    }
}

/// What a compiled training program depends on beside network and config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) capacity: usize,
    pub(super) class_targets: bool,
    /// Whether class indices stand among the numbers of named outputs' targets.
    pub(super) labelled: bool,
    pub(super) weighing: Weighing,
    /// Of the input, where they are not fixed.
    pub(super) extents: ExtentsKey,
    /// Whether several batches may add up to one update.
    pub(super) accumulates: bool,
    /// What a step learns, where there are feedback maps.
    pub(super) turn: Turn,
    /// Whether every batch brings sequences of its own, though layers are stateful.
    pub(super) apart: bool,
}

/// The first layer whose backward pass starts from the loss: the last, or the one below where the
/// last has absorbed it. Where links arrive behind the last layer, or there are several outputs, there is none, and all
/// layers are below.
pub(crate) fn top_layer(network: &Network, absorbed: bool) -> usize {
    if !network.named_outputs().is_empty() {
        // None is the one that means what is learned.
        return network.layers().count();
    }
    match network.output_layer() {
        Some(last) => last.saturating_sub(usize::from(absorbed)),
        None => network.layers().count(),
    }
}
