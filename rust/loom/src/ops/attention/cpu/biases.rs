//! What is added to scores by the distance of places, and the gradient of a table of it.

use super::tiles::Shared;
use crate::ops::attention::{Attention, PositionBias};
use crate::simd::Real;

impl Attention {
    /// Fills in what a head adds to scores, for one distance `key - query` after another from the first on.
    pub(super) fn fill_biases<T: Real>(&self, table: &[T], head: usize, first: isize, biases: &mut [T]) {
        let distances = first..first + biases.len() as isize;
        match &self.bias {
            None => {}
            Some(PositionBias::Slopes(slopes)) => {
                let slope = T::from_f64(-slopes[head]);
                for (bias, distance) in biases.iter_mut().zip(distances) {
                    *bias = slope * T::from_usize(distance.unsigned_abs());
                }
            }
            Some(PositionBias::Buckets(buckets)) => {
                let (rows, zero) = buckets.rows();
                for (bias, distance) in biases.iter_mut().zip(distances) {
                    *bias = table[rows[(zero as isize + distance) as usize] as usize * self.heads + head];
                }
            }
        }
    }

    /// Writes a head's column of the table's gradient in one row of the batch, from the sums over distances.
    ///
    /// # Safety
    /// Nobody else writes this column.
    pub(super) unsafe fn write_table_gradient<T: Real>(
        &self,
        sums: &[T],
        (row, head): (usize, usize),
        gradient: &Shared<'_, T>,
    ) {
        let Some(buckets) = self.bias.as_ref().and_then(PositionBias::buckets) else { return };
        let mut column = vec![T::ZERO; buckets.count];
        for (sum, bucket) in sums.iter().zip(buckets.rows().0) {
            column[*bucket as usize] += *sum;
        }
        for (bucket, sum) in column.iter().enumerate() {
            let at = (row * buckets.count + bucket) * self.heads + head;
            // SAFETY: a place of this column, as the caller promises.
            unsafe { gradient.write(at, &[*sum]) };
        }
    }
}
