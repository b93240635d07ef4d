//! Rows with their axes in another order.

mod cpu;
mod gpu;

use std::fmt;

/// Axis `i` of the result is axis `order[i]` of the operand, whose rows have these extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permute {
    /// Extents of one row of the operand.
    pub extents: Vec<usize>,
    /// Each axis of the operand once.
    pub order: Vec<usize>,
}

impl Permute {
    /// The permutation that undoes this one.
    pub fn inverse(&self) -> Self {
        let mut order = vec![0; self.order.len()];
        for (to, from) in self.order.iter().enumerate() {
            order[*from] = to;
        }
        Self { extents: self.permuted(), order }
    }

    /// Extents of one row of the result.
    pub fn permuted(&self) -> Vec<usize> {
        self.order.iter().map(|axis| self.extents[*axis]).collect()
    }

    /// For each axis of the result: how far apart its elements are in the operand.
    fn strides(&self) -> Vec<usize> {
        let stride = |axis: &usize| self.extents[axis + 1..].iter().product();
        self.order.iter().map(stride).collect()
    }
}

impl fmt::Display for Permute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "permute {:?} {:?}", self.extents, self.order)
    }
}
