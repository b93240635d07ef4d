//! Dynamic loss scaling: what keeps the gradients of mixed networks within binary16 on a GPU.
//!
//! The loss's gradient is multiplied by a power of two, and the parameters' gradients are divided by it
//! again before anything looks at them. A step whose loss or gradient is not finite is left out and
//! halves the scale; many good steps in a row double it (the rule of PyTorch's `GradScaler`).

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// What the loss's gradient is multiplied by, and what will change that.
///
/// On a GPU the verdict on a step changes it, on the device; the host follows by the same rule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossScale {
    /// A power of two of at least 1.
    pub scale: f32,
    /// Good steps since the scale last changed.
    pub good_steps: u32,
    /// Steps left out because the scale was too large.
    pub skipped_steps: u64,
}

impl Default for LossScale {
    fn default() -> Self {
        Self { scale: 65536.0, good_steps: 0, skipped_steps: 0 }
    }
}

impl LossScale {
    /// Good steps in a row after which the scale doubles.
    pub const GROWTH_STEPS: u32 = 2000;
    /// The largest scale: gradients that are all zero would double it for ever.
    pub const LARGEST: f32 = 16_777_216.0;

    /// Whether it is as at the start of any training.
    pub fn is_fresh(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a step that is not finite may be the scale's fault: it is left out and is no error.
    pub fn may_be_too_large(&self) -> bool {
        self.scale > 1.0
    }

    /// Takes note of a step that changed the weights.
    pub fn note_good_step(&mut self) {
        self.good_steps += 1;
        if self.good_steps >= Self::GROWTH_STEPS {
            self.good_steps = 0;
            self.scale = (self.scale * 2.0).min(Self::LARGEST);
        }
    }

    /// Takes note of a step that was left out for the scale's sake.
    pub fn note_skipped_step(&mut self) {
        self.good_steps = 0;
        self.skipped_steps += 1;
        self.scale = (self.scale * 0.5).max(1.0);
    }

    /// Refuses what a damaged file may hold.
    pub(crate) fn validate(&self) -> Result<()> {
        let is_power = self.scale.to_bits() & 0x7F_FFFF == 0;
        if (1.0..=Self::LARGEST).contains(&self.scale) && is_power && self.good_steps < Self::GROWTH_STEPS {
            return Ok(());
        }
        Err(Error::Value(format!(
            "a loss scale must be a power of two from 1 to {} with fewer than {} good steps, got {} and {}",
            Self::LARGEST,
            Self::GROWTH_STEPS,
            self.scale,
            self.good_steps
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_halves_at_once_and_doubles_slowly() {
        let mut scale = LossScale::default();
        scale.validate().unwrap();
        scale.note_good_step();
        scale.note_skipped_step();
        assert_eq!(scale, LossScale { scale: 32768.0, good_steps: 0, skipped_steps: 1 });
        for _ in 0..1999 {
            scale.note_good_step();
        }
        assert_eq!((scale.scale, scale.good_steps), (32768.0, 1999));
        scale.validate().unwrap();
        scale.note_good_step();
        assert_eq!((scale.scale, scale.good_steps), (65536.0, 0));
        for _ in 0..40 {
            scale.note_skipped_step();
        }
        assert!(scale.scale == 1.0 && !scale.may_be_too_large());
        for _ in 0..40 * 2000 {
            scale.note_good_step();
        }
        assert_eq!(scale.scale, LossScale::LARGEST);
        scale.validate().unwrap();
    }

    #[test]
    fn damaged_scales_are_refused() {
        for (scale, good_steps) in
            [(0.5, 0), (3.0, 0), (f32::NAN, 0), (f32::INFINITY, 0), (-2.0, 0), (2.0, 2000)]
        {
            let damaged = LossScale { scale, good_steps, skipped_steps: 0 };
            assert!(matches!(damaged.validate(), Err(Error::Value(_))));
        }
    }
}
