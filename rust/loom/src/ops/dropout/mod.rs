//! Inverted dropout with masks that are drawn anew, not kept.

mod cpu;
mod gpu;

use std::fmt;

/// Zeroes each group of `shared` elements side by side with probability `rate` and divides the others by
/// `1 - rate`.
///
/// Reads x (rows, features), writes y like x. The mask is drawn from the
/// counter-based generator keyed by (seed, committed step, layer path, dropout,
/// row x features / shared + group), the row counted from the start of the step's global
/// batch, so the backward pass is the same operation on dy. A word of the generator
/// below `rate` x 2^32 (rounded) drops its group, whatever the precision or device.
#[derive(Clone, Debug)]
pub struct Dropout {
    /// Probability of zeroing, in 0..1.
    pub rate: f64,
    /// Elements of one row of the batch.
    pub features: usize,
    /// Elements that are dropped together; divides `features`.
    pub shared: usize,
}

impl fmt::Display for Dropout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dropout {} x{}", self.rate, self.features)?;
        if self.shared > 1 { write!(f, " by {}", self.shared) } else { Ok(()) }
    }
}
