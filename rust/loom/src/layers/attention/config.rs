//! Configuration of the rotary embedding.

use crate::layers::settings::{Form, Limits, Setting, forms, limits, names};
use crate::ops::PairLayout;
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

forms! {
    PairLayout => names(&[PairLayout::Interleaved, PairLayout::HalfSplit]),
    RotaryConfig => Form::Settings { settings: settings() },
}

fn settings() -> Vec<Setting> {
    let RotaryConfig { base, scaling, layout } = RotaryConfig::default();
    vec![
        Setting::of("base", Some(base), limits!(above 0.0)),
        Setting::of("scaling", Some(scaling), limits!(above 0.0)),
        Setting::of("layout", Some(layout), Limits::default()),
    ]
}
