//! Where a product's operands come from.
//!
//! The kernels want an operand as panels: a range of k, and for each k some
//! lanes side by side (columns of the right operand, rows of the left one). A
//! [`PanelSource`] packs such panels from whatever it holds: a matrix with any
//! strides, packed low-bit weights that it decodes, an image that it unfolds.

use super::few_rows::{FewRows, Form};
use super::stream::Streamed;
use super::tile::Left;
use crate::simd::{Isa, Kernel, LANES, Real, Vector, prefetch};
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

/// The most elements that are read in place by a few rows: so many stay in the second-level cache, where tiles of many
/// rows are faster. Of more, streaming fetches what comes next.
const IN_CACHE: usize = 1 << 18;
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

    /// A left operand's rows from `row` on, from `k` on.
    pub(super) fn left_at(&self, k: usize, row: usize) -> Left<T> {
        Left { a: self.at(k, row), row: self.lane_stride, depth: self.depth_stride }
    }

    /// How far the elements of neighbouring k lie apart.
    pub(super) fn depth_stride(&self) -> usize {
        self.depth_stride
    }

    /// Packs lanes that are contiguous into panels of `width` lanes, one after the other, of which `beside` are written
    /// at a time: rows are then read at a stretch.
    pub(super) fn pack_panels(
        &self,
        isa: Isa,
        depth: Range<usize>,
        lanes: Range<usize>,
        (width, beside): (usize, usize),
        out: &mut [T],
    ) where
        T: Real,
    {
        assert!(depth.end <= self.depth && lanes.end <= self.lanes && self.lane_stride == 1);
        assert!(
            width.is_multiple_of(LANES) && lanes.len().next_multiple_of(width) * depth.len() <= out.len()
        );
        T::dispatch(isa, PackStrided { source: self, depth, lanes, width, beside, out });
    }

    /// How far the elements of neighbouring lanes lie apart.
    pub(super) fn lane_stride(&self) -> usize {
        self.lane_stride
    }
}

impl<T: Real> PanelSource<T> for Strided<'_, T> {
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
        let pack = PackStrided { source: self, depth, lanes, width, beside: 1, out };
        T::dispatch(isa, pack);
    }

    fn in_place(&self) -> Option<Strided<'_, T>> {
        Some(*self)
    }

    #[allow(private_interfaces)]
    fn streamed(&self) -> Option<Streamed<'_>> {
        let plain = self.lane_stride == 1 && self.depth_stride == self.lanes && self.depth > 0;
        if !plain || size_of::<T>() != size_of::<f32>() || self.depth * self.lanes <= IN_CACHE {
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

impl<T: Real> Strided<'_, T> {
    /// Sixteen lanes, or the `present`, of sixteen k, where lanes are contiguous along k. Written in place: a block
    /// that is returned is copied.
    ///
    /// # Safety
    /// They are within the matrix.
    #[inline(always)]
    unsafe fn transposed<V: Vector<Element = T>>(
        &self,
        k: usize,
        lane: usize,
        present: usize,
        block: &mut [V; LANES],
    ) {
        for (i, vector) in block.iter_mut().enumerate().take(present) {
            let from = self.at(k, lane + i);
            prefetch(from.wrapping_add(AHEAD_BLOCK));
            // SAFETY: the caller's promise.
            *vector = unsafe { V::load_unchecked(from) };
        }
        V::transpose(block);
    }

    /// Lanes at one k that are contiguous. What follows the last of them within its vector is arbitrary.
    ///
    /// # Safety
    /// They are within the matrix, and so many vectors can be written.
    #[inline(always)]
    unsafe fn pack_row<V: Vector<Element = T>>(&self, k: usize, lanes: Range<usize>, to: *mut T) {
        for lane in lanes.clone().step_by(LANES) {
            prefetch(self.at(k + AHEAD, lane));
            // SAFETY: the caller's promise. Beyond the panel but within the row there is no harm.
            unsafe {
                let to = to.add(lane - lanes.start);
                if lane + LANES <= self.lanes {
                    V::load_unchecked(self.at(k, lane)).store_unchecked(to);
                } else {
                    self.gather(k, lane..lanes.end, to);
                }
            }
        }
    }

    /// Lanes at one k, wherever they lie, to where they are side by side.
    ///
    /// # Safety
    /// They are within the matrix, and so many elements can be written.
    #[inline(always)]
    unsafe fn gather(&self, k: usize, lanes: Range<usize>, to: *mut T) {
        for (i, lane) in lanes.enumerate() {
            // SAFETY: the caller's promise.
            unsafe { *to.add(i) = *self.at(k, lane) };
        }
    }
}

