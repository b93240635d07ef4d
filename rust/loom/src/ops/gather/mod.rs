//! Rows of a table by their numbers, and the gradient of the table.

mod cpu;
mod gpu;

use super::Direction;
use std::fmt;

/// `y[t] = table[x[t]]`, or the gradient of the table.
///
/// - forward reads x (time,), whole numbers below `vocabulary` as real ones, and the table
///   (vocabulary, width), which may be a packed version, and writes y (time, width);
/// - weight gradient reads x and dy (time, width), writes the table's gradient (vocabulary, width),
///   adding to it where the step says so.
///
/// Numbers are checked before they get here; one that is out of range is taken for the nearest in it.
///
/// Order of sums: what a row of the table gathers is added in the order in which its number occurs,
/// onto what is there (zero, where nothing is to be kept).
#[derive(Clone, Debug)]
pub struct Gather {
    /// Forward or weight gradient.
    pub direction: Direction,
    /// Numbers in each row of the batch.
    pub time: usize,
    /// Rows of the table.
    pub vocabulary: usize,
    /// Columns of the table.
    pub width: usize,
}

impl fmt::Display for Gather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gather.{} {} of {}x{}", self.direction, self.time, self.vocabulary, self.width)
    }
}
