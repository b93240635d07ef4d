//! How a mesh learns from a stream, as plain data: settings, samples, results.

use crate::network::Coordinates;
use crate::tensor::TensorView;
use crate::train::{Targets, TrainingConfig};
use crate::{Error, Result};

/// How a mesh learns from a stream.
///
/// With a [`TweenConfig`](crate::train::TweenConfig) in `training`, every layer has a target at every tick of
/// the window; its rule, depth scale and measures count. Figures of layers are over all ticks of a window, and
/// a window in which the mean gap explodes is taken back along with the update before it.
///
/// In mode `chain_rule` targets are what layers held, moved against the gradient of the loss. In `layerwise`
/// they are means of the target of the layer that read them a tick later, and links are refused; the output's
/// own last layer learns from the loss, and its target for further steps is a chain-rule one. With several
/// `local_steps`, each layer takes more of them toward the targets of the ticks that a target has reached,
/// from what it makes then of what it had read; layers that none has reached stay. The difference modes are
/// refused: a feedback map of a layer that reads itself would have to invert the loop through time.
#[derive(Clone, Debug, PartialEq)]
pub struct SteppingConfig {
    /// Rate, rule, schedule, clipping, loss and what happens to what is not finite; what concerns epochs and
    /// batches is not used, and `seed` is the network's own.
    pub training: TrainingConfig,
    /// Ticks for each sample.
    pub ticks: usize,
    /// Samples, with targets or without, between two updates.
    pub update_every: usize,
    /// The cell whose output is compared with the targets; the last one unless given. One without layers hands
    /// on what arrives there.
    pub output: Option<Coordinates>,
    /// Updates of the whole run, for schedules that end.
    pub total_updates: u64,
}

impl Default for SteppingConfig {
    fn default() -> Self {
        Self {
            training: TrainingConfig::default(),
            ticks: 1,
            update_every: 1,
            output: None,
            total_updates: 0,
        }
    }
}

impl SteppingConfig {
    /// Refuses values that no stream could make right.
    ///
    /// # Errors
    /// [`Error::Value`] naming the setting, what it must be and what it is.
    pub fn validate(&self) -> Result<()> {
        self.training.validate()?;
        for (name, value) in [("ticks", self.ticks), ("update_every", self.update_every)] {
            if value == 0 {
                return Err(Error::Value(format!("{name} must be at least 1, got 0")));
            }
        }
        match &self.training.tween {
            Some(tween) if tween.mode.has_feedback() => Err(Error::Value(format!(
                "a mesh has targets of mode chain_rule or layerwise, got {}: its feedback maps lead from a \
                 layer to the one before it, and a mesh would need them from tick to tick",
                tween.mode.name()
            ))),
            _ => Ok(()),
        }
    }
}

/// What a stream brings at once.
#[derive(Clone, Debug)]
pub struct Sample<'a> {
    /// One row for each of the mesh's.
    pub input: TensorView<'a>,
    /// What the output cell is to hand on after the sample's ticks; nothing is learned from without one.
    pub target: Option<Targets<'a>>,
}

/// What training on a stream did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SteppingResult {
    /// The loss of every sample that had a target, in order.
    pub losses: Vec<f64>,
    /// Samples seen.
    pub samples: u64,
    /// Ticks made.
    pub ticks: u64,
    /// Updates made.
    pub updates: u64,
    /// Updates left out because something was not finite.
    pub skipped_updates: u64,
    /// Updates that exploded, left out together with the one before each.
    pub explosions: u64,
    /// Seconds from start to end.
    pub total_time: f64,
}
