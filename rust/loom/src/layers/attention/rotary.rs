//! Configuration of the rotary embedding: how fast each pair of a head turns.

use crate::layers::settings::{Form, Limits, Setting, forms, limits, names};
use crate::ops::{PairLayout, Rotary};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::f64::consts::{PI, TAU};

/// Rotary position embedding: pair i of the first `dim` elements of a head turns by `place x rate[i]`, where the
/// rate is `base^(-2 i / dim) / scaling` unless a `rule` says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RotaryConfig {
    /// How much slower the last pair turns than the first.
    pub base: f64,
    /// How much longer sequences may be than those of training: divides the places, or as the rule says.
    pub scaling: f64,
    /// Which elements are pairs.
    pub layout: PairLayout,
    /// How many elements of a head turn, from the first on; all of them unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dim: Option<usize>,
    /// How rates are made of base and scaling; all are divided by the scaling unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<RotaryRule>,
}

impl Default for RotaryConfig {
    fn default() -> Self {
        Self { base: 10_000.0, scaling: 1.0, layout: PairLayout::default(), dim: None, rule: None }
    }
}

/// How the rates of a rotary embedding are changed for sequences that are longer than those of training. With a
/// rate's wavelength, the places of one full turn, `2 pi / rate`:
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RotaryRule {
    /// Llama 3.1's: rates with a wavelength above `original_length / low_factor` are divided by the scaling, those
    /// below `original_length / high_factor` stay, and those between are mixed of both.
    Llama3 {
        /// How long sequences of training were.
        original_length: f64,
        /// Turns within that below which a rate is divided.
        #[serde(default = "one")]
        low_factor: f64,
        /// Turns within that above which a rate stays.
        #[serde(default = "four")]
        high_factor: f64,
    },
    /// YaRN (Peng et al. 2023): pairs that turn more than `beta_fast` times within `original_length` stay, those
    /// that turn less than `beta_slow` times are divided by the scaling, with a ramp over the pairs between; what
    /// turns is multiplied by `attention_factor`.
    Yarn {
        /// How long sequences of training were.
        original_length: f64,
        /// Turns above which a pair stays as it is.
        #[serde(default = "thirty_two")]
        beta_fast: f64,
        /// Turns below which a pair is divided.
        #[serde(default = "one")]
        beta_slow: f64,
        /// Multiplies queries and keys; `0.1 ln(scaling) + 1` unless given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attention_factor: Option<f64>,
        /// Whether the ramp begins and ends at whole pairs.
        #[serde(default = "yes")]
        whole_pairs: bool,
    },
    /// Dynamic NTK for sequences of one length: the base grows by
    /// `(scaling length / original_length - (scaling - 1))^(dim / (dim - 2))` where the length is beyond the
    /// original one, and stays where not.
    Dynamic {
        /// How long sequences of training were.
        original_length: f64,
        /// How long they are now.
        length: f64,
    },
    /// LongRoPE (Ding et al. 2024): each rate is divided by a factor of its own, and what turns is multiplied by
    /// `attention_factor`.
    LongRope {
        /// How long sequences of training were.
        original_length: f64,
        /// One for each pair.
        factors: Vec<f64>,
        /// Multiplies queries and keys; `sqrt(1 + ln(scaling) / ln(original_length))` unless given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attention_factor: Option<f64>,
    },
}

fn one() -> f64 {
    1.0
}

fn four() -> f64 {
    4.0
}

fn thirty_two() -> f64 {
    32.0
}

fn yes() -> bool {
    true
}

