//! Maximum and mean over sliding windows of images in NCHW layout, and of volumes in NCDHW.

mod average;
mod cpu;
mod gpu;
mod max;
#[cfg(test)]
mod tests;
mod window;

use super::geometry::{Geometry, extents_text};
use super::{Direction, pointwise::Activation};
use std::fmt;

/// What a window is reduced to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// The largest element; ties go to the first, and a NaN wins. Padding never wins.
    Max,
    /// The mean; padding counts as zeros if `count_padding`, and not at all otherwise.
    Average {
        /// Whether the divisor is the whole window's size.
        count_padding: bool,
    },
}

/// Pooling over (channels, D, H, W) per row; images have a depth of 1.
///
/// - forward reads x, writes y, and for `Max` also the flat index within the
///   channel's D x H x W volume of each maximum (`i32`);
/// - input gradient reads dy, for `Max` those indices, and what the activation before it has saved,
///   as long as x, if there is a `derivative`; and writes dx.
///
/// Order of sums: a window's elements, plane by plane, row by row and the padding's zeros among them, by
/// the 16-lane rule; the gradients of one element of x in the order of their windows.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Forward or input gradient.
    pub direction: Direction,
    /// What a window is reduced to.
    pub kind: PoolKind,
    /// Extents of the window.
    pub geometry: Geometry,
    /// Channels, each pooled by itself.
    pub channels: usize,
    /// Whose derivative the input gradient is multiplied by; set by fusion.
    pub derivative: Option<Activation>,
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            PoolKind::Max => "max",
            PoolKind::Average { .. } => "average",
        };
        let g = &self.geometry;
        write!(
            f,
            "pool.{kind}.{} {} kernel {} stride {} padding {}",
            self.direction,
            self.channels,
            extents_text(g, &g.kernel),
            extents_text(g, &g.stride),
            extents_text(g, &g.padding)
        )?;
        if let Some(activation) = &self.derivative {
            write!(f, " *{activation}'")?;
        }
        Ok(())
    }
}
