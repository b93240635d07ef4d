//! The rows that one task of a loss works on.

use crate::simd::Real;

/// Some rows of a loss.
pub(super) struct Rows<'a, T> {
    pub(super) output: &'a [T],
    /// One a row, or none.
    pub(super) weights: &'a [T],
    pub(super) divisor: f64,
    pub(super) losses: &'a mut [T],
    /// Like the output, or none.
    pub(super) gradient: &'a mut [T],
}

impl<T: Real> Rows<'_, T> {
    /// The factor of a row's loss, and that of its gradient.
    #[inline(always)]
    pub(super) fn scale(&self, row: usize) -> (T, T) {
        let weight = if self.weights.is_empty() { T::ONE } else { self.weights[row] };
        let scale = if self.divisor > 0.0 { weight.to_f64() / self.divisor } else { 0.0 };
        (weight, T::from_f64(scale))
    }
}