impl RotaryConfig {
    /// What settings must be beside their own limits.
    pub(super) fn validate(&self) -> Result<()> {
        if self.dim.is_some_and(|dim| !dim.is_multiple_of(2)) {
            return Err(Error::Value("rotary dim must be even: elements turn in pairs".into()));
        }
        let Some(rule) = &self.rule else { return Ok(()) };
        let positive = |name: &str, value: f64| match value > 0.0 && value.is_finite() {
            true => Ok(()),
            false => Err(Error::Value(format!("rotary rule {name} must be above 0, got {value}"))),
        };
        match rule {
            RotaryRule::Llama3 { original_length, low_factor, high_factor } => {
                positive("original_length", *original_length)?;
                positive("low_factor", *low_factor)?;
                if high_factor <= low_factor {
                    return Err(Error::Value(format!(
                        "rotary rule high_factor ({high_factor}) must be above low_factor ({low_factor})"
                    )));
                }
                positive("high_factor", *high_factor)
            }
            RotaryRule::Yarn { original_length, beta_fast, beta_slow, attention_factor, .. } => {
                positive("original_length", *original_length)?;
                positive("beta_fast", *beta_fast)?;
                positive("beta_slow", *beta_slow)?;
                if self.base <= 1.0 {
                    return Err(Error::Value(format!("YaRN needs a rotary base above 1, got {}", self.base)));
                }
                positive("attention_factor", attention_factor.unwrap_or(1.0))
            }
            RotaryRule::Dynamic { original_length, length } => {
                positive("original_length", *original_length)?;
                positive("length", *length)?;
                if self.scaling < 1.0 {
                    return Err(Error::Value(format!(
                        "dynamic rotary scaling must be at least 1, got {}",
                        self.scaling
                    )));
                }
                Ok(())
            }
            RotaryRule::LongRope { original_length, factors, attention_factor } => {
                factors.iter().try_for_each(|factor| positive("factors", *factor))?;
                if *original_length <= 1.0 {
                    return positive("original_length - 1", original_length - 1.0);
                }
                positive("attention_factor", attention_factor.unwrap_or(1.0))
            }
        }
    }

    /// How many elements of a head turn.
    ///
    /// # Errors
    /// [`Error::Shape`] where a head has not as many, or pairs do not fit.
    pub(super) fn turning(&self, head_dim: usize) -> Result<usize> {
        let dim = self.dim.unwrap_or(head_dim);
        if dim > head_dim || !dim.is_multiple_of(2) {
            return Err(Error::Shape(format!(
                "MultiHeadAttention: rotary embedding needs an even head_dim, or an even dim within it; \
                 got {dim} of {head_dim}"
            )));
        }
        match &self.rule {
            Some(RotaryRule::LongRope { factors, .. }) if factors.len() != dim / 2 => {
                Err(Error::Shape(format!(
                    "MultiHeadAttention: a rotary rule with {} factors does not fit {} pairs",
                    factors.len(),
                    dim / 2
                )))
            }
            Some(RotaryRule::Dynamic { .. }) if dim < 4 => Err(Error::Shape(
                "MultiHeadAttention: dynamic rotary scaling needs at least two pairs, which differ".into(),
            )),
            _ => Ok(dim),
        }
    }

