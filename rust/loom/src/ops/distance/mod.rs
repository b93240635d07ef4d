//! Squared distances to centroids.

mod cpu;
mod gpu;
#[cfg(test)]
mod tests;

use super::Direction;
use std::fmt;

/// `y = -factor |x - c|^2` for each centroid c: logits that fall with the distance.
///
/// - forward reads x (rows x outer, features) and the centroids (centroids, features); writes y (rows x
///   outer, centroids);
/// - input gradient reads dy, x and the centroids; writes dx;
/// - weight gradient reads dy, x and the centroids; writes the centroids' gradient, adding to it where the
///   step says so.
///
/// Order of sums: over features the 16-lane rule; over centroids in order; over repetitions in order within
/// chunks of 64 which start from 0, then the chunks' sums in order.
#[derive(Clone, Debug)]
pub struct Distance {
    /// Which gradient, if any.
    pub direction: Direction,
    /// Repetitions for each row of the batch.
    pub outer: usize,
    /// Extent of a point.
    pub features: usize,
    /// How many centroids.
    pub centroids: usize,
    /// Multiplies the squared distances.
    pub factor: f64,
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "distance.{} {}x{}x{}", self.direction, self.outer, self.features, self.centroids)
    }
}
