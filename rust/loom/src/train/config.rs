//! How a network is trained, as plain data.

use super::{DepthScale, LossConfig, Metric, OwnLossConfig, Schedule, TweenConfig};
use crate::network::Watch;
use crate::ops::update::Optimizer;
use crate::ops::{LossFunction, ShortFloat};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// What happens when a loss or a gradient norm becomes infinite or NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnNonFinite {
    /// Training stops with an error that names the first layer concerned.
    #[default]
    Raise,
    /// The step is left out: no weight moves.
    Skip,
}

/// What is minimised of one named output: its mean loss, times a weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputLoss {
    /// The loss; beside one of the user's own it says what targets are: class indices where it takes such.
    pub loss: LossConfig,
    /// What is minimised in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_loss: Option<OwnLossConfig>,
    /// How much it counts.
    #[serde(default = "one")]
    pub weight: f64,
    /// A factor for each class of its part of a row's loss, which does not count in what the sum is divided by: the
    /// outputs of a step have one divisor, that of its rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_weight: Option<Vec<f64>>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands it a reference")]
fn is_nothing(value: &f64) -> bool {
    *value == 0.0
}

fn one() -> f64 {
    1.0
}

impl OutputLoss {
    /// Whether targets are class indices; `labelled` says whether losses that are not the user's own are told such.
    pub(super) fn is_told_classes(&self, labelled: bool) -> bool {
        // A function of the user's own takes them as they were given.
        self.loss.takes_classes() && (labelled || self.own_loss.is_some())
    }

    fn validate(&self) -> Result<()> {
        if !(self.weight.is_finite() && self.weight >= 0.0) {
            return Err(Error::Value(format!(
                "the weight of an output's loss must be finite and at least 0, got {}",
                self.weight
            )));
        }
        let Some(own) = &self.own_loss else { return Ok(()) };
        if self.class_weight.is_some() {
            return Err(Error::Value("class_weight has no meaning beside a loss of one's own".into()));
        }
        own.validate()
    }
}

/// A penalty on some weights, which joins the loss, but for its figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Regularizer {
    /// Which parameters: a pattern of their paths (`0.0.0.1.weight`), in which `*` stands for anything and `?` for one
    /// character, or of layers' paths or kinds.
    pub on: String,
    /// Times the sum of magnitudes.
    #[serde(default)]
    pub l1: f64,
    /// Times the sum of squares.
    #[serde(default)]
    pub l2: f64,
}

/// How a network is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainingConfig {
    /// Passes over the data, those before a resume counted in.
    pub epochs: u64,
    /// Rows of one forward and backward pass.
    pub batch_size: usize,
    /// The rate that the schedule starts from.
    pub learning_rate: f64,
    /// The update rule.
    pub optimizer: Optimizer,
    /// How the rate changes with the step.
    pub schedule: Schedule,
    /// What is minimised.
    pub loss: LossConfig,
    /// What is minimised instead, where that is a user's own; `loss` then says what targets are like: of classes, or
    /// numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_loss: Option<OwnLossConfig>,
    /// What is minimised of each named output, in their order; `loss` does not count then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputLoss>,
    /// The largest global gradient norm; 0 is none.
    pub gradient_clip: Option<f64>,
    /// The largest absolute value of a gradient element; applied before `gradient_clip`.
    pub clip_value: Option<f64>,
    /// Keys the order of the data and all random draws of training.
    pub seed: u64,
    /// Whether the data's order is drawn anew for every epoch.
    pub shuffle: bool,
    /// What happens to a step that is not finite.
    pub on_nonfinite: OnNonFinite,
    /// A factor for each class, for cross-entropy and nll.
    pub class_weight: Option<Vec<f64>>,
    /// Penalties on weights; of several that name a parameter the sum.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub regularizers: Vec<Regularizer>,
    /// The variance of normal noise that is added to gradients in the first step; it falls with the step to the power
    /// of 0.55. None where 0.
    #[serde(skip_serializing_if = "is_nothing")]
    pub gradient_noise: f64,
    /// Mixes targets with the uniform distribution, for cross-entropy and nll.
    pub label_smoothing: f64,
    /// In what activations wait for the backward pass, where that is less than what they are computed in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_activations: Option<ShortFloat>,
    /// What is measured beside the loss, in training and validation.
    pub metrics: Vec<Metric>,
    /// Batches whose gradients are added up before one update.
    pub accumulate: usize,
    /// The last fraction of the data is kept for validation.
    pub validation_split: f64,
    /// Rows of one validation pass; `batch_size` unless given.
    pub validation_batch_size: Option<usize>,
    /// Epochs between two validations.
    pub validation_every: u64,
    /// How the rate changes with a layer's depth.
    pub depth_scale: DepthScale,
    /// Whether every step's duration is recorded.
    pub track_perf: bool,
    /// Measures every layer at every step of backpropagation, and takes explosions back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<Watch>,
    /// Learns by targets instead of backpropagation; then `optimizer` and `depth_scale` are those in here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tween: Option<TweenConfig>,
}

impl Default for TrainingConfig {
    fn default() -> Self {
        Self {
            epochs: 1,
            batch_size: 32,
            learning_rate: 1e-3,
            optimizer: Optimizer::default(),
            schedule: Schedule::default(),
            loss: LossConfig(LossFunction::MeanSquaredError),
            own_loss: None,
            outputs: Vec::new(),
            gradient_clip: None,
            clip_value: None,
            seed: 0,
            shuffle: true,
            on_nonfinite: OnNonFinite::default(),
            class_weight: None,
            regularizers: Vec::new(),
            gradient_noise: 0.0,
            label_smoothing: 0.0,
            saved_activations: None,
            metrics: Vec::new(),
            accumulate: 1,
            validation_split: 0.0,
            validation_batch_size: None,
            validation_every: 1,
            depth_scale: DepthScale::default(),
            track_perf: false,
            watch: None,
            tween: None,
        }
    }
}

