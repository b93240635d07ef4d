//! Optimizer updates: one pass over a store's master, gradient and moments.

mod cpu;
#[cfg(feature = "gpu")]
mod gpu;

pub(super) use cpu::Slots;
#[cfg(test)]
mod tests;

use crate::train::Optimizer;
use std::fmt;
use std::ops::Range;

/// Updates one store: reads its flat gradient, changes the flat master and the
/// optimizer's moments in place.
#[derive(Clone, Debug)]
pub struct Update {
    /// The rule.
    pub optimizer: Optimizer,
    /// Multiplies the step's rate.
    pub rate_factor: f64,
    /// Elements of the flat master.
    pub len: usize,
    /// Where each parameter starts in the flat master.
    pub offsets: Vec<usize>,
    /// Parts of the master that weight decay leaves out.
    pub exempt: Vec<Range<usize>>,
}

impl fmt::Display for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "update.{} {}", self.optimizer.name(), self.len)
    }
}
