//! A weight divided by its largest singular value, as one power iteration estimates it (Miyato et al. 2018).

mod cpu;
mod gpu;
#[cfg(test)]
mod tests;

use super::Direction;
use std::fmt;

/// What lengths are at least, where something is divided by them.
pub(super) const LEAST: f64 = 1e-12;

/// `y = w / sigma`. With the vector u that earlier iterations have left: `a = w u`, `v = a / |a|`, `b = w^T v`,
/// `sigma = |b|`, and `b / sigma` is the next u. There is no batch.
///
/// - forward reads w (rows, columns) and u (columns,), and writes y like w, the next u (columns,), v (rows,) and
///   sigma and |a| (2,);
/// - input gradient reads w, u, the next u, v, the two numbers, and dy, and writes dw like w, and as working memory
///   (2 rows,).
///
/// The gradient is that of all of this but for u, which is given: with s the sum of `dy w`, it is
/// `dy / sigma - (v b^T / sigma + c u^T) s / sigma^2`, where `c = (w b / sigma - sigma v) / |a|` vanishes as iterations
/// converge. Lengths that something is divided by are at least 1e-12.
///
/// Order of sums: over columns by the 16-lane rule, over rows in order with fused multiply-add; lengths, and s from
/// the sums of its rows, by the 16-lane rule.
#[derive(Clone, Debug)]
pub struct SpectralNorm {
    /// Forward or input gradient.
    pub direction: Direction,
    /// Inputs that meet in one output.
    pub rows: usize,
    /// Outputs.
    pub columns: usize,
}

impl fmt::Display for SpectralNorm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spectral_norm.{} {}x{}", self.direction, self.rows, self.columns)
    }
}
