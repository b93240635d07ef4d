//! A weight made of directions and lengths (Salimans and Kingma 2016), and the gradients of both.

mod cpu;
mod gpu;
#[cfg(test)]
mod tests;

use super::Direction;
use std::fmt;

/// `w[:, n] = gain[n] v[:, n] / |v[:, n]|`: the weights of each output have a length of their own. There is no batch.
///
/// - forward reads v (rows, columns) and the gain (columns,), writes w like v and the lengths of v (columns,);
/// - input gradient reads v, the gain, the lengths and dw, and writes dv like v and dgain (columns,).
///
/// Order of sums: over the rows in order, with fused multiply-add. A column of zeros stays one, and has no gradient.
#[derive(Clone, Debug)]
pub struct WeightNorm {
    /// Forward or input gradient.
    pub direction: Direction,
    /// Inputs that meet in one output.
    pub rows: usize,
    /// Outputs.
    pub columns: usize,
}

impl fmt::Display for WeightNorm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "weight_norm.{} {}x{}", self.direction, self.rows, self.columns)
    }
}
