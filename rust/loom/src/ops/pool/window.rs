//! Which elements of the input a window covers.

use crate::ops::Geometry;
use crate::ops::element_loops::load;
use crate::simd::{LANES, Vector};
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
    pub(super) fn new(geometry: &Geometry, axis: usize, index: usize) -> Self {
        let step = geometry.dilation[axis];
        let (start, border) = (index * geometry.stride[axis], geometry.padding[axis]);
        // Places count from the start of the border. Divisions are dear, and mostly by 1.
        let steps = |distance: usize| if step == 1 { distance } else { distance.div_ceil(step) };
        let first = steps(border.saturating_sub(start)).min(geometry.kernel[axis]);
        let end = steps((border + geometry.input[axis]).saturating_sub(start));
        let count = end.min(geometry.kernel[axis]).saturating_sub(first);
        Self { first, start: (start + first * step).saturating_sub(border), count, step }
    }
}

/// Windows of 2 x 2 side by side, without a border.
pub(super) fn halves(geometry: &Geometry) -> bool {
    geometry.is_flat()
        && geometry.kernel == [1, 2, 2]
        && geometry.stride[1..] == [2, 2]
        && geometry.padding == [0; 3]
        && geometry.dilation[1..] == [1, 1]
        && (1..3).all(|axis| geometry.output[axis] * 2 <= geometry.input[axis])
}

/// One window over everything.
pub(super) fn is_global(geometry: &Geometry) -> bool {
    geometry.kernel == geometry.input
        && geometry.output == [1; 3]
        && geometry.padding == [0; 3]
        && geometry.dilation == [1; 3]
}

/// The rows that the windows of one row of the output cover. A volume's rows are counted on from plane
/// to plane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    planes: Span,
    rows: Span,
    /// Rows of a plane of the input and of the kernel.
    height: usize,
    kernel: usize,
}

impl Lines {
    /// Those of the output's row `line`.
    #[inline(always)]
    pub(super) fn new(geometry: &Geometry, line: usize) -> Self {
        let height = geometry.output[1];
        // A division that images can do without.
        let (plane, row) = if geometry.output[0] == 1 { (0, line) } else { (line / height, line % height) };
        Self {
            planes: Span::new(geometry, 0, plane),
            rows: Span::new(geometry, 1, row),
            height: geometry.input[1],
            kernel: geometry.kernel[1],
        }
    }

    /// How many they are.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.planes.count * self.rows.count
    }

    /// Each with its number in the kernel.
    #[inline(always)]
    pub(super) fn places(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.planes.count).flat_map(move |i| {
            let number = (self.planes.first + i) * self.kernel + self.rows.first;
            let line = (self.planes.start + i * self.planes.step) * self.height + self.rows.start;
            (0..self.rows.count).map(move |j| (number + j, line + j * self.rows.step))
        })
    }

    /// The line that comes as number `i` of them.
    #[inline(always)]
    pub(super) fn place(&self, i: usize) -> usize {
        let rows = self.rows.count.max(1);
        let (plane, row) = if self.planes.count <= 1 { (0, i) } else { (i / rows, i % rows) };
        (self.planes.start + plane * self.planes.step) * self.height + self.rows.start + row * self.rows.step
    }
}

/// Where the elements of row `row`, column `column` and further are in a plane of this width.
#[inline(always)]
pub(super) fn from(row: usize, column: usize, width: usize, len: usize) -> Range<usize> {
    (row * width + column).min(len)..len
}

/// Element `kernel` (along the row) of 16 windows from window `window` on, in row `row` of the
/// volume `x`; `border` where a window's lies on the border.
#[inline(always)]
pub(super) fn candidates<V: Vector>(
    geometry: &Geometry,
    x: &[V::Element],
    row: usize,
    window: usize,
    kernel: usize,
    border: V::Element,
) -> V {
    let (width, stride, padding) = (geometry.input[2], geometry.stride[2], geometry.padding[2]);
    // Places count from the start of the row's border.
    let start = window * stride + kernel * geometry.dilation[2];
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
