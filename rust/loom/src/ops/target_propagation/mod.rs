//! Means of targets weighted by a matrix: what passes a target on from a layer's output to its input
//! without derivatives.

mod cpu;
mod gpu;
#[cfg(test)]
mod tests;

use std::fmt;

/// The least sum of weights that a mean is divided by; below it an element keeps what it is.
pub const LEAST_SUM: f64 = 0.01;

/// The sums of the rows of a matrix, of its elements' magnitudes.
///
/// Reads a plain matrix (inputs, outputs) without a batch axis, writes (inputs,). Sums run over 16 lanes and
/// one tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsoluteSums {
    /// Rows of the matrix.
    pub inputs: usize,
    /// Columns of the matrix.
    pub outputs: usize,
}

/// The product of two matrices without a batch axis, where several blocks of the second one's rows may meet
/// the same columns of the first.
///
/// Reads A (inputs, groups x extent) and B (groups x repeats x extent, outputs), writes (inputs, outputs):
/// rows `(g repeats + r) extent ..` of B are multiplied by columns `g extent ..` of A, as the query heads
/// of a group share one head of values. The sum over B's rows runs in order with fused multiply-add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightProduct {
    /// Rows of A and of the result.
    pub inputs: usize,
    /// Columns of B and of the result.
    pub outputs: usize,
    /// Blocks of columns of A.
    pub groups: usize,
    /// Blocks of rows of B that meet each of them.
    pub repeats: usize,
    /// Columns, and rows, of a block.
    pub extent: usize,
}

impl WeightProduct {
    /// The plain product of (inputs, hidden) and (hidden, outputs).
    pub fn new(inputs: usize, hidden: usize, outputs: usize) -> Self {
        Self { inputs, outputs, groups: 1, repeats: 1, extent: hidden }
    }
}

/// Targets of a layer's input from weighted sums of those of its output: `sum / weights`, and where the
/// weights are below [`LEAST_SUM`] the input itself.
///
/// Reads
/// - the sums (steps, features), with `last` only (features,);
/// - the weights' sums (features,), without a batch axis;
/// - the input (steps, features);
/// - with a `mask`: (steps,), 0 where the step is padding;
///
/// and writes (steps, features). Padding keeps what it is; with `last` so does everything but the last step
/// that is not padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeanTarget {
    /// Steps of a row, or whatever else has a mean of its own.
    pub steps: usize,
    /// Features of a step.
    pub features: usize,
    /// Whether there are sums for the last step alone.
    pub last: bool,
    /// Whether steps may be padding.
    pub mask: bool,
}

impl fmt::Display for AbsoluteSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "absolute_sums {}x{}", self.inputs, self.outputs)
    }
}

impl fmt::Display for WeightProduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = self.groups * self.repeats * self.extent;
        write!(f, "weight_product {}x{hidden}x{}", self.inputs, self.outputs)?;
        if self.repeats > 1 {
            write!(f, " groups {} x{}", self.groups, self.repeats)?;
        }
        Ok(())
    }
}

impl fmt::Display for MeanTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mean_target {}x{}", self.steps, self.features)?;
        if self.last {
            write!(f, " last")?;
        }
        if self.mask {
            write!(f, " masked")?;
        }
        Ok(())
    }
}
