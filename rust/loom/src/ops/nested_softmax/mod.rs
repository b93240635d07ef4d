//! Softmaxes that share out the probabilities of a softmax above them.

mod cpu;
mod gpu;
#[cfg(test)]
mod tests;

use super::Direction;
use std::fmt;

/// A softmax over a head of `shortlist` + K logits. The first `shortlist` probabilities are results
/// themselves; each of the last K is the gate of a part, whose own logits a softmax of their own turns
/// into shares of the gate. x is (rows x outer, head and then the parts' logits in order).
///
/// Where `shared` is false the parts' results follow the shortlist's, y (rows x outer, shortlist + all
/// parts): a hierarchical or adaptive softmax. Where it is true the parts, which are then equally long, are
/// added up, y (rows x outer, length of a part), and there is no shortlist: a mixture of softmaxes.
///
/// - forward reads x, writes y;
/// - input gradient reads x and dy, writes dx.
///
/// Sums over the head and over a part follow the 16-lane rule; parts are taken in order.
#[derive(Clone, Debug)]
pub struct NestedSoftmax {
    /// Forward or input gradient.
    pub direction: Direction,
    /// Repetitions for each row of the batch.
    pub outer: usize,
    /// Probabilities of the head that are results.
    pub shortlist: usize,
    /// Lengths of the parts, each above zero.
    pub parts: Vec<usize>,
    /// Whether the parts share their places in the result.
    pub shared: bool,
}

impl NestedSoftmax {
    /// Classes of all parts.
    fn leaves(&self) -> usize {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(*part))
    }

    /// Logits of the head.
    fn head(&self) -> usize {
        self.shortlist + self.parts.len()
    }

    /// Extent of x.
    pub fn inputs(&self) -> usize {
        self.head().saturating_add(self.leaves())
    }

    /// Extent of y.
    pub fn outputs(&self) -> usize {
        match self.shared {
            true => self.parts.first().copied().unwrap_or(0),
            false => self.shortlist.saturating_add(self.leaves()),
        }
    }

    /// Of each part: where its logits start, how many there are, where its results start.
    fn places(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let (mut from, mut to) = (self.head(), self.shortlist);
        self.parts.iter().map(move |length| {
            let place = (from, *length, to);
            from += length;
            to += if self.shared { 0 } else { *length };
            place
        })
    }
}

impl fmt::Display for NestedSoftmax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.shared { "mixture_softmax" } else { "nested_softmax" };
        write!(f, "{kind}.{} {}x{}+{}", self.direction, self.outer, self.shortlist, self.parts.len())?;
        write!(f, " parts of {}", self.inputs() - self.head())
    }
}
