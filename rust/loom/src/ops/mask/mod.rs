//! Which steps of a sequence are real, and keeping those alone.

mod cpu;
mod gpu;

use std::fmt;

/// 1 for each step of which any feature differs from `value`, 0 for the others, which are padding:
/// reads (steps, width), writes (steps,).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepMask {
    /// Steps of a row.
    pub steps: usize,
    /// Features of a step.
    pub width: usize,
    /// What padding consists of, rounded to the network's precision.
    pub value: f64,
}

/// 1 for each of a sequence's first steps, of which the row says how many, 0 for the others, which are padding:
/// reads that number (1,), writes (steps,).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LengthMask {
    /// Steps of a row.
    pub steps: usize,
}

/// A sequence with zeros in place of its padding; on a gradient its own gradient: reads the mask (steps,) and x
/// (steps, width), writes (steps, width).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeepSteps {
    /// Features of a step.
    pub width: usize,
}

impl fmt::Display for LengthMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "length_mask {}", self.steps)
    }
}

impl fmt::Display for KeepSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "keep_steps {}", self.width)
    }
}

impl fmt::Display for StepMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step_mask {}x{} {}", self.steps, self.width, self.value)
    }
}
