//! Class indices as real targets.

mod cpu;
mod gpu;

use std::fmt;

/// 1 at each position's class and 0 elsewhere: reads indices (rows x outer, inner), writes
/// (rows x outer, classes, inner). An index beyond the classes makes zeros.
#[derive(Clone, Debug)]
pub struct OneHot {
    /// Repetitions of the class axis for each row of the batch.
    pub outer: usize,
    /// Extent of the class axis.
    pub classes: usize,
    /// Elements between two classes.
    pub inner: usize,
}

impl fmt::Display for OneHot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one_hot {}x{}x{}", self.outer, self.classes, self.inner)
    }
}
