//! Gated units: one value, through an activation, times another.

mod cpu;
mod gpu;

use super::{Direction, pointwise::Activation};
use std::fmt;

/// `y = f(a) b`, or its gradients.
///
/// - forward reads a and b, writes y;
/// - input gradient reads a, b and dy, writes `da = dy b f'(a)` and `db = dy f(a)`.
#[derive(Clone, Debug)]
pub struct Gate {
    /// Forward or input gradient.
    pub direction: Direction,
    /// The function of the gate: silu makes SwiGLU, gelu GeGLU.
    pub activation: Activation,
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gate.{} {}", self.direction, self.activation)
    }
}
