//! A product of quantised rows with a weight in blocks, as its tasks see it.

use super::block_rows::BlockRows;
use super::route::Route;
use crate::Buffer;
use crate::dtype::{BlockCoding, DType, Packing};
use crate::matrix::{Epilogue, Output, Start};
use crate::simd::{Decode, LANES};
use std::cell::Cell;
use std::ops::Range;

/// The fewest bytes ahead of what is read that are fetched: what is under way while the memory answers.
pub(super) const AHEAD: usize = 64 << 10;

thread_local! {
    /// Where this thread keeps weights of few columns, with others before them.
    static WIDENED: Cell<Buffer> = Cell::new(Buffer::default());
}

/// A weight in blocks that rows are multiplied with.
#[derive(Clone, Copy)]
pub(super) struct BlockRight<'a> {
    pub packing: &'a Packing,
    pub bytes: &'a [u8],
}

/// Calls `then` with a weight's bytes and how many columns stand before its own: those of fewer than sixteen columns
/// are read with others before them.
pub(super) fn with_sixteen<R>(weight: BlockRight<'_>, n: usize, then: impl FnOnce(&[u8], usize) -> R) -> R {
    let missing = LANES.saturating_sub(n);
    if missing == 0 {
        return then(weight.bytes, 0);
    }
    let mut memory = WIDENED.take();
    let own = weight.packing.bytes();
    let before = missing * own / n;
    if memory.len_bytes() < before + own {
        memory = Buffer::working::<u8>(before + own);
    }
    let widened = &mut memory.bytes_mut()[..before + own];
    widened[..before].fill(0);
    widened[before..].copy_from_slice(&weight.bytes[..own]);
    let result = then(widened, missing);
    WIDENED.set(memory);
    result
}

/// A product, as all its tasks see it.
pub(super) struct Piece<'a> {
    pub route: Route,
    pub rows: &'a BlockRows<'a>,
    pub dtype: DType,
    /// The weight's blocks, column after column, ...
    pub bytes: &'a [u8],
    /// ... with so many columns before them that are no part of it.
    pub missing: usize,
    pub start: Start,
    pub epilogue: &'a dyn Epilogue<f32>,
    pub c: &'a Output<'a, f32>,
}

impl Piece<'_> {
    /// Where the blocks of the sixteen columns that end before `end` begin, `stride` bytes a column.
    #[inline(always)]
    pub fn sixteen(&self, end: usize, stride: usize) -> *const u8 {
        self.bytes.as_ptr().wrapping_add((end + self.missing - LANES) * stride)
    }

    /// That columns are there.
    pub fn check<B: BlockCoding>(&self, columns: &Range<usize>) {
        let blocks = self.rows.blocks();
        assert!(self.bytes.len() >= (columns.end + self.missing) * blocks * B::BYTES);
        assert!(columns.end <= self.c.columns && self.rows.len() == self.c.rows);
        assert!(columns.end + self.missing >= LANES);
    }

    /// Writes the results of the last `present` of the sixteen columns that end before `end`.
    ///
    /// # Safety
    /// They are in C, and this task's own.
    #[inline(always)]
    pub unsafe fn write<V: Decode>(&self, value: V, row: usize, end: usize, present: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let out = self.c.data.add(row * self.c.row_stride + end - present);
            let out = std::slice::from_raw_parts_mut(out, present);
            if present == LANES && self.start == Start::Zero {
                value.store(out);
                return;
            }
            let values = value.to_array();
            for (out, value) in out.iter_mut().zip(&values[LANES - present..]) {
                *out = if self.start == Start::Zero { *value } else { *out + *value };
            }
        }
    }

    /// Applies the epilogue to finished columns of some rows, which are the calling task's.
    pub fn finish(&self, rows: Range<usize>, columns: Range<usize>) {
        if self.epilogue.is_none() {
            return;
        }
        for row in rows {
            // SAFETY: part of a row of C, and this task's own.
            let out = unsafe {
                let first = self.c.data.add(row * self.c.row_stride + columns.start);
                std::slice::from_raw_parts_mut(first, columns.len())
            };
            self.epilogue.apply(self.route.isa(), row, columns.start, out);
        }
    }
}
