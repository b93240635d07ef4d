//! Where a product's operands come from.
//!
//! The kernels want an operand as panels: a range of k, and for each k some
//! lanes side by side (columns of the right operand, rows of the left one). A
//! [`PanelSource`] packs such panels from whatever it holds: a matrix with any
//! strides, packed low-bit weights that it decodes, an image that it unfolds.

use super::stream::Streamed;
use super::tile::{RowPanel, Transposed};
use crate::simd::Isa;
use crate::simd::wide::{Element, Kernel, LANES, Wide};
use std::marker::PhantomData;
use std::ops::Range;

/// An operand of a product: `depth` (k) by `lanes` (rows of the left operand,
/// columns of the right one).
pub trait PanelSource<T>: Sync {
    /// The extent that is summed over.
    fn depth(&self) -> usize;

    /// The rows of a left operand, the columns of a right one.
    fn lanes(&self) -> usize;

    /// Writes the elements of a range of k and a range of lanes, lanes innermost:
    /// element (k, lane) goes to `out[(k - depth.start) * width + (lane - lanes.start)]`.
    ///
    /// `width` is a multiple of 16 and at least the number of lanes; what is left
    /// in places beyond the last lane does not matter. `out` holds exactly
    /// `depth.len() * width` elements. The values may not depend on how a
    /// product is cut into panels, nor on `isa`, which is there to be fast with.
    fn pack(&self, isa: Isa, depth: Range<usize>, lanes: Range<usize>, width: usize, out: &mut [T]);

    /// The operand as it lies in memory, if it does: the product then reads it in
    /// place where that is faster than packing.
    fn in_place(&self) -> Option<Strided<'_, T>> {
        None
    }

    /// Whether the elements are codes, of fewer bytes than what they are decoded to.
    fn is_packed(&self) -> bool {
        false
    }

    /// A kernel that reads this right operand without packing, where there are
    /// only a few rows to make use of it.
    #[doc(hidden)]
    fn few_rows(&self) -> Option<&dyn FewRows<T>> {
        None
    }

    /// This right operand's codes, where there is a kernel that reads them row by row for a few rows of `f32`.
    #[doc(hidden)]
    #[allow(private_interfaces)] // for the product itself
    fn streamed(&self) -> Option<Streamed<'_>> {
        None
    }
}

/// Computes up to [`FEW`](super::tile::FEW) rows straight from an operand's own form.
pub trait FewRows<T>: Sync {
    /// The operand's depth and lanes.
    fn extents(&self) -> (usize, usize);

    /// Runs the panel against the operand from `k` and `column` on.
    ///
    /// # Safety
    /// As [`RowPanel::run`]; the panel's depth and columns are within the operand.
    #[allow(private_interfaces)] // for the product itself
    unsafe fn run(&self, isa: Isa, panel: RowPanel<T, ()>, k: usize, column: usize);
}

/// The fewest elements of a plain matrix that are streamed: fewer stay in the caches, where reading in place
/// is as fast.
pub(super) const STREAMED: usize = 1 << 20;
/// How many rows ahead packing fetches: they lie too far apart for the machine to foresee.
const AHEAD: usize = 16;
/// How many elements ahead along each lane transposing fetches.
const AHEAD_BLOCK: usize = 32;

/// A matrix in memory, with any strides.
#[derive(Clone, Copy)]
pub struct Strided<'a, T> {
    data: *const T,
    depth: usize,
    lanes: usize,
    depth_stride: usize,
    lane_stride: usize,
    _borrow: PhantomData<&'a [T]>,
}

// SAFETY: it stands for the shared borrow it was made from.
unsafe impl<T: Sync> Send for Strided<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Strided<'_, T> {}

impl<'a, T> Strided<'a, T> {
    /// Element (k, lane) is `data[k * depth_stride + lane * lane_stride]`.
    ///
    /// # Panics
    /// If the last element lies beyond the end of `data`.
    pub fn new(data: &'a [T], depth: usize, lanes: usize, depth_stride: usize, lane_stride: usize) -> Self {
        let last = || {
            let down = depth.checked_sub(1)?.checked_mul(depth_stride)?;
            down.checked_add(lanes.checked_sub(1)?.checked_mul(lane_stride)?)
        };
        if depth > 0 && lanes > 0 {
            assert!(
                last().is_some_and(|last| last < data.len()),
                "an operand of {depth} (stride {depth_stride}) by {lanes} (stride {lane_stride}) \
                 does not fit {} elements",
                data.len()
            );
        }
        Self { data: data.as_ptr(), depth, lanes, depth_stride, lane_stride, _borrow: PhantomData }
    }

    /// The left operand A[m, k], stored row after row.
    pub fn left(a: &'a [T], m: usize, k: usize) -> Self {
        Self::new(a, k, m, 1, k)
    }

    /// The left operand A[m, k], stored as its transpose, [k, m] row after row.
    pub fn left_transposed(a: &'a [T], m: usize, k: usize) -> Self {
        Self::new(a, k, m, m, 1)
    }

    /// The right operand B[k, n], stored row after row.
    pub fn right(b: &'a [T], k: usize, n: usize) -> Self {
        Self::new(b, k, n, n, 1)
    }

    /// The right operand B[k, n], stored as its transpose, [n, k] row after row.
    pub fn right_transposed(b: &'a [T], k: usize, n: usize) -> Self {
        Self::new(b, k, n, 1, k)
    }

