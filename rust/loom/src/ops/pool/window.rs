//! Which elements of the input a window covers.

use crate::cpu::{LANES, Vector};
use crate::ops::Geometry2D;
use crate::ops::sweep::load;
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
        // Places count from the start of the border. Divisions are dear, and mostly by 1.
        let steps = |distance: usize| if step == 1 { distance } else { distance.div_ceil(step) };
        let first = steps(border.saturating_sub(start)).min(geometry.kernel[axis]);
        let end = steps((border + geometry.input[axis]).saturating_sub(start));
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

/// Element `kernel` (along the row) of 16 windows from window `window` on, in row `row` of the
/// plane `x`; `border` where a window's lies on the border.
#[inline(always)]
pub(super) fn candidates<V: Vector>(
    geometry: &Geometry2D,
    x: &[V::Element],
    row: usize,
    window: usize,
    kernel: usize,
    border: V::Element,
) -> V {
    let (width, stride, padding) = (geometry.input[1], geometry.stride[1], geometry.padding[1]);
    // Places count from the start of the row's border.
    let start = window * stride + kernel * geometry.dilation[1];
    let base = row * width + start;
    if stride > 2 || base < padding {
        let row = &x[row * width..][..width];
        let mut lanes = [border; LANES];
        for (i, lane) in lanes.iter_mut().enumerate() {
            let place = (start + i * stride).checked_sub(padding);
            *lane = place.and_then(|place| row.get(place)).copied().unwrap_or(border);
        }
        return V::load(&lanes);
    }
    // Elements of the rows before and after fill the lanes of the border, until they are replaced.
    let x = &x[(base - padding).min(x.len())..];
    let x = match stride {
        1 => load(x),
        _ => load::<V>(x).unzip(load(&x[LANES.min(x.len())..])).0,
    };
    // The lanes whose element lies before the row, or not past it; divisions by 1 or 2.
    let before = (padding.saturating_sub(start) + stride - 1) >> (stride - 1);
    let within = ((padding + width).saturating_sub(start) + stride - 1) >> (stride - 1);
    if before == 0 && within >= LANES {
        return x;
    }
    let inside = V::and(V::first_lanes(within), V::not(V::first_lanes(before)));
    V::select(inside, x, V::splat(border))
}
