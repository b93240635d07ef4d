//! Weighted sums of branches, each row with weights of its own, and scaling by a constant.

mod cpu;
mod gpu;

use std::fmt;

/// Which part of a weighted sum is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MixPart {
    /// `sum over i of w[i] y[i]`: reads w (branches,) and y (branches, len), writes (len,).
    Forward,
    /// `w[i] g`: reads w (branches,) and g (len,), writes dy (branches, len).
    BranchGradient,
    /// `sum over j of y[i][j] g[j]`: reads y (branches, len) and g (len,), writes dw (branches,).
    WeightGradient,
}

/// The sum of `branches` values of `len` elements, each times a weight, and its gradients; for every
/// row of the batch by itself.
///
/// Order of sums: branches in order with fused multiply-add; elements by the 16-lane rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// What is computed.
    pub part: MixPart,
    /// How many values are summed.
    pub branches: usize,
    /// Elements of each.
    pub len: usize,
}

/// `y = factor x`, element by element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// What every element is multiplied by, rounded to the network's precision.
    pub factor: f64,
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.part {
            MixPart::Forward => "forward",
            MixPart::BranchGradient => "branch_gradient",
            MixPart::WeightGradient => "weight_gradient",
        };
        write!(f, "mix.{part} {}x{}", self.branches, self.len)
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scale {}", self.factor)
    }
}
