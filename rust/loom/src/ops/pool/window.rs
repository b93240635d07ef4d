//! Which elements of the input a window covers.

use crate::ops::Geometry2D;
use std::ops::Range;

/// One window's elements along one axis: those of the kernel that lie on the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The first element's place in the kernel.
    pub(super) first: usize,
    /// The first element's place in the input.
    pub(super) start: usize,
    /// How many elements.
    pub(super) count: usize,
    /// The distance between two of them in the input.
    pub(super) step: usize,
}

impl Span {
    /// The elements of window `index` along `axis`.
    #[inline(always)]
    pub(super) fn new(geometry: &Geometry2D, axis: usize, index: usize) -> Self {
        let step = geometry.dilation[axis];
        let (start, border) = (index * geometry.stride[axis], geometry.padding[axis]);
        // Places count from the start of the border.
        let first = border.saturating_sub(start).div_ceil(step).min(geometry.kernel[axis]);
        let end = (border + geometry.input[axis]).saturating_sub(start).div_ceil(step);
        let count = end.min(geometry.kernel[axis]).saturating_sub(first);
        Self { first, start: (start + first * step).saturating_sub(border), count, step }
    }

    /// The elements' places in the input.
    #[inline(always)]
    pub(super) fn places(self) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |i| self.start + i * self.step)
    }
}

/// Windows of 2 x 2 side by side, without a border.
pub(super) fn halves(geometry: &Geometry2D) -> bool {
    geometry.kernel == [2, 2]
        && geometry.stride == [2, 2]
        && geometry.padding == [0, 0]
        && geometry.dilation == [1, 1]
        && (0..2).all(|axis| geometry.output[axis] * 2 <= geometry.input[axis])
}

/// One window over everything.
pub(super) fn is_global(geometry: &Geometry2D) -> bool {
    geometry.kernel == geometry.input
        && geometry.output == [1, 1]
        && geometry.padding == [0, 0]
        && geometry.dilation == [1, 1]
}

/// Elements of the input's and of the output's plane.
pub(super) fn planes(geometry: &Geometry2D) -> (usize, usize) {
    (geometry.input.iter().product(), geometry.output.iter().product())
}

/// Where the elements of row `row`, column `column` and further are in a plane of this width.
#[inline(always)]
pub(super) fn from(row: usize, column: usize, width: usize, len: usize) -> Range<usize> {
    (row * width + column).min(len)..len
}
