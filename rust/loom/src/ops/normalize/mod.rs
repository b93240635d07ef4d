//! Normalisation: within each row (layer, root-mean-square and group norm), and of channels over the batch.
//!
//! All operands that are like x are (rows x outer, channels, inner). Reductions along an extent follow
//! the 16-lane rule; sums over channels or repetitions say their order where they are made.

mod channels;
mod gain;
mod gpu;
mod gpu_kept;
mod rows;
#[cfg(test)]
mod tests;

use super::Direction;
use crate::{Error, Result};
use std::fmt;

/// Normalises sets of neighbouring elements: each repetition's channels are cut into `groups` of
/// (channels / groups, inner) elements, and
/// `y = (x - mean) / sqrt(variance + epsilon) * gain[channel] + bias[channel]` with the set's own mean
/// and biased variance. Where `centred` is false the mean counts as 0, so that the variance is the mean
/// square.
///
/// - forward reads x, then gain and bias where there are any; writes y, the inverse deviation
///   `1 / sqrt(variance + epsilon)` (rows x outer, groups), and where `centred` the mean, likewise;
/// - input gradient reads dy, x, the inverse deviation, the mean where `centred`, and the gain if there
///   is one; writes dx.
///
/// Sums over a set are one 16-lane sum, but with `inner` above 1 the backward ones are a 16-lane sum a
/// channel, added in the channels' order.
#[derive(Clone, Debug)]
pub struct Normalize {
    /// Forward or input gradient.
    pub direction: Direction,
    /// Repetitions for each row of the batch.
    pub outer: usize,
    /// Extent of gain and bias.
    pub channels: usize,
    /// Neighbouring elements that share a channel.
    pub inner: usize,
    /// Sets of a repetition; divides the channels.
    pub groups: usize,
    /// Whether the mean is taken away.
    pub centred: bool,
    /// Added to the variance.
    pub epsilon: f64,
    /// Whether there is a gain.
    pub gain: bool,
    /// Whether there is a bias.
    pub bias: bool,
}

impl Normalize {
    /// Channels of a set.
    fn set_channels(&self) -> usize {
        self.channels / self.groups
    }

    /// Elements of a set.
    fn extent(&self) -> usize {
        self.set_channels() * self.inner
    }
}

/// Mean and biased variance of each channel over the whole batch: reads x (rows, channels, inner), writes
/// mean and variance, (channels,) each.
///
/// Order of sums: as [`BiasGradient`](super::BiasGradient), of x and then of the squared differences.
/// One value a channel has no spread to train with: that is [`Error::Value`].
#[derive(Clone, Debug)]
pub struct ChannelMoments {
    /// How many channels.
    pub channels: usize,
    /// Neighbouring elements that share a channel.
    pub inner: usize,
    /// Whether x may be a part of the batch, in which one value is enough.
    pub part: bool,
}

impl ChannelMoments {
    /// How many values of each channel there are.
    fn count(&self, rows: usize) -> Result<usize> {
        match rows * self.inner {
            1 if self.part => Ok(1),
            0 | 1 => Err(Error::Value(format!(
                "batch normalisation needs more than one value a channel in training, got a batch of {rows} with {} \
                 a channel; leave out the last incomplete batch or use larger ones",
                self.inner
            ))),
            count => Ok(count),
        }
    }
}

/// `y = (x - mean[channel]) / sqrt(variance[channel] + epsilon) * gain[channel] + bias[channel]`.
///
/// - forward reads x, mean, variance, then gain and bias where there are any; writes y;
/// - input gradient where `fixed`, of statistics that do not depend on x: reads dy, variance, and the gain
///   if there is one; writes dx;
/// - input gradient otherwise, of statistics that are those of x: reads dy, x, mean, variance, the sums of dy
///   and of dy times the normalised x ([`BiasGradient`](super::BiasGradient), [`GainGradient`]), and the
///   gain if there is one; writes dx.
#[derive(Clone, Debug)]
pub struct ChannelNormalize {
    /// Forward or input gradient.
    pub direction: Direction,
    /// How many channels.
    pub channels: usize,
    /// Neighbouring elements that share a channel.
    pub inner: usize,
    /// Added to the variance.
    pub epsilon: f64,
    /// Whether there is a gain.
    pub gain: bool,
    /// Whether there is a bias.
    pub bias: bool,
    /// Whether the statistics are given instead of taken from x.
    pub fixed: bool,
}

/// Which statistics [`GainGradient`] reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistics {
    /// Those of [`Normalize`]: the inverse deviation of each repetition's groups, and the mean where `centred`.
    Rows {
        /// Groups of a repetition.
        groups: usize,
        /// Whether the mean is taken away.
        centred: bool,
    },
    /// Those of [`ChannelMoments`]: mean and variance of each channel.
    Channels {
        /// Added to the variance.
        epsilon: f64,
    },
}

/// The sum of dy times the normalised x over everything but the channel: reads dy, x, and the inverse
/// deviation and the mean where there is one ([`Statistics::Rows`]) or the mean and the variance
/// ([`Statistics::Channels`]); writes (channels,), adding to it where the step says so.
///
/// Order of sums: as [`BiasGradient`](super::BiasGradient).
#[derive(Clone, Debug)]
pub struct GainGradient {
    /// Repetitions for each row of the batch.
    pub outer: usize,
    /// How many channels.
    pub channels: usize,
    /// Neighbouring elements that share a channel.
    pub inner: usize,
    /// Which statistics x was normalised with.
    pub statistics: Statistics,
}

/// `running = (1 - momentum) running + momentum value`, in place: reads value, overwrites running. Where
/// `unbiased`, value is a biased variance of rows x `inner` numbers, and n / (n - 1) times it counts.
#[derive(Clone, Debug)]
pub struct RunningAverage {
    /// The share of the new value.
    pub momentum: f64,
    /// Numbers of one row that the variance is of; `None` for values that are taken as they are.
    pub unbiased: Option<usize>,
}

impl RunningAverage {
    /// What the value is multiplied by.
    pub(in crate::ops) fn share(&self, rows: usize) -> f64 {
        let count = self.unbiased.map_or(0, |inner| inner * rows) as f64;
        self.momentum * if count > 1.0 { count / (count - 1.0) } else { 1.0 }
    }
}

impl fmt::Display for Normalize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.centred { "normalize" } else { "normalize.mean_square" };
        write!(f, "{kind}.{} {}x{}x{}", self.direction, self.outer, self.channels, self.inner)?;
        if self.groups > 1 { write!(f, " groups {}", self.groups) } else { Ok(()) }
    }
}

impl fmt::Display for ChannelMoments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel_moments {}x{}", self.channels, self.inner)
    }
}

impl fmt::Display for ChannelNormalize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fixed = if self.fixed { " fixed" } else { "" };
        write!(f, "channel_normalize.{} {}x{}{fixed}", self.direction, self.channels, self.inner)
    }
}

impl fmt::Display for GainGradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gain_gradient {}x{}x{}", self.outer, self.channels, self.inner)
    }
}

impl fmt::Display for RunningAverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "running_average {}", self.momentum)
    }
}

/// The error of a direction that an operation does not have.
fn no_weight(op: &impl fmt::Display) -> Error {
    Error::Internal(format!("{op} has no weight to take a gradient of"))
}
