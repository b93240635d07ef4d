//! Adding one number a channel, and the gradient of doing so.

mod cpu;
pub(super) mod gpu;

use crate::shader::BiasSums;
use std::fmt;

/// `z = x + bias[channel]`: reads x (rows x outer, channels, inner) and bias
/// (channels,), writes z like x.
#[derive(Clone, Debug)]
pub struct BiasAdd {
    /// Repetitions of the channel axis for each row of the batch.
    pub outer: usize,
    /// Extent of the bias.
    pub channels: usize,
    /// Elements that share a channel: 1 for features, height x width for images.
    pub inner: usize,
}

/// Repetitions whose sums [`BiasGradient`] adds up before they join the total.
pub(super) const CHUNK: usize = 64;

/// The sum of dz over everything but the channel: reads dz (rows x outer,
/// channels, inner), writes db (channels,), adding to it where the step says so.
///
/// Order of sums: `inner` by the 16-lane rule; then the repetitions (rows x outer) in
/// order within chunks of 64, which start from 0; then the chunks' sums in order; then
/// that total to what is there.
#[derive(Clone, Debug)]
pub struct BiasGradient {
    /// Repetitions of the channel axis for each row of the batch.
    pub outer: usize,
    /// Extent of the bias.
    pub channels: usize,
    /// Elements that share a channel.
    pub inner: usize,
}

impl fmt::Display for BiasAdd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bias_add {}x{}x{}", self.outer, self.channels, self.inner)
    }
}

impl From<&BiasGradient> for BiasSums {
    fn from(sum: &BiasGradient) -> Self {
        Self { outer: sum.outer, channels: sum.channels, inner: sum.inner }
    }
}

impl fmt::Display for BiasGradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bias_gradient {}x{}x{}", self.outer, self.channels, self.inner)
    }
}
