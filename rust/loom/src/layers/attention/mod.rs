//! Multi-head attention.

mod layer;
mod position_bias;
mod qk_norm;
mod rotary;

pub use position_bias::PositionBiasConfig;
pub use qk_norm::QkNorm;
pub use rotary::{RotaryConfig, RotaryRule};

use super::Sample;
use super::kind_registry::Configured;
use super::settings::settings;
use crate::weights::Initializer;
use crate::{Error, Result};

settings! {
    /// Scaled dot-product attention of several heads over a sequence: (time, width) to (time, width).
    ///
    /// Parameters, as the outside sees them: `query_weight` (heads x head_dim, width), `key_weight` and
    /// `value_weight` (key_value_heads x head_dim, width of what is looked at), `output_weight`
    /// (width, heads x head_dim), for each a `_bias` where there is one, and with `qk_norm` the gains
    /// `query_gain` and `key_gain`, (head_dim,) or as wide as queries and keys, and with a relative `position_bias`
    /// its table `relative_bias`, (buckets, heads). PyTorch's `nn.MultiheadAttention` keeps the first three
    /// in one: its `in_proj_weight` is query, key and value weight one below the other, its
    /// `in_proj_bias` likewise, and its `out_proj` is the output.
    #[derive(Clone, Debug, PartialEq)]
    pub struct MultiHeadAttention "multi_head_attention" {
        /// Heads of the queries.
        heads: usize [least 1],
    } optional {
        /// Heads of keys and values, which divide the heads of the queries; as many as those unless given.
        key_value_heads: Option<usize> [least 1] = None,
        /// Extent of a head; width / heads unless given.
        head_dim: Option<usize> [least 1] = None,
        /// Whether a step sees none after its own.
        causal: bool = false,
        /// Steps see only those nearer than this: the last `window` where causal, and as many ahead where not.
        window: Option<usize> [least 1] = None,
        /// Turns queries and keys by their places.
        rotary: Option<RotaryConfig> = None,
        /// Whether queries and keys are divided by their root mean square, times a trained gain: head by head, or
        /// over the width of all heads.
        qk_norm: QkNorm = QkNorm::None,
        /// Whether trained numbers are added to queries, keys, values and output.
        bias: bool = true,
        /// Whether keys and values come from a second input, the context (context time, context width).
        cross: bool = false,
        /// Who may see whom: a row for each step that asks, with 1 for each step it may look at and 0 for the others.
        mask: Option<Vec<Vec<u8>>> [most 1] = None,
        /// How the weights start; Xavier normal unless named.
        weight_initializer: Option<Initializer> = None,
        /// What scores are multiplied by; 1 / sqrt(head_dim) unless given.
        scale: Option<f64> [above 0.0] = None,
        /// Scores become `cap tanh(score / cap)` before any is hidden.
        soft_cap: Option<f64> [above 0.0] = None,
        /// Added to the mean square by `qk_norm`.
        qk_norm_epsilon: f64 [above 0.0] = 1e-6; unwritten,
        /// Whether trained numbers are added to the output; as `bias` says unless given.
        output_bias: Option<bool> = None,
        /// Probability with which training leaves out a weight, the share that a step has in another's result; the
        /// others are divided by `1 - dropout`.
        dropout: f64 [least 0.0, below 1.0] = 0.0; unwritten,
        /// What is added to scores, before they are capped, by how far a step is from another.
        position_bias: Option<PositionBiasConfig> = None,
    }
}

impl MultiHeadAttention {
    /// So many heads that see everything, with biases.
    pub fn new(heads: usize) -> Self {
        Self::with_defaults(heads)
    }

    /// Steps see none after their own.
    pub fn causal(self) -> Self {
        Self { causal: true, ..self }
    }

    /// With this many heads of keys and values.
    pub fn key_value_heads(self, heads: usize) -> Self {
        Self { key_value_heads: Some(heads), ..self }
    }

    /// With heads of this extent.
    pub fn head_dim(self, extent: usize) -> Self {
        Self { head_dim: Some(extent), ..self }
    }

    /// With rotary embedding.
    pub fn rotary(self, rotary: RotaryConfig) -> Self {
        Self { rotary: Some(rotary), ..self }
    }

    /// Without biases.
    pub fn without_bias(self) -> Self {
        Self { bias: false, ..self }
    }

    /// Adding to scores by distance.
    pub fn position_bias(self, bias: PositionBiasConfig) -> Self {
        Self { position_bias: Some(bias), ..self }
    }

    /// Leaving out weights in training with this probability.
    pub fn dropout(self, rate: f64) -> Self {
        Self { dropout: rate, ..self }
    }

    /// Looking at a second input.
    pub fn cross(self) -> Self {
        Self { cross: true, ..self }
    }
}

