//! Random numbers that disturb what a map is tried on.

mod cpu;
mod gpu;
#[cfg(test)]
mod tests;

use std::fmt;

/// Independent normal numbers with mean 0 and standard deviation `scale`, by the method of Box and Muller
/// (1958).
///
/// Reads nothing, writes (rows, features). Words of the counter-based generator keyed by (seed, committed
/// step, layer path with `purpose` added at its end, noise, row x features + element) make them, the row
/// counted from the start of the step's global batch: of the four words a, b, c, d of a block, a and b make
/// the first two numbers, c and d the others. With `u = (2 (a >> 9) + 1) 2^-24`, strictly between 0 and 1,
/// and `v = (b >> 8) 2^-24`, whatever the precision, the two are `sqrt(-2 ln u)` times the cosine and the
/// sine of v whole turns; they are at most 5.8 in magnitude.
#[derive(Clone, Debug)]
pub struct GaussianNoise {
    /// Standard deviation.
    pub scale: f64,
    /// Tells the noises of one layer in one step from each other.
    pub purpose: u32,
    /// Elements of one row of the batch.
    pub features: usize,
}

impl fmt::Display for GaussianNoise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gaussian_noise {} for {} x{}", self.scale, self.purpose, self.features)
    }
}