    /// Where element (k, lane) lies; within the data for every element there is.
    pub(super) fn at(&self, k: usize, lane: usize) -> *const T {
        self.data.wrapping_add(k * self.depth_stride + lane * self.lane_stride)
    }

    /// How far the elements of neighbouring k lie apart.
    pub(super) fn depth_stride(&self) -> usize {
        self.depth_stride
    }

    /// How far the elements of neighbouring lanes lie apart.
    pub(super) fn lane_stride(&self) -> usize {
        self.lane_stride
    }
}

impl<T: Element + Copy + Sync> PanelSource<T> for Strided<'_, T> {
    fn depth(&self) -> usize {
        self.depth
    }

    fn lanes(&self) -> usize {
        self.lanes
    }

    fn pack(&self, isa: Isa, depth: Range<usize>, lanes: Range<usize>, width: usize, out: &mut [T]) {
        assert!(depth.end <= self.depth && lanes.end <= self.lanes && lanes.len() <= width);
        assert!(width.is_multiple_of(LANES) && out.len() == depth.len() * width);
        if depth.is_empty() || lanes.is_empty() {
            return;
        }
        let pack = PackStrided { source: self, depth, lanes, width, out };
        // SAFETY: the ranges are within the matrix and the panel, as asserted.
        unsafe { T::enter(isa, pack) }
    }

    fn in_place(&self) -> Option<Strided<'_, T>> {
        Some(*self)
    }

    #[allow(private_interfaces)]
    fn streamed(&self) -> Option<Streamed<'_>> {
        let plain = self.lane_stride == 1 && self.depth_stride == self.lanes && self.depth > 0;
        if !plain || size_of::<T>() != size_of::<f32>() || self.depth * self.lanes < STREAMED {
            return None;
        }
        // SAFETY: all elements were asserted to be within what was borrowed.
        let data = unsafe { std::slice::from_raw_parts(self.data, self.depth * self.lanes) };
        Streamed::plain(bytemuck::cast_slice(data), self.depth, self.lanes)
    }

    fn few_rows(&self) -> Option<&dyn FewRows<T>> {
        (self.depth_stride == 1 && self.lane_stride != 1).then_some(self)
    }
}

impl<T: Element> FewRows<T> for Strided<'_, T> {
    fn extents(&self) -> (usize, usize) {
        (self.depth, self.lanes)
    }

    #[allow(private_interfaces)]
    unsafe fn run(&self, isa: Isa, panel: RowPanel<T, ()>, k: usize, column: usize) {
        // SAFETY: the caller's promise.
        unsafe { Transposed { panel, b: self.at(k, column), lane_stride: self.lane_stride }.run(isa) }
    }
}

struct PackStrided<'a, T> {
    source: &'a Strided<'a, T>,
    depth: Range<usize>,
    lanes: Range<usize>,
    width: usize,
    out: &'a mut [T],
}

impl<T: Copy> Kernel<T> for PackStrided<'_, T> {
    #[inline(always)]
    unsafe fn run<W: Wide<T>>(self) {
        let Self { source, depth, lanes, width, out } = self;
        let (count, start) = (lanes.len(), lanes.start);
        let out = out.as_mut_ptr();
        // SAFETY: reads elements of the given ranges only, which lie within the
        // matrix; writes within depth x width.
        unsafe {
            if source.lane_stride == 1 {
                for (row, k) in depth.clone().enumerate() {
                    let to = out.add(row * width);
                    for group in (0..count).step_by(LANES) {
                        W::prefetch(source.at(k + AHEAD, start + group));
                        // Beyond the panel but within the row there is no harm.
                        if start + group + LANES <= source.lanes {
                            W::load(source.at(k, start + group)).store(to.add(group));
                        } else {
                            for lane in group..count {
                                *to.add(lane) = *source.at(k, start + lane);
                            }
                        }
                    }
                }
            } else {
                for group in (0..count).step_by(LANES) {
                    let (first, present) = (start + group, LANES.min(count - group));
                    transpose::<T, W>(source, depth.clone(), first, present, width, out.add(group));
                }
            }
        }
    }
}

/// Packs up to 16 lanes that are not contiguous, by transposing blocks where
/// they are contiguous along k.
///
/// # Safety
/// As [`PackStrided`].
#[inline(always)]
unsafe fn transpose<T: Copy, W: Wide<T>>(
    source: &Strided<'_, T>,
    depth: Range<usize>,
    first: usize,
    present: usize,
    width: usize,
    out: *mut T,
) {
    let whole = if source.depth_stride == 1 { depth.len() / LANES * LANES } else { 0 };
    // SAFETY: the caller's promise; whole blocks lie within the range of k.
    unsafe {
        for row in (0..whole).step_by(LANES) {
            let mut block = [W::zero(); LANES];
            for (lane, wide) in block.iter_mut().enumerate().take(present) {
                let from = source.at(depth.start + row, first + lane);
                W::prefetch(from.wrapping_add(AHEAD_BLOCK));
                *wide = W::load(from);
            }
            W::transpose(&mut block);
            for (i, wide) in block.into_iter().enumerate() {
                wide.store(out.add((row + i) * width));
            }
        }
        for row in whole..depth.len() {
            for lane in 0..present {
                *out.add(row * width + lane) = *source.at(depth.start + row, first + lane);
            }
        }
    }
}
