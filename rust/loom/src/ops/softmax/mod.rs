//! Softmax with a temperature over one axis.

mod cpu;
mod gpu;

use super::Direction;
use std::fmt;

/// `y = softmax(x / temperature)` over `classes`, for x (rows x outer, classes, inner).
///
/// - forward reads x, writes y;
/// - input gradient reads y and dy, writes `dx = y (dy - sum(y dy)) / temperature`.
///
/// Sums over classes follow the 16-lane rule, however far apart the classes lie.
#[derive(Clone, Debug)]
pub struct Softmax {
    /// Forward or input gradient.
    pub direction: Direction,
    /// Repetitions of the class axis for each row of the batch.
    pub outer: usize,
    /// Extent of the axis that sums to one.
    pub classes: usize,
    /// Elements between two classes.
    pub inner: usize,
    /// Divides the logits; above zero.
    pub temperature: f64,
}

impl fmt::Display for Softmax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "softmax.{} {}x{}x{}", self.direction, self.outer, self.classes, self.inner)?;
        if self.temperature != 1.0 {
            write!(f, " temperature {}", self.temperature)?;
        }
        Ok(())
    }
}
