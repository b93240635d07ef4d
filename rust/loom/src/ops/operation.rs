//! What all operations have in common.

use super::args::Args;
use crate::Result;
use crate::simd::Real;
use std::fmt;

/// Which way an operation runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Input to output.
    Forward,
    /// Gradient of the output to gradient of the input.
    InputGradient,
    /// Gradient of the output to gradient of the weight.
    WeightGradient,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Forward => "forward",
            Direction::InputGradient => "input_gradient",
            Direction::WeightGradient => "weight_gradient",
        })
    }
}

/// What every operation provides.
pub trait Operation: fmt::Debug + fmt::Display {
    /// Computes on the CPU. Operands and results come in the order the operation documents.
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()>;
}
