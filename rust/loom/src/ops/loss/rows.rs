//! The rows that one task of a loss works on.

use crate::simd::Real;

/// Some rows of a loss.
pub(super) struct Rows<'a, T> {
    pub(super) output: &'a [T],
    /// One a row, or none; or `places` a row.
    pub(super) weights: &'a [T],
    /// How many places of a row have weights of their own; 0 where they have none.
    pub(super) places: usize,
    pub(super) divisor: f64,
    pub(super) losses: &'a mut [T],
    /// Like the output, or none.
    pub(super) gradient: &'a mut [T],
}

impl<'a, T: Real> Rows<'a, T> {
    /// The factor of a row's loss, and that of its gradient; those of its places are beside these.
    #[inline(always)]
    pub(super) fn scale(&self, row: usize) -> (T, T) {
        let of_rows = self.places == 0 && !self.weights.is_empty();
        let weight = if of_rows { self.weights[row] } else { T::ONE };
        let scale = if self.divisor > 0.0 { weight.to_f64() / self.divisor } else { 0.0 };
        (weight, T::from_f64(scale))
    }

    /// The weights of a row's places; empty where they have none of their own.
    #[inline(always)]
    pub(super) fn of_places(&self, row: usize) -> &'a [T] {
        &self.weights[row * self.places..][..self.places]
    }
}
