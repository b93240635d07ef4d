//! The global norm of all gradients and what is done with it.

mod cpu;
mod gpu;

use std::fmt;

/// Elements of a gradient whose squares are summed before they join the total.
const CHUNK: usize = 4096;

/// Adds one store's sum of squared gradients to a running total: reads the flat
/// gradient and, unless it is the first, the total so far (1,); writes the new total (1,).
///
/// Chunks of 4,096 elements by the 16-lane rule, chunk totals in order in `f64`.
#[derive(Clone, Debug)]
pub struct SquaredSum {
    /// Elements of the flat gradient.
    pub len: usize,
    /// Whether there is no total to add to.
    pub first: bool,
}

/// The sums of squares of several stores' gradients, added up in their order as [`SquaredSum`]s one after the other do, on
/// devices where each of those would wait for the one before: reads the gradients, writes the total (1,).
#[derive(Clone, Debug)]
pub struct SquaredSums {
    /// Elements of each gradient.
    pub lens: Vec<usize>,
}

/// Reads the total of squares (1,), writes (norm, factor): factor is
/// `max_norm / norm` where the norm exceeds the step's `max_norm`, and 1 otherwise, also
/// where the norm is not finite: such a step is refused, its gradients left to look at.
///
/// Where the loss was `scaled`, the gradients are: the norm is theirs divided by the scale, and so
/// is the factor.
#[derive(Clone, Debug)]
pub struct ClipFactor {
    /// Whether gradients are of a scaled loss.
    pub scaled: bool,
}

/// Multiplies a store's flat gradient by the factor: reads (norm, factor), changes the
/// gradient in place. A factor of 1 leaves the memory untouched.
#[derive(Clone, Debug)]
pub struct ScaleGradient {
    /// Elements of the flat gradient.
    pub len: usize,
}

/// Clamps a store's flat gradient to plus or minus the step's `clip_value`, in place.
///
/// Where the loss was `scaled`, so is the limit, and what is infinite stays so: it says that the
/// scale was too large.
#[derive(Clone, Debug)]
pub struct ClampGradient {
    /// Elements of the flat gradient.
    pub len: usize,
    /// Whether the gradient is of a scaled loss.
    pub scaled: bool,
}

impl fmt::Display for SquaredSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "squared_sum {}", self.len)
    }
}

impl fmt::Display for ClipFactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "clip_factor")
    }
}

impl fmt::Display for ScaleGradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scale_gradient {}", self.len)
    }
}

impl fmt::Display for ClampGradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "clamp_gradient {}", self.len)
    }
}
