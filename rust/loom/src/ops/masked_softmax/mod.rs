//! Softmax over the places that a mask leaves.

mod cpu;
mod gpu;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

/// How a mask over time applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeMask {
    /// There is none.
    None,
    /// The classes are the steps of time.
    Classes,
    /// The repetitions of a row belong to so many steps of time, in order.
    Repetitions {
        /// Steps of time; divides the repetitions.
        steps: usize,
    },
}

/// Softmax over `classes` of x (rows x outer, classes, inner), where masked places count for nothing and
/// get exactly 0; where all places are masked all are 0.
///
/// Reads x and, for a mask over time, (rows, steps) numbers of which 0 masks; writes y. The input gradient
/// is that of [`Softmax`](super::Softmax), which reads y.
///
/// Sums over classes follow the 16-lane rule, masked places as zeros.
#[derive(Clone, Debug)]
pub struct MaskedSoftmax {
    /// Repetitions of the class axis for each row of the batch.
    pub outer: usize,
    /// Extent of the axis that sums to one.
    pub classes: usize,
    /// Elements between two classes.
    pub inner: usize,
    /// Which classes take part; all where it is empty.
    pub kept: Arc<[bool]>,
    /// A mask over time beside it.
    pub time: TimeMask,
}

impl MaskedSoftmax {
    /// Whether a class takes part, as far as the fixed mask goes.
    fn keeps(&self, class: usize) -> bool {
        self.kept.get(class).copied().unwrap_or(true)
    }
}

impl fmt::Display for MaskedSoftmax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "masked_softmax {}x{}x{}", self.outer, self.classes, self.inner)
    }
}
