//! What penalties on weights, and noise, add to gradients.

mod cpu;
mod gpu;

use crate::random::Use;
use std::fmt;
use std::ops::Range;

/// What is added to a part of a store's gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct Penalized {
    /// Its elements.
    pub range: Range<usize>,
    /// The penalty's `l1 |w|`: `l1 sign(w)` is added, 0 at 0.
    pub l1: f64,
    /// The penalty's `l2 w^2`: `2 l2 w` is added.
    pub l2: f64,
}

/// Adds to a store's flat gradient, in place: reads the master and, where there is `noise`, normal numbers, as many.
///
/// For each part `l1 sign(w) + 2 l2 w`, and to that `sqrt(noise / t^0.55)` times the numbers, t being the number of the
/// update, from 1 (Neelakantan et al. 2015). Where the loss was `scaled`, so is what is added.
#[derive(Clone, Debug)]
pub struct Penalty {
    /// Elements of the flat gradient.
    pub len: usize,
    /// What is added where; parts do not overlap.
    pub parts: Vec<Penalized>,
    /// The variance of noise in the first step, if there is any.
    pub noise: Option<f64>,
    /// Whether the gradient is of a scaled loss.
    pub scaled: bool,
}

/// The power of steps by which the variance of noise falls.
const NOISE_DECAY: f64 = 0.55;

/// Tells the noise of gradients from the other noises of a layer.
pub(crate) const NOISE_PURPOSE: u32 = 0x6752_6164 ^ Use::Noise as u32;

impl fmt::Display for Penalty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "penalty {} in {} parts", self.len, self.parts.len())?;
        if let Some(noise) = self.noise {
            write!(f, ", noise {noise}")?;
        }
        Ok(())
    }
}
