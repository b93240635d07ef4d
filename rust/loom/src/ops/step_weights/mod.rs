//! Which steps of a sequence stand for the whole.

mod cpu;
mod gpu;

use std::fmt;

/// Which steps one vector is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PooledSteps {
    /// The first real one.
    First,
    /// All real ones, alike.
    Mean,
    /// The last real one.
    Last,
}

/// What each step counts: reads a mask (steps,) of 1 for what is real and 0 for padding, or where not `masked`
/// anything of the same rows; writes (steps,), which sum to 1, or are all 0 where nothing is real.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepWeights {
    /// Which steps count.
    pub of: PooledSteps,
    /// Steps of a row.
    pub steps: usize,
    /// Whether what is read is a mask.
    pub masked: bool,
}

impl fmt::Display for StepWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = match self.of {
            PooledSteps::First => "first",
            PooledSteps::Mean => "mean",
            PooledSteps::Last => "last",
        };
        write!(f, "step_weights.{of} {}{}", self.steps, if self.masked { " masked" } else { "" })
    }
}
