//! Matrix products of steps with the weights of the experts that they were sent to.

mod cpu;
mod gpu;

use super::Direction;
use std::fmt;

/// `y[slot] = x W[choice[slot]]` and its gradients: every step has `top_k` slots, each with an expert of its own.
/// W is stored (inputs, experts x outputs); x has a row for each step where `spread`, which all its slots read, and
/// a row for each slot where not.
///
/// - forward reads x, choices (steps, top_k), and W, writes y (steps, top_k, outputs);
/// - input gradient reads dy, choices and W, writes dx: of a step that is spread the sum over its slots, added in
///   the order of their experts;
/// - weight gradient reads x, choices and dy, writes dW, adding to it where the step says so.
///
/// W may be a packed version in the first two. Sums are those of [`Product`](super::Product), over the inputs, over
/// the outputs, or over the slots that chose an expert, in their order.
#[derive(Clone, Debug)]
pub struct ExpertProduct {
    /// Which of the three.
    pub direction: Direction,
    /// How many experts there are.
    pub experts: usize,
    /// Slots of a step.
    pub top_k: usize,
    /// Features of x.
    pub inputs: usize,
    /// Features of y.
    pub outputs: usize,
    /// Whether the slots of a step share its row of x.
    pub spread: bool,
}

impl fmt::Display for ExpertProduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expert_product.{} {}x{}", self.direction, self.inputs, self.outputs)?;
        write!(f, " {} of {}{}", self.top_k, self.experts, if self.spread { " spread" } else { "" })
    }
}