impl Configured for MultiHeadAttention {
    fn validate(&self) -> Result<()> {
        let key_value_heads = self.key_value_heads.unwrap_or(self.heads);
        if !self.heads.is_multiple_of(key_value_heads) {
            return Err(Error::Value(format!(
                "heads ({}) must be a multiple of key_value_heads ({key_value_heads})",
                self.heads
            )));
        }
        if self.rotary.is_some() && self.cross {
            return Err(Error::Value(
                "places of another sequence mean nothing to rotary embedding; leave out rotary or cross"
                    .into(),
            ));
        }
        if let Some(rotary) = &self.rotary {
            rotary.validate()?;
        }
        if let Some(bias) = &self.position_bias {
            if self.cross {
                return Err(Error::Value(
                    "steps of another sequence are at no distance; leave out position_bias or cross".into(),
                ));
            }
            bias.validate(self.causal)?;
        }
        if let Some(mask) = &self.mask {
            let width = mask.first().map_or(0, Vec::len);
            if width == 0 || mask.iter().any(|row| row.len() != width) {
                return Err(Error::Value(
                    "mask must have rows of equal length, of 1 for what may be seen and 0 for what may not"
                        .into(),
                ));
            }
        }
        Ok(())
    }

    fn samples() -> Vec<Sample> {
        let grouped = Self::new(4).key_value_heads(2).head_dim(6);
        let half = RotaryConfig {
            base: 100.0,
            scaling: 2.0,
            layout: crate::ops::PairLayout::HalfSplit,
            ..RotaryConfig::default()
        };
        let turned = |dim, rule| {
            let rotary = RotaryConfig { base: 50.0, dim, rule: Some(rule), ..half.clone() };
            Sample::new(Self::new(1).head_dim(6).causal().rotary(rotary), [5, 3])
        };
        let relative = |buckets, max_distance| PositionBiasConfig::Relative { buckets, max_distance };
        let mask =
            (0..5).map(|i| (0..5).map(|j| u8::from(i == j || (i + 2 * j) % 3 > 0)).collect()).collect();
        vec![
            Sample::new(Self::new(1), [1, 1]),
            Sample::new(Self::new(2), [5, 8]),
            // More keys than one block.
            Sample::new(Self::new(1).causal(), [141, 2]),
            Sample::new(Self::new(3).causal().without_bias(), [7, 9]),
            Sample::new(grouped.clone().causal().rotary(RotaryConfig::default()), [6, 5]),
            Sample::new(Self { window: Some(3), ..grouped.clone().causal().rotary(half.clone()) }, [9, 7]),
            Sample::new(Self { window: Some(2), ..Self::new(1) }, [6, 3]),
            Sample::new(Self { mask: Some(mask), ..Self::new(2) }, [5, 6]),
            Sample::new(Self { qk_norm: QkNorm::Head, ..grouped.clone() }, [4, 5]),
            Sample::new(Self { qk_norm: QkNorm::Width, qk_norm_epsilon: 0.1, ..grouped }, [4, 5]),
            Sample::new(Self { scale: Some(0.9), soft_cap: Some(0.4), ..Self::new(2) }, [5, 6]),
            Sample::new(Self { output_bias: Some(false), soft_cap: Some(2.0), ..Self::new(1) }, [3, 2])
                .masked(),
            turned(Some(4), RotaryRule::Llama3 { original_length: 20.0, low_factor: 1.0, high_factor: 4.0 }),
            turned(
                None,
                RotaryRule::Yarn {
                    original_length: 20.0,
                    beta_fast: 2.0,
                    beta_slow: 1.0,
                    attention_factor: None,
                    whole_pairs: true,
                },
            ),
            turned(None, RotaryRule::Dynamic { original_length: 3.0, length: 5.0 }),
            turned(
                Some(4),
                RotaryRule::LongRope {
                    original_length: 4.0,
                    factors: vec![1.5, 2.0],
                    attention_factor: Some(1.25),
                },
            ),
            Sample::new(Self::new(2).cross(), [3, 4]).context([5, 6]),
            Sample::new(Self::new(2), [6, 4]).masked(),
            Sample::new(Self::new(3).causal().key_value_heads(1).dropout(0.3), [9, 6]),
            Sample::new(Self::new(3).causal().position_bias(PositionBiasConfig::Alibi), [9, 6]),
            Sample::new(
                Self { window: Some(3), ..Self::new(2).position_bias(PositionBiasConfig::Alibi) },
                [6, 4],
            )
            .masked(),
            Sample::new(Self::new(2).key_value_heads(1).position_bias(relative(6, 8)), [9, 4]),
            Sample::new(Self::new(1).causal().dropout(0.4).position_bias(relative(5, 40)), [140, 2]),
            Sample::new(
                Self {
                    soft_cap: Some(0.8),
                    rotary: Some(half.clone()),
                    ..Self::new(2).causal().position_bias(relative(4, 3))
                },
                [7, 4],
            )
            .masked(),
            Sample::new(Self { window: Some(3), ..Self::new(1).dropout(0.6) }, [6, 4]).masked(),
            Sample::new(Self::new(2).cross().dropout(0.2), [3, 4]).context([5, 6]),
            Sample::new(Self::new(2).causal(), [140, 4]),
        ]
    }
}
