//! Which experts a step goes to, and how much each counts.

mod cpu;
mod gpu;

use super::Direction;
use std::fmt;

/// The `top_k` greatest of each step's logits, and their shares in a softmax.
///
/// - forward reads logits (steps, experts), writes gates and choices, (steps, top_k) each: the numbers of the
///   experts as real ones, the greatest logit's first, of equal ones the lower number; and their shares, of all
///   experts or where `normalize` of those that are chosen;
/// - input gradient reads logits, choices and dgates, writes dlogits. The choice itself has none.
///
/// Order of sums: experts in their order, or where only the chosen ones count, these in theirs.
#[derive(Clone, Debug)]
pub struct Route {
    /// Forward or input gradient.
    pub direction: Direction,
    /// How many there are to choose from.
    pub experts: usize,
    /// How many are chosen; at most as many.
    pub top_k: usize,
    /// Whether the chosen shares sum to 1.
    pub normalize: bool,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "route.{} {} of {}", self.direction, self.top_k, self.experts)?;
        if self.normalize { write!(f, " normalized") } else { Ok(()) }
    }
}