impl TweenConfig {
    /// A training config that learns this way, at the base rate.
    pub fn training(self) -> TrainingConfig {
        TrainingConfig { learning_rate: Self::BASE_RATE, tween: Some(self), ..TrainingConfig::default() }
    }
}

impl TrainingConfig {
    /// What is measured, and when a step is taken back; nothing in plain backpropagation.
    pub fn watched(&self) -> Option<&Watch> {
        self.tween.as_ref().map(|tween| &tween.watch).or(self.watch.as_ref())
    }

    /// The global gradient norm beyond which all gradients are scaled.
    pub(crate) fn largest_norm(&self) -> Option<f64> {
        self.gradient_clip.filter(|limit| *limit > 0.0)
    }

    /// Refuses several batches for one update where layers pass over their batch several times.
    pub(crate) fn check_accumulation(&self) -> Result<()> {
        let several = |tween: &TweenConfig| {
            tween.local_steps > 1 || (tween.mode.has_feedback() && tween.feedback.steps > 1)
        };
        if self.tween.as_ref().is_some_and(several) {
            return Err(Error::Value(
                "local_steps or feedback steps above 1 pass over one batch several times; give one batch a step, \
                 without accumulate"
                    .into(),
            ));
        }
        Ok(())
    }

    /// The rule that moves the weights.
    pub fn rule(&self) -> Optimizer {
        self.tween.as_ref().map_or_else(|| self.optimizer.clone(), TweenConfig::rule)
    }

    /// Refuses values that no data could make right.
    ///
    /// # Errors
    /// [`Error::Value`] naming the setting, what it must be and what it is.
    pub fn validate(&self) -> Result<()> {
        let at_least_one = [
            ("epochs", self.epochs),
            ("batch_size", self.batch_size as u64),
            ("accumulate", self.accumulate as u64),
            ("validation_batch_size", self.validation_batch_size.unwrap_or(1) as u64),
            ("validation_every", self.validation_every),
        ];
        for (name, value) in at_least_one {
            if value == 0 {
                return Err(Error::Value(format!("{name} must be at least 1, got 0")));
            }
        }
        if let Some(own) = &self.own_loss {
            own.validate()?;
            let beside = [
                ("tween", self.tween.is_some()),
                ("watch", self.watch.is_some()),
                ("outputs", !self.outputs.is_empty()),
                ("class_weight", self.class_weight.is_some()),
                ("label_smoothing", self.label_smoothing > 0.0),
            ];
            if let Some((name, _)) = beside.into_iter().find(|(_, given)| *given) {
                return Err(Error::Value(format!("{name} has no meaning beside a loss of one's own")));
            }
        }
        for Regularizer { on, l1, l2 } in &self.regularizers {
            if !(l1.is_finite() && *l1 >= 0.0 && l2.is_finite() && *l2 >= 0.0) {
                return Err(Error::Value(format!(
                    "the regularizer on \"{on}\" must have a finite l1 and l2 of at least 0, got {l1} and {l2}"
                )));
            }
        }
        if !(self.gradient_noise.is_finite() && self.gradient_noise >= 0.0) {
            return Err(Error::Value(format!(
                "gradient_noise must be finite and at least 0, got {}",
                self.gradient_noise
            )));
        }
        let of_gradients = !self.regularizers.is_empty() || self.gradient_noise > 0.0;
        if of_gradients && self.tween.is_some() {
            return Err(Error::Value(
                "regularizers and gradient_noise have no meaning in learning by targets".into(),
            ));
        }
        if self.saved_activations.is_some() && self.tween.is_some() {
            return Err(Error::Value(
                "saved_activations has no meaning in learning by targets, which meet activations as they are"
                    .into(),
            ));
        }
        if !(self.learning_rate.is_finite() && self.learning_rate >= 0.0) {
            return Err(Error::Value(format!(
                "learning_rate must be finite and at least 0, got {}",
                self.learning_rate
            )));
        }
        if let Some(limit) = self.gradient_clip.filter(|limit| !limit.is_finite() || *limit < 0.0) {
            return Err(Error::Value(format!("gradient_clip must be finite and at least 0, got {limit}")));
        }
        if let Some(limit) = self.clip_value.filter(|limit| !limit.is_finite() || *limit <= 0.0) {
            return Err(Error::Value(format!("clip_value must be finite and above 0, got {limit}")));
        }
        if !(0.0..1.0).contains(&self.validation_split) {
            return Err(Error::Value(format!(
                "validation_split must be at least 0 and below 1, got {}",
                self.validation_split
            )));
        }
        for output in &self.outputs {
            output.validate()?;
        }
        if let Some(tween) = &self.tween {
            tween.validate()?;
            let clips = self.largest_norm().is_some() || self.clip_value.is_some();
            if clips && tween.local_steps > 1 {
                return Err(Error::Value(
                    "clipping concerns one gradient a step; leave gradient_clip and clip_value out with local_steps \
                     above 1"
                        .into(),
                ));
            }
            if self.accumulate > 1 {
                self.check_accumulation()?;
            }
        }
        if let Some(watch) = &self.watch {
            watch.validate()?;
        }
        self.depth_scale.validate()?;
        self.optimizer.validate()?;
        self.schedule.validate()
    }
}
