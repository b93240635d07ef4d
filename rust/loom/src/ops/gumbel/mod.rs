//! Random noise that turns the largest logit into a draw.

mod cpu;
mod gpu;
#[cfg(test)]
mod tests;

use std::fmt;

/// `y = x - ln(-ln u)`: Gumbel noise on logits, whose largest is then a draw from their softmax (Gumbel 1954;
/// Jang, Gu and Poole 2017). The derivative is 1.
///
/// Reads x (rows, features), writes y like x. Word `w` of the counter-based generator keyed by (seed,
/// committed step, layer path, gumbel, row x features + element), the row counted from the start of the
/// step's global batch, gives `u = (2 (w >> 9) + 1) 2^-24`, strictly between 0 and 1, whatever the precision.
#[derive(Clone, Debug)]
pub struct GumbelNoise {
    /// Elements of one row of the batch.
    pub features: usize,
}

impl fmt::Display for GumbelNoise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gumbel_noise x{}", self.features)
    }
}
