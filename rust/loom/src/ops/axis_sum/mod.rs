//! The sum over one axis.

mod cpu;
mod gpu;

use std::fmt;

/// `y = sum of x over count`, for x (rows x outer, count, inner) and y (rows x outer, inner).
///
/// Sums follow the 16-lane rule, however far apart the elements lie.
#[derive(Clone, Debug)]
pub struct AxisSum {
    /// Repetitions of the axis for each row of the batch.
    pub outer: usize,
    /// Extent of the axis.
    pub count: usize,
    /// Elements between two of the axis.
    pub inner: usize,
}

impl fmt::Display for AxisSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "axis_sum {}x{}x{}", self.outer, self.count, self.inner)
    }
}
