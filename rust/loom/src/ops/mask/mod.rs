//! Which steps of a sequence are real.

mod cpu;
#[cfg(feature = "gpu")]
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

impl fmt::Display for StepMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step_mask {}x{} {}", self.steps, self.width, self.value)
    }
}
