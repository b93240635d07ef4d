//! Class indices that travel among numbers.

mod cpu;
mod gpu;

use std::fmt;

/// Takes whole numbers out of every row of numbers, as indices: what an output's loss is told of its classes, where
/// the targets of several outputs lie in one row.
///
/// Operand: (total,) a row. Result: (length,) indices a row. Numbers are whole and fit; whoever fills the row has
/// checked them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// Elements of a row.
    pub total: usize,
    /// Where the indices start.
    pub start: usize,
    /// How many they are.
    pub length: usize,
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "labels {} {}+{}", self.total, self.start, self.length)
    }
}
