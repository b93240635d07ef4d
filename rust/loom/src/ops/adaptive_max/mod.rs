//! The largest element of windows that share an input out evenly.

mod cpu;
mod gpu;
#[cfg(test)]
mod tests;

use super::Direction;
use std::fmt;

/// The maximum of each of `output` windows over (channels, D, H, W) per row; images have a depth of 1.
///
/// Window `i` of an axis reaches from `floor(i input / output)` to before `ceil((i + 1) input / output)`, so that
/// windows may overlap by an element and differ in length. Ties go to the first, and a NaN wins.
///
/// - forward reads x, writes y and the flat index within the channel's D x H x W volume of each maximum (`i32`);
/// - input gradient reads dy and those indices, writes dx: the gradients of one element of x are added in the
///   order of their windows.
#[derive(Clone, Debug)]
pub struct AdaptiveMax {
    /// Forward or input gradient.
    pub direction: Direction,
    /// Channels, each by itself.
    pub channels: usize,
    /// Extents of a channel of x.
    pub input: [usize; 3],
    /// How many windows there are along each axis.
    pub output: [usize; 3],
}

impl AdaptiveMax {
    /// Elements of a channel of x and of y.
    fn volumes(&self) -> (usize, usize) {
        (self.input.iter().product(), self.output.iter().product())
    }

    /// Where a window of an axis starts, and the place after its end.
    fn window(&self, axis: usize, number: usize) -> (usize, usize) {
        let (input, output) = (self.input[axis], self.output[axis]);
        (number * input / output, ((number + 1) * input).div_ceil(output))
    }
}

impl fmt::Display for AdaptiveMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { direction, channels, input, output } = self;
        write!(f, "adaptive_max.{direction} {channels} {input:?} to {output:?}")
    }
}
