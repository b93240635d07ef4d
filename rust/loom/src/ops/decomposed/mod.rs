//! Weights by direction and length beside a product of low rank (DoRA, Liu et al. 2024): the lengths that the sum has,
//! and outputs that are given others.

mod cpu;
mod gpu;
#[cfg(test)]
mod tests;

use super::Direction;
use std::fmt;

/// `lengths[n] = |w[:, n] + scale (a b)[:, n]|`, of which the sum is never made.
///
/// Reads w (inputs, outputs), a (inputs, rank) and b (rank, outputs), writes the lengths (outputs,). There is no batch.
///
/// Order of sums: over the rank in order, from w on, each share `(scale a) b` by fused multiply-add; then the squares over
/// the inputs in order, likewise.
#[derive(Clone, Debug)]
pub struct OutputLengths {
    /// Inputs that meet in one output.
    pub inputs: usize,
    /// Outputs.
    pub outputs: usize,
    /// Numbers between a and b.
    pub rank: usize,
    /// What the product of a and b is multiplied by.
    pub scale: f64,
}

/// Outputs of directions are given lengths: `y[:, n] = x[:, n] (magnitudes[n] / lengths[n])`.
///
/// - forward reads x (rows x outer, outputs), the magnitudes and the lengths (outputs,) and writes y like x;
/// - input gradient is the same of dy, for lengths are taken as constants;
/// - weight gradient reads x, dy and the lengths, and writes like x what the magnitudes' gradient is the sum of over all
///   rows: `x dy / lengths`.
///
/// Where a length is zero, so is what comes of it.
#[derive(Clone, Debug)]
pub struct WithLengths {
    /// Which of the three.
    pub direction: Direction,
    /// Outputs.
    pub outputs: usize,
}

impl fmt::Display for OutputLengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "output_lengths {}x{} rank {}", self.inputs, self.outputs, self.rank)
    }
}

impl fmt::Display for WithLengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "with_lengths.{} {}", self.direction, self.outputs)
    }
}
