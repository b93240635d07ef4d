//! What layers know of a whole batch, where that may be computed in parts.

mod cpu;
mod gpu;

use crate::{Error, Result};
use std::fmt;

/// Makes of what a part of a batch has come to what the whole has, (channels,) each. This is its kernel for a batch
/// that is computed in one piece. Where a step is cut into shards, whoever runs the shards stops here, puts together what
/// all of them have, and writes the results instead.
#[derive(Clone, Debug)]
pub struct WholeBatch {
    /// How many channels.
    pub channels: usize,
    /// What is put together.
    pub of: Shared,
}

/// What the parts of a batch have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shared {
    /// Mean and biased variance of each channel over rows x `inner` numbers: reads these; writes the same of the whole
    /// batch, and the unbiased variance of that. One value a channel in all is [`Error::Value`].
    Moments {
        /// Neighbouring elements that share a channel.
        inner: usize,
    },
    /// Sums over rows: reads two; writes the whole batch's, times this part's share of its rows, so that divided by the
    /// part's count they are the whole batch's means.
    Sums,
}

impl WholeBatch {
    /// What a biased variance of so many numbers a channel is multiplied by to be unbiased.
    ///
    /// # Errors
    /// [`Error::Value`] for less than two.
    pub(crate) fn unbiasing(count: usize) -> Result<f64> {
        match count {
            0 | 1 => Err(Error::Value(
                "batch normalisation needs more than one value a channel in training, got one in the whole batch; \
                 leave out the last incomplete batch or use larger ones"
                    .into(),
            )),
            count => Ok(count as f64 / (count - 1) as f64),
        }
    }
}

impl fmt::Display for WholeBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of {
            Shared::Moments { inner } => write!(f, "whole_batch.moments {}x{inner}", self.channels),
            Shared::Sums => write!(f, "whole_batch.sums {}", self.channels),
        }
    }
}