impl<T: Real> Form<T> for Strided<'_, T> {
    fn extents(&self) -> (usize, usize) {
        (self.depth, self.lanes)
    }

    #[inline(always)]
    unsafe fn vector<V: Vector<Element = T>>(&self, k: usize, column: usize, count: usize) -> V {
        let mut lanes = [T::ZERO; LANES];
        // SAFETY: the caller's promise.
        unsafe { self.gather(k, column..column + count, lanes.as_mut_ptr()) };
        V::load(&lanes)
    }

    #[inline(always)]
    unsafe fn add<V: Vector<Element = T>, const R: usize>(
        &self,
        (k, depth): (usize, usize),
        (column, count): (usize, usize),
        left: Left<T>,
        sums: &mut [V; R],
    ) {
        let whole = depth / LANES * LANES;
        // SAFETY: the caller's promise; blocks stay within `depth`.
        unsafe {
            for row in (0..whole).step_by(LANES) {
                let mut block = [V::splat(T::ZERO); LANES];
                self.transposed(k + row, column, count, &mut block);
                for (i, right) in block.into_iter().enumerate() {
                    left.add(row + i, right, sums);
                }
            }
            for row in whole..depth {
                left.add(row, self.vector(k + row, column, count), sums);
            }
        }
    }
}

struct PackStrided<'a, T> {
    source: &'a Strided<'a, T>,
    depth: Range<usize>,
    lanes: Range<usize>,
    width: usize,
    /// Panels that are written at a time.
    beside: usize,
    out: &'a mut [T],
}

impl<T: Real> Kernel<T> for PackStrided<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        // SAFETY: the ranges lie within the matrix and the panels, as `pack` and `pack_panels` assert, the only
        // makers; the latter also that lanes are contiguous.
        unsafe { if self.source.lane_stride == 1 { self.rows::<V>() } else { self.blocks::<V>() } }
    }
}

impl<T: Real> PackStrided<'_, T> {
    /// Packs lanes that are contiguous, into as many panels as they fill.
    ///
    /// # Safety
    /// The ranges lie within the matrix and the panels.
    #[inline(always)]
    unsafe fn rows<V: Vector<Element = T>>(self) {
        let Self { source, depth, lanes, width, beside, out } = self;
        let panel = depth.len() * width;
        let mut panels = out.as_mut_ptr();
        for first in lanes.clone().step_by(width * beside) {
            let last = lanes.end.min(first + width * beside);
            for (row, k) in depth.clone().enumerate() {
                let mut to = panels.wrapping_add(row * width);
                for start in (first..last).step_by(width) {
                    // SAFETY: the caller's promise.
                    unsafe { source.pack_row::<V>(k, start..last.min(start + width), to) };
                    to = to.wrapping_add(panel);
                }
            }
            panels = panels.wrapping_add(beside * panel);
        }
    }

    /// Packs lanes that are not, into one panel, 16 at a time, by transposing blocks where they are contiguous along k.
    ///
    /// # Safety
    /// As [`rows`](Self::rows), and there are no more lanes than a panel has.
    #[inline(always)]
    unsafe fn blocks<V: Vector<Element = T>>(self) {
        let Self { source, depth, lanes, width, out, .. } = self;
        let whole = if source.depth_stride == 1 { depth.len() / LANES * LANES } else { 0 };
        for lane in lanes.clone().step_by(LANES) {
            let some = lane..lanes.end.min(lane + LANES);
            // SAFETY: the caller's promise; whole blocks lie within the range of k.
            unsafe {
                let to = out.as_mut_ptr().add(lane - lanes.start);
                for row in (0..whole).step_by(LANES) {
                    let mut block = [V::splat(T::ZERO); LANES];
                    source.transposed(depth.start + row, lane, some.len(), &mut block);
                    for (i, vector) in block.into_iter().enumerate() {
                        vector.store_unchecked(to.add((row + i) * width));
                    }
                }
                for row in whole..depth.len() {
                    source.gather(depth.start + row, some.clone(), to.add(row * width));
                }
            }
        }
    }
}
