//! Rows of activations as signed bytes, block by block, for products with weights that lie along the inputs.

use super::rows::{Form, Quantize};
use crate::Buffer;
use crate::dtype::BLOCK;
use crate::simd::{Isa, Kernel, Real, Vector};
use std::ops::Range;

/// Rows quantised to int8: the codes and scales of [`QuantizedRows`](super::QuantizedRows), with what products with
/// whole blocks want beside them.
pub(super) struct PlainRows<'a> {
    rows: usize,
    blocks: usize,
    /// For each row its scale in a line of its own, the sum of each block's codes, and the codes, zeros after the
    /// last.
    memory: &'a [u8],
    stride: usize,
    codes: usize,
}

/// Bytes before a row's sums.
const HEAD: usize = 64;

impl<'a> PlainRows<'a> {
    /// Quantises `rows` rows of `depth` elements on the calling thread into memory that grows as needed.
    ///
    /// # Panics
    /// If there are not so many elements.
    pub fn new(isa: Isa, a: &[f32], rows: usize, depth: usize, memory: &'a mut Buffer) -> Self {
        assert_eq!(a.len(), rows * depth, "A does not hold {rows} x {depth} elements");
        let blocks = depth.div_ceil(BLOCK);
        let codes = HEAD + (blocks * size_of::<i32>()).next_multiple_of(64);
        let stride = (codes + blocks * BLOCK).next_multiple_of(64);
        if memory.len_bytes() < rows * stride {
            *memory = Buffer::working::<u8>(rows * stride);
        }
        let memory = &mut memory.bytes_mut()[..rows * stride];
        for (memory, a) in memory.chunks_exact_mut(stride).zip(a.chunks_exact(depth.max(1))) {
            let (head, bytes) = memory.split_at_mut(codes);
            let (scale, totals) = head.split_at_mut(HEAD);
            let bytes = &mut bytes[..blocks * BLOCK];
            bytes[depth..].fill(0);
            let found = f32::dispatch(isa, Quantize { a, codes: &mut bytes[..depth], form: Form::Signed });
            scale[..4].copy_from_slice(&found.to_ne_bytes());
            f32::dispatch(isa, Total { codes: bytes, totals: &mut totals[..blocks * size_of::<i32>()] });
        }
        Self { rows, blocks, memory, stride, codes }
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Blocks of a row.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// A row's scale.
    #[inline(always)]
    pub fn scale(&self, row: usize) -> f32 {
        // SAFETY: there are so many bytes for each row.
        unsafe { self.at(row).cast::<f32>().read_unaligned() }
    }

    #[inline(always)]
    fn at(&self, row: usize) -> *const u8 {
        self.memory.as_ptr().wrapping_add(row * self.stride)
    }

    /// The sum of a row's codes over a range.
    pub fn total(&self, row: usize, depth: Range<usize>) -> i32 {
        let first = row * self.stride + self.codes;
        let codes = &self.memory[first + depth.start..first + depth.end];
        codes.iter().map(|code| i32::from(*code as i8)).sum()
    }

    /// A row's codes from `k` on.
    ///
    /// # Safety
    /// There are such a row and such a code.
    #[inline(always)]
    pub unsafe fn codes(&self, row: usize, k: usize) -> *const i8 {
        self.at(row).wrapping_add(self.codes + k).cast()
    }

    /// A block's codes, and their sum.
    ///
    /// # Safety
    /// There are such a row and such a block.
    #[inline(always)]
    pub unsafe fn block(&self, row: usize, block: usize) -> (*const i8, i32) {
        // SAFETY: the caller's promise.
        unsafe {
            let total = self.at(row).add(HEAD + block * size_of::<i32>()).cast::<i32>().read_unaligned();
            (self.at(row).add(self.codes + block * BLOCK).cast(), total)
        }
    }
}

/// Sums the codes of each block.
struct Total<'a> {
    codes: &'a [u8],
    totals: &'a mut [u8],
}

impl Kernel<f32> for Total<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        for (total, block) in
            self.totals.chunks_exact_mut(size_of::<i32>()).zip(self.codes.chunks_exact(BLOCK))
        {
            let mut sum = 0i32;
            for code in block {
                sum += i32::from(*code as i8);
            }
            total.copy_from_slice(&sum.to_ne_bytes());
        }
    }
}