    /// The rate of each pair of `dim` turning elements, and what they are multiplied by.
    pub(super) fn rates(&self, dim: usize) -> (Vec<f64>, f64) {
        let scaling = self.scaling;
        let of_base = |base: f64| move |pair: usize| Rotary::rate(base, pair, dim);
        let rate = of_base(self.base);
        let pairs = 0..dim / 2;
        match &self.rule {
            None => (pairs.map(|pair| rate(pair) / scaling).collect(), 1.0),
            Some(RotaryRule::Llama3 { original_length, low_factor, high_factor }) => {
                let changed = |pair: usize| {
                    let rate = rate(pair);
                    // Full turns within the original length.
                    let turns = original_length * rate / TAU;
                    let kept = ((turns - low_factor) / (high_factor - low_factor)).clamp(0.0, 1.0);
                    (1.0 - kept) * rate / scaling + kept * rate
                };
                (pairs.map(changed).collect(), 1.0)
            }
            Some(RotaryRule::Yarn {
                original_length,
                beta_fast,
                beta_slow,
                attention_factor,
                whole_pairs,
            }) => {
                // The pair, as a real number, that turns so many times within the original length.
                let pair_of = |turns: f64| {
                    dim as f64 * libm::log(original_length / (turns * 2.0 * PI))
                        / (2.0 * libm::log(self.base))
                };
                let (mut low, mut high) = (pair_of(*beta_fast), pair_of(*beta_slow));
                if *whole_pairs {
                    (low, high) = (low.floor(), high.ceil());
                }
                (low, high) = (low.max(0.0), high.min(dim as f64 - 1.0));
                let across = if low == high { 0.001 } else { high - low };
                let changed = |pair: usize| {
                    let slow = ((pair as f64 - low) / across).clamp(0.0, 1.0);
                    rate(pair) / scaling * slow + rate(pair) * (1.0 - slow)
                };
                let usual = if scaling <= 1.0 { 1.0 } else { 0.1 * libm::log(scaling) + 1.0 };
                (pairs.map(changed).collect(), attention_factor.unwrap_or(usual))
            }
            Some(RotaryRule::Dynamic { original_length, length }) => {
                let length = length.max(*original_length);
                let growth = scaling * length / original_length - (scaling - 1.0);
                let base = self.base * libm::pow(growth, dim as f64 / (dim as f64 - 2.0));
                (pairs.map(of_base(base)).collect(), 1.0)
            }
            Some(RotaryRule::LongRope { original_length, factors, attention_factor }) => {
                let usual = match scaling <= 1.0 {
                    true => 1.0,
                    false => (1.0 + libm::log(scaling) / libm::log(*original_length)).sqrt(),
                };
                let rates = pairs.zip(factors).map(|(pair, factor)| rate(pair) / factor).collect();
                (rates, attention_factor.unwrap_or(usual))
            }
        }
    }
}

forms! {
    PairLayout => names(&[PairLayout::Interleaved, PairLayout::HalfSplit]),
    RotaryRule => Form::RotaryRule,
    RotaryConfig => Form::Settings { settings: settings() },
}

fn settings() -> Vec<Setting> {
    let RotaryConfig { base, scaling, layout, dim, rule } = RotaryConfig::default();
    vec![
        Setting::of("base", Some(base), limits!(above 0.0)),
        Setting::of("scaling", Some(scaling), limits!(above 0.0)),
        Setting::of("layout", Some(layout), Limits::default()),
        Setting::of("dim", Some(dim), limits!(least 2)),
        Setting::of("rule", Some(rule), Limits::default()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Case {
        rotary: RotaryConfig,
        dim: usize,
        rates: Vec<f64>,
        factor: f64,
    }

    /// What `tests/golden/rotary.py` writes, in single precision.
    #[test]
    fn rates_are_those_of_transformers() {
        let cases: Vec<Case> =
            serde_json::from_str(include_str!("../../../../../tests/golden/rotary.json")).unwrap();
        for Case { rotary, dim, rates, factor } in cases {
            rotary.validate().unwrap();
            let (found, times) = rotary.rates(dim);
            assert!((times - factor).abs() < 1e-9, "{rotary:?}: times {times} instead of {factor}");
            assert_eq!(found.len(), rates.len());
            for (found, expected) in found.iter().zip(&rates) {
                let close = (found - expected).abs() <= 3e-6 * expected;
                assert!(close, "{rotary:?}: {found} instead of {expected}");
            }
        }
    }

    #[test]
    fn what_rules_cannot_mean_is_refused_by_name() {
        for (rule, named) in [
            (serde_json::json!({"llama3": {"original_length": 8.0, "high_factor": 0.5}}), "high_factor"),
            (serde_json::json!({"yarn": {"original_length": 0.0}}), "original_length"),
            (serde_json::json!({"long_rope": {"original_length": 8.0, "factors": [1.0, -1.0]}}), "factors"),
        ] {
            let rotary: RotaryConfig = serde_json::from_value(serde_json::json!({ "rule": rule })).unwrap();
            let error = rotary.validate().unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
