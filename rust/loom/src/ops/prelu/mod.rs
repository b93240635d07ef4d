//! The rectifier whose slopes below 0 are learned (He et al. 2015).

mod cpu;
mod gpu;

use super::Direction;
use std::fmt;

/// `y = x` where x is above 0, `slope[channel] x` elsewhere, or its gradients; x is (rows, channels, inner).
///
/// - forward reads x and slope (channels,), writes y like x;
/// - input gradient reads x, slope and dy, writes dx: dy where x is above 0, `slope[channel] dy` elsewhere;
/// - weight gradient reads x and dy, writes what each element adds to its slope's gradient: 0 where x is above
///   0, `x dy` elsewhere. [`BiasGradient`](super::BiasGradient) sums that over each channel.
#[derive(Clone, Debug)]
pub struct Prelu {
    /// Forward, or which gradient.
    pub direction: Direction,
    /// How many slopes.
    pub channels: usize,
    /// Elements that share a slope and lie side by side: 1 for features, height x width for images.
    pub inner: usize,
}

impl fmt::Display for Prelu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "prelu.{} {}x{}", self.direction, self.channels, self.inner)
    }
}
