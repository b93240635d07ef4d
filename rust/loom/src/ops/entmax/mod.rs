//! Softmaxes that give zeros: sparsemax and entmax.

mod cpu;
mod gpu;
#[cfg(test)]
mod tests;

use super::Direction;
use std::fmt;

/// `y = max(0, (alpha - 1) x - tau)^(1 / (alpha - 1))` over the last axis of x (rows x outer, classes), tau
/// such that y sums to one: sparsemax for `alpha` 2 (Martins and Astudillo 2016), entmax for others (Peters,
/// Niculae and Martins 2019).
///
/// - forward reads x, writes y;
/// - input gradient reads y and dy, writes `dx = s (dy - sum(s dy) / sum(s))`, s being `y^(2 - alpha)` where
///   y is above zero, and 0 elsewhere.
///
/// Tau is found by bisection between -1 and 0, x having its largest element taken away, in 28 halvings
/// (56 in f64). They also find which elements are above zero; for `alpha` 2 and 1.5 these give tau in closed
/// form, exact but for rounding. For others y is divided by its sum. Sums follow the 16-lane rule.
#[derive(Clone, Debug)]
pub struct Entmax {
    /// Forward or input gradient.
    pub direction: Direction,
    /// Repetitions for each row of the batch.
    pub outer: usize,
    /// Extent of the last axis.
    pub classes: usize,
    /// Above 1: the larger, the more zeros.
    pub alpha: f64,
}

/// Halvings of the interval that holds tau.
const HALVINGS: usize = 28;

impl fmt::Display for Entmax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entmax.{} {}x{} alpha {}", self.direction, self.outer, self.classes, self.alpha)
    }
}
