//! The sum of several values.

mod cpu;
mod gpu;
mod summed;

pub use summed::{Added, Summed};

use std::fmt;

/// `y = x0 + x1 + ...`, added from left to right, and then to what is there where the step says so; all
/// operands have the result's shape.
#[derive(Clone, Debug)]
pub struct Sum {
    /// How many operands are read.
    pub operands: usize,
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sum {}", self.operands)
    }
}
